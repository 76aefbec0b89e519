"""The files of a recording: a single one, or rotated ones with the oldest removed; --rotate and --keep."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from pgtop_tune.base import paths
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.recording.blocks import index_path, is_recording
from pgtop_tune.recording.packing import PACKINGS
from pgtop_tune.recording.writer import NameLock, is_locked
from pgtop_tune.runtime.window import seconds

# When a recording continues in a new file, and which of the older files are kept: as people say it.
#
# --rotate 1h, --rotate 500MB             a new file every hour, or when one has 500 MB
# --keep 24, --keep 20GB, --keep 7d       so many files, so much room, files of the last seven days

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)", re.ASCII)
_SCALE: Final = {"k": 1, "m": 2, "g": 3, "t": 4}
_TIME: Final = re.compile(r"(?:\d+(?:\.\d+)?\s*[dhms]\s*)+", re.ASCII)
_COUNT: Final = re.compile(r"\d{1,9}", re.ASCII)
_Way = Callable[[str], float | int | None]
_LEAST_S: Final = 60.0
_LEAST_BYTES: Final = 1e6
"""Both of a file and of all files: a key frame of a busy server has 100 kB, and a file begins with one."""


class Rotation(Struct, frozen=True):
    """What was said; None where nothing was. Where several things were said, each counts.

    Attributes:
        every_s: A file holds so many seconds.
        every_bytes: A file grows so large; its last frame may lead over it.
        keep_files: So many files, with the one that is written.
        keep_bytes: So much room for all of them.
        keep_s: Files in which something was written that long ago at most.
    """

    every_s: float | None = None
    every_bytes: float | None = None
    keep_files: int | None = None
    keep_bytes: float | None = None
    keep_s: float | None = None


def parse_rotation(rotate: Sequence[str], keep: Sequence[str]) -> Rotation | None:
    """What `--rotate` and `--keep` say; None where neither was given.

    Raises:
        UsageProblem: Not understood, or something to keep and nothing to rotate.
    """
    if not rotate:
        if keep:
            raise UsageProblem("--keep removes files of a rotated recording", "add --rotate, as --rotate 1h")
        return None
    said: dict[str, float | int] = {}
    for words in rotate:
        _put(said, "--rotate", words, {"every_s": _time, "every_bytes": _size}, "1h, 30m or 500MB")
    for words in keep:
        _put(said, "--keep", words, {"keep_files": _count, "keep_s": _time, "keep_bytes": _size}, "24, 7d or 20GB")
    found = Rotation(**said)  # type: ignore[arg-type]
    for words, size in (("--rotate", found.every_bytes), ("--keep", found.keep_bytes)):
        if size is not None and size < _LEAST_BYTES:
            raise UsageProblem(f"{words} takes at least 1 MB: one frame of a busy server has 100 kB", "as in 100MB")
    for words, length_s in (("--rotate", found.every_s), ("--keep", found.keep_s)):
        if length_s is not None and length_s < _LEAST_S:
            raise UsageProblem(f"{words} takes at least 1m: each file begins with a whole frame, 100 kB", "as in 1h")
    if found.every_bytes and found.keep_bytes and found.keep_bytes < 2 * found.every_bytes:
        raise UsageProblem("--keep is too small for two files of --rotate", "allow several times the size of a file")
    return found


def _put(said: dict[str, float | int], option: str, words: str, ways: dict[str, _Way], examples: str) -> None:
    for name, way in ways.items():
        value = way(words.strip())
        if value is None:
            continue
        if name in said:
            raise UsageProblem(f"{option} has two values of one kind", f"one of each kind: {examples}")
        said[name] = value
        return
    raise UsageProblem(f"{option} {words!r} is invalid", f"use {examples}; m is minutes, MB are megabytes")


def _time(words: str) -> float | None:
    length_s = seconds(words) if _TIME.fullmatch(words) else 0.0
    return length_s or None


def _size(words: str) -> float | None:
    found = _SIZE.fullmatch(words)
    size = float(found[1]) * (1024 if "i" in found[2] else 1000) ** _SCALE[found[2][0].lower()] if found else 0.0
    return size or None


def _count(words: str) -> int | None:
    return (int(words) or None) if _COUNT.fullmatch(words) else None


_LINES: Final = ".jsonl"
_STAMP: Final = "%Y%m%dT%H%M%SZ"
_STAMPED: Final = r"-(\d{8}T\d{6}Z)(?:-(\d{1,6}))?"


class Files(Protocol):
    """Where frames go. It touches the disk, so `OSError` and `RecordingProblem` can come from all but `due`."""

    def next_path(self, now_ms: int) -> Path:
        """A name for the next file, of which there is none yet."""
        ...

    def due(self, age_s: float, size_bytes: int) -> bool:
        """Whether a file of that age and size is followed by another one."""
        ...

    def tidy(self, current: Path, now_ms: int) -> int:
        """Removes what is not kept; how many files that were."""
        ...

    def close(self) -> None:
        """Nothing more is written."""
        ...


class OneFile(Struct, frozen=True):
    """A single file; where it was removed, another of the same name. Implements `Files`."""

    path: Path

    def next_path(self, now_ms: int) -> Path:
        """See `Files.next_path`."""
        if self.path.parent == paths.recordings_dir():
            paths.private(self.path.parent)
        return self.path

    def due(self, age_s: float, size_bytes: int) -> bool:
        """Never."""
        return False

    def tidy(self, current: Path, now_ms: int) -> int:
        """Everything is kept."""
        return 0

    def close(self) -> None:
        """Nothing to let go of."""


class RotatedFiles:
    """A file after the other: run.jsonl.gz becomes run-20261122T124007Z.jsonl.gz, the moment in UTC. See `Files`.

    Args:
        path: What the names are made of. Its directory must be there.
        rotation: When, and what is kept.

    Raises:
        RecordingProblem: Another process records into files of this name, or its lock cannot be made.
    """

    def __init__(self, path: Path, rotation: Rotation) -> None:
        self._directory = path.parent
        self._stem, self._suffixes = _parted(path.name)
        self._rotation = rotation
        self._ours = re.compile(re.escape(self._stem) + _STAMPED + re.escape(self._suffixes), re.ASCII)
        self._lock_path = self._directory / f".{path.name}.lock"
        self._lock: NameLock | None = NameLock(self._lock_path)

    def next_path(self, now_ms: int) -> Path:
        """See `Files.next_path`."""
        if self._directory == paths.recordings_dir():
            paths.private(self._directory)
        self._lock_again()
        stamp = datetime.fromtimestamp(now_ms / 1000, UTC).strftime(_STAMP)
        path, serial = self._directory / f"{self._stem}-{stamp}{self._suffixes}", 2
        while path.exists():
            path, serial = self._directory / f"{self._stem}-{stamp}-{serial}{self._suffixes}", serial + 1
        return path

    def _lock_again(self) -> None:
        """A directory that was removed and made again has no lock of ours."""
        if self._lock is not None and not self._lock_path.exists():
            self._lock.forget()
            self._lock = None
        if self._lock is None:
            self._lock = NameLock(self._lock_path)

    def due(self, age_s: float, size_bytes: int) -> bool:
        """See `Files.due`."""
        said = self._rotation
        return (said.every_s is not None and age_s >= said.every_s) or (
            said.every_bytes is not None and size_bytes >= said.every_bytes
        )

    def tidy(self, current: Path, now_ms: int) -> int:
        """See `Files.tidy`; the oldest go first."""
        removed = 0
        said = self._rotation
        older = self._older_than(current)
        files, room = len(older) + 1, sum(file.size_bytes for file in older) + current.stat().st_size
        for file in older:
            if not (
                (said.keep_files is not None and files > said.keep_files)
                or (said.keep_bytes is not None and room > said.keep_bytes)
                or (said.keep_s is not None and now_ms / 1000 - file.written_s > said.keep_s)
            ):
                break
            if is_recording(file.path) and not is_locked(file.path):
                paths.remove(file.path)
                paths.remove(index_path(file.path))
                removed += 1
            files, room = files - 1, room - file.size_bytes
        return removed

    def _older_than(self, current: Path) -> list[_Older]:
        """All files named as ours are, the oldest first."""
        found = []
        for path in self._directory.iterdir():
            named = self._ours.fullmatch(path.name)
            if named is None or path == current or not path.is_file() or path.is_symlink():
                continue
            seen = path.stat()
            found.append(
                _Older(
                    stamp=named[1],
                    serial=int(named[2] or 1),
                    path=path,
                    size_bytes=seen.st_size,
                    written_s=seen.st_mtime,
                )
            )
        return sorted(found, key=lambda file: (file.stamp, file.serial))

    def close(self) -> None:
        """See `Files.close`."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


class _Older(Struct, frozen=True):
    stamp: str
    serial: int
    path: Path
    size_bytes: int
    written_s: float


def _parted(name: str) -> tuple[str, str]:
    """run.jsonl.gz as run and .jsonl.gz."""
    stem, suffixes = name, ""
    for packing in PACKINGS:
        if stem.endswith(packing.suffix):
            stem, suffixes = stem.removesuffix(packing.suffix), packing.suffix
    if stem.endswith(_LINES):
        stem, suffixes = stem.removesuffix(_LINES), _LINES + suffixes
    return stem, suffixes
