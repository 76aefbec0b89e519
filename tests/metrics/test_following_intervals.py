"""An interval that follows another finds what one that looks by itself finds, and computes again only what changed."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.compare.sides.from_window import every_number
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.host_values import with_facts
from pgtop_tune.metrics.tail import tail
from pgtop_tune.metrics.waits import wait_profile
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostSample, ProcessSample
from pgtop_tune.model.postgres import Activity, PostgresSample
from pgtop_tune.model.waits import TailSample
from pgtop_tune.runtime.frame_window import FrameWindow
from tests.support.frames import EPOCH_MS, facts, frame

_SILENT = Unavailable(Reason.NO_ANSWER, "no answer for 2 s")
_SECTIONS: tuple[Any, ...] = (sections.activity, sections.tail, sections.processes, with_facts(sections.processes))
_ASKED = [(each, window_s, least) for each in _SECTIONS for window_s in (0.0, 3.0, 10.0, 60.0) for least in (1, 2)]
_MOMENT = st.tuples(
    st.sampled_from((1.0, 1.0, 1.0, 1.0, 1.2, 2.0, 0.2, 7.0, 40.0)),
    st.sampled_from(("", "", "", "", "", "silent", "silent", "absent", "section", "gap", "restart")),
    st.integers(1, 25),
    st.integers(1, 4),
)
"""Seconds since the frame before, what is amiss, and how many frames activity and processes are not read again."""


def _frames(moments: list[tuple[float, str, int, int]]) -> list[Frame]:
    found: list[Frame] = []
    at_s, started_ms, left = 0.0, EPOCH_MS, [0, 0]
    activity, processes = Activity(0.0, 0, ()), ProcessSample(0.0, ())
    for number, (step_s, amiss, slow, slower) in enumerate(moments):
        at_s = round(at_s + step_s, 3)
        started_ms += amiss == "restart"
        left = [each - 1 for each in left]
        if left[0] < 0:
            activity, left[0] = Activity(at_s, 0, ()), slow
        if left[1] < 0:
            processes, left[1] = ProcessSample(at_s, ()), slower
        tail = TailSample(at_s=at_s, looks=1, every_ms=100.0, floor_ms=50.0, one_in=1)
        postgres: PostgresSample | Unavailable = PostgresSample(
            server=facts(started_ms=started_ms), activity=activity, tail=_SILENT if amiss == "section" else tail
        )
        if amiss in ("silent", "absent"):
            postgres = _SILENT if amiss == "silent" else Unavailable(Reason.FAILED)
        events = (Event(0, EventKind.GAP, "gap"),) if amiss == "gap" else ()
        found.append(Frame(number, 0, at_s, host=HostSample(processes=processes), postgres=postgres, events=events))
    return found


@given(st.lists(_MOMENT, min_size=2, max_size=60), st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_added_to_is_what_would_be_found(
    moments: list[tuple[float, str, int, int]], data: st.DataObject
) -> None:
    window, interval = FrameWindow(), None
    skipped = data.draw(st.sets(st.integers(0, len(moments)), max_size=3))
    for number, made in enumerate(_frames(moments)):
        window.append(made)
        interval = Interval(window, interval)
        for section, window_s, least in _ASKED if number not in skipped else ():
            found = [each.at_s for each in interval.recent(section, window_s, least)]
            alone = [each.at_s for each in Interval(window).recent(section, window_s, least)]
            assert found == alone, (number, section, window_s, least)


def test_the_past_that_a_session_let_go_is_not_counted_on() -> None:
    window, interval = FrameWindow(), None
    for made in _frames([(1.0, "", 1, 1)] * 200):
        window.append(made)
        interval = Interval(window, interval)
        interval.recent(sections.tail, 300.0)
    assert interval is not None
    assert [each.at_s for each in interval.recent(sections.tail, 300.0)] == [
        each.elapsed_s for each in reversed(window)
    ]


def test_what_readings_make_is_made_once() -> None:
    made: list[float] = []

    def compute(activity: Activity) -> float:
        made.append(activity.at_s)
        return activity.at_s

    interval, results = None, []
    for each in _frames([(1.0, "", 2, 1)] * 4):
        interval = Interval([each], interval)
        activity = interval.now(sections.activity)
        assert activity is not None
        results.append((interval.kept(compute, activity), interval.kept(compute, activity)))
    assert results == [(1.0, 1.0)] * 3 + [(4.0, 4.0)]
    assert made == [1.0, 4.0]
    # An equal reading is another reading.
    assert interval is not None
    interval.kept(compute, replace(activity))
    assert made == [1.0, 4.0, 4.0]


def _changes(second: int) -> dict[str, Any]:
    """A load that ends and comes back, more sessions, two silent seconds, a gap."""
    if second in (55, 56):
        return {"postgres": _SILENT}
    if second == 70:
        return {"events": (Event(EPOCH_MS, EventKind.GAP, "gap"),)}
    return {"load": not 30 <= second < 36, "backends": 8 if second < 40 else 11}


def test_every_number_is_that_of_an_interval_of_its_own() -> None:
    window, interval = FrameWindow(), None
    for second in range(100):
        window.append(frame(second, **_changes(second)))
        interval = Interval(window, interval)
        of_all = []
        for each in (interval, Interval(window)):
            found = {number.name: value for number, value in every_number(each)}
            for window_s in (0.0, 3.0, 10.0, 60.0):
                for share in wait_profile(each, window_s, included=lambda count: True):
                    found[f"{share.label} {window_s}"] = share.sessions
            for age_ms in (None, 200.0):
                if (of_tail := tail(each, age_ms)) is not None:
                    found |= {f"{cause.label} {age_ms}": cause.transactions for cause in of_tail.causes}
                    found[f"open {age_ms}"] = of_tail.open
            of_all.append(found)
        assert of_all[0] == pytest.approx(of_all[1], rel=1e-9, abs=1e-9), second
        assert len(of_all[1]) > 20 or second in (0, 55, 56), second


def test_what_each_reading_makes_is_made_once_for_the_same_end() -> None:
    made: list[tuple[float, int]] = []

    def compute(reading: TailSample, factor: int) -> float:
        made.append((reading.at_s, factor))
        return reading.at_s * factor

    window, interval, results = FrameWindow(), None, []
    for each in _frames([(1.0, "", 1, 1)] * 3):
        window.append(each)
        interval = Interval(window, interval)
        results.append(interval.each(compute, interval.recent(sections.tail, 1.5), 2))
    assert results == [[2.0], [4.0, 2.0], [6.0, 4.0]]
    assert made == [(1.0, 2), (2.0, 2), (3.0, 2)]
    assert interval is not None
    assert interval.each(compute, interval.recent(sections.tail, 1.5), 3) == [9.0, 6.0]


def test_what_is_not_asked_for_any_more_is_let_go() -> None:
    class Sum:
        pass

    frames = _frames([(1.0, "", 1, 1)] * 4)
    interval = Interval(frames[:1])
    asked, unasked = interval.carried("asked", Sum), weakref.ref(interval.carried("unasked", Sum))
    for count in (2, 3):
        assert unasked() is not None or count > 2
        interval = Interval(frames[:count], interval)
        assert interval.carried("asked", Sum) is asked
    gc.collect()
    assert unasked() is None
