"""The door to the settings of this machine's operating system, and reverting them after a crash."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from pgtop_tune.errors import UsageProblem
from pgtop_tune.host.block_devices import ROOT, carriers
from pgtop_tune.host.block_queue import Disk, disks
from pgtop_tune.host.machine_facts import MachineFacts, machine_facts
from pgtop_tune.host.paste import commands
from pgtop_tune.host.proc_files import read_once
from pgtop_tune.host.setting_change import Intent, make, take_back
from pgtop_tune.host.system_settings import names, settings
from pgtop_tune.journal import Journal, JournalText, ServerName, path_for, read
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.system_setting import HostChange, SystemSetting

_MACHINE_ID: Final = "etc/machine-id"

Choice = Callable[[Sequence[HostChange]], Sequence[HostChange]]
"""From the changes in force, oldest first, those to be taken back."""

_T = TypeVar("_T")


def machine(root: Path = ROOT) -> ServerName:
    """Whose journal it is: this machine's, whatever servers run on it."""
    hostname = socket.gethostname()
    try:
        number = read_once(root / _MACHINE_ID).decode("ascii", "replace").strip()
    except OSError:
        number = ""
    # A machine is given another name more often than another id.
    return ServerName(f"host-{number or hostname}", f"operating system of {hostname}")


class HostControl:
    """Changes of the operating system with a journal. The journal is open only while something is changed."""

    def __init__(
        self, data_directories: Sequence[str] = (), *, root: Path = ROOT, directory: Path | None = None
    ) -> None:
        """Args:
        data_directories: Where the server keeps data and WAL: whose disks' queues are looked at.
        root: Where /proc, /sys, /etc, /run, /usr and /lib are found.
        directory: Of the journals; paths.journal_dir() by default.
        """
        self._data_directories = tuple(data_directories)
        self._root = root
        self._directory = directory
        self._machine = machine(root)
        self._one_at_a_time = asyncio.Lock()

    async def disks(self) -> tuple[Disk, ...]:
        """The disks under the server's directories that have a queue."""
        return await asyncio.to_thread(self._disks)

    async def settings(self) -> tuple[SystemSetting, ...]:
        """What there is to set, as it is now and as it is after a reboot."""
        return await asyncio.to_thread(lambda: settings(self._root, self._names_of_disks()))

    async def facts(self) -> MachineFacts:
        """What advice on these settings stands on."""
        return await asyncio.to_thread(machine_facts, self._root)

    def commands(self, name: str, value: str, *, survive: bool = False) -> tuple[str, ...]:
        """What to paste into a shell where this process may not change it itself."""
        return commands(name, value, survive=survive)

    async def apply(self, name: str, value: str, *, survive: bool = False, intent: Intent | None = None) -> HostChange:
        """See `setting_change.make`; with `survive` the value is put into our file of sysctl.d as well.

        Raises:
            UsageProblem: No such setting here, or a value it does not take.
            HostProblem: We may not (the hint has the command), or the kernel refuses; nothing changed.
            JournalProblem: The journal could not be written; nothing was changed.
        """

        def change() -> HostChange:
            if name not in names(self._root, self._names_of_disks()):
                raise UsageProblem(f"{name!r} is no setting of this machine that is changed here")
            with Journal(self._machine, self._directory) as journal:
                return make(
                    journal, self._root, name, value, survive=survive, intent=intent or Intent(by=whoever_runs_this())
                )

        return await self._alone(change)

    async def keep(self, set_id: str) -> tuple[HostChange, ...]:
        """Ends the trial of a set: its changes stay until somebody reverts them."""
        return await self._alone(lambda: _kept(self._machine, self._directory, set_id))

    async def undo(self) -> HostChange | None:
        """Reverts the last change that is still in force; None when there is none."""
        last = await self._alone(lambda: revert(lambda in_force: in_force[-1:], self._root, self._directory))
        return last[0] if last else None

    async def undo_all(self) -> tuple[HostChange, ...]:
        """Reverts all changes still in force, last first."""
        return await self._alone(lambda: revert(everything, self._root, self._directory))

    async def revert_set(self, set_id: str) -> tuple[HostChange, ...]:
        """Reverts the changes of a set that are still in force, last first."""

        def of_set(in_force: Sequence[HostChange]) -> Sequence[HostChange]:
            return [change for change in in_force if change.set_id == set_id]

        return await self._alone(lambda: revert(of_set, self._root, self._directory))

    async def take_back_overdue(self, now_ms: int) -> tuple[HostChange, ...]:
        """Reverts changes on trial that nobody kept in time, also those of a process that is gone.

        Args:
            now_ms: Milliseconds since the epoch.
        """

        def overdue(in_force: Sequence[HostChange]) -> Sequence[HostChange]:
            return [change for change in in_force if change.until_ms is not None and change.until_ms <= now_ms]

        return await self._alone(lambda: revert(overdue, self._root, self._directory))

    async def in_force(self) -> tuple[HostChange, ...]:
        """Changes that the journal holds as made and not reverted, oldest first."""
        return await asyncio.to_thread(lambda: _text(self._machine, self._directory).host_in_force)

    def _disks(self) -> tuple[Disk, ...]:
        found = [carriers(directory, self._root) for directory in self._data_directories]
        return disks([name for each in found if not isinstance(each, Unavailable) for name in each], self._root)

    def _names_of_disks(self) -> tuple[str, ...]:
        return tuple(disk.name for disk in self._disks())

    async def _alone(self, act: Callable[[], _T]) -> _T:
        """Runs a blocking act in a thread, one at a time; the kernel may take seconds to find huge pages."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(act)


def everything(in_force: Sequence[HostChange]) -> Sequence[HostChange]:
    """All of them."""
    return in_force


def revert(choice: Choice = everything, root: Path = ROOT, directory: Path | None = None) -> tuple[HostChange, ...]:
    """Takes back changes that this machine's journal holds as in force, last first. Blocking.

    Args:
        choice: Which of them.
        root: Where /proc, /sys and /etc are found.
        directory: Of the journals; paths.journal_dir() by default.

    Raises:
        HostProblem: We may not, or the kernel refuses; those before are reverted.
        JournalProblem: The journal cannot be read or written, or another process is writing it.
    """
    name = machine(root)
    if not _text(name, directory).host_in_force:
        return ()
    with Journal(name, directory) as journal:
        chosen = [change.id for change in choice(journal.text().host_in_force)]
        return tuple(take_back(journal, root, _current(journal, identity)) for identity in reversed(chosen))


def whoever_runs_this() -> str:
    """ "user@host, pid", for the journal."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}, {os.getpid()}"


def _kept(name: ServerName, directory: Path | None, set_id: str) -> tuple[HostChange, ...]:
    with Journal(name, directory) as journal:
        of_set = [change for change in journal.text().host_in_force if change.set_id == set_id]
        kept = tuple(replace(change, kept=True, until_ms=None) for change in of_set)
        for change in kept:
            journal.write(change)
        return kept


def _current(journal: Journal, identity: str) -> HostChange:
    """A change as the journal has it now: taking back another may have rewritten what was before it."""
    return next(change for change in journal.text().host_changes if change.id == identity)


def _text(name: ServerName, directory: Path | None) -> JournalText:
    return read(path_for(name.key, directory))
