"""The same frames give the same screen, live or replayed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg

from pgtop_tune.bench.datasets.pgbench_tables import initialise
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.cli.headless import run_engine
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.wiring import LiveSession, endpoint_of
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.recording.history_buffer import HistoryBuffer
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.recording.replay import ReplaySource
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.screen import DashboardState, dashboard_layout, dashboard_lines
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text
from pgtop_tune.tui.widgets.time_axis import CHARTED


class Picture:
    """A sink that keeps what the screen would show after every frame."""

    def __init__(self) -> None:
        self.session = Session(CHARTED)
        self.seen: list[str] = []

    def accept(self, step: Step) -> None:
        for frame in step.frames:
            self.session.apply(Step((frame,)))
            self.seen.append(drawn(self.session))

    def close(self) -> None:
        pass


def drawn(session: Session) -> str:
    """The dashboard as text."""
    panes = dashboard_lines(session, dashboard_layout(160, 48), 160, UNICODE, DashboardState())
    return "\n".join(plain_text(line) for lines in panes.values() for line in lines)


async def looked_back(hour: HistoryBuffer, live: Session, frames: int) -> tuple[list[str], list[str]]:
    """What the screen shows frame by frame on the way back to the first one, and on the way to the newest again."""
    past = live.copy()
    source = ReplaySource(hour, shown_frames=past.frames)
    steps, back, forth = source.steps(), [drawn(past)], list[str]()
    for by, seen in ((-1, back), (1, forth)):
        for _ in range(frames - 1):
            assert past.now is not None
            wanted_s = hour.elapsed_s(hour.index_at(past.now.elapsed_s) + by)
            source.step(by)
            async with asyncio.timeout(60):
                while past.now is None or past.now.elapsed_s != wanted_s:
                    past.apply(await anext(steps))
            seen.append(drawn(past))
    return back, forth


def checkpoint(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CHECKPOINT")


async def test_a_replayed_session_shows_what_the_live_one_showed(database: str, tmp_path: Path) -> None:
    conninfo = resolve(database)
    await initialise(endpoint_of(conninfo), 1, find_pgbench())
    session = LiveSession(conninfo, LiveOptions(interval_s=0.5))
    session.recorder.start(str(tmp_path / "a.jsonl.gz"))
    live, replayed, hour = Picture(), Picture(), HistoryBuffer()
    session.engine.attach(live)
    session.engine.attach(hour)

    async def start() -> None:
        await session.load.start(LoadSpec(clients=2))
        async with asyncio.timeout(60):
            while len(live.seen) < 6:
                await asyncio.sleep(0.05)
        await asyncio.to_thread(checkpoint, database)

    await run_engine(session.engine, 3.0, start, session.load.stop)
    reader = RecordingReader(tmp_path / "a.jsonl.gz")
    for _, frame in reader.frames():
        replayed.accept(Step((frame,)))
    reader.close()
    assert len(live.seen) >= 6
    assert replayed.seen == live.seen
    back, forth = await looked_back(hour, live.session, len(live.seen))
    assert back == live.seen[::-1]
    assert forth == live.seen[1:]
    assert "tpcb-like, 2 clients" in live.seen[-1]
    assert any("tpcb-like ×2▲" in picture for picture in live.seen)
