"""The machine's half of `set`: where the server is, what may be changed, and what to paste where it may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.machine.revert_guard import guard_machine_set
from pgtop_tune.changes.model.change import HostChange, WantedSetting
from pgtop_tune.changes.server.revert_guard import guard_set
from pgtop_tune.cli.output import say
from pgtop_tune.errors import HostProblem
from pgtop_tune.host.block_devices import server_directories
from pgtop_tune.host.block_queue import QUEUE_SETTINGS
from pgtop_tune.host.locality import local_postmaster, working_directory
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.whereabouts import whereabouts
from pgtop_tune.process.revert_watchdog import RevertWatchdog

_PASTE: Final = "paste the commands with sudo above into a shell, or run this as root"


async def machine_of(
    conninfo: ConnInfo, names: Sequence[str], *, beside_server: bool, with_restart: bool = False
) -> HostControl:
    """The door to this machine's settings; the server is asked where that matters.

    Args:
        conninfo: The server.
        names: Settings it is about.
        beside_server: Whether parameters of the server are changed in the same set.
        with_restart: Whether what takes it back after our end restarts the server.

    Raises:
        ConnectionProblem: The server is asked, and is not there.
    """
    surely_here = all(endpoint.is_socket for endpoint in conninfo.endpoints)
    of_disks = any(name.rpartition("/")[2] in QUEUE_SETTINGS for name in names)
    asked = bool(names) and (beside_server or of_disks or not surely_here)
    directories = await _directories(conninfo) if asked else ()

    def guard(set_id: str, until_ms: int | None, directory: Path | None) -> RevertWatchdog:
        if beside_server:
            return guard_set(conninfo, set_id, until_ms, directory, with_restart=with_restart)
        return guard_machine_set(set_id, until_ms, directory)

    return HostControl(lambda: directories, guard=guard)


async def _directories(conninfo: ConnInfo) -> tuple[str, ...] | Unavailable:
    """Where the server keeps data and WAL; why not, where its backend is no process of this machine."""
    async with whereabouts(conninfo) as found:
        postmaster = local_postmaster(found.backend_pid, found.backend_start_ms)
    if isinstance(postmaster, Unavailable):
        return postmaster
    directory = found.data_directory or working_directory(postmaster)
    return tuple(server_directories(directory).values()) if directory else ()


def show_commands(machine: HostControl, settings: Sequence[WantedSetting], *, survive: bool) -> None:
    """What a shell would make of the set, one command a line."""
    for each in settings:
        for command in machine.commands(each.name, each.value, survive=survive):
            say(command)


async def live_values(machine: HostControl, settings: Sequence[WantedSetting]) -> Mapping[str, str]:
    """Values of this machine now, by name.

    Raises:
        HostProblem: The server runs on another machine; what to paste there is shown.
    """
    found = await machine.settings()
    if isinstance(found, Unavailable):
        show_commands(machine, settings, survive=False)
        raise HostProblem(f"nothing was changed: {found.detail}", "paste the commands above into a shell there")
    return {each.name: each.live for each in found if not isinstance(each.live, Unavailable)}


async def check_permitted(machine: HostControl, settings: Sequence[WantedSetting]) -> None:
    """Makes sure that this process may change them.

    Raises:
        HostProblem: It may not, and nothing was changed.
    """
    wanted = {each.name for each in settings}
    found = await machine.settings() if wanted else ()
    here = () if isinstance(found, Unavailable) else found
    closed = [each for each in here if each.name in wanted and not each.writable]
    if closed:
        raise HostProblem(f"{closed[0].path} cannot be written by this process: nothing was changed", _PASTE)


def say_setting(change: HostChange, before: str) -> None:
    """One change in a line: what it was, what the kernel has now."""
    note = f"  ({change.message})" if change.message else ""
    say(f"{change.name}: {before} → {change.shown_after}{note}")
