"""Queues for heavyweight locks: asked only when somebody stands in one, and only about those in it."""

from __future__ import annotations

from typing import Final

from pgtop_tune.model.postgres import Activity
from pgtop_tune.model.waits import LockSample, LockWait
from pgtop_tune.postgres.readers.section_readers import ReadContext

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
