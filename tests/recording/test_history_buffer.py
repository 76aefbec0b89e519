"""What is kept of a live session in memory: exactly the frames it was given, as far back as there is room."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.history_buffer import HistoryBuffer, PutAway, SpillFiles
from pgtop_tune.runtime.ports import Step
from tests.recording.strategies import FRAMES
from tests.support.frames import frame


@settings(deadline=None, max_examples=4, suppress_health_check=list(HealthCheck))
@given(frames=st.lists(FRAMES, min_size=1, max_size=4))
def test_any_frames_are_read_back_exactly(frames: list[Frame]) -> None:
    hour = HistoryBuffer()
    hour.accept(Step(tuple(frames)))
    kept = [each for _, each in hour.frames()]
    assert kept == frames
    assert repr(kept) == repr(frames)


def test_frames_of_a_session_that_comes_and_goes_are_read_from_any_number_on() -> None:
    frames = [frame(second, backends=2 + second % 5) for second in range(95)]
    hour = HistoryBuffer()
    hour.accept(Step(tuple(frames)))
    for first in (0, 29, 30, 31, 89, 90, 94, 95):
        assert [one for _, one in hour.frames(first)] == frames[first:]
    assert [hour.index_at(moment) for moment in (-1.0, 0.0, 44.5, 94.0, 1e9)] == [0, 0, 44, 94, 94]


def test_who_reads_while_frames_come_gets_each_once() -> None:
    frames = [frame(second, backends=1) for second in range(70)]
    hour = HistoryBuffer()
    hour.accept(Step(tuple(frames[:35])))
    seen = []
    for number, one in hour.frames(20):
        seen.append((number, one))
        if hour.frame_count < len(frames):
            hour.accept(Step((frames[hour.frame_count],)))
    assert seen == list(enumerate(frames))[20:]


def test_the_oldest_go_after_the_time_and_where_there_is_no_room() -> None:
    frames = [frame(second, backends=1) for second in range(200)]
    hour = HistoryBuffer(longest_s=60.0)
    hour.accept(Step(tuple(frames)))
    assert hour.first == 120
    assert [one for _, one in hour.frames(0)] == frames[120:]
    small = HistoryBuffer(most_bytes=1)
    small.accept(Step(tuple(frames)))
    assert (small.first, small.frame_count) == (180, 200)
    assert [one for _, one in small.frames(150)] == frames[180:]
    assert small.elapsed_s(0) == 180.0


def test_absence_and_presence_change_places() -> None:
    gone = Unavailable(Reason.NO_ANSWER, "no answer")
    frames = [frame(second, postgres=gone) if second % 3 == 1 else frame(second) for second in range(12)]
    hour = HistoryBuffer()
    hour.accept(Step(tuple(frames)))
    assert [one for _, one in hour.frames()] == frames


def descriptors(directory: Path) -> list[int]:
    """Open files of ours that lie there, by number."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith(str(directory)):
                found.append(int(name))
        except FileNotFoundError:
            continue
    return found


def until(true: Callable[[], bool]) -> None:
    """Waits for the thread that puts blocks away."""
    deadline_s = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_packed_blocks_are_put_away_into_files_that_nobody_else_finds(tmp_path: Path) -> None:
    frames = [frame(second, backends=2 + second % 5) for second in range(100)]
    hour = HistoryBuffer(spill_files=SpillFiles(lambda: tmp_path / "state"))
    for one in frames:
        hour.accept(Step((one,)))
    until(lambda: len(descriptors(tmp_path)) == 1)
    [descriptor] = descriptors(tmp_path)
    assert list((tmp_path / "state").iterdir()) == []
    assert os.fstat(descriptor).st_mode & 0o777 == 0o600
    until(lambda: 0 < hour.packed_bytes <= os.fstat(descriptor).st_size)
    assert [one for _, one in hour.frames()] == frames
    hour = HistoryBuffer()
    until(lambda: descriptors(tmp_path) == [])


class _SlowToBegin(SpillFiles):
    """The first piece is taken only once more has been packed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(lambda: directory)
        self.asked, self.go_on = threading.Event(), threading.Event()

    def put(self, data: bytes) -> PutAway | None:
        self.asked.set()
        assert self.go_on.wait(60)
        return super().put(data)


def test_a_block_packed_while_others_are_put_away_follows_them(tmp_path: Path) -> None:
    spill_files = _SlowToBegin(tmp_path)
    hour = HistoryBuffer(spill_files=spill_files)
    hour.accept(Step(tuple(frame(second) for second in range(35))))
    assert spill_files.asked.wait(60)
    hour.accept(Step(tuple(frame(second) for second in range(35, 95))))
    spill_files.go_on.set()
    until(lambda: sum(os.fstat(one).st_size for one in descriptors(tmp_path)) == hour.packed_bytes)


def test_room_on_the_disk_is_given_back_as_the_oldest_go(tmp_path: Path) -> None:
    spill_files = SpillFiles(lambda: tmp_path)
    pieces = [spill_files.put(bytes([number]) * 100) for number in range(45)]
    assert len(descriptors(tmp_path)) == 3
    assert [piece.read() for piece in pieces if piece] == [bytes([number]) * 100 for number in range(45)]
    del pieces[:21]
    assert len(descriptors(tmp_path)) == 2


@pytest.mark.parametrize("broken", ["a file", "gone/again"])
def test_without_a_directory_the_hour_stays_in_memory(broken: str, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere" / "at all")
    frames = [frame(second, backends=1) for second in range(95)]
    hour = HistoryBuffer(spill_files=SpillFiles(lambda: tmp_path / broken))
    hour.accept(Step(tuple(frames)))
    assert [one for _, one in hour.frames()] == frames


def test_a_full_disk_takes_nothing_and_room_is_used_when_it_comes(tmp_path: Path) -> None:
    spill_files = SpillFiles(lambda: tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150, hard))
    try:
        pieces = [spill_files.put(bytes([number]) * 100) for number in range(3)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    pieces.append(spill_files.put(b"more"))
    assert [piece.read() if piece else None for piece in pieces] == [b"\0" * 100, None, b"\2" * 100, b"more"]


def test_a_file_that_was_cut_is_said(tmp_path: Path) -> None:
    piece = SpillFiles(lambda: tmp_path).put(b"some bytes")
    assert piece is not None
    os.ftruncate(piece.file.fileno(), 3)
    with pytest.raises(RecordingProblem, match="truncated"):
        piece.read()
