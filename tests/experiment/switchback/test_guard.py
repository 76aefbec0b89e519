"""What stops an experiment at once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.compare.sides.figures import FAILED, LATENCY, TPS
from pgtop_tune.experiment.switchback.arms import Arm, ArmBlock
from pgtop_tune.experiment.switchback.switchback import collapsed, harm
from tests.experiment.switchback.test_evaluation import block


def share_of_collapse(*blocks: ArmBlock) -> float | None:
    found = collapsed(blocks)
    return None if found is None else found.times


def words(*blocks: ArmBlock, objective: str = TPS) -> str:
    found = harm(blocks, objective)
    return "" if found is None else found.reason


def test_two_blocks_of_b_below_half_are_a_collapse() -> None:
    a, low = block(Arm.A, *[1000.0] * 10), block(Arm.B, *[380.0] * 10)
    assert share_of_collapse(low, a) is None
    assert share_of_collapse(low, a, low) == pytest.approx(0.38)
    assert share_of_collapse(low, a, block(Arm.B, *[900.0] * 10)) is None
    slow = block(Arm.A, *[300.0] * 10)
    assert share_of_collapse(a, low, low) is None, "whether the load slumps shows under A"
    assert share_of_collapse(a, low, low, slow) is None
    assert share_of_collapse(a, low, low, a) == pytest.approx(0.38)
    assert share_of_collapse(low, a, slow, low) is None
    assert share_of_collapse(low, a, replace(low, spoiled="jit on→off, changed by someone else")) is None


def test_a_load_that_goes_up_and_down_by_itself_is_not_stopped_while_it_is_down() -> None:
    """As in a recording without a change: what a block of A showed some pairs before is nothing that B did."""
    up, down = block(Arm.A, *[1500.0] * 10), block(Arm.A, *[350.0] * 10)
    low = block(Arm.B, *[300.0] * 10)
    assert share_of_collapse(up, low, up, low) == pytest.approx(0.2)
    assert share_of_collapse(down, block(Arm.B, *[1200.0] * 10), up, low, up, low) is None
    assert share_of_collapse(down, *[up] * 10, low, up, low) == pytest.approx(0.2), "long ago"


def test_a_collapse_that_others_explain_is_not_put_down_to_b() -> None:
    busy = {"sums": {"cpu": (1000.0, 10.0)}}
    a = replace(block(Arm.A, *[1000.0] * 10, foreign=30.0), **busy)
    low = replace(block(Arm.B, *[380.0] * 10, foreign=75.0), **busy)
    assert words(low, a, low) == (
        "stopped: B ran at 38 % of A; other programs used 1.8 more cores during B: not attributable"
    )
    alone = replace(low, foreign=31.0)
    assert words(alone, a, alone) == "stopped: B ran at 38 % of A"


def rated(arm: Arm, latency_ms: float = 5.0, failed: float = 0.0) -> ArmBlock:
    return block(arm, *[200.0] * 10, sums={LATENCY: (latency_ms * 100.0, 100.0), FAILED: (failed * 100.0, 100.0)})


def test_at_a_rate_latency_that_doubles_stops_it_although_throughput_stays() -> None:
    a, b = rated(Arm.A), rated(Arm.B, latency_ms=11.0)
    assert words(a, b, b, a, objective=LATENCY) == "stopped: latency under B is 2.2 times the latency under A"
    assert words(a, b, b, objective=LATENCY) == "", "whether the load is slow by itself shows under A"
    assert words(a, rated(Arm.B, latency_ms=9.0), b, a, objective=LATENCY) == ""
    assert words(rated(Arm.A, latency_ms=8.0), b, b, a, objective=LATENCY) == ""
    assert words(a, b, b, a) == "", "as fast as it goes, throughput says the same"


def test_transactions_that_fail_under_b_alone_stop_it() -> None:
    a, b = rated(Arm.A, failed=1.0), rated(Arm.B, failed=8.0)
    assert words(b, a, b) == "stopped: 8 % of the transactions under B fail"
    assert words(rated(Arm.A, failed=7.0), b, b, rated(Arm.A, failed=7.0)) == ""
