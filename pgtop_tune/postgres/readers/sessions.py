"""Readings of sessions: pg_stat_activity, what each waits for, and queues for heavyweight locks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from pgtop_tune.model.postgres import Activity, Backend
from pgtop_tune.model.tail import Blocker, OldTransaction
from pgtop_tune.model.waits import BETWEEN, CLIENT, CPU, TURN, LockSample, LockWait, WaitCount, WaitLook
from pgtop_tune.postgres.queries import sql
from pgtop_tune.postgres.readers.section_readers import ReadContext
from pgtop_tune.postgres.server.conninfo import APPLICATION_NAME
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.secret import without_secrets
from pgtop_tune.sql_quoting import quoted

ASKED_AT_MOST: Final = 64
"""Lock waiters asked about in one look, the longest waiting first: pg_blocking_pids stops every lock request."""


class LockReader:
    """Remembers from a look at the sessions whom to ask about."""

    def __init__(self) -> None:
        self._waiters: tuple[int, ...] = ()
        self._involved: tuple[int, ...] = ()
        self._left_out = 0

    def waiters(self, activity: Activity) -> tuple[int, ...]:
        """Pids of backends that wait for a lock, the longest waiting first, as many as are asked about."""
        waiting = [backend for backend in activity.backends if backend.wait_event_type == "Lock"]
        waiting.sort(key=lambda backend: backend.query_start_ms or 0)
        self._waiters = self._involved = tuple(backend.pid for backend in waiting[:ASKED_AT_MOST])
        self._left_out = max(len(waiting) - ASKED_AT_MOST, 0)
        return self._waiters

    def blockers(self, found: dict[int, tuple[int, ...]]) -> None:
        """Who blocks them."""
        self._involved = tuple({*self._waiters, *(pid for pids in found.values() for pid in pids)} - {0})

    def unasked(self, context: ReadContext) -> LockSample | None:
        """Nobody waits: there is nothing to ask."""
        return None if self._waiters else LockSample(context.at_s, ())

    async def read(self, context: ReadContext) -> LockSample:
        """locks.14.sql about the waiters of the last look. Raises as `ReadConnection.fetch` does."""
        rows = await context.fetch("locks", [str(pid) for pid in self._involved])
        waits = [
            LockWait(
                pid=pid,
                locktype=locktype,
                mode=mode,
                relation=relation,
                target=target,
                wait_start_ms=wait_start_ms,
                holders=tuple(map(int, holders)),
                held_modes=tuple(held_modes),
                prepared=tuple(prepared),
            )
            for pid, locktype, mode, relation, target, wait_start_ms, holders, held_modes, prepared in rows
        ]
        return LockSample(context.at_s, tuple(waits), self._left_out)


# What every backend waits for: one look at it, or what pg_wait_sampling has counted since the look before.
#
# Rows are counted on the server; names of databases and roles come from memory.

_FIRST_WORD: Final = re.compile(r"\s*([A-Za-z]{1,20})\b")
_IDLE: Final = "idle in transaction"
_KINDS_SHARED: Final = 10_000
"""Distinct rows kept for sharing; beyond it they are forgotten and collected anew."""


_PAUSES: Final = {"idle": BETWEEN, "idle in transaction": TURN, "idle in transaction (aborted)": TURN}
"""States in which a session has nothing to do."""


def _wait(kind: str | None, event: str | None, state: str | None) -> tuple[str, str]:
    """Class and event as `WaitCount` has them."""
    pause = _PAUSES.get(state or "")
    if pause is not None:
        return CLIENT, pause
    return (CPU, "") if event is None else (kind or "", event)


class WaitReader:
    """Reads waits.14.sql; remembers the objects of rows it has seen and what the oids in them are called."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], WaitCount] = {}
        self._names: dict[tuple[str, int], str] = {}
        self._profile: dict[tuple[Any, ...], int] = {}
        self._profile_s: float | None = None

    async def look(self, floor_ms: int, one_in: int, context: ReadContext) -> WaitLook:
        """Every wait of this moment, and transactions older than the floor. Raises as `ReadConnection.fetch` does."""
        counts: list[WaitCount] = []
        old: list[OldTransaction] = []
        asked = False
        for row in await context.fetch("waits", floor_ms, one_in):
            kind, event, *who, state, pids, began_ms, now_ms = row
            kind, event = _wait(kind, event, state)
            key = (kind, event, *who)
            for pid, began in zip(pids or (), began_ms or (), strict=True):
                old.append(
                    OldTransaction(
                        pid=pid, xact_start_ms=int(began), age_ms=now_ms - int(began), wait_event_type=kind,
                        wait_event=event, query_id=key[4], of_load=key[7],
                    )
                )  # fmt: skip
            if not key[3]:
                continue
            count = self._known.get(key)
            if count is None:
                if not asked and not self._names_known(*key[5:7]):
                    asked = True
                    await self._read_names(context)
                if len(self._known) > _KINDS_SHARED:
                    self._known.clear()
                count = self._known[key] = self._count(key)
            counts.append(count)
        return WaitLook(counts, 1, old)

    async def blockers(self, pids: Sequence[int], context: ReadContext) -> dict[int, Blocker]:
        """A session that blocks each of these, and each of those that wait. Raises as `ReadConnection.fetch` does."""
        found = {}
        for pid, blocker, state, query in await context.fetch("tail_blockers", [str(pid) for pid in pids]):
            word = _FIRST_WORD.match(shown_query(query or b""))
            idle = (state or "").startswith(_IDLE)
            found[pid] = Blocker(blocker, _IDLE if idle else word[1].upper() if word else "")
        return found

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


