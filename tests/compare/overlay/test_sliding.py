"""Overlays that move along: the session itself some minutes ago, and a recording at its time of day."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.compare.overlay.curve_files import baseline_of
from pgtop_tune.compare.overlay.curves import (
    DAY_MS,
    AgoOverlay,
    ClockOverlay,
    Curve,
    OverlayCurves,
    OverlayRun,
    against_baseline,
)
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.support.frames import EPOCH_MS
from tests.support.sides import frames, noisy, recorded


def session_of(found: list[Frame]) -> Session:
    session = Session(CHARTED)
    session.apply(Step(tuple(found)))
    return session


def test_what_was_so_many_seconds_ago_stands_under_the_present() -> None:
    session = session_of(frames(1000.0, "now"))
    overlay = AgoOverlay(session, 60.0)
    overlay.follow(session.now)
    assert session.now is not None
    now_s = session.now.elapsed_s
    drawn = {
        round(point.at_s): point.value for point in overlay.points("tps", now_s - 20.0, now_s + 10.0) if point.value
    }
    before = {round(point.at_s): point.value for point in session.history.series(CHARTED[0], now_s - 90.0, now_s)}
    assert drawn == {at_s + 60: value for at_s, value in before.items() if now_s - 80.0 <= at_s < now_s - 50.0}
    assert overlay.points("p99_ms", now_s - 20.0, now_s)[-1].value is not None


def test_a_load_that_became_slower_differs_from_itself_before() -> None:
    quick, slow = frames(1000.0, "a")[:120], frames(800.0, "b")[120:155]
    session = session_of([*quick, *slow])
    overlay = AgoOverlay(session, 60.0)
    overlay.follow(session.now)
    tps, p99 = against_baseline(session, overlay)
    assert tps is not None
    assert p99 is not None
    assert overlay.now(session.now) is not None
    assert tps.effect.relative < -0.02


def test_before_the_session_was_that_old_there_is_no_figure() -> None:
    session = session_of(frames(1000.0, "now")[:40])
    overlay = AgoOverlay(session, 600.0)
    overlay.follow(session.now)
    assert against_baseline(session, overlay) == (None, None)
    assert not [point for point in overlay.points("tps", 0.0, 100.0) if point.value is not None]


@pytest.mark.parametrize("days", [1, 2, 9])
def test_a_recording_of_days_ago_stands_at_its_time_of_day(days: int) -> None:
    curve = Curve()
    noise = noisy(1000.0, "then", 0.01)
    for second in range(1, 3600):
        curve.add(float(second), noise(second))
    # It began ten minutes before this session's first frame, by the clock on the wall.
    run = OverlayRun(profile="tpcb-like", clients=16, began_ms=EPOCH_MS - days * DAY_MS - 600_000, tps=curve)
    session = session_of(frames(1000.0, "now"))
    overlay = ClockOverlay(OverlayCurves("then", (run,)))
    placed = overlay.now(session.now)
    assert placed is not None
    assert placed.start_s == pytest.approx(-600.0)
    values = {round(point.at_s): point.value for point in overlay.points("tps", 0.0, 50.0) if point.value is not None}
    assert values[10] == noise(610)


def test_a_recording_of_another_time_of_day_says_so() -> None:
    curve = Curve()
    for second in range(1, 100):
        curve.add(float(second), 1.0)
    run = OverlayRun(clients=16, began_ms=EPOCH_MS - DAY_MS - 7_200_000, tps=curve)
    session = session_of(frames(1000.0, "now"))
    assert ClockOverlay(OverlayCurves("then", (run,))).now(session.now) is None


def test_a_recording_knows_when_its_runs_began(tmp_path: Path) -> None:
    kept = [replace(frame, taken_at_ms=frame.taken_at_ms) for frame in frames(800.0, "a")]
    recorded(kept, tmp_path / "a.jsonl")
    *_, curves = baseline_of(tmp_path / "a.jsonl", "a")
    assert abs(curves.runs[0].began_ms - EPOCH_MS) < 120_000
