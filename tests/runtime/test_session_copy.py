"""A copy of a session is what a frozen screen shows: it knows the same and does not follow."""

from __future__ import annotations

from pgtop_tune.metrics.server import TPS
from pgtop_tune.runtime.ports import Step
from tests.support.frames import frame, session_of


def test_a_copy_stays_while_the_original_goes_on() -> None:
    session = session_of(30, charted=[TPS])
    twin = session.copy()
    points, events, seconds = twin.history.series(TPS), list(twin.events), twin.latency.series()
    assert twin.now is session.now
    assert points == session.history.series(TPS)

    session.apply(Step(tuple(frame(second) for second in range(30, 60))))

    assert twin.now is not None
    assert twin.now.sequence == 29
    assert twin.interval is not None
    assert TPS(twin.interval) is not None
    assert (twin.history.series(TPS), list(twin.events), twin.latency.series()) == (points, events, seconds)


def test_a_copy_can_be_written_to_without_touching_the_original() -> None:
    session = session_of(10, charted=[TPS])
    twin = session.copy()
    twin.apply(Step((frame(10),)))
    assert session.now is not None
    assert session.now.sequence == 9
    assert len(session.history.series(TPS)) == 10


def test_before_the_first_frame_there_is_nothing_to_copy() -> None:
    twin = session_of(0).copy()
    assert twin.now is None
    assert twin.interval is None
