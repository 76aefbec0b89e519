"""The journals that are, or may be, of the server that a session leads to. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgtop_tune.base.errors import JournalProblem
from pgtop_tune.changes.journal import HeldSet, JournalText, ServerName, path_for, read, read_all
from pgtop_tune.changes.model.change import ParameterChange
from pgtop_tune.changes.selection import of_set
from pgtop_tune.changes.server.instances import ServerJournals, find_journals
from pgtop_tune.changes.server.markers import restoring_sql
from pgtop_tune.model.instance import Kin

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession


class OwnJournals:
    """Found once per connection, and remembered.

    Args:
        describe: The server, for people; it may have moved since the last call.
        directory: Of the journals; paths.journal_dir() by default.
    """

    def __init__(self, describe: Callable[[], str], directory: Path | None) -> None:
        self._describe: Final = describe
        self._directory: Final = directory
        self._own: ServerName | None = None
        self._key = ""
        self._paths: tuple[Path, ...] = ()
        self._held: dict[str, HeldSet] = {}

    def hold(self, set_id: str, held: HeldSet) -> None:
        """Remember a set of this process: its journal may be gone when the set is to be reverted."""
        self._held[set_id] = held

    def drop(self, set_id: str) -> None:
        """Forget a set that is not in force any more."""
        self._held.pop(set_id, None)

    def copy(self, set_id: str) -> bytes:
        """Return the lines of a set; b"" of one that another process made."""
        return self._held[set_id].copy if set_id in self._held else b""

    @property
    def holds_any(self) -> bool:
        """Whether a set of this process is in force."""
        return bool(self._held)

    def lost(self, set_id: str) -> JournalProblem | None:
        """Return why no journal has a set of this process any more, with the SQL that restores the old values; None
        where one has it. Asks no server."""
        held = self._held.get(set_id)
        if held is None or held.stands:
            return None
        found = read_all(self._directory)
        lost = found.lost([held.copy])
        return _lost(lost[0][1], found.problem) if lost else None

    @property
    def paths(self) -> tuple[Path, ...] | None:
        """Of them; None before the server has said which one it is."""
        return None if self._own is None else self._paths

    def own(self, session: OperatorSession) -> ServerName:
        """The name of the server's own journal."""
        if self._own is None:
            found = self.find(session)
            self._own, self._key = found.name, found.name.key
            self.look_into([each.name for each in found.known if each.kin is not Kin.OTHER])
        return self._own

    def find(self, session: OperatorSession) -> ServerJournals:
        """All that there are, and what each has to do with the server."""
        copies = tuple(held.copy for held in self._held.values())
        return find_journals(session, self._describe(), self._directory, self._key, copies)

    def look_into(self, names: Sequence[ServerName]) -> None:
        """From now on these are looked into, beside the server's own."""
        keys = dict.fromkeys((self._key, *(name.key for name in names)))
        self._paths = tuple(path_for(key, self._directory) for key in keys)

    def holding(self, session: OperatorSession, set_id: str) -> ServerName:
        """The journal with a set: the server's own, or one that may be of it, whose set was adopted.

        Raises:
            JournalProblem: No journal has it any more, and it is in force.
        """
        known = (each for each in self.find(session).known if each.kin is not Kin.OTHER)
        own = self.own(session)
        holding = next((each for each in known if of_set(set_id)(each.text.in_force)), None)
        if holding is not None and holding.copy:
            raise _lost(holding.text, read_all(self._directory).problem)
        return own if holding is None else holding.name

    def read(self, session: OperatorSession) -> JournalText:
        """The server's own."""
        return read(path_for(self.own(session).key, self._directory))

    def forget(self) -> None:
        """The next session may lead to another server."""
        self._own = None


def _lost(text: JournalText, problem: JournalProblem | None) -> JournalProblem:
    changes: tuple[ParameterChange, ...] = text.in_force
    values = ", ".join(f"{change.name} = {change.value or 'default'}" for change in changes)
    reason = "no change journal has it any more" if problem is None else problem.message
    return JournalProblem(
        f"{values} is in force, and {reason}", f"SQL that restores it by hand: {restoring_sql(changes)}"
    )
