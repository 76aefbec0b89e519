"""The result of a search as a curve and as a chart: the latency of the objective, its limit, the interval."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from pgtop_tune.experiment.slo.kept_search import SearchSubject
from pgtop_tune.experiment.slo.objective import Judged, Standing, parse_objective
from pgtop_tune.experiment.slo.report import chart_lines, expected_s, rate_curve, result_sentences, so_far_words
from pgtop_tune.experiment.slo.search import (
    RateEnding,
    RateSearch,
    SearchEnd,
    SearchPlan,
    SearchStep,
    StepKind,
    StepOutcome,
)

LIMITS = parse_objective("mean < 1s and p95 < 20ms and failed < 1%")
END = SearchEnd(RateEnding.CONFIRMED, 400.0, 440.0)


def outcome(rate: float, p95_ms: float | None, kind: StepKind = StepKind.PROBE) -> StepOutcome:
    breaks = (p95_ms or 0.0) > 20.0
    late = Judged(value=0.09 if breaks else 0.01, error=0.001, degrees=5, allowed=0.05)
    held = Judged(value=1.0, error=0.1, degrees=5, allowed=1000.0, is_time=True)
    return StepOutcome(
        step=SearchStep(kind, rate, 8), standing=Standing.BREAKS if breaks else Standing.HOLDS,
        judged=(held, late, replace(late, value=0.0)), limits_ms=(1.0, p95_ms, None),
    )  # fmt: skip


def search(*outcomes: StepOutcome) -> RateSearch:
    return RateSearch(SearchPlan(start=100.0), list(outcomes))


def test_the_curve_is_of_the_limit_that_broke_with_the_median_of_each_rate() -> None:
    found = search(
        outcome(200.0, 4.0), outcome(100.0, None), outcome(440.0, 90.0),
        outcome(400.0, 12.0), outcome(400.0, 14.0, StepKind.LOWER), outcome(400.0, 30.0, StepKind.LOWER),
    )  # fmt: skip
    curve = rate_curve(found, LIMITS, END)
    assert (curve.figure, curve.limit_ms, curve.low, curve.high) == ("p95", 20.0, 400.0, 440.0)
    assert [(point.rate, point.latency_ms, point.standing) for point in curve.points] == [
        (100.0, None, "holds"), (200.0, 4.0, "holds"), (400.0, 14.0, "unclear"), (440.0, 90.0, "breaks"),
    ]  # fmt: skip


def test_an_objective_of_failures_alone_has_p99_and_no_limit() -> None:
    only = replace(outcome(100.0, 4.0), quantiles_ms=((99.0, 7.0),), judged=(outcome(100.0, 4.0).judged[2],))
    curve = rate_curve(search(only), LIMITS[2:])
    assert (curve.figure, curve.limit_ms, curve.points[0].latency_ms) == ("p99", None, 7.0)


def test_bars_have_the_limit_on_them_and_the_interval_beside_them() -> None:
    found = search(outcome(100.0, None), outcome(400.0, 12.0), outcome(440.0, 90.0))
    heading, unknown, low, high = chart_lines(rate_curve(found, LIMITS, END), "#")
    at = heading.index("|")
    assert "limit 20.0 ms|" in heading
    assert [line[at] for line in (unknown, low, high)] == ["|"] * 3
    assert "#" not in unknown
    assert low.rindex("#") < at < high.rindex("#")
    assert low.endswith("holds  <- holds")
    assert high.endswith("breaks  <- breaks")
    assert chart_lines(rate_curve(search(replace(outcome(100.0, 1.0), limits_ms=())), LIMITS, END), "#") == []


def test_doubts_about_runs_that_confirm_stand_below_the_result_once_with_their_number() -> None:
    busy, shared = ("CPU-CONTENTION", "a thread waited"), ("AUTOVACUUM", "a worker ran")
    runs = [
        replace(outcome(rate, p95_ms, kind), doubts=doubts)
        for rate, p95_ms, kind, doubts in (
            (400.0, 12.0, StepKind.LOWER, (busy, shared)), (400.0, 12.0, StepKind.LOWER, (busy,)),
            (440.0, 90.0, StepKind.UPPER, ()),
        )
    ]  # fmt: skip
    subject = SearchSubject(server="1", objective="p95 < 20ms", load="read.sql", confirm_s=60)
    lines = result_sentences(search(*runs), END, subject, LIMITS)
    assert [line for line in lines if line.startswith("doubt")] == [
        "doubt: CPU-CONTENTION in 2 of 3 runs that confirm: a thread waited",
        "doubt: AUTOVACUUM in 1 of 3 runs that confirm: a worker ran",
    ]


def test_an_interval_so_far_has_the_rates_of_its_runs() -> None:
    subject = SearchSubject(server="1", objective="p95 < 20ms", load="read.sql", confirm_s=60)
    assert so_far_words(subject, None) == "p95 < 20ms: no rate is known to hold it"
    found = search(outcome(162.5, 4.0), outcome(43_530.0, 90.0))
    assert so_far_words(subject, found) == "p95 < 20ms: 162.5 per second hold it, 43530 break it"


@pytest.mark.parametrize(
    ("demand", "distance"), [(40.0, "so its own limit is near 1000"), (1.0, "far from its own limit")]
)
def test_the_limit_of_the_generator_is_a_number_only_where_its_work_tells_one(demand: float, distance: str) -> None:
    subject = SearchSubject(server="1", objective="p95 < 20ms", load="read.sql", confirm_s=60)
    run = replace(outcome(400.0, 12.0, StepKind.LOWER), demand=demand, tps=400.0)
    [line] = [line for line in result_sentences(search(run), END, subject, LIMITS) if line.startswith("load generator")]
    assert line == f"load generator: its busiest thread was at {demand:.0f} % at 400 per second, {distance}"


def test_a_slow_load_takes_longer_by_the_time_that_its_log_waits_and_known_probes_tell_more() -> None:
    seconds = dict.fromkeys(StepKind, 165)
    planned = {rate: RateSearch(SearchPlan(start=rate, shares=()), []) for rate in (math.inf, 1000.0, 11.0, 1.0)}
    usual, quick, slow, slowest = (expected_s(search, seconds, 2) for search in planned.values())
    assert 0.0 < quick - usual < 10.0
    assert slow - usual == pytest.approx(11 * 20.0)
    assert slowest - usual == pytest.approx(11 * (165.0 - 30.0))
    planned[11.0].tell(replace(outcome(11.0, 4.0), seconds=80))
    assert expected_s(planned[11.0], seconds, 2) - usual == pytest.approx(10 * 50.0 - 33.0)
    for _ in range(8):
        planned[1000.0].tell(outcome(1000.0, 4.0))
    before = expected_s(planned[1000.0], seconds, 2)
    planned[1000.0].tell(outcome(1000.0, 4.0, StepKind.LOWER))
    # Once ends are confirmed, no probe follows.
    assert before - expected_s(planned[1000.0], seconds, 2) == pytest.approx(168.0 + 33.0)
