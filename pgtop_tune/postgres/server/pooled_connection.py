"""The read-only connection behind a pooler that lends a server session for one transaction at a time (PgBouncer).

There, a setting made with SET stays in a session that others use next, and a prepared statement may be in another
session than the one that is asked to run it. So every reading is a transaction that brings its limits along, and
every statement is parsed in the message that runs it. PgBouncer's "Features" page: SQL feature map for pooling modes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import asyncpg

from pgtop_tune.model.statements import OWN_MARK
from pgtop_tune.postgres.server.connection import SESSION_SETTINGS, ReadConnection, Rows
from pgtop_tune.postgres.server.own_sessions import marked
from pgtop_tune.postgres.server.search_path import pin

_PER_SESSION: Final = frozenset({"default_transaction_read_only", "idle_session_timeout"})
"""Settings that say nothing to a transaction under way."""
_BEGIN: Final = f"BEGIN READ ONLY, NOT DEFERRABLE; SELECT {OWN_MARK} {pin(local=True)}"
_LIMITS: Final = ", ".join(
    f"pg_catalog.set_config('{name}', '{value}', true)"
    for name, value in SESSION_SETTINGS.items()
    if name not in _PER_SESSION
)
_BEGIN_LIMITED: Final = f"{_BEGIN}, {_LIMITS}"


class PooledConnection(ReadConnection):
    """Statements over a pooler; which backend serves them changes from one to the next."""

    pooled = True
    _calls_of_a_reset = 4

    async def settle(self) -> None:
        """Sets nothing: what we set would be found by whoever is lent the same session."""

    async def execute(self, text: str) -> None:
        """Runs statements without parameters in a transaction of their own. Raises as `fetch` does."""
        await super().execute(f"{_BEGIN}; {text}; COMMIT")

    @asynccontextmanager
    async def _looking_up(self) -> AsyncIterator[None]:
        await self._raw.execute(_BEGIN)
        try:
            yield
        except (asyncpg.PostgresError, UnicodeDecodeError):
            await self._raw.execute("ROLLBACK")
            raise
        await self._raw.execute("COMMIT")

    async def _fetch(self, text: str, arguments: Sequence[object]) -> Rows:
        return await self._timed(self._inside(_BEGIN_LIMITED, text, arguments), calls=4)  # type: ignore[no-any-return]

    async def _inside_reset(self, text: str) -> Rows:
        return await self._inside(_BEGIN, text, ())

    async def _inside(self, begin: str, text: str, arguments: Sequence[object]) -> Rows:
        await self._raw.execute(begin)
        try:
            statement = self._prepared.get(text)
            if statement is None:
                # Unnamed: asyncpg keeps its description and parses it anew in the message that runs it.
                statement = self._prepared[text] = await self._raw.prepare(marked(text), name="")
            rows = await statement.fetch(*arguments)
        except (asyncpg.PostgresError, UnicodeDecodeError):
            await self._raw.execute("ROLLBACK")
            raise
        await self._raw.execute("COMMIT")
        return rows  # type: ignore[no-any-return]
