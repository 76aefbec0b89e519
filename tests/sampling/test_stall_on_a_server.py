"""A real load that stands still behind a row lock: the screen, the tape, the worst second; live and replayed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.units import ms
from pgtop_tune.bench.datasets.pgbench_tables import initialise
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.wiring import LiveSession, endpoint_of
from pgtop_tune.metrics.budget import latency_budget
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.client_bound import client_bound
from pgtop_tune.metrics.load import OLDEST, OPEN_WHILE_STALLED, stall
from pgtop_tune.metrics.trip_wires import trip_wire
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchSample, LatencySecond, LoadSpec
from pgtop_tune.model.frame import Frame
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.recording.replay import ReplaySource
from pgtop_tune.runtime.ports import Landmark, Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.latency import latency_lines
from pgtop_tune.tui.dashboard.throughput import throughput_lines
from pgtop_tune.tui.widgets.lines import UNICODE, Line, plain_text
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.support.recordings import write
from tests.support.servers import Servers, conninfo

JAM_S = 6
FRAMES_BEFORE = 4
"""Of the load."""
LOCK = "UPDATE pgbench_branches SET bbalance = bbalance"


def bench_of(frame: Frame) -> BenchSample | None:
    return None if isinstance(frame.bench, Unavailable) else frame.bench


def seconds_of(frames: list[Frame]) -> list[LatencySecond]:
    return [second for one in frames if (bench := bench_of(one)) is not None for second in bench.latencies]


def has_lasted(frames: list[Frame]) -> bool:
    """Whether the jam is as long as it is to be in the newest frame."""
    lasting = stall(Interval(frames))
    return lasting is not None and lasting.zero_s >= JAM_S


async def jammed_frames(target: str) -> list[Frame]:
    """A load that works, waits for a row lock, and works until the log of the wait has come."""
    live = LiveSession(resolve(target), LiveOptions(interval_s=0.5))
    frames: list[Frame] = []
    try:
        async with asyncio.timeout(90), await psycopg.AsyncConnection.connect(target) as locking:
            began = False
            async for step in live.source.steps():
                frames += step.frames
                if len(frames) == FRAMES_BEFORE:
                    await live.load.start(LoadSpec(clients=4, threads=2))
                if not began and len(seconds_of(frames)) >= 4:
                    await locking.execute(LOCK)
                    began = True
                if has_lasted(frames):
                    await locking.rollback()
                if any(second.max_us >= 1_000_000 * JAM_S for second in seconds_of(frames)):
                    break
    finally:
        await live.source.aclose()
    return frames


@pytest.fixture(scope="module")
def frames(servers: Servers) -> list[Frame]:
    server = servers.running(18)
    target = conninfo(server)
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS jammed WITH (FORCE)")
        connection.execute("CREATE DATABASE jammed")
    target = target.replace("dbname=postgres", "dbname=jammed")
    asyncio.run(initialise(endpoint_of(resolve(target)), 1, find_pgbench()))
    return asyncio.run(jammed_frames(target))


def shown(frames: list[Frame]) -> Session:
    session = Session(CHARTED)
    for one in frames:
        session.apply(Step((one,)))
    return session


def jam_of(frames: list[Frame]) -> list[Frame]:
    """Up to the frame before the lock goes."""
    return next(frames[:end] for end in range(1, len(frames)) if has_lasted(frames[:end]))


def red(lines: list[Line]) -> str:
    return " ".join(text for line in lines for text, style in line if style == "critical")


@pytest.mark.parametrize("size", [(80, 1), (80, 6), (120, 6), (200, 10)])
def test_while_nothing_ends_the_screen_says_so_in_red(frames: list[Frame], size: tuple[int, int]) -> None:
    session = shown(jam_of(frames))
    said = red(latency_lines(session, *size, UNICODE))
    for words in ("ended for", "open"):
        number = re.search(rf"{words} (\d+(?:\.\d)?)", said)
        assert number is not None
        assert float(number[1]) > JAM_S - 1
    if size[1] > 1:
        assert "STALLED for" in red(throughput_lines(session, *size, UNICODE))
    if size[0] == 200:
        assert "figures of" in said, "percentiles of the past say that they are"


def test_while_nothing_ends_the_oldest_open_transaction_is_the_curve(frames: list[Frame]) -> None:
    jam = shown(jam_of(frames))
    drawn = [point.value for point in jam.history.series(OPEN_WHILE_STALLED)]
    ages_ms = [value for value in drawn if value is not None]
    assert drawn[: FRAMES_BEFORE + 1] == [None] * (FRAMES_BEFORE + 1), "while transactions end there is no such curve"
    assert ages_ms == sorted(ages_ms)
    assert ages_ms[-1] >= 1000.0 * (JAM_S - 1)
    curve = [line for line in latency_lines(jam, 120, 10, UNICODE)[1:] if any(s == "critical" for _, s in line)]
    assert curve, "the curve is red"


def test_numbers_of_the_jam_are_lower_bounds_and_the_past_makes_no_budget(frames: list[Frame]) -> None:
    jam = Interval(jam_of(frames))
    assert (OLDEST(jam) or 0.0) >= JAM_S
    assert latency_budget(jam) is None
    assert trip_wire(f"p99>{JAM_S - 1}s").crossed(jam) is True
    assert trip_wire(f"latency>{JAM_S - 1}s").crossed(jam) is True


def test_the_tape_has_begin_and_end_at_their_moments_once(frames: list[Frame]) -> None:
    events = [event for one in frames for event in one.events if event.text.startswith("stall")]
    begin, end = events
    assert begin.text == "stall"
    assert int(end.text.split()[2]) >= JAM_S
    assert (end.at_ms - begin.at_ms) / 1000.0 > JAM_S - 1
    last = jam_of(frames)[-1]
    assert begin.at_ms < last.taken_at_ms - 1000 * (JAM_S - 1) < last.taken_at_ms <= end.at_ms


def test_afterwards_the_chart_has_the_longest_as_a_number(frames: list[Frame]) -> None:
    session = shown(frames)
    slowest = max(seconds_of(frames), key=lambda second: second.max_us)
    assert stall(Interval(frames)) is None
    second = next(each for each in session.latency.series() if each.second == slowest.second)
    assert second.max_ms == slowest.max_us / 1000.0 >= 1000.0 * JAM_S
    drawn = [plain_text(line) for line in latency_lines(session, 120, 8, UNICODE)]
    assert f"{ms(second.max_ms)} ms▲" in drawn[1]


async def test_the_worst_second_is_found_in_a_recording(frames: list[Frame], tmp_path: Path) -> None:
    brought = next(one for one in frames if any(second.max_us >= 1_000_000 * JAM_S for second in seconds_of([one])))
    path = write(tmp_path / "jam.jsonl.gz", frames)
    source = ReplaySource(RecordingReader(path))
    assert await source.find(Landmark.WORST_SECOND) == brought.elapsed_s
    await source.aclose()
    replayed = [one for _, one in RecordingReader(path).frames()]
    live, again = (shown(jam_of(each)) for each in (frames, replayed))
    assert latency_lines(again, 120, 6, UNICODE) == latency_lines(live, 120, 6, UNICODE)


def test_the_begin_of_a_load_is_not_judged_by_what_was_before(frames: list[Frame]) -> None:
    budgets = [latency_budget(Interval(frames[:end])) for end in range(FRAMES_BEFORE + 1, len(frames) + 1)]
    bounds = [client_bound(Interval(frames[:end])) for end in range(FRAMES_BEFORE + 1, len(frames) + 1)]
    at_work = next(index for index, one in enumerate(frames) if (bench := bench_of(one)) and bench.progress)
    first = range(at_work - FRAMES_BEFORE)
    assert first
    assert [(budgets[index], bounds[index]) for index in first] == [(None, None)] * len(first)
    assert any(budgets), "but soon it has one"
    assert any(bounds)
