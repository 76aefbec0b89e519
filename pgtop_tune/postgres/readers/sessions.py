"""Readings of sessions: pg_stat_activity, and queues for heavyweight locks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import asyncpg
from msgspec.structs import replace

from pgtop_tune.base.secret import without_secrets
from pgtop_tune.model.postgres import Activity, Backend
from pgtop_tune.model.statements import OWN_MARK
from pgtop_tune.model.waits import LockSample, LockWait
from pgtop_tune.postgres.readers.section_readers import ReadContext
from pgtop_tune.postgres.server.conninfo import APPLICATION_NAME
from pgtop_tune.postgres.server.encodings import decoder, is_known
from pgtop_tune.postgres.server.own_sessions import OwnSessions

_NAMED: Final = f"{APPLICATION_NAME} ("
"""Beginning of the name of a sampler whose operator has set PGAPPNAME."""
ASKED_AT_MOST: Final = 64
"""Most lock waiters in one reading, the longest waiting first: pg_blocking_pids() stops all lock requests."""


class LockReader:
    """Reader of lock waits; it keeps the waiting sessions of the last reading of the sessions."""

    def __init__(self) -> None:
        self._waiters: tuple[int, ...] = ()
        self._involved: tuple[int, ...] = ()
        self._left_out = 0

    def waiters(self, activity: Activity) -> tuple[int, ...]:
        """Return pids of backends that wait for a lock, the longest waiting first, at most `ASKED_AT_MOST`."""
        waiting = [backend for backend in activity.backends if backend.wait_event_type == "Lock"]
        waiting.sort(key=lambda backend: backend.query_start_ms or 0)
        self._waiters = self._involved = tuple(backend.pid for backend in waiting[:ASKED_AT_MOST])
        self._left_out = max(len(waiting) - ASKED_AT_MOST, 0)
        return self._waiters

    def blockers(self, blockers_by_pid: dict[int, tuple[int, ...]]) -> None:
        """Add the pids that block the waiting sessions."""
        self._involved = tuple({*self._waiters, *(pid for pids in blockers_by_pid.values() for pid in pids)} - {0})

    def unasked(self, context: ReadContext) -> LockSample | None:
        """Return the empty reading while no session waits."""
        return None if self._waiters else LockSample(context.at_s, ())

    async def read(self, context: ReadContext) -> LockSample:
        """Read locks.14.sql about the waiters of the last reading. Raises as `ReadConnection.fetch` does."""
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


# Rows of pg_stat_activity as Backends, which share unchanged parts with the reading before.
#
# Three hundred rows a second are most of our decoding and of a session's memory: an idle backend stays the same object
# from frame to frame, and equal texts are one string.

QUERY_CHARACTERS: Final = 500


_NAMES_SHARED: Final = 5_000
"""Most distinct texts kept for sharing; beyond it they are dropped and collected anew."""


CONVERTED_AT_MOST: Final = 20
"""Most texts that the server converts in one reading, each with a statement of its own."""
_CONVERT: Final = "SELECT convert(decode($1::text, 'hex'), $2::text::name, 'UTF8') AS query"
_LONGEST_CHARACTER: Final = 4
"""Bytes of the longest character, within which a text may be cut."""


def shown_query(text: bytes, encoding: str | None = "UTF8") -> str:
    """Return the displayed part of a statement: its first characters, without secrets.

    Args:
        text: Bytes from the server.
        encoding: The server's name of their encoding; None where it is not known.
    """
    return without_secrets(decoder(encoding or "UTF8")(text)[:QUERY_CHARACTERS])


def needs_server(text: bytes, encoding: str | None) -> bool:
    """Return whether only the server can decode a text."""
    return bool(encoding) and not is_known(encoding or "") and not text.isascii()


async def converted(context: ReadContext, text: bytes, encoding: str) -> bytes:
    """Have the server convert a text to UTF-8; unchanged where the server cannot, either."""
    for cut in range(_LONGEST_CHARACTER):
        try:
            rows = await context.connection.fetch(_CONVERT, text[: len(text) - cut].hex(), encoding)
        except asyncpg.PostgresError:
            continue
        return bytes(rows[0]["query"])
    return text


_WATCHES_MS: Final = 5_000
_MARK: Final = OWN_MARK.encode()
_MARKED_WITHIN: Final = 40
"""Bytes within which a statement of ours has its mark, behind the first word."""


class ActivityRows:
    """Builder of Activity; it keeps the rows of the reading before."""

    def __init__(self, our_sessions: OwnSessions) -> None:
        self._own = our_sessions
        self._before: dict[int, tuple[Any, Backend]] = {}
        self._names: dict[Any, Any] = {}
        self._queries: dict[tuple[bytes, str | None], str] = {}

    async def convert(self, context: ReadContext, rows: Iterable[Any]) -> None:
        """Have the server convert the texts that Python cannot decode. Raises as `ReadConnection.fetch` does."""
        strange = [row for row in rows if row["query"] and not is_known(row["query_encoding"] or "UTF8")]
        texts = {(row["query"], row["query_encoding"]) for row in strange}
        unread = [text for text in texts - self._queries.keys() if needs_server(*text)]
        for text, encoding in unread[:CONVERTED_AT_MOST]:
            self._queries[text, encoding] = shown_query(await converted(context, text, encoding))

    def activity(self, at_s: float, rows: Iterable[Any]) -> Activity:
        """Make an Activity of rows of activity.14.sql: the fields of Backend up to `query` (as bytes), its encoding,
        then now_ms and configured_ms in our own row."""
        before, now = self._before, {}
        own_pids, pooled = self._own.pids, self._own.pooled
        names, queries = self._names, self._queries
        if len(names) + len(queries) > _NAMES_SHARED:
            names.clear()
            queries.clear()
        same = names.setdefault
        backends = []
        own_backends = 0
        now_ms, configured_ms = 0, None
        watching: list[tuple[int, int | None]] = []
        asking: set[int] = set()
        for row in rows:
            # Unpacking in one step: access field by field would take most of the time.
            (
                pid, backend_type, backend_start_ms, leader_pid, datname, usename, application, client, state,
                wait_event_type, wait_event, xact_start_ms, query_start_ms, state_change_ms, xmin_age, query_id, text,
                encoding, own_now_ms, own_configured_ms,
            ) = row  # fmt: skip
            if (pooled or pid in own_pids) and (application or "").startswith(APPLICATION_NAME):
                own_backends += 1
                now_ms, configured_ms = own_now_ms or now_ms, own_configured_ms or configured_ms
                continue
            if application == APPLICATION_NAME or (application or "").startswith(_NAMED):
                watching.append((pid, xact_start_ms))
                if state == "active" and _MARK in (text or b"")[:_MARKED_WITHIN]:
                    asking.add(pid)
            cached = before.get(pid)
            if cached is None or cached[0] != row:
                query = queries.get((text, encoding))
                if query is None and text is not None:
                    query = queries[text, encoding] = shown_query(text, encoding)
                # In the order of the fields: seventeen keywords would take ten times as long.
                cached = row, Backend(
                    pid, same(backend_type, backend_type), backend_start_ms, leader_pid, same(datname, datname),
                    same(usename, usename), same(application, application), same(client, client), same(state, state),
                    same(wait_event_type, wait_event_type), same(wait_event, wait_event), xact_start_ms,
                    query_start_ms, state_change_ms, xmin_age, query_id, query,
                )  # fmt: skip
            now[pid] = cached
            backends.append(cached[1])
        self._before = now
        # Watching sessions of other instances of this program, unless they have a transaction of seconds.
        watchers = {pid for pid, begun_ms in watching if begun_ms is None or now_ms - begun_ms < _WATCHES_MS}
        self._own.watchers = len(watchers)
        # A file system that hangs may keep a statement of ours from ending.
        watchers |= asking
        if watchers:
            backends = [backend for backend in backends if backend.pid not in watchers]
        own_backends += len(watchers)
        return Activity(
            at_s=at_s, now_ms=now_ms, backends=tuple(backends), own_backends=own_backends, configured_ms=configured_ms
        )

    @staticmethod
    def blocked(activity: Activity, blockers: Mapping[int, tuple[int, ...]]) -> Activity:
        """Return the Activity with the blockers of its backends."""
        backends = tuple(
            replace(backend, blocked_by=blockers[backend.pid]) if backend.pid in blockers else backend
            for backend in activity.backends
        )
        return replace(activity, backends=backends)
