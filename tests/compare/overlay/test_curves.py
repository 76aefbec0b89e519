"""Where an earlier run stands under the live one, and how the load differs from it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.compare.overlay.curves import MOST_POINTS, Curve, Overlay, OverlayCurves, OverlayRun, against_baseline
from pgtop_tune.compare.statistics.effect import Verdict
from pgtop_tune.model.bench import BenchSample
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.support.frames import EPOCH_MS
from tests.support.sides import frames, noisy


def curve(*values: float) -> Curve:
    made = Curve()
    for second, value in enumerate(values, 1):
        made.add(float(second), value)
    return made


def ghost_run(clients: int, *tps: float, profile: str = "tpcb-like") -> OverlayRun:
    return OverlayRun(profile, clients, None, curve(*tps))


def started(found: list[Frame], second: int, **run: object) -> list[Frame]:
    """The same frames, of a run that started at that second of the session."""
    changed = []
    for frame in found:
        bench = frame.bench
        if isinstance(bench, BenchSample):
            moved = replace(bench.run, started_ms=EPOCH_MS + second * 1000, **run)  # type: ignore[arg-type]
            bench = replace(bench, run=moved)
        changed.append(replace(frame, bench=bench))
    return changed


def session_of(found: list[Frame]) -> Session:
    session = Session(CHARTED)
    session.apply(Step(tuple(found)))
    return session


def overlay_of(baseline: OverlayCurves, *shown: Frame) -> Overlay:
    overlay = Overlay(baseline)
    for frame in shown:
        overlay.follow(frame)
    return overlay


def test_the_start_of_the_ghost_lies_under_the_start_of_the_load() -> None:
    found = started(frames(seconds=40), 30)
    overlay = overlay_of(OverlayCurves("g", (ghost_run(16, 100.0, 200.0, 300.0),)), found[35])
    points = [(point.at_s, point.value) for point in overlay.points("tps", 0.0, 60.0) if point.value is not None]
    assert points == [(31.0, 100.0), (32.0, 200.0), (33.0, 300.0)]
    placed = overlay.now(found[35])
    assert placed is not None
    assert placed.start_s == 30.0


def test_each_step_has_the_ghost_of_as_many_clients_under_it() -> None:
    baseline = OverlayCurves("g", (ghost_run(8, 80.0, 80.0, 80.0), ghost_run(16, 160.0, 160.0, 160.0)))
    base = frames(seconds=40)
    first = started(base, 5, clients=16, run=1)[10]
    second = started(base, 20, clients=8, run=2)[25]
    overlay = overlay_of(baseline, first, second)
    points = [(point.at_s, point.value) for point in overlay.points("tps", 0.0, 60.0) if point.value is not None]
    assert points == [(6.0, 160.0), (7.0, 160.0), (8.0, 160.0), (21.0, 80.0), (22.0, 80.0), (23.0, 80.0)]


def test_a_ghost_ends_where_the_next_load_begins() -> None:
    baseline = OverlayCurves("g", (ghost_run(16, *[160.0] * 30),))
    base = frames(seconds=40)
    overlay = overlay_of(baseline, started(base, 5, run=1)[8], started(base, 12, run=2)[15])
    moments = [point.at_s for point in overlay.points("tps", 0.0, 20.0) if point.value is not None]
    assert moments == sorted(moments)
    assert len(moments) == len(set(moments))


def test_which_run_stands_under_a_load() -> None:
    bench = frames(seconds=20)[10].bench
    assert isinstance(bench, BenchSample)
    run = replace(bench.run, clients=16, profile="tpcb-like", rate_per_s=None)
    one, other, like = ghost_run(8), ghost_run(16, profile="mine"), ghost_run(16)
    assert OverlayCurves("g", (one, other, like)).of(run) is like
    assert OverlayCurves("g", (one, other)).of(run) is other
    assert OverlayCurves("g", (one,)).of(run) is one
    assert OverlayCurves("g", (one, ghost_run(4))).of(run) is None
    assert OverlayCurves("g", (one,)).of(None) is None
    assert OverlayCurves("g", (OverlayRun(),)).of(None) is not None


def test_five_per_cent_more_than_the_ghost_is_told_with_its_interval() -> None:
    slow = noisy(1000.0, "ghost", 0.01)
    baseline = OverlayCurves("g", (ghost_run(16, *(slow(second) for second in range(1, 160))),))
    session = session_of(started(frames(1050.0, "now"), 0))
    tps, _ = against_baseline(session, overlay_of(baseline, *filter(None, [session.now])))
    assert tps is not None
    assert tps.effect.relative == pytest.approx(0.05, abs=0.02)
    assert tps.verdict is Verdict.DIFFER
    assert tps.effect.low is not None


def test_the_difference_is_of_all_seconds_that_both_have_not_of_whole_blocks() -> None:
    slow = noisy(1000.0, "ghost", 0.01)
    theirs = [5000.0 if second < 3 else slow(second) for second in range(1, 160)]
    session = session_of(started(frames(1050.0, "now"), 0))
    tps, _ = against_baseline(
        session, overlay_of(OverlayCurves("g", (ghost_run(16, *theirs),)), *filter(None, [session.now]))
    )
    assert tps is not None
    assert tps.effect.low is not None
    assert tps.effect.relative == pytest.approx(1050.0 * len(theirs) / sum(theirs) - 1.0, abs=0.015)


def test_a_few_seconds_have_a_difference_and_no_verdict() -> None:
    baseline = OverlayCurves("g", (ghost_run(16, *[500.0] * 100),))
    session = session_of(started(frames(1000.0, "now"), 0)[:12])
    tps, _ = against_baseline(session, overlay_of(baseline, *filter(None, [session.now])))
    assert tps is not None
    assert tps.effect.relative == pytest.approx(1.0, abs=0.1)
    assert tps.effect.low is None
    assert tps.verdict is Verdict.UNDECIDED


def test_seconds_after_the_end_of_the_ghost_are_compared_with_nothing() -> None:
    baseline = OverlayCurves("g", (ghost_run(16, 500.0, 500.0, 500.0),))
    session = session_of(started(frames(1000.0, "now"), 0)[:60])
    assert against_baseline(session, overlay_of(baseline, *filter(None, [session.now])))[0] is None


def test_a_curve_holds_no_more_than_its_most_points() -> None:
    made = Curve()
    for second in range(MOST_POINTS + 500):
        made.add(float(second), 1.0)
    made.add(3.0, 1.0)
    assert len(made) == MOST_POINTS
