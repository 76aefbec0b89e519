"""What has been of a live session: the last hour out of memory, what was before it out of the recording."""

from __future__ import annotations

from pathlib import Path

from pgtop_tune.cli.live_screen import _kept_frames
from pgtop_tune.recording.history_buffer import HistoryBuffer
from pgtop_tune.runtime.ports import Step
from tests.support.sides import frames, recorded


def test_frames_that_memory_has_not_any_more_come_from_the_recording(tmp_path: Path) -> None:
    found = frames(seconds=150)
    hour = HistoryBuffer(longest_s=40.0)
    hour.accept(Step(tuple(found)))
    path = recorded(found, tmp_path / "run.jsonl")
    kept = [frame.sequence for frame in _kept_frames(hour, None, 0.0)]
    assert kept[0] > 50
    assert kept[-1] == 150
    assert [frame.sequence for frame in _kept_frames(hour, str(path), 10.0)] == list(range(10, 151))
    assert [frame.sequence for frame in _kept_frames(hour, str(path), 140.0)] == list(range(140, 151))


def test_nothing_is_kept_before_the_first_frame() -> None:
    assert list(_kept_frames(HistoryBuffer(), None, 0.0)) == []
