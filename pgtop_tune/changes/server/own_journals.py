"""The journals that are, or may be, of the server that a session leads to. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgtop_tune.changes.journal import JournalText, ServerName, path_for, read
from pgtop_tune.changes.selection import of_set
from pgtop_tune.changes.server.instances import ServerJournals, find_journals
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
        return find_journals(session, self._describe(), self._directory, self._key)

    def look_into(self, names: Sequence[ServerName]) -> None:
        """From now on these are looked into, beside the server's own."""
        keys = dict.fromkeys((self._key, *(name.key for name in names)))
        self._paths = tuple(path_for(key, self._directory) for key in keys)

    def holding(self, session: OperatorSession, set_id: str) -> ServerName:
        """The journal with a set: the server's own, or one that may be of it, whose set was adopted."""
        known = (each for each in self.find(session).known if each.kin is not Kin.OTHER)
        own = self.own(session)
        return next((each.name for each in known if of_set(set_id)(each.text.in_force)), own)

    def read(self, session: OperatorSession) -> JournalText:
        """The server's own."""
        return read(path_for(self.own(session).key, self._directory))

    def forget(self) -> None:
        """The next session may lead to another server."""
        self._own = None
