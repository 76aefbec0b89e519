"""Change sets whose program is gone: adopted before their deadline, reverted after it.

Looks for as long as the program runs: a server may be away at first, and another program may die later.

Pending sets whose deadline passed while no program was there, for instance through a power loss, are reverted first.

A revert watchdog that gives up says so in the journal: its output is not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, JournalProblem, NotLetIn, PgtopError
from pgtop_tune.base.units import wall_clock
from pgtop_tune.changes.journal import Journal, JournalText, journals, owed_bytes, read, read_all, write_owed
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.model.change import ChangeState, HostChange, ParameterChange, joined_notes
from pgtop_tune.changes.model.change_set import Change, value_before
from pgtop_tune.changes.model.pending_set import (
    NOT_CONFIRMED,
    Holder,
    PendingSet,
    now_ms,
    outlived_losses,
    pending_sets,
)
from pgtop_tune.changes.ports import AdoptedSet
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.process.process_key import own_key
from pgtop_tune.runtime.running_experiments import running_experiments


def note_given_up(set_id: str, directory: Path | None, problem: PgtopError) -> None:
    """Write to the changes of a set, in every journal, why they are still in force; no server is asked.

    Raises:
        JournalProblem: A journal that has it cannot be written.
    """
    message = f"the revert watchdog gave up at {datetime.now():%Y-%m-%d %H:%M}: {problem.message}"
    # A journal that cannot be read can hardly be written; `revert` reports it.
    for text in read_all(directory).texts.values():
        in_force: tuple[Change, ...] = (*text.in_force, *text.host_in_force)
        if text.server is None or not any(set_id in (change.set_id, change.id) for change in in_force):
            continue
        with Journal(text.server, directory) as journal:
            now = journal.text()
            changes: tuple[Change, ...] = (*now.in_force, *now.host_in_force)
            journal.write(
                *(replace(change, message=message) for change in changes if set_id in (change.set_id, change.id))
            )


def reverted_message(change: ParameterChange) -> str:
    """Return the sentence about a change that was reverted."""
    if change.state is ChangeState.SUPERSEDED:
        return f"{change.name}: {change.value or 'default'} was pending confirmation; {change.message}"
    restart = "; that takes effect with a restart" if change.restart else ""
    back = f"{change.name} is {change.shown_after} again" if not change.restart else f"{change.name} is reverted"
    return f"{back}: {change.value or 'default'} was {NOT_CONFIRMED}{restart}"


def reverted_setting_message(change: HostChange) -> str:
    """Return the sentence about a setting of the machine that was reverted."""
    return f"{change.name} is {change.shown_after} again: {change.value} was {NOT_CONFIRMED}"


CANNOT: Final = "an unconfirmed change cannot be reverted"
UNKNOWN: Final = "unconfirmed changes may be in force"
_LOOK_S: Final = 2.0
_REFUSED_S: Final = 10.0
"""After a refusal, of a change or of a password: a server hardly changes its mind sooner."""


def failure_message(problem: PgtopError) -> str:
    """Return the message about a problem with pending sets."""
    if not isinstance(problem, JournalProblem):
        return f"{CANNOT}: {problem.message}"
    return joined_notes(f"{UNKNOWN}: {problem.message}", problem.hint)


class PendingWatch:
    """Looks after the sets of one server and of this machine; an `AdoptionControl`.

    Args:
        parameters: The door to the server; None where only the machine is looked after.
        machine: The door to its operating system.
        directory: Directory of the journals; None for the user's own.
        tell: Takes a sentence.
        hold: Whether this program stays and lets its operator confirm a set. Else a set gets a revert watchdog that
            outlives this program.
    """

    def __init__(
        self,
        parameters: PostgresControl | None,
        machine: HostControl,
        directory: Path | None,
        tell: Callable[[str], None],
        *,
        hold: bool,
    ) -> None:
        self._parameters: Final = parameters
        self._machine: Final = machine
        self._directory: Final = directory
        self._tell: Final = tell
        self._hold: Final = hold
        self._seen: set[str] = set()
        self._refusal = ""
        self._texts: dict[Path, tuple[tuple[int, int, int], JournalText]] = {}
        self._adopted: tuple[AdoptedSet, ...] = ()

    def adopted(self) -> tuple[AdoptedSet, ...]:
        """See `AdoptionControl.adopted`."""
        return self._adopted

    async def run(self, leaving: asyncio.Event) -> None:
        """Look again and again until we are leaving."""
        while not leaving.is_set():
            pause_s = _LOOK_S
            try:
                await self.look()
            except NotLetIn:
                pause_s = _REFUSED_S
            except ConnectionProblem:
                # The server is away: the rest is done when it is back.
                pass
            except PgtopError as problem:
                if problem.message != self._refusal:
                    self._tell(failure_message(problem))
                self._refusal = problem.message
                pause_s = _REFUSED_S
            with suppress(TimeoutError):
                await asyncio.wait_for(leaving.wait(), pause_s)

    async def look(self) -> None:
        """Revert overdue sets, and adopt orphaned ones; no server is asked without a reason.

        Lines that a disk has refused before are written when it has room.

        Raises:
            JournalProblem: A journal cannot be read, or lines are still owed to it.
            ConnectionProblem: The server is not there; the machine has been looked after all the same.
            PgtopError: A set could not be reverted or adopted.
        """
        try:
            # Before the machine: the program that adopts the server's half of a set adopts the machine's, too.
            control = self._parameters
            if control is not None and await asyncio.to_thread(self._is_wanted_on_server, control.journal_paths):
                await self._look_at_server(control)
        finally:
            if await asyncio.to_thread(self._is_wanted_on_machine):
                await self._look_at_machine()
        for problem in await asyncio.to_thread(write_owed):
            raise problem

    def _is_wanted_on_server(self, paths: tuple[Path, ...] | None) -> bool:
        for path in journals(self._directory) if paths is None else paths:
            text = self._text(path)
            if self._is_wanted(_pending(text)):
                return True
            if outlived_losses(text.in_force, text.owners):
                return True
        return False

    def _is_wanted_on_machine(self) -> bool:
        text = self._text(self._machine.journal_path)
        return self._is_wanted(pending_sets(text.host_in_force, text.owners))

    def _is_wanted(self, pending: Iterable[PendingSet[Any]]) -> bool:
        """Return whether there is a set to adopt, to revert or to report."""
        now, this_program = now_ms(), own_key()
        for pending_set in pending:
            is_ours = pending_set.holder is Holder.PROGRAM and pending_set.owner.program == this_program
            news = not is_ours and pending_set.changes[0].id not in self._seen
            if pending_set.overdue(now) or news or pending_set.adoptable(now, to_hold=self._hold):
                return True
        return False

    async def _look_at_server(self, control: PostgresControl) -> None:
        async def overdue() -> None:
            pending = chain.from_iterable(map(_pending, await control.journal_texts()))
            for change in await control.revert_overdue(_overdue(pending)):
                self._tell(reverted_message(change))

        async def outlived() -> None:
            for change in await control.revert_outlived():
                self._tell(f"{change.name} is {change.shown_after} again: {change.message}")

        async def orphans() -> None:
            self._take(await control.adopt(hold=self._hold))

        async def others() -> None:
            for text in await control.journal_texts():
                self._tell_of_others(_pending(text))

        await _each(overdue, orphans, outlived, others)

    async def _look_at_machine(self) -> None:
        async def overdue() -> None:
            text = await asyncio.to_thread(self._text, self._machine.journal_path)
            for change in await self._machine.revert_overdue(_overdue(pending_sets(text.host_in_force, text.owners))):
                self._tell(reverted_setting_message(change))

        async def orphans() -> None:
            self._take(await self._machine.adopt(hold=self._hold))

        async def others() -> None:
            text = await asyncio.to_thread(self._text, self._machine.journal_path)
            self._tell_of_others(pending_sets(text.host_in_force, text.owners))

        await _each(overdue, orphans, others)

    def _take(self, sets: Iterable[PendingSet[Any]]) -> None:
        for pending_set in sets:
            self._seen.add(pending_set.changes[0].id)
            beginning = f"{_listed(pending_set.changes)} was left by {pending_set.owner.by}, which has ended"
            until = wall_clock(pending_set.until_ms)
            if not self._hold:
                self._tell(f"{beginning}: it reverts at {until}")
                continue
            self._tell(f"{beginning}: confirm it, or it reverts at {until}")
            adopted = AdoptedSet(
                set_id=pending_set.set_id,
                changes=pending_set.changes,
                until_ms=pending_set.until_ms,
                by=pending_set.owner.by,
                trip_wires=pending_set.owner.trip_wires,
                with_restart=pending_set.owner.with_restart,
            )
            self._adopted = (*self._adopted, adopted)

    def _tell_of_others(self, sets: Iterable[PendingSet[Any]]) -> None:
        """Tell once of each pending set that is not ours to confirm or to revert.

        Not of the switches of an experiment, which screens show as such.
        """
        for pending_set in sets:
            news = pending_set.changes[0].id not in self._seen and pending_set.until_ms > now_ms()
            if news and pending_set.owner.program not in (
                own_key(),
                *(experiment.key for experiment in running_experiments()),
            ):
                until, by = wall_clock(pending_set.until_ms), pending_set.owner.by or "another program"
                if pending_set.holder in (Holder.PROGRAM, Holder.ELSEWHERE):
                    self._tell(f"{_listed(pending_set.changes)} is pending confirmation by {by}: it reverts at {until}")
                else:
                    revert = f"its {Holder.WATCHDOG} reverts it at {until}"
                    self._tell(f"{_listed(pending_set.changes)} was left by {by}, which has ended: {revert}")
            self._seen.add(pending_set.changes[0].id)

    def _text(self, path: Path) -> JournalText:
        """Return the text of a journal; an empty one where there is no journal.

        Raises:
            JournalProblem: It cannot be read.
        """
        try:
            stat = path.stat()
            signature = (stat.st_mtime_ns, stat.st_size, owed_bytes(path))
        except OSError:
            return read(path)
        known_signature, text = self._texts.get(path, (None, JournalText(None, (), ())))
        if signature != known_signature:
            text = read(path)
            self._texts[path] = signature, text
        return text


async def leave_watchdogs(
    parameters: PostgresControl | None, machine: HostControl, directory: Path | None, tell: Callable[[str], None]
) -> None:
    """Revert overdue sets, and give orphaned ones a revert watchdog, for a command that does not stay.

    A set that cannot be looked after is reported; the command goes on.
    """
    try:
        await PendingWatch(parameters, machine, directory, tell, hold=False).look()
    except PgtopError as problem:
        tell(failure_message(problem))


@asynccontextmanager
async def pending_looked_after(
    parameters: PostgresControl, machine: HostControl, directory: Path | None, tell: Callable[[str], None]
) -> AsyncIterator[None]:
    """Look after pending sets for as long as a command without a screen runs; its server may be away at first."""
    leaving = asyncio.Event()
    watch = PendingWatch(parameters, machine, directory, tell, hold=False)
    watching = asyncio.create_task(watch.run(leaving))
    try:
        yield
    finally:
        leaving.set()
        await watching
        await parameters.aclose()


async def _each(*steps: Callable[[], Awaitable[None]]) -> None:
    """Take every step: a set that cannot be reverted does not keep another one from being adopted.

    Raises:
        ConnectionProblem: At once, for the steps after it would only wait.
        PgtopError: The first of what went wrong, after the last step.
    """
    problems: list[PgtopError] = []
    for step in steps:
        try:
            await step()
        except ConnectionProblem:
            raise
        except PgtopError as problem:
            problems.append(problem)
    if problems:
        raise problems[0]


def _pending(text: JournalText) -> tuple[PendingSet[ParameterChange], ...]:
    return pending_sets(text.in_force, text.owners)


def _overdue(pending: Iterable[PendingSet[Any]]) -> frozenset[str]:
    now = now_ms()
    return frozenset(pending_set.set_id for pending_set in pending if pending_set.overdue(now))


def _listed(changes: Iterable[Change]) -> str:
    """ "work_mem 4MB→8MB; max_wal_size 1GB→4GB"."""
    return "; ".join(
        f"{change.name} {value_before(change)}→{change.value if isinstance(change, HostChange) else change.told_after}"
        for change in changes
    )
