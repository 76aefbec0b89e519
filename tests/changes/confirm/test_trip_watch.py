"""Trip wires over arriving frames."""

from __future__ import annotations

from pgtop_tune.changes.confirm.pending_sets import SETTLE_S, SUSTAINED_S, TripWatch
from pgtop_tune.metrics.trip_wires import TripWire, WatchedNumber
from pgtop_tune.runtime.ports import Step
from tests.support.frames import frame


class Number:
    """A number that a test sets, and what a watch says of it second by second."""

    def __init__(self, *, began_s: float = 0.0) -> None:
        self.value: float | None = 9.0
        wire = TripWire(WatchedNumber("x", "", {"": 1.0}, lambda _: self.value), "x>1", True, 1.0)
        self._watch = TripWatch(began_s, (wire,))

    def at(self, second: int, value: float | None) -> str:
        self.value = value
        return self._watch.accept(Step((frame(second),)))


def test_a_line_that_stays_crossed_is_named_after_it_has_settled() -> None:
    number = Number()
    said = [number.at(second, 9.0) for second in range(int(SETTLE_S + SUSTAINED_S) + 1)]
    assert [words for words in said if words] == [f"x>1 for {SUSTAINED_S:.0f} s"] == said[-1:]


def test_one_bad_second_does_not_trip_and_nothing_counts_before_it_has_settled() -> None:
    number = Number()
    for second in range(30):
        assert not number.at(second, 9.0 if second % 3 == 0 or second < SETTLE_S else 0.5)


def test_a_number_that_cannot_be_said_begins_anew() -> None:
    number = Number()
    assert not any([number.at(2, 9.0), number.at(4, 9.0), number.at(5, None), number.at(6, 9.0), number.at(8, 9.0)])
    assert number.at(9, 9.0)


def test_the_line_counts_from_when_the_set_was_made() -> None:
    number = Number(began_s=100.0)
    assert not any(number.at(second, 9.0) for second in range(90, 102))
    assert [bool(number.at(second, 9.0)) for second in range(102, 106)] == [False, False, False, True]
