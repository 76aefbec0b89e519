"""Figures of an outage, of made-up seconds: when p99 is back, and what a clock that was set does to them."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.metrics.outage import outage_rows, silent_s
from pgtop_tune.metrics.percentiles import bucket_of
from pgtop_tune.metrics.run_evidence import RunEvidence
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import LatencySecond, Silence
from pgtop_tune.model.outage import OutageRow, OutageSpan
from tests.support.frames import EPOCH_MS
from tests.support.run_frames import evidence

START = EPOCH_MS // 1000
ERROR_MS = EPOCH_MS + 40_250.0
SPAN = OutageSpan(
    first_error_ms=ERROR_MS, lost_clients=8, first_commit_ms=ERROR_MS + 2_500.0, replaced_ms=ERROR_MS + 2_600.0
)


def second_of(second: int, latency_ms: float, failed: int = 0) -> LatencySecond:
    latency_us = round(1000.0 * latency_ms)
    buckets = ((bucket_of(latency_us), 200),)
    return LatencySecond(START + second, 200, 200 * latency_us, latency_us, buckets, failed=failed)


def through(
    spans: tuple[OutageSpan, ...], seconds: tuple[LatencySecond, ...] = (), silences: tuple[Silence, ...] = ()
) -> RunEvidence:
    """A run whose last frame has all of its log and its silences."""
    made = evidence(run={"outages": spans, "through_outage": True})
    frames = []
    for frame in made.frames:
        bench, is_last = frame.bench, frame is made.frames[-1]
        if not isinstance(bench, Unavailable):
            bench = replace(bench, latencies=seconds if is_last else (), silences=silences if is_last else ())
        frames.append(replace(frame, bench=bench))
    return RunEvidence(made.run, tuple(frames), made.facts)


def rows(*seconds: LatencySecond, spans: tuple[OutageSpan, ...] = (SPAN,)) -> tuple[OutageRow, ...]:
    return outage_rows(through(spans, seconds))


def test_p99_is_back_at_the_end_of_the_first_ten_seconds_below_twice_that_of_before() -> None:
    usual = [second_of(second, 10.0) for second in range(40)]
    slow = [second_of(second, 100.0) for second in range(43, 48)]
    [row] = rows(*usual, *slow, *(second_of(second, 15.0) for second in range(48, 70)), second_of(41, 10.0, failed=3))
    assert row.down_s == 2.5
    assert row.recovered_ms == EPOCH_MS + 58_000
    assert "p99 of the 40 s before the error" in row.recovery
    assert row.failed_transactions == 8 + 3


def test_without_enough_seconds_before_or_after_there_is_a_reason() -> None:
    [row] = rows(*(second_of(second, 10.0) for second in (*range(35, 40), *range(43, 70))))
    assert (row.recovered_ms, row.recovery) == (None, "only 5 s before the error can be compared with")
    [row] = rows(*(second_of(second, 10.0) for second in (*range(40), *range(43, 50))))
    assert row.recovered_ms is None
    assert row.recovery.startswith("not back before the end of the run")
    [row] = rows(
        *(second_of(second, 10.0) for second in range(40)),
        spans=(replace(SPAN, first_commit_ms=None, replaced_ms=None),),
    )
    assert (row.down_s, row.recovered_ms, row.recovery) == (None, None, "no commit followed")


def test_without_an_outage_there_is_no_row() -> None:
    assert rows(*(second_of(second, 10.0) for second in range(70)), spans=()) == ()


def test_a_wall_clock_that_was_set_gives_no_times() -> None:
    [row] = rows(*(second_of(second, 10.0) for second in range(70)), spans=(replace(SPAN, moved_ms=-3_600_000.0),))
    assert (row.down_s, row.recovered_ms) == (None, None)
    assert "the wall clock was set by" in row.recovery


def test_the_window_ends_where_the_next_outage_begins() -> None:
    second = replace(SPAN, first_error_ms=EPOCH_MS + 50_500.0, first_commit_ms=EPOCH_MS + 51_500.0, replaced_ms=None)
    first_row, second_row = rows(*(second_of(second, 10.0) for second in range(70)), spans=(SPAN, second))
    assert first_row.recovered_ms is None
    assert second_row.recovered_ms == EPOCH_MS + 62_000


def silent(*silences: Silence, spans: tuple[OutageSpan, ...] = ()) -> float:
    return silent_s(through(spans, silences=silences))


def test_clients_that_wait_without_being_lost_are_silent() -> None:
    waited = Silence(EPOCH_MS + 10_000, EPOCH_MS + 14_000, 3.0, 5.0)
    assert silent() == silent(replace(waited, usual_ms=None)) == 0.0
    assert silent(waited, replace(waited, zero_s=2.0)) == 3.0
    assert silent(replace(waited, until_ms=None)) == 3.0


def test_the_silence_of_an_outage_is_that_outage() -> None:
    lost = Silence(EPOCH_MS + 40_000, EPOCH_MS + 43_000, 2.0, 5.0)
    waited = Silence(EPOCH_MS + 50_000, EPOCH_MS + 52_000, 1.0, 5.0)
    assert silent(lost, spans=(SPAN,)) == 0.0
    assert silent(lost, waited, spans=(SPAN,)) == 1.0
