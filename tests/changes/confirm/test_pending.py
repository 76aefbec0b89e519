"""A change on trial: kept, over, or tripped."""

from __future__ import annotations

from pgtop_tune.changes.confirm.pending import SETTLE_S, SUSTAINED_S, Fate, Trial
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.trip_wires import TripWire, Watched
from tests.support.frames import frame

NOTHING = Interval([frame(0)])


class Number:
    """A number that a test sets."""

    def __init__(self, value: float | None) -> None:
        self.value = value

    def wire(self, limit: float) -> TripWire:
        return TripWire(Watched("x", "", {"": 1.0}, lambda _: self.value), f"x>{limit:g}", True, limit)


def test_a_change_that_nobody_keeps_is_taken_back_when_its_time_is_over() -> None:
    trial = Trial(100.0, 60.0)
    standing = trial.passes(130.0)
    assert (standing.fate, standing.remaining_s, standing.must_revert) == (Fate.ON_TRIAL, 30.0, False)
    over = trial.passes(160.0)
    assert (over.fate, over.must_revert) == (Fate.TIME_OVER, True)
    assert trial.keep().fate is Fate.TIME_OVER


def test_a_change_that_was_kept_stays() -> None:
    trial = Trial(100.0, 60.0, (Number(9.0).wire(1.0),))
    assert trial.keep().fate is Fate.KEPT
    assert trial.saw(300.0, NOTHING).fate is Fate.KEPT
    assert not trial.passes(301.0).must_revert


def test_a_line_that_stays_crossed_takes_the_change_back_and_says_which() -> None:
    number = Number(9.0)
    trial = Trial(0.0, 60.0, (number.wire(1.0),))
    now_s = SETTLE_S
    while (standing := trial.saw(now_s, NOTHING)).fate is Fate.ON_TRIAL:
        now_s += 1.0
    assert now_s == SETTLE_S + SUSTAINED_S
    assert standing.must_revert
    assert standing.reason == f"x>1 for {SUSTAINED_S:.0f} s"


def test_one_bad_second_does_not_trip_and_nothing_counts_before_it_has_settled() -> None:
    number = Number(9.0)
    trial = Trial(0.0, 60.0, (number.wire(1.0),))
    for second in range(30):
        number.value = 9.0 if second % 3 == 0 or second < SETTLE_S else 0.5
        assert trial.saw(float(second), NOTHING).fate is Fate.ON_TRIAL


def test_a_number_that_cannot_be_said_begins_anew() -> None:
    number = Number(9.0)
    trial = Trial(0.0, 60.0, (number.wire(1.0),))
    trial.saw(2.0, NOTHING)
    trial.saw(4.0, NOTHING)
    number.value = None
    trial.saw(5.0, NOTHING)
    number.value = 9.0
    assert trial.saw(6.0, NOTHING).fate is Fate.ON_TRIAL
