"""From a name on the command line to a side of a comparison."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Final

from pgtop_tune.analysis.from_recording import read_recording
from pgtop_tune.analysis.from_records import is_record, read_records
from pgtop_tune.analysis.material import Material
from pgtop_tune.errors import RecordingProblem

_LOOK: Final = 4096


def open_material(path: Path, name: str = "") -> Material:
    """A recording, the record of a run or of a series, or a directory of records.

    Args:
        name: In place of the file's.

    Raises:
        RecordingProblem: It is none of them, or cannot be read.
    """
    return read_records(path, name) if is_records(path) else read_recording(path, name)


def is_records(path: Path) -> bool:
    """Whether it holds records of runs, and is no recording.

    Raises:
        RecordingProblem: It cannot be read.
    """
    return path.is_dir() or is_record(_begin(path))


def _begin(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
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
