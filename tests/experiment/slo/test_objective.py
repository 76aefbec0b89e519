"""Objectives as typed, and what seconds of a run say of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.experiment.slo.objective import Excess, Standing, judged_by, late_of, parse_objective
from pgtop_tune.metrics.percentiles import ascending
from pgtop_tune.model.bench import LatencySecond, ScriptLatencies
from tests.support.latencies import bucket_counts


def test_limits_of_an_objective_in_their_units() -> None:
    p99, p95, mean, failed = parse_objective("p99 < 20ms and p95 of new-order < 1s AND mean <= 500us and failed < 0.1%")
    assert (p99.figure, p99.limit, round(p99.allowed, 6), p99.script) == ("p99", 20.0, 0.01, "")
    assert (p95.limit, round(p95.allowed, 6), p95.script) == (1000.0, 0.05, "new-order")
    assert (mean.limit, mean.allowed) == (0.5, 0.5)
    assert failed.allowed == pytest.approx(0.001)


def test_a_name_with_blanks_stands_in_quotes() -> None:
    quoted, plain = parse_objective('p99 of "bread and butter.sql" < 20ms and mean of other.sql < 5ms')
    assert (quoted.script, plain.script) == ("bread and butter.sql", "other.sql")
    assert quoted.text == 'p99 of "bread and butter.sql" < 20ms'


@pytest.mark.parametrize(
    "text",
    ["", "p99", "p99 > 20ms", "p99 < 20", "p99 < 20%", "failed < 5ms", "p99 < 0ms", "tps < 5ms", "p99 < 1ms and"],
)
def test_what_is_no_objective_is_told_with_an_example(text: str) -> None:
    with pytest.raises(UsageProblem, match="objective"):
        parse_objective(text)


@given(st.text(max_size=40))
def test_any_text_is_an_objective_or_a_problem(text: str) -> None:
    try:
        limits = parse_objective(text)
    except UsageProblem:
        return
    assert all(limit.limit > 0.0 for limit in limits)


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=200), st.integers(1, 200_000))
def test_late_transactions_of_a_histogram_are_those_of_the_latencies_within_its_bucket(
    latencies: list[int], limit: int
) -> None:
    buckets = ascending(bucket_counts(latencies))
    late = late_of(buckets, limit)
    assert sum(us > limit * 1.022 for us in latencies) <= late <= sum(us >= limit / 1.022 - 1 for us in latencies)


def test_each_kind_of_limit_reads_its_own_part_of_a_second() -> None:
    part = ScriptLatencies(
        script=1, logged=2, sum_us=60_000, max_us=30_000, buckets=ascending(bucket_counts([30_000] * 2))
    )
    second = LatencySecond(
        second=1, logged=10, sum_us=140_000, max_us=30_000, failed=5,
        buckets=ascending(bucket_counts([10_000] * 8 + [30_000] * 2)), scripts=(part,),
    )  # fmt: skip
    limits = parse_objective("p99 < 20ms and p99 of b < 20ms and mean < 1s and failed < 1%")
    assert [limit.of(second, ["a", "b"]) for limit in limits] == [
        Excess(10, 2.0), Excess(2, 2.0), Excess(10, 140.0), Excess(15, 5),
    ]  # fmt: skip


def test_a_few_seconds_say_nothing_and_many_late_ones_break_and_a_burst_is_unclear() -> None:
    (limit,) = parse_objective("p99 < 20ms")
    quiet, bad = Excess(1000.0, 0.0), Excess(1000.0, 500.0)
    assert judged_by(limit, [quiet] * 5).standing(0.02) is Standing.UNCLEAR
    assert judged_by(limit, [quiet] * 10).standing(0.02) is Standing.HOLDS
    assert judged_by(limit, [bad] * 10).standing(0.02) is Standing.BREAKS
    assert judged_by(limit, [quiet] * 19 + [bad]).standing(0.02) is Standing.UNCLEAR
    assert judged_by(limit, [Excess(10.0, 0.0)] * 10).standing(0.02) is Standing.UNCLEAR


def test_the_latency_that_a_limit_is_about_is_that_of_its_own_transactions() -> None:
    slow = ScriptLatencies(
        script=1, logged=200, sum_us=6_000_000, max_us=30_000, buckets=ascending(bucket_counts([30_000] * 200))
    )
    second = LatencySecond(
        second=1, logged=1000, sum_us=14_000_000, max_us=30_000,
        buckets=ascending(bucket_counts([10_000] * 800 + [30_000] * 200)), scripts=(slow,),
    )  # fmt: skip
    limits = parse_objective("p50 < 20ms and p50 of b < 20ms and mean < 1s and failed < 1% and p99.9 < 1s")
    p50, of_b, mean, failed, p999 = (limit.latency_ms([[second]], ["a", "b"]) for limit in limits)
    assert p50 == pytest.approx(10.0, rel=0.022)
    assert of_b == pytest.approx(30.0, rel=0.022)
    assert (mean, failed, p999) == (14.0, None, None), "1,000 transactions are too few for p99.9"
    assert limits[0].latency_ms([], ["a", "b"]) is None
