"""A reader on a test server, and waiting for what it sees."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from pgtop_tune.metrics import sections
from pgtop_tune.model.postgres import (
    Activity,
    Backend,
)
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.own_sessions import OwnSessions

DEADLINE_S = 60.0


class Clock:
    """A clock the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def reading(
    where: ConnInfo, clock: Callable[[], float] = time.monotonic, own: OwnSessions | None = None
) -> AsyncIterator[PostgresReader]:
    reader = PostgresReader(where, clock, own)
    await reader.connect()
    try:
        yield reader
    finally:
        await reader.aclose()


async def eventually(look: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not await look():
        assert time.monotonic() < deadline, "did not happen"
        await asyncio.sleep(0.02)


async def backends(reader: PostgresReader) -> dict[int, Backend]:
    activity = await reader.read(sections.activity)
    assert isinstance(activity, Activity)
    return {backend.pid: backend for backend in activity.backends}
