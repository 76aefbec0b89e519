"""When the load of somebody else has become another one."""

from __future__ import annotations

import pytest

from pgtop_tune.base.units import count
from pgtop_tune.tuning.on_server.conditions import LOOKS, LoadShape, change_of

BEFORE = LoadShape(1000.0, {"CPU": 0.5, "IO:WalSync": 0.4, "Lock:transactionid": 0.1})


def test_a_load_that_wanders_and_pauses_is_the_same_one() -> None:
    wanders = [LoadShape(1000.0 * factor, BEFORE.shares) for factor in (0.6, 1.8, 0.7, 1.0, 1.5, 0.9, 0.55)]
    assert change_of(BEFORE, wanders) == ""
    pause = [LoadShape(0.0, {"CPU": 1.0})] * (LOOKS - 1)
    assert change_of(BEFORE, [*pause, BEFORE]) == ""
    assert change_of(BEFORE, pause) == "", "too few looks"


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_throughput_that_stays_elsewhere_is_another_load(factor: float) -> None:
    looks = [LoadShape(1000.0 * factor, BEFORE.shares)] * LOOKS
    assert change_of(BEFORE, looks) == f"{count(1000.0 * factor)} transactions per second, 1000 before"


def test_time_that_goes_elsewhere_is_another_load_and_the_wait_is_named() -> None:
    reads = LoadShape(1100.0, {"CPU": 0.3, "IO:DataFileRead": 0.6, "IO:WalSync": 0.1})
    assert change_of(BEFORE, [reads] * LOOKS) == "IO:DataFileRead is 60 % of the sessions' time, 0 % before"
    assert change_of(BEFORE, [*[reads] * LOOKS, BEFORE]) == ""
