"""The change sets that this process holds: the copy of their lines, and the revert watchdog of each, which reverts its
set when this program is gone, or well after the deadline.

The deadline itself is kept by `confirm/pending_sets`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pgtop_tune.base.errors import JournalProblem
from pgtop_tune.changes.journal import HeldSet, Journal, JournalText, file_mark, read_all
from pgtop_tune.changes.model.change import HostChange, ParameterChange
from pgtop_tune.changes.model.pending_set import C, PendingSet, SetOwner
from pgtop_tune.process import handed_on
from pgtop_tune.process.own_program import own_argv
from pgtop_tune.process.process_key import own_key, own_name, process_key_of
from pgtop_tune.process.revert_watchdog import RevertWatchdog

if TYPE_CHECKING:
    from pgtop_tune.postgres.server.conninfo import ConnInfo

Start = Callable[[int | None], RevertWatchdog]
"""Starts the revert watchdog of a set for a deadline: milliseconds since the epoch, None for none. Raises OSError."""

MachineStart = Callable[[str, int | None, Path | None], RevertWatchdog]
"""Starts the revert watchdog of a set of the machine: its id, the deadline, the directory of the journals."""

_BY_HAND: Final = "`pgtop-tune revert` reverts it now"
LATER_S: Final = 5.0
"""How long after the deadline a watchdog acts while its program lives: that reverts the set itself."""
RESTART_S: Final = 900.0
"""The longest a restart may take, which may be another user's: for making a set, and for reverting it."""
ENDED: Final = "the program ended before it was confirmed"
"""Why a set is reverted at the end of its program."""
LAST_ATTEMPT: Final = "--last-attempt"
"""Option of `pgtop-tune revert`: the revert watchdog does not try again, and the journal has to say so."""
COPY_ON_STDIN: Final = "--copy-on-stdin"
"""Option of `pgtop-tune revert`: the revert watchdog hands over its copy of the set, in case no journal has it."""


def guard_set(
    conninfo: ConnInfo,
    set_id: str,
    until_ms: int | None,
    directory: Path | None,
    *,
    with_restart: bool = False,
    outlives_us: bool = False,
) -> RevertWatchdog:
    """Start the revert watchdog of a set with a half of the server.

    The server and its password go along in a descriptor: neither argument list nor environment has them.

    Args:
        conninfo: The server.
        set_id: Id of the set in the journal.
        until_ms: The deadline, milliseconds since the epoch; None without one.
        directory: Directory of the journals; paths.journal_dir() by default.
        with_restart: Restarts the server where the old values need it.
        outlives_us: Waits for the deadline alone, and reverts only a set that is not confirmed by then.

    Raises:
        OSError: It cannot be started.
    """
    argv = ["--set", set_id, "--no-password", *(["--restart"] if with_restart else ())]
    within_s = _within_s(until_ms, RESTART_S if with_restart else LATER_S)
    with handed_on.descriptor(connection=conninfo.as_json()) as secrets:
        env = {**handed_on.environment(), handed_on.VARIABLE: str(secrets)}
        return _start(argv, env, within_s, directory, outlives_us=outlives_us, pass_fds=(secrets,))


def guard_machine_set(
    set_id: str, until_ms: int | None, directory: Path | None, *, outlives_us: bool = False
) -> RevertWatchdog:
    """Start the revert watchdog of a set of this machine; no server is asked. See `guard_set`."""
    argv = ["--machine", "--set", set_id]
    within_s = _within_s(until_ms, LATER_S)
    return _start(argv, handed_on.environment(), within_s, directory, outlives_us=outlives_us)


def _within_s(until_ms: int | None, later_s: float) -> float:
    return math.inf if until_ms is None else until_ms / 1000 - time.time() + later_s


def _start(
    command: list[str],
    env: dict[str, str],
    within_s: float,
    directory: Path | None,
    *,
    outlives_us: bool,
    pass_fds: tuple[int, ...] = (),
) -> RevertWatchdog:
    argv = [*own_argv(), "revert", *command, "--overdue" if outlives_us else COPY_ON_STDIN]
    if directory is not None:
        argv += ["--journal", str(directory.absolute())]
    return RevertWatchdog(argv, env, within_s, outlives_us=outlives_us, last_word=LAST_ATTEMPT, pass_fds=pass_fds)


