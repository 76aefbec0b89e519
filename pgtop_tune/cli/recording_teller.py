"""Says on the way that a recording cannot be written, and that it goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pgtop_tune.recording.recorder import Recorder
from pgtop_tune.safe_text import one_line
from pgtop_tune.session.ports import Step


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
        self._path: Path | None = recorder.last_path

    def accept(self, step: Step) -> None:
        """Tells what has changed since the step before."""
        recorder, problem = self._recorder, self._recorder.state().problem
        if problem != self._problem:
            if problem:
                self._tell(f"recording stopped, and goes on when it can: {one_line(problem, 300)}")
            else:
                missing = recorder.frames_missing - self._missing
                self._tell(f"recording goes on in {recorder.last_path}; {missing} frames are missing")
                self._missing = recorder.frames_missing
        elif recorder.last_path != self._path:
            self._tell(f"recording into {recorder.last_path}")
        self._problem, self._path = problem, recorder.last_path

    def close(self) -> None:
        """Nothing to let go of."""
