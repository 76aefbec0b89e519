"""From a name on the command line to a side of a comparison."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import signal
import zlib
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from pgtop_tune.compare.sides.from_recording import read_recording
from pgtop_tune.compare.sides.from_records import is_record, read_records
from pgtop_tune.compare.sides.material import Material
from pgtop_tune.errors import PgtopError, RecordingProblem
from pgtop_tune.paths import opened

_LOOK: Final = 4096
_LARGE: Final = 4 << 20
"""Bytes of all together from which on another process is worth its start."""


def open_material(path: Path, name: str = "") -> Material:
    """A recording, the record of a run or of a series, or a directory of records.

    Args:
        name: In place of the file's.

    Raises:
        RecordingProblem: It is none of them, or cannot be read.
    """
    return read_records(path, name) if is_records(path) else read_recording(path, name)


def open_all(paths: Sequence[Path]) -> list[Material]:
    """Several, named as their paths; large ones at the same time, as far as there are processors.

    Raises:
        RecordingProblem: As `open_material`: a file that cannot be opened is refused before any is read, then the first
            that cannot be read.
    """
    for path in paths:
        is_records(path)
    workers = min(len(paths), os.cpu_count() or 1) if sum(map(_size, paths)) >= _LARGE else 1
    shares = [paths[worker::workers] for worker in range(workers)]
    others = [_apart(share) for share in shares[1:]]
    opened = [_opened(shares[0])]
    if isinstance(opened[0][0], PgtopError):
        raise opened[0][0]
    opened += [_received(each) for each in others]
    found = [opened[place % workers][place // workers] for place in range(len(paths))]
    for each in found:
        if isinstance(each, PgtopError):
            raise each
    return [each for each in found if isinstance(each, Material)]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _opened(paths: Sequence[Path]) -> list[Material | PgtopError]:
    """What comes of each; from the first that cannot be read on, why."""
    found: list[Material | PgtopError] = []
    for path in paths:
        try:
            found.append(open_material(path, str(path)))
        except PgtopError as problem:
            return found + [problem] * (len(paths) - len(found))
    return found


def _apart(paths: Sequence[Path]) -> Connection:
    """Opens them in a process of their own; what comes of it is to be received."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    context.Process(target=_send, args=(sender, paths), daemon=True).start()
    sender.close()
    return receiver


def _send(sender: Connection, paths: Sequence[Path]) -> None:
    # Ctrl-C reaches both; one of them says so.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sender.send(_opened(paths))


def _received(receiver: Connection) -> list[Material | PgtopError]:
    try:
        found: list[Material | PgtopError] = receiver.recv()
    except EOFError:
        raise RecordingProblem("the process reading a recording was killed", "is there enough memory?") from None
    finally:
        receiver.close()
    return found


def is_records(path: Path) -> bool:
    """Whether it holds records of runs, and is no recording.

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
        raise RecordingProblem(f"cannot read {path}: {problem.strerror}", "check name and permission") from None