class HeldSets:
    """The sets that one door of this process holds: their revert watchdogs, and their lines.

    Args:
        revert: Reverts a set; takes its id and the reason.
        directory: Directory of the journals; paths.journal_dir() by default.
        by_hand: Says how the changes of a journal's text are reverted by hand.
        copies: Lines of sets that no journal has any more, by id.
    """

    def __init__(
        self,
        revert: Callable[[str, str], Awaitable[object]],
        directory: Path | None,
        by_hand: Callable[[JournalText], str],
        copies: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        self._revert: Final = revert
        self._directory: Final = directory
        self._by_hand: Final = by_hand
        self._watchdogs: dict[str, tuple[RevertWatchdog, Start]] = {}
        self._held: dict[str, HeldSet] = {set_id: HeldSet(copy) for set_id, copy in copies.items()}

    @property
    def guarded(self) -> tuple[str, ...]:
        """Sets that are reverted when this program ends."""
        return tuple(self._watchdogs)

    @property
    def copies(self) -> tuple[bytes, ...]:
        """The lines of the sets that are in force."""
        return tuple(held_set.copy for held_set in self._held.values())

    async def aclose(self) -> None:
        """Revert all that end with this program; a set that cannot be reverted now is left to its watchdog."""
        for set_id in self.guarded:
            with suppress(Exception):
                await self._revert(set_id, ENDED)

    def own(
        self,
        journal: Journal,
        owner: SetOwner,
        until_ms: int | None,
        start: Start,
        *,
        alone: bool = False,
        hint: str = "nothing was changed",
    ) -> None:
        """Have a set reverted when this program is gone, and record this program as its owner.

        Args:
            journal: Open.
            owner: The set, with all that its owner before had recorded.
            until_ms: The deadline, milliseconds since the epoch; None without one.
            start: Starts its watchdog.
            alone: The watchdog outlives this program, which does not hold the set.
            hint: For the case that it cannot be started.

        Raises:
            JournalProblem: The watchdog cannot be started, or the journal not be written.
        """
        watchdog = _started(start, until_ms, hint)
        if not alone:
            self._watchdogs[owner.set_id] = watchdog, start
        try:
            key = process_key_of(watchdog.process.pid)
            journal.write(replace(owner, by=own_name(), program=own_key(), watchdog=key, left_alone=alone))
        except JournalProblem:
            if alone:
                watchdog.dismiss()
            self.dismiss(owner.set_id)
            raise

    def adopt(
        self, journal: Journal, orphans: Iterable[PendingSet[C]], guard: Callable[[SetOwner], Start], *, alone: bool
    ) -> tuple[PendingSet[C], ...]:
        """Adopt sets whose program is gone; return those that were adopted before one failed.

        Raises:
            JournalProblem: See `own`; none was adopted.
        """
        adopted: list[PendingSet[C]] = []
        for orphan in orphans:
            try:
                self.own(journal, orphan.owner, orphan.until_ms, guard(orphan.owner), alone=alone, hint=_BY_HAND)
            except JournalProblem:
                if not adopted:
                    raise
                break
            adopted.append(orphan)
        return tuple(adopted)

    def hold(self, set_id: str, path: Path, lines: bytes, *, more: bool = False) -> None:
        """Remember the lines of a set, here and in its watchdog: both revert it when its journal is gone.

        Args:
            set_id: The set, whose lines have just been written.
            path: The journal.
            lines: See `lines_of`.
            more: They are those of another part of the set.
        """
        held_set = self._held.get(set_id)
        copy = held_set.copy + lines if more and held_set is not None else lines
        self._held[set_id] = HeldSet(copy, path, file_mark(path))
        if set_id in self._watchdogs:
            self._watchdogs[set_id][0].give(copy)

    def forget(self, set_id: str) -> None:
        """Forget the lines of a set that is not in force any more."""
        self._held.pop(set_id, None)

    def lost(self, set_id: str) -> JournalProblem | None:
        """Return why no journal has a set of this process any more; None where one has it. Asks no server."""
        held_set = self._held.get(set_id)
        if held_set is None or held_set.stands:
            return None
        journals = read_all(self._directory)
        return next((self.lost_problem(text, journals.problem) for _, text in journals.lost([held_set.copy])), None)

    def lost_problem(self, text: JournalText, problem: JournalProblem | None) -> JournalProblem:
        """Return the problem of a set that no journal has, and how its changes are reverted by hand."""
        changes: tuple[ParameterChange | HostChange, ...] = (*text.in_force, *text.host_in_force)
        values = ", ".join(f"{change.name} = {change.value or 'default'}" for change in changes)
        reason = "no change journal has it any more" if problem is None else problem.message
        return JournalProblem(f"{values} is in force, and {reason}", self._by_hand(text))

    def put_off(self, set_id: str, until_ms: int | None) -> None:
        """Give the set another deadline; None for none: it is reverted at the end of this program only.

        Raises:
            JournalProblem: The watchdog cannot be started; everything is as it was.
        """
        if set_id in self._watchdogs:
            earlier, start = self._watchdogs[set_id]
            later = _started(start, until_ms, "it reverts at its deadline")
            self._watchdogs[set_id] = later, start
            later.give(self._held[set_id].copy if set_id in self._held else b"")
            earlier.dismiss()

    def put_off_in(self, journal: Journal, set_id: str, deadline: Mapping[str, Any]) -> None:
        """Give the set another deadline, and write its watchdog down.

        Raises:
            JournalProblem: It cannot be started or written down.
        """
        self.put_off(set_id, deadline["until_ms"])
        owner = journal.text().owners.get(set_id)
        if owner is not None:
            watchdog = self._watchdogs.get(set_id)
            key = None if watchdog is None else process_key_of(watchdog[0].process.pid)
            journal.write(replace(owner, watchdog=key))

    def dismiss(self, set_id: str) -> None:
        """Dismiss the watchdog: the set is confirmed or reverted."""
        watchdog = self._watchdogs.pop(set_id, None)
        if watchdog is not None:
            watchdog[0].dismiss()


def _started(start: Start, until_ms: int | None, hint: str) -> RevertWatchdog:
    try:
        return start(until_ms)
    except OSError as error:
        raise JournalProblem(f"the revert watchdog cannot be started: {error.strerror}", hint) from None
