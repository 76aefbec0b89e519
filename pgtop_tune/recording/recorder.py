"""The recorder: a sink that is always attached and writes when it is switched on.

Frames without the words of statements: for recordings that are handed to somebody who must not see data.
Literals stand in statements, in messages about them and in lines of the server's log, keys of other programs in the
commands that the server runs. They are left out whole: a recogniser of literals would have to know every dialect of
quoting, and be right each time.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune import __version__
from pgtop_tune.base import paths, units
from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchSample
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import Activity, Parameter, ParameterSample, PostgresSample
from pgtop_tune.runtime.ports import RecordingState, Step

if TYPE_CHECKING:
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.recording.files import Files, Rotation
    from pgtop_tune.recording.writer import RecordingWriter

LEFT_OUT: Final = Unavailable(Reason.NOT_RECORDED, "recorded with --no-query-text")
_SAID: Final = "left out: recorded with --no-query-text"
"""Text in the place of a command or message."""
_COMMAND: Final = "_command"
"""End of the names of parameters that hold a shell command: archive_command, restore_command."""
_PLAIN: Final = frozenset(
    {EventKind.CHECKPOINT, EventKind.RESET, EventKind.RESTART, EventKind.ROLE, EventKind.GAP, EventKind.RECORDING}
)
"""Events whose details are our own text; those of others may quote a statement."""


def without_texts(frame: Frame) -> Frame:
    """Return the frame without texts of statements, the server's log, commands, messages of pgbench and details of
    events."""
    return replace(
        frame,
        postgres=frame.postgres if isinstance(frame.postgres, Unavailable) else _server(frame.postgres),
        bench=frame.bench if isinstance(frame.bench, Unavailable) else _load(frame.bench),
        events=tuple(map(_event, frame.events)),
    )


def _server(sample: PostgresSample) -> PostgresSample:
    activity = sample.activity
    if isinstance(activity, Activity):
        backends = tuple(
            backend if backend.query is None else replace(backend, query=None) for backend in activity.backends
        )
        activity = replace(activity, backends=backends)
    parameters = sample.parameters
    if isinstance(parameters, ParameterSample):
        parameters = replace(parameters, parameters=tuple(map(_parameter, parameters.parameters)))
    return replace(sample, activity=activity, statement_texts=LEFT_OUT, server_log=LEFT_OUT, parameters=parameters)


def _parameter(parameter: Parameter) -> Parameter:
    """Return a parameter without its command. Empty or switched off, it stays: checks look whether there is a
    command."""
    if not parameter.name.endswith(_COMMAND):
        return parameter
    values = {name: _command(getattr(parameter, name)) for name in ("setting", "shown", "reset_val", "boot_val")}
    return replace(parameter, **values)


def _command(value: str) -> str:
    return value if value in ("", "(disabled)") else _SAID


def _load(sample: BenchSample) -> BenchSample:
    return replace(sample, run=replace(sample.run, message=_SAID)) if sample.run.message else sample


def _event(event: Event) -> Event:
    if event.kind in _PLAIN:
        return event
    name = event.text.partition(" ")[0]
    is_command = event.kind is EventKind.PARAMETER and name.endswith(_COMMAND)
    return replace(event, text=f"{name} changed" if is_command else event.text, detail="")


_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.-]+")
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 30.0


class _Gap(Struct):
    """Frames that could not be written.

    Attributes:
        problem: Why.
        first: The first of them.
        newest: The last of them.
        frames: Number of them.
        wait_s: From one try to the next.
        again_s: Moment of the next try, on the session's clock.
    """

    problem: str
    first: Frame
    newest: Frame
    frames: int
    wait_s: float
    again_s: float


class Recorder:
    """A `FrameSink` and `RecordingControl` that writes the frames of a session.

    A full disk or a removed directory stops the recording with a message, never the session. The recorder tries
    again, more and more seldom; when it can go on, an event has the number of missing frames.

    Args:
        target: The server, for header and file name; no password in it.
        interval_s: Interval for the header.
        query_text: True records the texts of statements; see `without_texts`.
        rotation: When a new file is begun, and which ones are kept; None for one file that grows.

    Attributes:
        last_path: The last file that was begun.
        files_begun: Number of files in this session.
        files_removed: Older files that were not to be kept.
        frames_written: Frames in all of them.
        frames_missing: Frames that came while they could not be written.
        server_seen: True once a frame had a server, recorded or not.
    """

    def __init__(
        self, target: str, interval_s: float, *, query_text: bool = True, rotation: Rotation | None = None
    ) -> None:
        self._target = target
        self._interval_s = interval_s
        self._query_text = query_text
        self._rotation = rotation
        self._lock = threading.Lock()
        self._files: Files | None = None
        self._writer: RecordingWriter | None = None
        self._since_s: float | None = None
        self._file_since_s = 0.0
        self._frames = 0
        self._gap: _Gap | None = None
        self._problem = ""
        """The problem that ended the last recording."""
        self.last_path: Path | None = None
        self.files_begun = 0
        self.files_removed = 0
        self.frames_written = 0
        self.frames_missing = 0
        self.server_seen = False
        self._own_file: Path | None = None

    def start(self, path: str | None = None) -> RecordingState:
        with self._lock:
            if self._files is None:
                try:
                    files = self._files_for(path)
                    try:
                        self._begin_file(files)
                    except BaseException:
                        files.close()
                        raise
                except BrokenPipeError:
                    raise
                except OSError as problem:
                    message = f"{problem.strerror}: cannot record into {problem.filename}"
                    raise RecordingProblem(message, "choose another directory") from None
                self._files = files
                self._since_s = self._gap = None
                self._frames = 0
                self._problem = ""
        return self.state()

    def _files_for(self, path: str | None) -> Files:
        # A screen that does not record need not wait for these imports.
        from pgtop_tune.recording.files import OneFile, RotatedFiles

        name = _UNSAFE.sub("-", self._target).strip("-.")[:60] or "server"
        if self._rotation is not None:
            pattern = Path(path).expanduser() if path else paths.private(paths.recordings_dir()) / f"{name}.jsonl.gz"
            return RotatedFiles(pattern.absolute(), self._rotation)
        return OneFile(Path(path).expanduser().absolute() if path else _made_up(name))

    def _begin_file(self, files: Files) -> RecordingWriter:
        from pgtop_tune.recording.format import FORMAT, Header
        from pgtop_tune.recording.writer import RecordingWriter

        created_ms = int(time.time() * 1000)
        offset = datetime.now().astimezone().isoformat()[-6:]
        header = Header(
            format=FORMAT,
            tool=__version__,
            created_ms=created_ms,
            timezone=offset,
            interval_s=self._interval_s,
            target=self._target,
        )
        self._writer = writer = RecordingWriter(files.next_path(created_ms), header)
        self.last_path = writer.path
        self._own_file = None if writer.is_stream or self._rotation is not None else writer.path
        self.files_begun += 1
        return writer

    def stop(self) -> RecordingState:
        with self._lock:
            if self._files is not None:
                if self._gap is not None:
                    self._try_once_more(self._files, self._gap)
                files, self._files = self._files, None
                gap, self._gap = self._gap, None
                self._problem = self._end_file() or ("" if gap is None else gap.problem)
                files.close()
        return self.state()

    @property
    def what_there_is(self) -> str:
        """Return what can be read of a recording that ended with a problem, as half a sentence."""
        if self.frames_written:
            return f"{self.last_path} is readable up to that point"
        return f"nothing was recorded: {self.last_path} holds no frames; choose a directory with free space"

    def discard_without_server(self) -> bool:
        """Remove the recording when no frame had a server, so that the next try may have its name.

        Call it after `stop`. Rotated files have names of their own and stay.

        Returns:
            Whether there was a recording to remove.
        """
        path, self._own_file = self._own_file, None
        if path is None or self.server_seen:
            return False
        paths.remove(path)
        return True

    def _try_once_more(self, files: Files, gap: _Gap) -> None:
        """Write the newest of the missing frames, with the event that the others are missing."""
        gap.frames -= 1
        self.frames_missing -= 1
        gap.again_s = gap.newest.elapsed_s
        self._take(files, gap.newest)

    def _end_file(self) -> str:
        """Close the file, and return why its last bytes could not be written; "" when they were."""
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                writer.close()
        except RecordingProblem as problem:
            return problem.message
        return ""

    def state(self) -> RecordingState:
        if self._files is None:
            return RecordingState(problem=self._problem)
        gap = self._gap
        missing = 0 if gap is None else gap.frames
        problem = "" if gap is None else gap.problem
        return RecordingState(
            path=str(self.last_path), since_s=self._since_s, frames=self._frames, problem=problem, missing=missing
        )

    def accept(self, step: Step) -> None:
        """Write the frames when recording is on."""
        with self._lock:
            for frame in step.frames:
                self.server_seen = self.server_seen or not isinstance(frame.postgres, Unavailable)
                if self._files is not None:
                    self._take(self._files, frame)

    def _take(self, files: Files, frame: Frame) -> None:
        gap = self._gap
        if gap is not None and frame.elapsed_s < gap.again_s:
            gap.frames += 1
            gap.newest = frame
            self.frames_missing += 1
            return
        recorded = frame if self._query_text else without_texts(frame)
        if gap is not None and gap.frames:
            recorded = replace(recorded, events=(_missing(gap, frame), *recorded.events))
        try:
            self._write(files, recorded)
        except BrokenPipeError:
            raise
        except (RecordingProblem, OSError) as problem:
            self._miss(frame, problem)
            return
        self._gap = None

    def _write(self, files: Files, frame: Frame) -> None:
        writer = self._writer
        if writer is not None and (
            (writer.is_gone and self._gap is not None)
            or (writer.frames and files.due(frame.elapsed_s - self._file_since_s, writer.size_bytes))
        ):
            self._end_file()
            writer = None
        if writer is None:
            writer = self._begin_file(files)
        if writer.frames == 0:
            self._file_since_s = frame.elapsed_s
        writer.write(frame)
        if writer.newest_is_key:
            with contextlib.suppress(OSError):
                self.files_removed += files.tidy(writer.path, frame.taken_at_ms)
        if self._since_s is None:
            self._since_s = frame.elapsed_s
        self._frames += 1
        self.frames_written += 1

    def _miss(self, frame: Frame, problem: RecordingProblem | OSError) -> None:
        if isinstance(problem, RecordingProblem):
            message = problem.message
        else:
            message = f"{problem.strerror}: cannot record into {problem.filename}"
        before = self._gap
        wait_s = _FIRST_WAIT_S if before is None else min(before.wait_s * 2, _LONGEST_WAIT_S)
        first, frames = (frame, 0) if before is None else (before.first, before.frames)
        self._gap = _Gap(
            problem=message,
            first=first,
            newest=frame,
            frames=frames + 1,
            wait_s=wait_s,
            again_s=frame.elapsed_s + wait_s,
        )
        self.frames_missing += 1

    def close(self) -> None:
        """End the recording with the session."""
        self.stop()


def _made_up(name: str) -> Path:
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    directory = paths.private(paths.recordings_dir())
    candidate, serial = directory / f"{stamp}-{name}.jsonl.gz", 2
    while candidate.exists():
        candidate, serial = directory / f"{stamp}-{name}-{serial}.jsonl.gz", serial + 1
    return candidate


def _missing(gap: _Gap, frame: Frame) -> Event:
    span = units.duration(frame.elapsed_s - gap.first.elapsed_s)
    since = units.wall_clock(gap.first.taken_at_ms)
    return Event(
        at_ms=frame.taken_at_ms,
        kind=EventKind.RECORDING,
        text=f"{gap.frames} frames not recorded",
        detail=f"no recording for {span} from {since}: {gap.problem}",
    )
