"""Progress of creating a data set; for steps without progress output, from the server's progress views.

Source: pg_stat_progress_vacuum heap_blks_scanned and heap_blks_total; pg_stat_progress_create_index blocks_done and
blocks_total; the growth of pg_database_size() while pgbench's rows are made by one statement.

How fast a data set grows, and how long it will take.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.bench.ports import SqlSession


class StepPace(Struct, frozen=True):
    """Of the step under way.

    Attributes:
        per_s: Rows or blocks since the step began, those there already left out; None before there is a second of it.
        remaining_s: At this pace; None where it cannot be said.
    """

    per_s: float | None = None
    remaining_s: float | None = None


class PaceMeter:
    """Takes progress as it comes and says the pace."""

    def __init__(self) -> None:
        self._of = ("", 0)
        self._first: tuple[float, int] | None = None

    def after(self, progress: InitialiseProgress, now_s: float) -> StepPace:
        """The pace with this.

        Args:
            now_s: On a monotonic clock.
        """
        if (progress.step, progress.total) != self._of:
            self._of, self._first = (progress.step, progress.total), (now_s, progress.done)
        if self._first is None or not progress.total:
            return StepPace()
        since_s, before = self._first
        elapsed_s, made = now_s - since_s, progress.done - before
        if elapsed_s < 1.0 or made <= 0:
            return StepPace()
        rate = made / elapsed_s
        return StepPace(rate, max(0.0, (progress.total - progress.done) / rate))


SERVER_SIDE: Final = "generating data (server-side)"
"""pgbench's words for step G."""
LOOK_EVERY_S: Final = 1.0
_ALMOST: Final = 0.99
"""An estimate never says that it is done."""

_SIZE: Final = "SELECT pg_database_size(current_database())"
_VACUUM: Final = (
    "SELECT heap_blks_scanned, heap_blks_total FROM pg_stat_progress_vacuum"
    " WHERE datname = current_database() ORDER BY heap_blks_total DESC LIMIT 1"
)
_INDEX: Final = (
    "SELECT blocks_done, blocks_total FROM pg_stat_progress_create_index"
    " WHERE datname = current_database() ORDER BY blocks_total DESC LIMIT 1"
)
_BLOCKS: Final = {
    "vacuuming": _VACUUM,
    "vacuum": _VACUUM,
    "creating primary keys": _INDEX,
    "primary keys": _INDEX,
    "indexes": _INDEX,
}
"""Steps in pgbench's words and in ours → the blocks done and all."""


class InitialiseProgress(Struct, frozen=True):
    """Where it stands.

    Attributes:
        step: In pgbench's words, or ours: "generating data (client-side)", "vacuuming", …
        done: Of `unit`, made so far; 0 in other steps.
        total: There will be; 0 where nobody says.
        estimated: `done` is read off the size of the database.
        unit: rows, or blocks of a table that is gone through.
    """

    step: str
    done: int = 0
    total: int = 0
    estimated: bool = False
    unit: str = "rows"


Tell = Callable[[InitialiseProgress], None]


class StepWatch:
    """Passes progress on, and adds to it what the server says.

    Args:
        tell: Told of both.
        sql_session: A session that nobody else uses; None adds nothing.
        rows: There will be after step G.
        rows_bytes: They will take.
    """

    def __init__(self, tell: Tell, sql_session: SqlSession | None, rows: int = 0, rows_bytes: int = 1) -> None:
        self._tell = tell
        self._sql_session = sql_session
        self._rows = rows
        self._rows_bytes = rows_bytes
        self._looking: asyncio.Task[None] | None = None

    def tell(self, progress: InitialiseProgress) -> None:
        """Takes what the maker said; begins to ask when its step is one of which it says nothing."""
        if self._looking is not None:
            self._looking.cancel()
        self._tell(progress)
        if self._sql_session is None:
            return
        if progress.step == SERVER_SIDE:
            self._looking = asyncio.create_task(self._growth(self._sql_session))
        elif progress.step in _BLOCKS:
            self._looking = asyncio.create_task(self._blocks(self._sql_session, progress.step))

    async def end(self) -> None:
        """Asks no more; a question under way is over when this returns."""
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking

    @decodes
    async def _growth(self, sql_session: SqlSession) -> None:
        # Progress is a courtesy: a server that refuses to say its size refuses nothing else.
        with contextlib.suppress(PgtopError):
            [(before,)] = await sql_session.rows(_SIZE)
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                [(now,)] = await sql_session.rows(_SIZE)
                share = max(0.0, (int(str(now)) - int(str(before))) / self._rows_bytes)
                done = int(min(share, _ALMOST) * self._rows)
                self._tell(InitialiseProgress(SERVER_SIDE, done, self._rows, estimated=True))

    @decodes
    async def _blocks(self, sql_session: SqlSession, step: str) -> None:
        with contextlib.suppress(PgtopError):
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                for done, total in await sql_session.rows(_BLOCKS[step]):
                    self._tell(InitialiseProgress(step, int(str(done)), int(str(total)), unit="blocks"))
