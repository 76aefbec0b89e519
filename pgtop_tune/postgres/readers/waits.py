"""What every backend waits for: one look at it, or what pg_wait_sampling has counted since the look before.

Rows are counted on the server; names of databases and roles come from memory.
"""

from __future__ import annotations

from typing import Any, Final

from pgtop_tune.model.waits import WaitCount, WaitLook
from pgtop_tune.postgres.queries import sql
from pgtop_tune.postgres.readers.section_readers import ReadContext
from pgtop_tune.sql_quoting import quoted

_KINDS_SHARED: Final = 10_000
"""Distinct rows kept for sharing; beyond it they are forgotten and collected anew."""


class WaitReader:
    """Reads waits.14.sql; remembers the objects of rows it has seen and what the oids in them are called."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], WaitCount] = {}
        self._names: dict[tuple[str, int], str] = {}
        self._profile: dict[tuple[Any, ...], int] = {}
        self._profile_s: float | None = None

    async def look(self, context: ReadContext) -> list[WaitCount]:
        """Every wait of this moment. Raises as `ReadConnection.fetch` does."""
        counts = []
        asked = False
        for row in await context.fetch("waits"):
            key = tuple(row)
            count = self._known.get(key)
            if count is None:
                if not asked and not self._names_known(*key[5:7]):
                    asked = True
                    await self._read_names(context)
                if len(self._known) > _KINDS_SHARED:
                    self._known.clear()
                count = self._known[key] = self._count(key)
            counts.append(count)
        return counts

    async def exact(self, context: ReadContext) -> WaitLook:
        """Growth of pg_wait_sampling_profile since the last call; the first has none. Raises as `fetch` does."""
        capabilities, at_s = context.capabilities, context.at_s
        schema = quoted(capabilities.wait_sampling_schema or "")
        now: dict[tuple[Any, ...], int] = {}
        for pid, *wait, observations, query_id, database, role, of_load in await context.connection.fetch(
            sql("wait_profile", context.major).format(schema=schema)
        ):
            key = (pid, *wait, query_id, database, role, of_load)
            now[key] = now.get(key, 0) + observations
        if any(not self._names_known(*key[5:7]) for key in now):
            await self._read_names(context)
        before, before_s = self._profile, self._profile_s
        self._profile, self._profile_s = now, at_s
        # Fewer than before: it was reset, or the pid is somebody else's now.
        grown = {key: count - before.get(key, 0) for key, count in now.items() if count > before.get(key, 0)}
        if before_s is None or any(now.get(key, count) < count for key, count in before.items()):
            return WaitLook((), 0)
        counts = [self._count((*key[1:4], count, *key[4:])) for key, count in grown.items()]
        period_s = (capabilities.wait_sampling_period_ms or 1) / 1000.0
        return WaitLook(counts, max(round((at_s - before_s) / period_s), 1))

    def forget_profile(self) -> None:
        """The next call of `exact` is a first one: another server may answer."""
        self._profile, self._profile_s = {}, None

    def forget_names(self) -> None:
        """Has names asked anew: databases and roles can be renamed."""
        self._known.clear()
        self._names.clear()

    def _names_known(self, database: int | None, role: int | None) -> bool:
        return (not database or ("database", database) in self._names) and (not role or ("role", role) in self._names)

    async def _read_names(self, context: ReadContext) -> None:
        self._names = {(kind, oid): name for kind, oid, name in await context.fetch("names")}

    def _count(self, key: tuple[Any, ...]) -> WaitCount:
        wait_event_type, wait_event, backend_type, observations, query_id, database, role, of_load = key
        names = self._name("database", database), self._name("role", role)
        return WaitCount(wait_event_type, wait_event, backend_type, observations, query_id, *names, of_load)

    def _name(self, kind: str, oid: int | None) -> str | None:
        # Dropped since, or never there (template of a session that is starting): the number is all there is.
        return self._names.get((kind, oid), str(oid)) if oid else None
