"""Taking changes back without the process that made them: by the change journal, also after a crash. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pgtop_tune.errors import ConnectionProblem, JournalProblem
from pgtop_tune.journal import Journal, journals, path_for, read
from pgtop_tune.model.change import ParameterChange
from pgtop_tune.postgres.change_set import take_back
from pgtop_tune.postgres.conninfo import ConnInfo
from pgtop_tune.postgres.failures import PlainWords
from pgtop_tune.postgres.opening import operator_session
from pgtop_tune.postgres.own_sessions import OwnSessions

Choice = Callable[[Sequence[ParameterChange]], Sequence[ParameterChange]]
"""From the changes in force, oldest first, those to be taken back."""


def everything(in_force: Sequence[ParameterChange]) -> Sequence[ParameterChange]:
    """All of them."""
    return in_force


def last(in_force: Sequence[ParameterChange]) -> Sequence[ParameterChange]:
    """The last change, with the set it belongs to."""
    return whole_sets(in_force, in_force[-1:])


def of_set(set_id: str) -> Choice:
    """A set, or a single change, by its id."""

    def chosen(in_force: Sequence[ParameterChange]) -> Sequence[ParameterChange]:
        return [change for change in in_force if set_id in (change.set_id, change.id)]

    return chosen


def since(moment_ms: int) -> Choice:
    """What was changed after a moment, milliseconds since the epoch: the server is as it was then."""

    def chosen(in_force: Sequence[ParameterChange]) -> Sequence[ParameterChange]:
        return [change for change in in_force if change.at_ms > moment_ms]

    return chosen


def overdue(now_ms: int) -> Choice:
    """What nobody kept in time."""

    def chosen(in_force: Sequence[ParameterChange]) -> Sequence[ParameterChange]:
        return [
            change
            for change in in_force
            if not change.kept and change.until_ms is not None and change.until_ms < now_ms
        ]

    return chosen


def any_overdue(now_ms: int, directory: Path | None = None) -> bool:
    """Whether a journal, of whatever server, has something that nobody kept in time; no server is asked."""
    for path in journals(directory):
        try:
            text = read(path)
        except JournalProblem:
            continue
        if overdue(now_ms)(text.in_force):
            return True
    return False


def whole_sets(in_force: Sequence[ParameterChange], some: Sequence[ParameterChange]) -> tuple[ParameterChange, ...]:
    """Some changes and all that belong to the same sets."""
    ids: Final = {change.id for change in some}
    sets: Final = {change.set_id for change in some if change.set_id}
    return tuple(change for change in in_force if change.id in ids or change.set_id in sets)


def revert(
    conninfo: ConnInfo,
    choice: Choice = everything,
    *,
    directory: Path | None = None,
    why: str = "",
    first: Callable[[Sequence[ParameterChange]], None] = lambda chosen: None,
    key: str = "",
) -> tuple[ParameterChange, ...]:
    """Takes back what the journal of this server holds as in force, last first.

    Args:
        conninfo: The server; its journal is found by its system identifier.
        choice: Which of them.
        directory: Of the journals; paths.journal_dir() by default.
        why: What is to be said about it.
        first: Told of the changes before they are taken back: other halves of their sets may have to go first.
        key: Of the journal that is meant; "" is that of whatever server answers.

    Raises:
        ConnectionProblem: The server is not there; nothing was reverted, or the rest was not.
        ServerProblem: It refused; what came after is reverted.
        JournalProblem: The journal cannot be read or written, or another process is writing it.
    """
    session = operator_session(conninfo, OwnSessions())
    try:
        with PlainWords(conninfo):
            if key and session.server.key != key:
                raise ConnectionProblem(f"{conninfo.describe()}: another server answers there")
            if not choice(read(path_for(session.server.key, directory)).in_force):
                return ()
            with Journal(session.server, directory) as journal:
                chosen = choice(journal.text().in_force)
                first(chosen)
                return take_back(session, journal, chosen, why)
    finally:
        session.close()
