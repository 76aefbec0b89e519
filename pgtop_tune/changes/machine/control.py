"""Changes settings of this machine's operating system, and reverts them after a crash."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from msgspec.structs import replace

from pgtop_tune.base.errors import HostProblem, JournalProblem, PgtopError, UsageProblem
from pgtop_tune.changes.journal import (
    Journal,
    JournalCopy,
    JournalText,
    ServerName,
    lines_of,
    path_for,
    read,
    read_all,
)
from pgtop_tune.changes.machine.announcements import Announcements, announcements
from pgtop_tune.changes.machine.one_change import Intent, check_request, clear_way, commands, make, take_back
from pgtop_tune.changes.model.change import HostChange, ParameterChange, Terms, WantedSetting
from pgtop_tune.changes.model.pending_set import (
    NO_DEADLINE,
    NOT_CONFIRMED,
    PendingSet,
    SetOwner,
    deadline_in,
    now_ms,
    pending_sets,
)
from pgtop_tune.changes.selection import everything, of_set, of_sets
from pgtop_tune.changes.watchdogs import HeldSets, MachineStart, Start, guard_machine_set
from pgtop_tune.host.block_devices import ROOT, carriers, disks
from pgtop_tune.host.kernel_text import read_once
from pgtop_tune.host.machine_setup import MachineFacts, machine_facts
from pgtop_tune.host.system_settings import ALONG, names, path_of, settings
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import Disk, SystemSetting
from pgtop_tune.process.process_key import own_key, own_name

# Several changes of the operating system as one: made together or not at all. Blocking.


def check_set(root: Path, requested: Sequence[WantedSetting], setting_names: Sequence[str], *, survive: bool) -> None:
    """Make sure, before anything is changed, that a set makes sense on this machine; permissions are not checked.

    Args:
        root: Where /proc and /sys are found.
        requested: The set.
        setting_names: Settings that are changed on this machine.
        survive: Whether our file of sysctl.d is written as well.

    Raises:
        UsageProblem: No such setting, a value it does not take, or two values of which the kernel keeps one.
        HostProblem: This kernel does not have the setting.
    """
    names = [request.name for request in requested]
    for request in requested:
        if request.name not in setting_names:
            raise UsageProblem(f"{request.name!r} is not a setting of this machine that pgtop-tune changes")
        if names.count(request.name) > 1:
            raise UsageProblem(f"{request.name} is given twice", "give one value")
        for alternative in ALONG.get(request.name, ()):
            if alternative in names and request.name in ALONG.get(alternative, ()):
                raise UsageProblem(
                    f"{request.name} and {alternative} are alternatives: setting one makes the other 0",
                    "set only one of them",
                )
    for request in requested:
        check_request(root, request.name, request.value, survive=survive and not request.until_boot)


def make_set(
    journal: Journal,
    root: Path,
    requested: Sequence[WantedSetting],
    *,
    survive: bool,
    intent: Intent,
    announced: Announcements,
) -> tuple[HostChange, ...]:
    """Make the changes in the order given; when one is refused, those before it are taken back.

    Raises:
        HostProblem: The kernel refuses one; nothing is changed.
        JournalProblem: The journal could not be written; nothing is changed.
    """
    made_changes: list[HostChange] = []
    try:
        for request in requested:
            lasts = survive and not request.until_boot
            made_changes.append(
                make(journal, root, request.name, request.value, survive=lasts, intent=intent, announced=announced)
            )
    except PgtopError:
        for change in reversed(made_changes):
            _withdraw(journal, root, change, announced)
        raise
    return tuple(made_changes)


def _withdraw(journal: Journal, root: Path, change: HostChange, announced: Announcements) -> None:
    """Take back a change that was made before a refusal; one that cannot be taken back stays in the journal as in
    force, and the others are taken back."""
    try:
        take_back(journal, root, change, announced=announced)
    except PgtopError:
        pass


_MACHINE_ID: Final = "etc/machine-id"

MachineSelection = Callable[[Sequence[HostChange]], Sequence[HostChange]]
"""Selects the changes to be reverted from those in force, oldest first; see `selection`."""

_T = TypeVar("_T")


def machine(root: Path = ROOT) -> ServerName:
    """Return the name of this machine's journal, whatever servers run on it."""
    hostname = socket.gethostname()
    try:
        machine_id = read_once(root / _MACHINE_ID).decode("ascii", "replace").strip()
    except OSError:
        machine_id = ""
    # The id is in the key, because a machine changes its name more often.
    return ServerName(f"host-{machine_id or hostname}", f"operating system of {hostname}")


