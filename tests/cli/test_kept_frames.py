"""What has been of a live session: the last hour out of memory, what was before it out of the recording."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtop_tune.cli.commands.watch.screen import LiveWords, _controls, _kept_frames
from pgtop_tune.cli.commands.watch.session import ScreenSession
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.recording.history_buffer import HistoryBuffer
from pgtop_tune.recording.recorder import Recorder
from pgtop_tune.runtime.engine import Engine
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.run_frames import FrameKeeper
from pgtop_tune.tui.controls import TerminalTally
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


def test_a_recording_can_be_laid_under_the_charts_once_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    options = LiveOptions(1.0, journal_directory=tmp_path)
    session = ScreenSession(resolve(f"host={tmp_path}"), options, FrameKeeper(most=10))
    recorder = Recorder("server", 1.0)
    overlays = _controls(Engine(session), session, recorder, LiveWords(options), None, TerminalTally()).overlays
    assert overlays is not None
    recorder.start()
    assert list(overlays.newest()) == []
    recorder.accept(Step(tuple(frames(seconds=3))))
    recorder.stop()
    assert list(overlays.newest()) == [recorder.last_path]
