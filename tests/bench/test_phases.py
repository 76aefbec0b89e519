"""The words of --phases: what they mean, and where a wrong one stands."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.bench.phases import MOST_STAIRS, load_steps
from pgtop_tune.model.bench import LoadLevel

START = LoadLevel(8)


def test_the_example_of_the_manual() -> None:
    steps = load_steps("ramp 8..64 over 5m, hold 10m, burst x3 for 30s every 2m, pause 1m", START)
    ramp = [step for step in steps if step.phase.startswith("1:")]
    assert (len(ramp), ramp[0].level, ramp[-1].level) == (MOST_STAIRS, LoadLevel(8), LoadLevel(64))
    rest = [(step.phase[:2], step.seconds, step.level.clients) for step in steps[len(ramp) :]]
    assert rest == [("2:", 90.0, 64), ("3:", 30.0, 192)] * 5 + [("4:", 60.0, 0)]
    assert sum(step.seconds for step in steps) == pytest.approx(960.0)


def test_a_rate_goes_up_and_a_level_is_named() -> None:
    steps = load_steps("hold 2s at 500/s, ramp 500..1k/s over 10s, hold 3s at 16", LoadLevel(4, 100.0))
    assert [step.level for step in steps] == [
        LoadLevel(4, 500.0), LoadLevel(4, 500.0), LoadLevel(4, 1000.0), LoadLevel(16, 1000.0)
    ]  # fmt: skip


clients = st.integers(1, 500)
lengths = st.integers(10, 3600)


@given(clients, clients, lengths, lengths)
def test_a_ramp_is_even_never_leaves_its_ends_and_takes_its_time(a: int, b: int, over_s: int, hold_s: int) -> None:
    if a == b:
        return
    *ramp, hold = load_steps(f"ramp {a}..{b} over {over_s}s, hold {hold_s}s", START)
    levels = [step.level.clients for step in ramp]
    assert (levels[0], levels[-1], hold.level.clients) == (a, b, b)
    assert levels == sorted(levels, reverse=a > b)
    assert len(set(levels)) == len(levels) <= MOST_STAIRS
    assert sum(step.seconds for step in ramp) == pytest.approx(over_s)
    assert hold.seconds == hold_s


@given(st.integers(2, 200), st.integers(1, 60), st.integers(2, 120))
def test_bursts_keep_the_length_of_their_hold(hold_s: int, burst_s: int, period_s: int) -> None:
    text = f"hold {hold_s}s, burst x2 for {burst_s}s every {period_s}s"
    if burst_s >= period_s or period_s > hold_s:
        with pytest.raises(UsageProblem, match="does not fit into the hold before it"):
            load_steps(text, START)
        return
    steps = load_steps(text, START)
    assert sum(step.seconds for step in steps) == hold_s
    assert {(step.phase[0], step.level.clients) for step in steps} == {("1", 8), ("2", 16)}
    assert all(step.seconds > 0 for step in steps)


@pytest.mark.parametrize(
    ("text", "at", "reason"),
    [
        ("hold 10m, rampp 8..64 over 5m", 11, "is no phase"),
        ("ramp 8-64 over 5m", 1, "is no ramp"),
        ("hold 10m,  burst 3 for 30s every 2m", 12, "is no burst"),
        ("burst x3 for 30s every 2m", 1, "has no hold before it"),
        ("hold 10m, pause 1m, burst x3 for 30s every 2m", 21, "has no hold before it"),
        ("pause 1m, hold 5m", 1, "is the first phase"),
        ("hold 10 apples", 1, "is no hold"),
        ("hold tenmin", 1, "has a wrong time"),
        ("hold 5m at 2.5", 1, "has 2.5 clients"),
        ("hold 5m,, pause 1m", 9, "is empty"),
        ("ramp 8..64 over 3s", 1, "is too short"),
        ("ramp 8..8 over 1m", 1, "begins where it ends"),
        ("hold 1h, burst x3 for 1s every 2s", 10, "makes more than"),
    ],
)
def test_a_wrong_phase_is_refused_with_its_place(text: str, at: int, reason: str) -> None:
    with pytest.raises(UsageProblem, match=re.escape(f"--phases, character {at}: ") + f".*{reason}"):
        load_steps(text, START)


@given(st.text(alphabet="ramphold burst x3for.,/s0189%", max_size=60))
def test_any_text_is_steps_or_a_refusal(text: str) -> None:
    try:
        assert all(step.seconds > 0 for step in load_steps(text, START))
    except UsageProblem:
        with pytest.raises(UsageProblem, match=r"^--phases, character "):
            load_steps(text, START)
