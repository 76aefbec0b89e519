"""Waits until frames show a server that was restarted as it is now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.runtime.run_frames import FrameKeeper

ANSWER_S: Final = 120.0
_STARTED: Final = "SELECT extract(epoch FROM pg_postmaster_start_time())::float8"


@decodes
async def until_frames_show_it(open_sql_session: Callable[[], Awaitable[SqlSession]], keeper: FrameKeeper) -> None:
    """Waits for a frame of the server that answers now.

    Raises:
        ConnectionProblem: It does not answer, or frames do not show it in time.
    """
    sql_session = await open_sql_session()
    try:
        [[started_s]] = await sql_session.rows(_STARTED)
    finally:
        await sql_session.aclose()

    def shows(interval: Interval) -> bool:
        facts = sections.server(interval.newest)
        return not isinstance(facts, Unavailable) and abs(facts.started_ms / 1000.0 - float(str(started_s))) < 1.0

    if not await keeper.until(shows, ANSWER_S):
        raise ConnectionProblem("the server does not answer")
