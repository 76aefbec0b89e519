"""Says on the way that a recording cannot be written, how many frames that has cost, and that it goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from pgtop_tune.recording.recorder import Recorder
from pgtop_tune.runtime.ports import Step
from pgtop_tune.safe_text import one_line

_FEW: Final = 10
"""So many lost frames are said again, and from then on twice as many each time."""


class RecordingTeller:
    """A sink that follows a recorder; attached after it.

    Args:
        recorder: Whose files these are.
        tell: Takes a line.
    """

    def __init__(self, recorder: Recorder, tell: Callable[[str], None]) -> None:
        self._recorder = recorder
        self._tell = tell
        self._problem = ""
        self._missing = 0
        self._told = 0
        self._removed = 0
        self._path: Path | None = recorder.last_path

    def accept(self, step: Step) -> None:
        """Tells what has changed since the step before."""
        recorder, state = self._recorder, self._recorder.state()
        if state.problem and state.problem != self._problem:
            self._tell(f"frames are lost until the recording can be written: {one_line(state.problem, 300)}")
            self._told = state.missing
        elif state.problem and state.missing >= max(self._told * 2, _FEW):
            self._tell(f"{state.missing} frames are lost so far: {one_line(state.problem, 300)}")
            self._told = state.missing
        elif self._problem and not state.problem:
            missing = recorder.frames_missing - self._missing
            self._tell(f"recording continues in {recorder.last_path}; {missing} frames are missing")
            self._missing = recorder.frames_missing
        elif recorder.last_path != self._path:
            self._tell(f"recording into {recorder.last_path}")
        if recorder.files_removed > self._removed:
            self._tell(f"older files removed by --keep: {recorder.files_removed - self._removed}")
            self._removed = recorder.files_removed
        self._problem, self._path = state.problem, recorder.last_path

    def close(self) -> None:
        """Nothing to let go of."""
