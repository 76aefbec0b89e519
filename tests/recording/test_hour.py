"""What is kept of a live session in memory: exactly the frames it was given, as far back as there is room."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.hour import KeptHour
from pgtop_tune.recording.memory_form import MemoryForm
from pgtop_tune.session.ports import Step
from tests.recording.strategies import FRAMES
from tests.support.frames import frame


@settings(deadline=None, max_examples=4, suppress_health_check=list(HealthCheck))
@given(frames=st.lists(FRAMES, min_size=1, max_size=4))
def test_any_frames_are_read_back_exactly(frames: list[Frame]) -> None:
    form = MemoryForm()
    kept = [form.changed(one) if place else form.whole(one) for place, one in enumerate(frames)]
    before, found = None, []
    for data in kept:
        before = form.read(data, before)
        found.append(before)
    assert found == frames
    assert repr(found) == repr(frames)


def test_frames_of_a_session_that_comes_and_goes_are_read_from_any_number_on() -> None:
    frames = [frame(second, backends=2 + second % 5) for second in range(95)]
    hour = KeptHour()
    hour.accept(Step(tuple(frames)))
    for first in (0, 29, 30, 31, 89, 90, 94, 95):
        assert [one for _, one in hour.frames(first)] == frames[first:]
    assert [hour.index_at(moment) for moment in (-1.0, 0.0, 44.5, 94.0, 1e9)] == [0, 0, 44, 94, 94]


def test_who_reads_while_frames_come_gets_each_once() -> None:
    frames = [frame(second, backends=1) for second in range(70)]
    hour = KeptHour()
    hour.accept(Step(tuple(frames[:35])))
    seen = []
    for number, one in hour.frames(20):
        seen.append((number, one))
        if hour.frame_count < len(frames):
            hour.accept(Step((frames[hour.frame_count],)))
    assert seen == list(enumerate(frames))[20:]


def test_the_oldest_go_after_the_time_and_where_there_is_no_room() -> None:
    frames = [frame(second, backends=1) for second in range(200)]
    hour = KeptHour(longest_s=60.0)
    hour.accept(Step(tuple(frames)))
    assert hour.first == 120
    assert [one for _, one in hour.frames(0)] == frames[120:]
    small = KeptHour(most_bytes=1)
    small.accept(Step(tuple(frames)))
    assert (small.first, small.frame_count) == (180, 200)
    assert [one for _, one in small.frames(150)] == frames[180:]
    assert small.elapsed_s(0) == 180.0


def test_absence_and_presence_change_places() -> None:
    gone = Unavailable(Reason.NO_ANSWER, "no answer")
    frames = [frame(second, postgres=gone) if second % 3 == 1 else frame(second) for second in range(12)]
    hour = KeptHour()
    hour.accept(Step(tuple(frames)))
    assert [one for _, one in hour.frames()] == frames
