"""The machine's half of `set` and `reset`: which words are about it, what may be changed, what to paste otherwise."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pgtop_tune.advice.knobs.system import BY_NAME, knob_of
from pgtop_tune.base.errors import HostProblem, UsageProblem
from pgtop_tune.changes.confirm.orphans import leave_watchdogs
from pgtop_tune.changes.machine.control import HostControl, revert
from pgtop_tune.changes.model.change import HostChange, Terms, WantedSetting
from pgtop_tune.changes.selection import named
from pgtop_tune.changes.watchdogs import guard_machine_set, guard_set
from pgtop_tune.cli.output import say, tell
from pgtop_tune.host.block_devices import QUEUE_SETTINGS, server_directories
from pgtop_tune.host.locality import local_postmaster, working_directory
from pgtop_tune.host.sysctl_files import starts_with
from pgtop_tune.host.system_settings import ALONG
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import SystemSetting
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.straight_way import whereabouts
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


# Which words of `set` and `reset` are about the machine, and which about the server. Pure.


def is_machine_name(name: str) -> bool:
    """Whether a name is one of the operating system: in its catalogue, and no parameter without a dot."""
    return ("." in name or "/" in name) and knob_of(name) is not None


def split_names(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of parameters, and those of settings of the machine."""
    return (
        tuple(name for name in names if not is_machine_name(name)),
        tuple(name for name in names if is_machine_name(name)),
    )


def split_words(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[WantedSetting, ...]]:
    """NAME=VALUE words of the server, and what is wanted of the machine."""
    parts = [(word, *word.partition("=")) for word in words]
    of_machine = [(word, name.strip(), value.strip()) for word, name, equals, value in parts if equals]
    settings = {word: WantedSetting(name, value) for word, name, value in of_machine if is_machine_name(name)}
    rest = tuple(word for word in words if word not in settings)
    return rest, tuple(settings[word] for word in words if word in settings)


def check_machine_options(settings: Sequence[WantedSetting], *, persist: bool, pending: bool, of_load: bool) -> None:
    """Options of `set` that have a meaning for settings of the machine, or have none.

    Raises:
        UsageProblem: They contradict each other.
    """
    if persist and not settings:
        raise UsageProblem("--persist is for settings of the machine", "ALTER SYSTEM survives a restart by itself")
    if persist and pending:
        raise UsageProblem("--persist and --for contradict each other", "pass one of them")
    if settings and of_load:
        raise UsageProblem(f"{settings[0].name} is one value for the whole machine", "leave --scope load out")


def nearest_settings(names: Sequence[str]) -> tuple[str, ...]:
    """Settings of the machine that may be meant by names that the server does not know."""
    known = [each for each in BY_NAME if "." in each or "/" in each]
    return tuple(near for name in names for near in difflib.get_close_matches(name, known, 2, 0.75))


# `pgtop-tune reset` for settings of the operating system: back to what the machine starts with.

_OTHER_HALF: Final = "0"


async def reset_settings(conninfo: ConnInfo, names: Sequence[str], reason: str, *, dry_run: bool) -> None:
    """Takes back what the journal holds of them, with our lines in sysctl.d, and sets what is still different.

    Raises:
        UsageProblem: What the machine starts with is not known, or follows from another setting.
        HostProblem: We may not, or the server runs on another machine.
        JournalProblem: The journal could not be written.
    """
    machine = await machine_of(conninfo, names, beside_server=False)
    wanted = await _wanted(machine, names)
    await machine.check(wanted)
    before = await live_values(machine, wanted)
    show_commands(machine, [each for each in wanted if before[each.name] != each.value], survive=False)
    if dry_run:
        return
    await check_permitted(machine, wanted)
    await leave_watchdogs(None, machine, None, tell)
    taken_back = await asyncio.to_thread(revert, named(names))
    for change in taken_back:
        say_setting(change, change.value)
    live = await live_values(machine, wanted)
    different = [each for each in wanted if live[each.name] != each.value]
    made = await machine.apply_set(different, Terms(reason=reason)) if different else ()
    for change in made:
        say_setting(change, change.value_before)
    for name in set(names) - {change.name for change in (*taken_back, *made)}:
        say(f"{name} is {live[name]}, the boot value")
    for setting in await _settings(machine, names):
        after = setting.after_reboot
        if after.value is not None and after.value != setting.live:
            last = after.assignments[-1]
            tell(f"after a reboot {last.file} line {last.line} wins: {last.value}")


async def _wanted(machine: HostControl, names: Sequence[str]) -> list[WantedSetting]:
    """What the machine starts with."""
    wanted = []
    for setting in await _settings(machine, names):
        value = starts_with(setting)
        pair = [other for other in ALONG.get(setting.name, ()) if setting.name in ALONG.get(other, ())]
        if value == _OTHER_HALF and pair and setting.live != value:
            raise UsageProblem(f"{setting.name} is 0 at boot because {pair[0]} is set", f"reset {pair[0]} instead")
        if value is None:
            raise UsageProblem(
                f"the boot value of {setting.name} is unknown: no file sets it, and it depends on the kernel",
                f"now {setting.live}; `pgtop-tune revert --machine` reverts the changes made here",
            )
        wanted.append(WantedSetting(setting.name, value))
    return wanted


async def _settings(machine: HostControl, names: Sequence[str]) -> list[SystemSetting]:
    """Raises HostProblem where the server runs elsewhere, UsageProblem for a name this machine does not have."""
    found = await machine.settings()
    if isinstance(found, Unavailable):
        raise HostProblem(f"nothing was changed: {found.detail}", "reset it on the server's machine")
    by_name = {each.name: each for each in found}
    for name in names:
        if name not in by_name:
            raise UsageProblem(f"{name!r} is not a setting of this machine that pgtop-tune changes")
    return [by_name[name] for name in names]
