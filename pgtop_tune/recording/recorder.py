"""The record key: a sink that is always attached and writes when it is switched on."""

from __future__ import annotations

import re
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pgtop_tune import __version__, paths
from pgtop_tune.errors import RecordingProblem
from pgtop_tune.recording.format import FORMAT, Header
from pgtop_tune.recording.texts import without_texts
from pgtop_tune.session.ports import RecordingState, Step

if TYPE_CHECKING:
    from pgtop_tune.recording.writer import RecordingWriter

_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")


class Recorder:
    """Implements `FrameSink` and `RecordingControl`. A full disk stops the recording and says so, never the session.

    Args:
        target: Whom the session watches, for header and file name; no password in it.
        interval_s: Interval for the header.
        query_text: Whether texts of statements are recorded; see `texts`.

    Attributes:
        last_path: The last file that was begun.
        frames_written: Frames in all files of this session.
    """

    def __init__(self, target: str, interval_s: float, *, query_text: bool = True) -> None:
        self._target = target
        self._interval_s = interval_s
        self._query_text = query_text
        self._lock = threading.Lock()
        self._writer: RecordingWriter | None = None
        self._since_s: float | None = None
        self._problem = ""
        self.last_path: Path | None = None
        self.frames_written = 0

    def start(self, path: str | None = None) -> RecordingState:
        """See `RecordingControl.start`."""
        # Frames take a while to be understood: a screen that does not record need not wait for it.
        from pgtop_tune.recording.writer import RecordingWriter

        with self._lock:
            if self._writer is None:
                created_ms = int(time.time() * 1000)
                target = Path(path).expanduser() if path else self._made_up(created_ms)
                offset = datetime.now().astimezone().isoformat()[-6:]
                header = Header(FORMAT, __version__, created_ms, offset, self._interval_s, self._target)
                self._writer = RecordingWriter(target.absolute(), header)
                self.last_path = self._writer.path
                self._since_s = None
                self._problem = ""
        return self.state()

    def _made_up(self, created_ms: int) -> Path:
        stamp = datetime.fromtimestamp(created_ms / 1000).strftime("%Y%m%d-%H%M%S")
        name = _UNSAFE.sub("-", self._target).strip("-.")[:60] or "server"
        directory = paths.private(paths.recordings_dir())
        candidate = directory / f"{stamp}-{name}.jsonl.gz"
        serial = 2
        while candidate.exists():
            candidate = directory / f"{stamp}-{name}-{serial}.jsonl.gz"
            serial += 1
        return candidate

    def stop(self) -> RecordingState:
        """See `RecordingControl.stop`."""
        with self._lock:
            self._finish()
        return self.state()

    def _finish(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            except RecordingProblem as problem:
                self._problem = problem.message

    def state(self) -> RecordingState:
        """See `RecordingControl.state`."""
        writer = self._writer
        if writer is None:
            return RecordingState(problem=self._problem)
        return RecordingState(str(writer.path), self._since_s, writer.frames)

    def accept(self, step: Step) -> None:
        """Writes the frames when recording is on."""
        with self._lock:
            if self._writer is None:
                return
            try:
                for frame in step.frames:
                    if self._since_s is None:
                        self._since_s = frame.elapsed_s
                    self._writer.write(frame if self._query_text else without_texts(frame))
                    self.frames_written += 1
            except RecordingProblem as problem:
                self._writer = None
                self._problem = problem.message

    def close(self) -> None:
        """Ends the recording with the session."""
        self.stop()