# Rows of pg_stat_activity → Backends, sharing what has not changed since the look before.
#
# Three hundred rows a second are the bulk of our decoding and of a session's memory: an idle backend stays the
# same object from frame to frame, and equal texts are one string.

QUERY_CHARACTERS: Final = 500


_NAMES_SHARED: Final = 5_000
"""Distinct texts kept for sharing; beyond it they are forgotten and collected anew."""


def shown_query(text: bytes) -> str:
    """What is seen of a statement: its first characters, without secrets."""
    return without_secrets(text.decode("utf-8", "replace")[:QUERY_CHARACTERS])


class ActivityRows:
    """Builds Activity after Activity; remembers the look before."""

    def __init__(self, own: OwnSessions) -> None:
        self._own = own
        self._before: dict[int, tuple[Any, Backend]] = {}
        self._names: dict[str, str] = {}
        self._queries: dict[bytes, str] = {}

    def activity(self, at_s: float, rows: Iterable[Any]) -> Activity:
        """Rows of activity.14.sql: the fields of Backend up to `query` (as bytes), then now_ms and configured_ms in our
        own row."""
        before, now = self._before, {}
        own_pids, pooled = self._own.pids, self._own.pooled
        backends = []
        own = 0
        now_ms, configured_ms = 0, None
        for row in rows:
            pid = row[0]
            if (pooled or pid in own_pids) and (row[6] or "").startswith(APPLICATION_NAME):
                own += 1
                now_ms, configured_ms = row[17] or now_ms, row[18] or configured_ms
                continue
            known = before.get(pid)
            if known is None or known[0] != row:
                known = (row, self._backend(row))
            now[pid] = known
            backends.append(known[1])
        self._before = now
        return Activity(
            at_s=at_s, now_ms=now_ms, backends=tuple(backends), own_backends=own, configured_ms=configured_ms
        )

    def _backend(self, row: Any) -> Backend:
        names, queries = self._names, self._queries
        if len(names) + len(queries) > _NAMES_SHARED:
            names.clear()
            queries.clear()
        shared: list[Any] = [names.setdefault(value, value) if type(value) is str else value for value in row[1:16]]
        raw = row[16]
        query = queries.get(raw)
        if query is None and raw is not None:
            query = queries[raw] = shown_query(raw)
        fields: tuple[Any, ...] = (row[0], *shared, query)
        return Backend(*fields)

    @staticmethod
    def blocked(activity: Activity, blockers: Mapping[int, tuple[int, ...]]) -> Activity:
        """The same look, knowing who is blocked by whom."""
        backends = tuple(
            replace(backend, blocked_by=blockers[backend.pid]) if backend.pid in blockers else backend
            for backend in activity.backends
        )
        return replace(activity, backends=backends)
