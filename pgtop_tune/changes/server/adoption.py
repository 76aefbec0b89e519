"""Adopting change sets of a server that are pending confirmation, and whose program is gone. Blocking.

The journal is locked meanwhile: of several programs that start at once, one adopts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pgtop_tune.changes.journal import Journal, JournalText, ServerName, path_for, read
from pgtop_tune.changes.model.change import ChangeState, ParameterChange
from pgtop_tune.changes.model.pending_set import PendingSet, pending_sets
from pgtop_tune.changes.server import change_set
from pgtop_tune.changes.server.one_change import now_ms, who
from pgtop_tune.changes.server.revert_guard import guard_set
from pgtop_tune.errors import JournalProblem
from pgtop_tune.process.process_key import ProcessKey, key_of, own_key

if TYPE_CHECKING:
    from pathlib import Path

    from pgtop_tune.changes.deadlines import Trials
    from pgtop_tune.changes.model.pending_set import SetOwner
    from pgtop_tune.changes.server.operator_session import OperatorSession
    from pgtop_tune.postgres.server.conninfo import ConnInfo
    from pgtop_tune.process.revert_watchdog import RevertWatchdog

OUTLIVED: Final = "it can lose data, and its program is gone"

Guard = Callable[[PendingSet[ParameterChange]], ProcessKey | None]
"""Starts the revert watchdog of a set. Raises OSError."""


def adopt(
    session: OperatorSession,
    server: ServerName,
    conninfo: ConnInfo,
    directory: Path | None,
    trials: Trials,
    *,
    here: Collection[str],
    to_hold: bool,
) -> tuple[PendingSet[ParameterChange], ...]:
    """Takes over what nobody holds; the journal names the new owner before this returns.

    Args:
        session: To the server.
        server: What its journal is called.
        conninfo: For the revert watchdogs.
        directory: Of the journals; paths.journal_dir() by default.
        trials: Those of this process.
        here: Ids of changes that are in force on this server: a journal may be of another one, and its sets wait there.
        to_hold: Whether the sets end with this process; else their watchdogs outlive it. See `PendingSet.adoptable`.

    Raises:
        JournalProblem: The first revert watchdog could not be started, or its set not be written down. What was
            adopted before another one failed is returned, and the rest is an orphan still.
        ConnectionProblem: The server went away; nothing was adopted.
    """
    if not _orphans(read(path_for(server.key, directory)), here, to_hold=to_hold):
        return ()
    with Journal(server, directory) as journal:
        for pending in _orphans(journal.text(), here, to_hold=to_hold):
            begun = [each for each in pending.changes if each.state is ChangeState.INTENDED]
            if begun:
                change_set.settle(session, journal, begun)
        guard = _guard(conninfo, directory, trials if to_hold else None)
        adopted: list[PendingSet[ParameterChange]] = []
        for pending in _orphans(journal.text(), here, to_hold=to_hold):
            try:
                journal.write(new_owner(pending.owner, guard(pending), left_alone=not to_hold))
            except (JournalProblem, OSError) as error:
                trials.end(pending.set_id)
                if adopted:
                    break
                if isinstance(error, JournalProblem):
                    raise
                raise JournalProblem(
                    f"the revert watchdog of {pending.changes[0].name} cannot be started: {error.strerror}",
                    "`pgtop-tune revert` reverts it now",
                ) from None
            adopted.append(pending)
        return tuple(adopted)


def new_owner(before: SetOwner, watchdog: ProcessKey | None, *, left_alone: bool = False) -> SetOwner:
    """This process, with all that the owner before had recorded."""
    return replace(before, by=who(), program=own_key(), watchdog=watchdog, left_alone=left_alone)


def _orphans(text: JournalText, here: Collection[str], *, to_hold: bool) -> tuple[PendingSet[ParameterChange], ...]:
    pending = pending_sets(text.in_force, text.owners)
    return tuple(
        each
        for each in pending
        if each.adoptable(now_ms(), to_hold=to_hold) and all(change.id in here for change in each.changes)
    )


def _guard(conninfo: ConnInfo, directory: Path | None, trials: Trials | None) -> Guard:
    """Starts revert watchdogs: those of this process, or without any watchdogs that outlive it."""

    def guard(pending: PendingSet[ParameterChange]) -> ProcessKey | None:
        set_id, restarts = pending.set_id, pending.owner.with_restart

        def start(until_ms: int | None, *, outlives_us: bool = False) -> RevertWatchdog:
            return guard_set(conninfo, set_id, until_ms, directory, with_restart=restarts, outlives_us=outlives_us)

        if trials is None:
            return key_of(start(pending.until_ms, outlives_us=True).process.pid)
        trials.guard(set_id, pending.until_ms, start)
        return trials.watchdog(set_id)

    return guard
