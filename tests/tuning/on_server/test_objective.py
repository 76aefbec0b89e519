"""What a search makes better, and its limits, as somebody types them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.experiment.switchback.arms import Arm, ArmBlock
from pgtop_tune.tuning.on_server.objective import BY_NAME, constraint, objective


def block(tps: float = 100.0, wal: float = 500.0, latency: float = 8.0) -> ArmBlock:
    return ArmBlock(
        arm=Arm.A, began_ms=0, began_s=0.0, seconds=10.0, settled_s=5.0, tps=(tps,) * 10,
        sums={"wal_per_tx": (wal * 10.0, 10.0), "latency": (latency * 1000.0, 1000.0)},
    )  # fmt: skip


def test_a_constraint_that_breaks_is_told_with_its_unit() -> None:
    assert constraint("p99 < 20us").broken({"p99": 5.36993}) == "p99 5.37 ms is above 0.02 ms"
    assert constraint("tps >= 1000").broken({"tps": 812.3}) == "tps 812.3 /s is below 1000 /s"


@pytest.mark.parametrize(
    ("words", "rate", "bounded"),
    [
        ("tps", None, True), ("tps / cpu", 5.0, False), ("wal", None, False), ("p99@5", None, False),
        ("cost", None, False),
    ],
)  # fmt: skip
def test_waits_bound_the_throughput_of_clients_without_a_rate_and_nothing_else(
    words: str, rate: float | None, bounded: bool
) -> None:
    assert objective(words, rate).bounded is bounded


def test_more_transactions_are_better_and_longer_latencies_are_worse() -> None:
    faster = objective("tps").log_ratio(block(tps=110.0), block(tps=100.0))
    slower = objective("latency@200").log_ratio(block(latency=10.0), block(latency=8.0))
    assert faster == pytest.approx(math.log(1.1))
    assert slower == pytest.approx(-math.log(1.25))


def test_arithmetic_is_made_large_and_behind_min_small() -> None:
    one, other = block(tps=100.0, wal=400.0), block(tps=100.0, wal=500.0)
    assert objective("tps / wal").log_ratio(one, other) == pytest.approx(math.log(1.25))
    assert objective("min wal + 0 * tps").log_ratio(one, other) == pytest.approx(math.log(1.25))


@given(st.floats(0.1, 1e6), st.floats(0.1, 1e6), st.sampled_from("+-*/"), st.floats(0.001, 1000.0))
def test_arithmetic_is_what_python_makes_of_it(tps: float, wal: float, sign: str, factor: float) -> None:
    found = objective(f"(tps {sign} {factor!r}) * wal").value(block(tps=tps, wal=wal))
    mean, per = block(tps=tps, wal=wal).mean_tps, wal * 10.0 / 10.0
    expected = {"+": mean + factor, "-": mean - factor, "*": mean * factor, "/": mean / factor}[sign] * per
    assert found == pytest.approx(expected)


def test_without_a_figure_above_zero_there_is_no_ratio() -> None:
    assert objective("tps - 100").log_ratio(block(tps=90.0), block(tps=110.0)) is None
    assert objective("tps / failed").log_ratio(block(), block()) is None


@pytest.mark.parametrize(
    "words",
    [
        "", "fast", "tps +", "tps ** 2", "__import__('os').system('x')", "tps.real", "[tps]", "1 + 1",
        "tps if 1 else 2", "tps@0", "tps@", "p99@fast", "(" * 300 + "tps" + ")" * 300, "lambda: tps", "tps == 1",
        "-tps", "'tps'", "tps; tps",
    ],
)  # fmt: skip
def test_other_words_are_no_objective(words: str) -> None:
    with pytest.raises(UsageProblem):
        objective(words)


@pytest.mark.parametrize(
    ("words", "rate", "told", "hint"),
    [
        ("tps", 100.0, "held to 100 transactions", "leave the rate out"),
        ("tps@50", None, "held to 50 transactions", "leave the rate out"),
        ("tps * 2", 100.0, "held to 100 transactions", "leave the rate out"),
        ("wal + 1000 * cpu", None, "as large as possible, but better figures make it worse", "put min before it"),
        ("(cpu)", None, "as large as possible, but better figures make it worse", "put min before it"),
        ("min tps / cpu", None, "as small as possible, but better figures make it worse", "remove min"),
        ("tps / 0", None, "divides by zero", ""),
        ("tps - tps", None, "does not depend on a figure", ""),
    ],
)  # fmt: skip
def test_an_objective_that_no_setting_can_make_better_is_refused(
    words: str, rate: float | None, told: str, hint: str
) -> None:
    """A night's search would find nothing, or the worst setting."""
    with pytest.raises(UsageProblem) as refused:
        objective(words, rate)
    assert told in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize("words", ["tps / cpu", "1 / wal", "min 1 / tps", "tps - 100 * cpu", "max tps / (cpu + wal)"])
def test_arithmetic_that_better_figures_make_better_is_an_objective(words: str) -> None:
    assert objective(words).typed == words


def test_a_latency_of_a_load_without_a_rate_is_refused_and_the_way_out_is_named() -> None:
    with pytest.raises(UsageProblem, match="without a rate") as refused:
        objective("p99")
    assert "p99@500" in refused.value.hint
    with pytest.raises(UsageProblem, match="without a rate"):
        objective("min p99 + 0.1 * wal")
    assert objective("min p99 + 0.1 * wal", 500.0).rate == 500.0
    with pytest.raises(UsageProblem, match="another rate"):
        objective("p99@500", 400.0)


def test_a_constraint_has_the_figures_unit_or_one_that_is_typed() -> None:
    assert constraint("p99 < 20ms").most == 20.0
    assert constraint("p99<=0.02 s").most == pytest.approx(20.0)
    assert constraint("tps >= 1000").least == 1000.0
    assert constraint("wal < 8kB").most == 8192.0


@pytest.mark.parametrize(
    "words", ["p99", "p99 = 20", "p99 < 20kB", "p99 < -1", "p99 < nan", "speed > 3", "p99 < 1e999"]
)
def test_other_words_are_no_constraint(words: str) -> None:
    with pytest.raises(UsageProblem):
        constraint(words)


@given(st.text(max_size=60))
def test_words_that_are_foreign_are_refused_and_never_run(words: str) -> None:
    for read in (objective, constraint):
        try:
            read(words)
        except UsageProblem:
            continue
    assert set(BY_NAME) == {"tps", "latency", "p50", "p99", "cpu", "wal", "failed"}
