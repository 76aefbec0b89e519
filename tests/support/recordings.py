"""Recordings of made-up frames: written and read back whole."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.format import FORMAT, Header
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.recording.writer import RecordingWriter

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACKED: Final = (".gz", ".zst")
HEADER: Final = Header(FORMAT, "0.1.0", 1_790_000_000_000, "+00:00", 1.0, "bench@/run/postgresql:5432/bench")


def write(path: Path, frames: Iterable[Frame], header: Header = HEADER) -> Path:
    """A recording of these frames; the path again."""
    writer = RecordingWriter(path, header)
    for one in frames:
        writer.write(one)
    writer.close()
    return path


def read(path: Path) -> tuple[list[Frame], list[str]]:
    """All frames of it, and what is wrong with it."""
    reader = RecordingReader(path)
    try:
        return [one for _, one in reader.frames()], reader.problems
    finally:
        reader.close()


def unpacked(path: Path) -> bytes:
    """What a packed recording holds, as other programs unpack it."""
    packed = path.read_bytes()
    return gzip.decompress(packed) if path.suffix == ".gz" else zstd.decompress(packed)
