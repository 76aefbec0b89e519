"""What stops an experiment at once."""

from __future__ import annotations

import pytest

from pgtop_tune.compare.sides.figures import FAILED, LATENCY
from pgtop_tune.experiment.switchback.blocks import Arm, Block
from pgtop_tune.experiment.switchback.guard import collapsed, why_stopped
from tests.experiment.switchback.test_evaluation import block


def test_two_blocks_of_b_below_half_are_a_collapse() -> None:
    a, low = block(Arm.A, *[1000.0] * 10), block(Arm.B, *[380.0] * 10)
    assert collapsed([low, a]) is None
    assert collapsed([low, a, low]) == pytest.approx(0.38)
    assert collapsed([low, a, block(Arm.B, *[900.0] * 10)]) is None
    slow = block(Arm.A, *[300.0] * 10)
    assert collapsed([a, low, low]) is None, "whether the load slumps shows under A"
    assert collapsed([a, low, low, slow]) is None
    assert collapsed([a, low, low, a]) == pytest.approx(0.38)
    assert collapsed([low, a, slow, low]) is None


def rated(arm: Arm, latency_ms: float = 5.0, failed: float = 0.0) -> Block:
    return block(arm, *[200.0] * 10, sums={LATENCY: (latency_ms * 100.0, 100.0), FAILED: (failed * 100.0, 100.0)})


def test_at_a_rate_latency_that_doubles_stops_it_although_throughput_stays() -> None:
    a, b = rated(Arm.A), rated(Arm.B, latency_ms=11.0)
    assert why_stopped([a, b, b, a], LATENCY) == "latency under B is 2.2 times that under A"
    assert why_stopped([a, b, b], LATENCY) == "", "whether the load is slow by itself shows under A"
    assert why_stopped([a, rated(Arm.B, latency_ms=9.0), b, a], LATENCY) == ""
    assert why_stopped([rated(Arm.A, latency_ms=8.0), b, b, a], LATENCY) == ""
    assert why_stopped([a, b, b, a]) == "", "as fast as it goes, throughput says the same"


def test_transactions_that_fail_under_b_alone_stop_it() -> None:
    a, b = rated(Arm.A, failed=1.0), rated(Arm.B, failed=8.0)
    assert why_stopped([b, a, b]) == "8 % of the transactions under B fail"
    assert why_stopped([rated(Arm.A, failed=7.0), b, b, rated(Arm.A, failed=7.0)]) == ""
