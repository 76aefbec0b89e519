"""A standby is promoted while we look on: header, WAL pane, forecast, events and exports follow."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.export.rows import STATES
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.checkpoints import next_checkpoint
from pgtop_tune.metrics.server import WAL_BYTES
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.wal import wal_lines
from pgtop_tune.tui.scene.header import header_line
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text
from tests.sampling.test_live_source import answered, watching
from tests.support.servers import conninfo
from tests.support.standby import standby_of


def screen(frames: list[Frame]) -> str:
    session = Session()
    session.apply(Step(tuple(frames)))
    lines = [header_line(session, 200, UNICODE), *wal_lines(session, 200, 2, UNICODE)]
    return "\n".join(map(plain_text, lines))


def is_primary(frame: Frame) -> bool:
    return answered(frame) and isinstance(frame.postgres, PostgresSample) and not frame.postgres.server.in_recovery


async def test_after_a_promotion_everything_is_that_of_a_primary(
    make_server: Callable[..., Throwaway], server: Throwaway
) -> None:
    standby = standby_of(make_server(), make_server, "kept", server.binaries)
    target = conninfo(standby)
    async with watching(target) as watcher:
        await watcher.until(lambda frame: answered(frame) and "restartpoints" in screen(watcher.frames))
        assert " standby" in screen(watcher.frames)
        with psycopg.connect(target, autocommit=True) as psql:
            assert psql.execute("SELECT pg_promote()").fetchone() == (True,)
            promoted = await watcher.until(is_primary)
            # A tick that the server did not answer in has no sample.
            before = next(frame for frame in reversed(watcher.frames[:-1]) if answered(frame)).postgres.server
            assert (promoted.postgres.server.local, promoted.postgres.server.postmaster_pid) == (
                before.local, before.postmaster_pid,
            )  # fmt: skip
            psql.execute("CREATE TABLE t AS SELECT generate_series(1, 1000)")
            interval = await watcher.more(3)
    assert watcher.events(EventKind.ROLE) == ["promoted: now a primary"]
    assert " primary" in screen(watcher.frames)
    assert "restartpoint" not in screen(watcher.frames)
    forecast = next_checkpoint(interval)
    assert forecast is None or not forecast.restartpoint
    assert all((WAL_BYTES(Interval(watcher.frames[:end])) or 0.0) >= 0.0 for end in range(2, len(watcher.frames)))
    role = next(one for one in STATES if one.id == "server.in_recovery")
    assert [value for _, value in role.read(interval)] == [0.0]
