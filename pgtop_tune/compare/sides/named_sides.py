"""Sides of a comparison, opened by their names on the command line; `run.jsonl@3m..5m` is a part of a recording."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import threading
import zlib
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import PgtopError, RecordingProblem, UsageProblem
from pgtop_tune.base.paths import opened
from pgtop_tune.compare.sides.fingerprint import TOOL
from pgtop_tune.compare.sides.from_recording import read_recording
from pgtop_tune.compare.sides.from_records import is_record, read_records
from pgtop_tune.compare.sides.from_window import LATE_S, WindowSide, read_looks
from pgtop_tune.compare.sides.material import Material, identity_fact
from pgtop_tune.model.host import HostSample
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.process.dispositions import reset_in_fork
from pgtop_tune.recording.minutes import WantedSections, looks
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.runtime.window import Timeline, Window, parse_moment

_LOOK: Final = 4096
_LARGE: Final = 4 << 20
"""Total size in bytes from which a second process is worth its start."""


def open_material(path: Path, name: str = "") -> Material:
    """Open a recording, the record of a run or of a series, or a directory of records.

    Args:
        name: Name of the side, in place of the file's.

    Raises:
        RecordingProblem: It is none of them, or cannot be read.
    """
    return read_records(path, name) if is_records(path) else read_recording(path, name)


def open_all(paths: Sequence[Path]) -> list[Material]:
    """Open several files, named as their paths; large ones in parallel, as far as there are processors and no threads.

    Raises:
        RecordingProblem: As `open_material`: a file that cannot be opened is refused before any is read, then the first
            that cannot be read.
    """
    for path in paths:
        is_records(path)
    forks = threading.active_count() == 1 and sum(map(_size, paths)) >= _LARGE
    workers = min(len(paths), os.cpu_count() or 1) if forks else 1
    shares = [paths[worker::workers] for worker in range(workers)]
    receivers = [_apart(share) for share in shares[1:]]
    outcomes_by_worker = [_opened(shares[0])]
    if isinstance(outcomes_by_worker[0][0], PgtopError):
        raise outcomes_by_worker[0][0]
    outcomes_by_worker += [_received(receiver) for receiver in receivers]
    outcomes = [outcomes_by_worker[index % workers][index // workers] for index in range(len(paths))]
    for outcome in outcomes:
        if isinstance(outcome, PgtopError):
            raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, Material)]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _opened(paths: Sequence[Path]) -> list[Material | PgtopError]:
    """Read each file; once one cannot be read, its problem stands for it and for all that follow."""
    outcomes: list[Material | PgtopError] = []
    for path in paths:
        try:
            outcomes.append(open_material(path, str(path)))
        except PgtopError as problem:
            return outcomes + [problem] * (len(paths) - len(outcomes))
    return outcomes


def _apart(paths: Sequence[Path]) -> Connection:
    """Open files in another process; return the connection on which the result arrives."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    context.Process(target=_send, args=(sender, paths), daemon=True).start()
    sender.close()
    return receiver


def _send(sender: Connection, paths: Sequence[Path]) -> None:
    # Ctrl-C reaches both processes; only the parent reports it.
    reset_in_fork()
    sender.send(_opened(paths))


def _received(receiver: Connection) -> list[Material | PgtopError]:
    try:
        outcomes: list[Material | PgtopError] = receiver.recv()
    except EOFError:
        raise RecordingProblem("the process reading a recording was killed", "is there enough memory?") from None
    finally:
        receiver.close()
    return outcomes


def is_records(path: Path) -> bool:
    """Return whether a path holds records of runs, not a recording.

    Raises:
        RecordingProblem: It cannot be read.
    """
    return path.is_dir() or is_record(_begin(path))


def _begin(path: Path) -> bytes:
    try:
        with opened(path) as file:
            begin = file.read(_LOOK)
            if begin[:2] != b"\x1f\x8b":
                return begin
            file.seek(0)
            with gzip.GzipFile(fileobj=file) as unpacked:
                return unpacked.read(_LOOK)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return b""
    except OSError as problem:
        raise RecordingProblem(f"cannot read {path}: {problem.strerror}", "check its name and permissions") from None