class HostControl:
    """Changes of the operating system with a journal; a `MachineControl`.

    The journal is open only while something is changed.
    """

    def __init__(
        self,
        directories: Callable[[], Sequence[str] | Unavailable] = lambda: (),
        *,
        root: Path = ROOT,
        directory: Path | None = None,
        guard: MachineStart = guard_machine_set,
        copies: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """Args:
        directories: Returns the server's directories of data and WAL, whose disks' queues are settings; `Unavailable`
            when the server is on another machine: then nothing is shown and nothing is changed.
        root: Where /proc, /sys, /etc, /run, /usr and /lib are found.
        directory: Directory of the journals; paths.journal_dir() by default.
        guard: Starts the process that reverts a pending set when we are gone.
        copies: Journal lines by set id, for sets that the journal no longer has.
        """
        self._directories = directories
        self._root = root
        self._directory = directory
        self._machine = machine(root)
        self._guard: Final = guard
        self._held: Final = HeldSets(self.revert_set, directory, _by_hand, copies)
        self._experiment: Final = uuid.uuid4().hex
        self._holding = False
        self._one_at_a_time = asyncio.Lock()

    @property
    def journal_path(self) -> Path:
        """The journal of this machine."""
        return path_for(self._machine.key, self._directory)

    async def disks(self) -> tuple[Disk, ...]:
        """Return the disks under the server's directories that have a queue."""
        return await asyncio.to_thread(self._disks)

    async def settings(self) -> tuple[SystemSetting, ...] | Unavailable:
        """Return the settings as they are now and after a reboot; the reason where the server is on another machine."""
        elsewhere = self._elsewhere()
        if elsewhere is not None:
            return elsewhere
        return await asyncio.to_thread(lambda: settings(self._root, self._names_of_disks()))

    async def facts(self) -> MachineFacts:
        """Return the facts for advice on these settings."""
        return await asyncio.to_thread(machine_facts, self._root)

    async def check(self, requested: Sequence[WantedSetting], *, survive: bool = False) -> None:
        """Make sure that a set makes sense on this machine, and that the server is here; see `check_set`.

        Raises:
            UsageProblem: No such setting here, a value it does not take, or one that no file can keep.
            HostProblem: This kernel does not have it, or the server runs elsewhere.
        """
        self._check_here()
        await asyncio.to_thread(lambda: self._check(requested, survive))

    def commands(self, name: str, value: str, *, survive: bool = False) -> tuple[str, ...]:
        """Return the commands that change a setting in a shell, where this process may not change it."""
        return commands(name, value, survive=survive)

    async def apply(self, name: str, value: str, *, survive: bool = False) -> HostChange:
        """Make a set of one; see `apply_set`."""
        return (await self.apply_set((WantedSetting(name, value),), Terms(), survive=survive))[0]

    async def apply_set(
        self, requested: Sequence[WantedSetting], terms: Terms, *, survive: bool = False
    ) -> tuple[HostChange, ...]:
        """Make a set, see `make_set`; with `survive` the values are put into our file of sysctl.d as well.

        A pending set is reverted at its deadline, when we end without confirming it, and by a process of its
        own when we are killed.

        Raises:
            UsageProblem: No such setting here, a value it does not take, or one that no file can keep.
            HostProblem: We may not (the hint has the command), or the kernel refuses; nothing is changed.
            JournalProblem: The journal could not be written; nothing is changed.
        """
        self._check_here()
        return await self._alone(lambda: self._made(requested, terms, survive))

    async def begin_deadline(self, set_id: str, within_s: float) -> None:
        """See `MachineControl.begin_deadline`."""
        await self._alone(lambda: self._put_off(set_id, within_s))

    async def keep(self, set_id: str) -> tuple[HostChange, ...]:
        """Confirm a set: its changes stay until they are reverted."""
        lost = await self.lost(set_id)
        try:
            if lost is not None:
                raise lost
            kept = await self._alone(lambda: self._kept(set_id))
        except JournalProblem as problem:
            raise JournalProblem(f"not confirmed, so it reverts at its deadline: {problem.message}") from None
        self._held.dismiss(set_id)
        return kept

    async def revert_set(
        self,
        set_id: str,
        reason: str = "",
        only: Callable[[HostChange], bool] = lambda change: True,
        report: Callable[[HostChange], None] = lambda change: None,
    ) -> tuple[HostChange, ...]:
        """Revert the changes of a set that are still in force and that `only` selects, last first."""
        return await self._reverted(_only(of_set(set_id), only), reason, report)

    async def revert_overdue(self, set_ids: Collection[str]) -> tuple[HostChange, ...]:
        """Revert sets past their deadline, whichever program made them."""
        return await self._reverted(of_sets(set_ids), NOT_CONFIRMED)

    async def adopt(self, *, hold: bool = True) -> tuple[PendingSet[HostChange], ...]:
        """Take over sets that are pending confirmation, and whose program is gone; see `orphans`.

        Args:
            hold: Whether they end with us, as sets of our own; else only a revert watchdog that outlives us is started.

        Raises:
            JournalProblem: The first revert watchdog could not be started, or its set not be written down.
        """
        if self._elsewhere() is not None:
            return ()
        return await self._alone(lambda: self._adopted(hold))

    async def in_force(self) -> tuple[HostChange, ...]:
        """Return changes that the journal holds as made and not reverted, oldest first."""
        return await asyncio.to_thread(self._in_force)

    def _in_force(self) -> tuple[HostChange, ...]:
        lost = read_all(self._directory).lost(self._held.copies)
        if lost:
            return tuple(change for _, text in lost for change in text.host_in_force)
        return _text(self._machine, self._directory).host_in_force

    async def aclose(self) -> None:
        """Revert pending changes; other changes stay in force."""
        await self._held.aclose()
        if self._holding:
            with suppress(PgtopError), announcements(self._root, ()) as announced:
                announced.remove(self._experiment)

    def _check_here(self) -> None:
        elsewhere = self._elsewhere()
        if elsewhere is not None:
            raise HostProblem(f"settings of the machine can only be changed on the server's machine: {elsewhere}")

    def _check(self, requested: Sequence[WantedSetting], survive: bool) -> None:
        check_set(self._root, requested, names(self._root, self._names_of_disks()), survive=survive)

    def _elsewhere(self) -> Unavailable | None:
        unavailable = self._directories()
        return unavailable if isinstance(unavailable, Unavailable) else None

    def _made(self, requested: Sequence[WantedSetting], terms: Terms, survive: bool) -> tuple[HostChange, ...]:
        self._check(requested, survive)
        awaits_confirmation = terms.keep_within_s is not None
        set_id = terms.set_id or (uuid.uuid4().hex[:12] if len(requested) > 1 or awaits_confirmation else "")
        deadline = NO_DEADLINE if terms.keep_within_s is None else deadline_in(terms.keep_within_s)
        until_ms = deadline["until_ms"]
        intent = Intent(set_id=set_id, by=own_name(), reason=terms.reason, deadline=deadline)
        is_first = set_id not in self._held.guarded
        with Journal(self._machine, self._directory) as journal, self._announced(journal) as announced:
            paths = self._paths(requested)
            clear_way(self._root, announced, paths)
            if terms.of_experiment:
                announced.hold(self._experiment, intent.by, paths)
                self._holding = True
            if until_ms is not None and is_first:
                owner = SetOwner(set_id, "", trip_wires=terms.trip_wires, with_restart=terms.with_restart)
                self._held.own(journal, owner, until_ms, self._start(self._guard, owner))
            try:
                made_changes = make_set(
                    journal, self._root, requested, survive=survive, intent=intent, announced=announced
                )
            except PgtopError:
                if is_first and not any(change.set_id == set_id for change in journal.text().host_in_force):
                    self._held.dismiss(set_id)
                raise
        self._hold(made_changes)
        return made_changes

    def _hold(self, changes: Sequence[HostChange]) -> None:
        """Remember a set, here and in its revert watchdog: both revert it when its journal is gone."""
        set_id = changes[0].set_id
        if set_id:
            self._held.hold(set_id, self.journal_path, lines_of(self._machine, *changes), more=True)

    def _kept(self, set_id: str) -> tuple[HostChange, ...]:
        if not any(change.set_id == set_id for change in _text(self._machine, self._directory).host_in_force):
            return ()
        with Journal(self._machine, self._directory) as journal, self._announced(journal) as announced:
            of_set = [change for change in journal.text().host_in_force if change.set_id == set_id]
            announced.being_kept(set_id)
            kept = tuple(replace(change, kept=True, **NO_DEADLINE) for change in of_set)
            journal.write(*kept)
            announced.remove(set_id)
            return kept

    def _announced(self, journal: Journal) -> AbstractContextManager[Announcements]:
        return announcements(self._root, {*own_sets(journal), self._experiment})

    def _paths(self, settings: Sequence[WantedSetting]) -> frozenset[str]:
        """Return the files of the kernel that a set writes, and those that the kernel changes along with them."""
        return frozenset(
            f"/{path_of(name)}" for setting in settings for name in (setting.name, *ALONG.get(setting.name, ()))
        )

    def _put_off(self, set_id: str, within_s: float) -> None:
        deadline = deadline_in(within_s)
        with Journal(self._machine, self._directory) as journal, self._announced(journal) as announced:
            self._held.put_off_in(journal, set_id, deadline)
            journal.write(*(replace(change, **deadline) for change in of_set(set_id)(journal.text().host_in_force)))
            announced.put_off(set_id, own_name(), deadline["until_ms"])

    def _start(self, guard: MachineStart, owner: SetOwner) -> Start:
        return lambda until_ms: guard(owner.set_id, until_ms, self._directory)

    def _adopted(self, hold: bool) -> tuple[PendingSet[HostChange], ...]:
        if not orphans(_text(self._machine, self._directory), self._directory, to_hold=hold):
            return ()
        guard = self._guard if hold else partial(guard_machine_set, outlives_us=True)
        with Journal(self._machine, self._directory) as journal, self._announced(journal) as announced:
            orphaned = orphans(journal.text(), self._directory, to_hold=hold)
            adopted = self._held.adopt(journal, orphaned, partial(self._start, guard), alone=not hold)
            for pending in adopted:
                announced.put_off(pending.set_id, own_name(), pending.until_ms)
                if hold:
                    self._hold(pending.changes)
            return adopted

    async def _reverted(
        self, selection: MachineSelection, reason: str = "", report: Callable[[HostChange], None] = lambda change: None
    ) -> tuple[HostChange, ...]:
        undone, sets_in_force = await self._alone(lambda: self._revert(selection, reason, report))
        for set_id in {change.set_id for change in undone} - sets_in_force:
            self._held.dismiss(set_id)
            self._held.forget(set_id)
        return undone

    def _revert(
        self, selection: MachineSelection, reason: str, report: Callable[[HostChange], None]
    ) -> tuple[tuple[HostChange, ...], set[str]]:
        """Return the reverted changes, and the sets that still have a change in force."""
        copies = self._held.copies
        undone = revert_settings(selection, self._root, self._directory, reason, report, copies)
        ids = {change.id for change in undone}
        journals = read_all(self._directory)
        texts = [*journals.texts.values(), *(text for _, text in journals.lost(copies))]
        sets_in_force = {change.set_id for text in texts for change in text.host_in_force if change.id not in ids}
        return undone, sets_in_force

    async def lost(self, set_id: str) -> JournalProblem | None:
        """See `MachineControl.lost`."""
        return await asyncio.to_thread(self._held.lost, set_id)

    def _disks(self) -> tuple[Disk, ...]:
        directories = self._directories()
        if isinstance(directories, Unavailable):
            return ()
        holding = [carriers(directory, self._root) for directory in directories]
        return disks(
            [name for disk_names in holding if not isinstance(disk_names, Unavailable) for name in disk_names],
            self._root,
        )

    def _names_of_disks(self) -> tuple[str, ...]:
        return tuple(disk.name for disk in self._disks())

    async def _alone(self, act: Callable[[], _T]) -> _T:
        """Run a blocking act in a thread, one at a time; the kernel may take seconds to find huge pages."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(act)


def _only(selection: MachineSelection, only: Callable[[HostChange], bool]) -> MachineSelection:
    return lambda in_force: [change for change in selection(in_force) if only(change)]


def orphans(text: JournalText, directory: Path | None, *, to_hold: bool) -> tuple[PendingSet[HostChange], ...]:
    """Return sets of this machine's journal that a program takes over; see `PendingSet.adoptable`.

    The other half of a set decides: the program that adopts the server's half adopts the machine's, too.
    """
    pending = pending_sets(text.host_in_force, text.owners)
    adoptable = [pending_set for pending_set in pending if pending_set.adoptable(now_ms(), to_hold=to_hold)]
    server_halves = {half.set_id: half for half in _halves_of_servers(directory)} if adoptable else {}
    this_process = own_key()
    return tuple(
        pending_set
        for pending_set in adoptable
        if pending_set.set_id not in server_halves or server_halves[pending_set.set_id].owner.program == this_process
    )


def _halves_of_servers(directory: Path | None) -> Iterator[PendingSet[ParameterChange]]:
    for text in read_all(directory).texts.values():
        yield from pending_sets(text.in_force, text.owners)


def revert_settings(
    selection: MachineSelection = everything,
    root: Path = ROOT,
    directory: Path | None = None,
    reason: str = "",
    report: Callable[[HostChange], None] = lambda change: None,
    copies: Iterable[bytes] = (),
) -> tuple[HostChange, ...]:
    """Revert changes that this machine's journal holds as in force, last first; a refusal does not stop the others.

    Blocking.

    Args:
        selection: Selects from the changes in force.
        root: Where /proc, /sys and /etc are found.
        directory: Directory of the journals; paths.journal_dir() by default.
        reason: Reason of the revert, for the journal.
        report: Takes each change that is reverted.
        copies: Journal lines of sets, for sets that the journal no longer has.

    Raises:
        HostProblem: We may not, or the kernel refuses one; the others are reverted.
        JournalProblem: The journal cannot be read, or another process is writing it.
    """
    name = machine(root)
    done: tuple[HostChange, ...] = ()
    for copy, text in read_all(directory).lost(copies):
        if selection(text.host_in_force):
            journal_copy = JournalCopy(path_for(name.key, directory), copy)
            with announcements(root, own_sets(journal_copy)) as announced:
                done += _reverted_from(journal_copy, selection, root, reason, report, announced)
    if done:
        return done
    if not selection(_text(name, directory).host_in_force):
        return ()
    with (
        Journal(name, directory, reverting=True) as journal,
        announcements(root, own_sets(journal)) as announced,
    ):
        return _reverted_from(journal, selection, root, reason, report, announced)


def _reverted_from(
    journal: Journal,
    selection: MachineSelection,
    root: Path,
    reason: str,
    report: Callable[[HostChange], None],
    announced: Announcements,
) -> tuple[HostChange, ...]:
    chosen = [change.id for change in selection(journal.text().host_in_force)]
    done, problems = list[HostChange](), list[HostProblem]()
    for identity in reversed(chosen):
        try:
            done.append(take_back(journal, root, _current(journal, identity), reason, announced))
        except HostProblem as problem:
            problems.append(problem)
        else:
            report(done[-1])
    if problems:
        raise problems[0]
    return tuple(done)


def _by_hand(text: JournalText) -> str:
    changes = reversed(text.host_in_force)
    restoring = "; ".join(commands(change.name, change.value_before, survive=False)[0] for change in changes)
    return f"commands that restore it by hand: {restoring}"


def own_sets(journal: Journal) -> frozenset[str]:
    """Return the ids of the sets that a journal has."""
    return frozenset(change.set_id for change in journal.text().host_changes)


def _current(journal: Journal, identity: str) -> HostChange:
    """Return a change as the journal has it now: the revert of another one may have rewritten its old value."""
    return next(change for change in journal.text().host_changes if change.id == identity)


def _text(name: ServerName, directory: Path | None) -> JournalText:
    return read(path_for(name.key, directory))
