"""What a session still knows of its past: every recent reading, and of the bulky ones of old only some."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import WHOLE_S, Interval
from pgtop_tune.model.absence import NOT_RECORDED, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostSample, ProcessSample
from pgtop_tune.model.postgres import Activity, PostgresSample
from pgtop_tune.model.relations import RelationSample
from pgtop_tune.runtime.frame_window import APART_S, KEEP_FRAMES, FrameWindow


def _frame(number: int, every_s: float = 1.0) -> Frame:
    at_s = number * every_s
    return Frame(
        number, 0, at_s,
        host=HostSample(processes=ProcessSample(at_s, ())),
        postgres=PostgresSample(activity=Activity(at_s, 0, ())),
    )  # fmt: skip


def _window(frames: int, every_s: float = 1.0) -> FrameWindow:
    window = FrameWindow()
    window.extend(_frame(number, every_s) for number in range(frames))
    return window


def test_recent_readings_are_all_there() -> None:
    interval = Interval(_window(100))
    for section in (sections.activity, sections.processes):
        assert [reading.at_s for reading in interval.recent(section, WHOLE_S)] == [
            99.0 - ago for ago in range(int(WHOLE_S))
        ]


def test_older_readings_are_kept_some_seconds_apart() -> None:
    interval = Interval(_window(100))
    for section in (sections.activity, sections.processes):
        readings = [reading.at_s for reading in interval.recent(section, 60.0)]
        older = [at_s for at_s in readings if at_s < 99.0 - WHOLE_S]
        assert len(older) >= 2
        assert {before - after for before, after in itertools.pairwise(older)} == {APART_S}
        assert readings[-1] <= 99.0 - 60.0 + APART_S


def test_where_a_window_begins_does_not_matter() -> None:
    """A jump begins with fewer frames than a session that was there all the time."""
    frames = [_frame(number) for number in range(200)]
    readings = []
    for begin in range(0, 100, 7):
        window = FrameWindow()
        window.extend(frames[begin:])
        readings.append([reading.at_s for reading in Interval(window).recent(sections.processes, 60.0)])
    assert readings[1:] == readings[:-1]


@pytest.mark.parametrize("every_s", [0.2, 1.0, 2.0])
def test_a_rate_of_a_slow_section_is_between_its_newest_two_readings(every_s: float) -> None:
    window = FrameWindow()
    relations = RelationSample(
        at_s=0.0, now_ms=0, next_xid=0, next_multixact=0, n_tables=0, n_indexes=0, tables=(), indexes=()
    )
    for number in range(int(100 / every_s)):
        frame = _frame(number, every_s)
        if frame.elapsed_s - relations.at_s >= sections.relations.every_s:
            relations = replace(relations, at_s=frame.elapsed_s)
        assert not isinstance(frame.postgres, Unavailable)
        window.append(replace(frame, postgres=replace(frame.postgres, relations=relations)))
        pair = Interval(window).pair(sections.relations)
        assert pair is None or pair[1].at_s - pair[0].at_s < 17.0, frame.elapsed_s


def test_the_bulk_of_old_frames_is_shared() -> None:
    window = _window(400)
    assert len(window) == KEEP_FRAMES
    readings = {id(sections.activity(frame)) for frame in window}
    assert len(readings) <= WHOLE_S + 2 + KEEP_FRAMES / APART_S


def test_frames_far_apart_keep_what_they_have() -> None:
    window = _window(40, every_s=60.0)
    assert [sections.activity(frame).at_s for frame in window] == [60.0 * number for number in range(40)]


@pytest.mark.parametrize("every_s", [10.0, 13.0, 15.0, 17.0, 20.0, 60.0])
def test_a_rate_is_over_one_interval_however_long_that_is(every_s: float) -> None:
    window = FrameWindow()
    for number in range(12):
        window.append(_frame(number, every_s))
        for section in (sections.activity, sections.processes) if number else ():
            pair = Interval(window).pair(section)
            assert pair is not None
            assert pair[1].at_s - pair[0].at_s == every_s


def test_what_was_absent_stays_absent() -> None:
    window = FrameWindow()
    for number in range(60):
        frame = _frame(number)
        if 20 <= number < 25:
            frame = replace(frame, postgres=NOT_RECORDED, host=NOT_RECORDED)
        window.append(frame)
    assert [frame.sequence for frame in window if frame.postgres is NOT_RECORDED] == [20, 21, 22, 23, 24]
    assert [frame.sequence for frame in window if frame.host is NOT_RECORDED] == [20, 21, 22, 23, 24]
    assert sections.activity(window[25]).at_s == 25.0


def test_a_copy_goes_its_own_way_and_frames_can_be_taken_back() -> None:
    window = _window(50)
    twin = FrameWindow(window)
    for number in range(50, 200):
        window.append(_frame(number))
    assert [frame.sequence for frame in twin] == list(range(50))
    for _ in range(45):
        twin.pop()
    twin.append(_frame(50))
    assert [frame.sequence for frame in twin] == [0, 1, 2, 3, 4, 50]
    assert next(reversed(twin)).sequence == twin[-1].sequence == 50