# A part of a recording by name: `run.jsonl@3m..5m`.

_WHOLE_UP_TO: Final = 3000
"""Most frames of a window that is read frame by frame; of a longer one key frames do: ten blocks of five minutes."""
_EVERYTHING: Final = WantedSections(
    {"host": frozenset(HostSample.__struct_fields__), "postgres": frozenset(PostgresSample.__struct_fields__)}, {}
)
_AT: Final = "@"
_TO: Final = ".."
HINT: Final = (
    "write FILE@FROM..TO, such as run.jsonl@3m..5m; +2m counts from FROM; an omitted side means the start or end"
)


class WindowName(Struct, frozen=True):
    """A name on the command line.

    Attributes:
        since, until: Begin and end of the window as typed; None for the whole recording.
    """

    path: Path
    since: str | None = None
    until: str | None = None

    @property
    def windowed(self) -> bool:
        return self.since is not None


def window_name(argument: Path) -> WindowName:
    """Split a name into file and window; where a file has the whole name, the name means that file."""
    path, at, window = str(argument).rpartition(_AT)
    since, to, until = window.partition(_TO)
    if not at or not to or os.path.exists(argument):
        return WindowName(argument)
    return WindowName(Path(path), since.strip(), until.strip())


def read_windows(names: Sequence[WindowName]) -> list[WindowSide]:
    """Read a window or all of each recording, in the order of the names.

    Raises:
        RecordingProblem: One cannot be read, or has no two frames in its window.
        UsageProblem: A window is not understood, or one overlaps the first.
    """
    readers: list[RecordingReader] = []
    try:
        windows: list[Window] = []
        for name in names:
            if is_records(name.path):
                raise UsageProblem(f"{name.path} is a record of a run, which has no windows", "a recording has")
            readers.append(RecordingReader(name.path))
            windows.append(_window(name, readers[-1]))
            if len(windows) > 1 and name.path.resolve() == names[0].path.resolve() and windows[0].overlaps(windows[-1]):
                raise UsageProblem("the windows overlap: choose separate windows", HINT)
        return [_read(*side) for side in zip(names, windows, readers, strict=True)]
    finally:
        for reader in readers:
            reader.close()


def _window(name: WindowName, reader: RecordingReader) -> Window:
    first_s = reader.elapsed_s(0) if reader.frame_count else 0.0
    if name.since is None or name.until is None:
        return Window(first_s, reader.length_s)
    began_ms = next((frame.taken_at_ms - frame.elapsed_s * 1000.0 for _, frame in reader.frames()), 0.0)
    timeline = Timeline(first_s, reader.length_s, began_ms)
    since_s = max(parse_moment(name.since or "start", timeline), first_s)
    until_s = parse_moment(name.until or "end", replace(timeline, shown_s=since_s))
    if until_s <= since_s:
        raise UsageProblem(f"{name.since}{_TO}{name.until} of {name.path} ends before it begins", HINT)
    return Window(since_s, until_s)


def _read(side: WindowName, window: Window, reader: RecordingReader) -> WindowSide:
    name = f"{side.path}{_AT}{side.since}{_TO}{side.until}" if side.windowed else str(side.path)
    blocks = reader.blocks_of(window.since_s, window.until_s + LATE_S)
    side_read = read_looks(looks(reader, _EVERYTHING, _WHOLE_UP_TO, blocks), window, name)
    if side_read is None:
        raise RecordingProblem(f"{name} holds no two frames", f"the recording lasts {reader.length_s:.0f} s")
    fact = identity_fact(TOOL, "pgtop-tune", reader.header.tool)
    material = replace(side_read.material, facts=(*side_read.material.facts, fact), problems=tuple(reader.problems))
    return replace(side_read, material=material)
