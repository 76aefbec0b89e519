"""Conditions of --fail-if: what is read, what is refused, when one holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.compare.comparison import ConditionOutcome, compare, judge_condition, parse_condition
from tests.support.sides import frames, on_machine, repeated, side


@pytest.mark.parametrize(
    ("text", "figure", "sign", "share"),
    [
        ("tps < -5%", "tps", "<", -0.05),
        ("p99>10%", "p99", ">", 0.10),
        (" wal_per_tx >= 2.5 % ", "wal_per_tx", ">=", 0.025),
        ("latency<=+3%", "latency", "<=", 0.03),
    ],
)
def test_a_condition_is_a_figure_a_sign_and_a_share(text: str, figure: str, sign: str, share: float) -> None:
    found = parse_condition(text)
    assert (found.figure, found.sign) == (figure, sign)
    assert found.share == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "tps", "tps < 5", "tps = 5%", "__import__('os') < 5%", "tps < 1e9%", "5% > tps"])
def test_everything_else_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(UsageProblem, match="tps < -5%"):
        parse_condition(text)


def test_a_figure_there_is_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageProblem, match="did you mean tps"):
        parse_condition("tsp < -5%")


@given(st.text(max_size=60))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    try:
        parse_condition(text)
    except UsageProblem:
        pass


def test_it_holds_when_the_change_is_beyond_it_for_certain() -> None:
    found = [compare(*repeated(1000.0, 900.0))]
    judged = judge_condition(parse_condition("tps < -5%"), found)
    assert judged.outcome is ConditionOutcome.HOLDS
    assert "tps changed by -" in judged.because
    assert judge_condition(parse_condition("tps < -20%"), found).outcome is ConditionOutcome.DOES_NOT
    assert judge_condition(parse_condition("latency > 5%"), found).outcome is ConditionOutcome.HOLDS


def test_runs_that_differ_by_more_and_allow_no_verdict_cannot_be_told() -> None:
    a, b = repeated(1000.0, 700.0, together=True)
    a.runs[0].steady = False
    judged = judge_condition(parse_condition("tps < -5%"), [compare(a, b)])
    assert judged.outcome is ConditionOutcome.CANNOT_TELL
    assert "tps changed by -" in judged.because
    assert "without a verdict: 1 of the 4 runs of A is not steady" in judged.because
    assert judge_condition(parse_condition("tps < -50%"), [compare(a, b)]).outcome is ConditionOutcome.DOES_NOT


def test_one_run_a_side_holds_only_beyond_what_runs_are_assumed_to_differ_by() -> None:
    less, far_less = ([compare(side(frames(1000.0, "a")), side(frames(level, "b")))] for level in (940.0, 700.0))
    assert judge_condition(parse_condition("tps < -5%"), less).outcome is ConditionOutcome.DOES_NOT
    assert judge_condition(parse_condition("tps < -5%"), far_less).outcome is ConditionOutcome.HOLDS


def test_noise_does_not_fulfil_one() -> None:
    found = [compare(side(frames(1000.0, "one")), side(frames(1000.0, "two")))]
    for text in ("tps < -0.001%", "tps > 0.001%"):
        assert judge_condition(parse_condition(text), found).outcome is ConditionOutcome.DOES_NOT


def test_what_is_not_comparable_or_too_short_or_not_measured_cannot_be_told() -> None:
    base = frames(seconds=60)
    other = [compare(side(base), side(on_machine(base, cpu_count=8)))]
    assert judge_condition(parse_condition("tps < -5%"), other).outcome is ConditionOutcome.CANNOT_TELL
    short = [compare(side(frames(seconds=12)), side(frames(500.0, seconds=12)))]
    assert judge_condition(parse_condition("tps < -5%"), short).outcome is ConditionOutcome.CANNOT_TELL
    assert judge_condition(parse_condition("server_tps < -5%"), short).outcome is ConditionOutcome.CANNOT_TELL
