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
from pgtop_tune.base.units import SIZES, TIMES, quantity
from pgtop_tune.recording.blocks import index_path, is_recording
from pgtop_tune.recording.compression import PACKINGS
from pgtop_tune.recording.writer import NameLock, is_locked

# Options for when a recording continues in a new file, and which of the older files are kept.
#
# --rotate 1h, --rotate 500MB             a new file every hour, or when one has 500 MB
# --keep 24, --keep 20GB, --keep 7d       so many files, so much room, files of the last seven days

_COUNT: Final = re.compile(r"\d{1,9}", re.ASCII)
_Way = Callable[[str], float | int | None]
_LEAST_S: Final = 60.0
_LEAST_BYTES: Final = 1e6
"""Least size of a file and of all files: a key frame of a busy server has 100 kB, and a file begins with one."""


class Rotation(Struct, frozen=True):
    """The values of `--rotate` and `--keep`; None where one was not given. Where several were given, each counts.

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
    """Return the values of `--rotate` and `--keep`; None where neither was given.

    Raises:
        UsageProblem: Not understood, or something to keep and nothing to rotate.
    """
    if not rotate:
        if keep:
            raise UsageProblem("--keep requires --rotate", "add --rotate, for example --rotate 1h")
        return None
    limits: dict[str, float | int] = {}
    for text in rotate:
        _put(limits, "--rotate", text, {"every_s": _time, "every_bytes": _size}, "1h, 30m or 500MB")
    for text in keep:
        _put(limits, "--keep", text, {"keep_files": _count, "keep_s": _time, "keep_bytes": _size}, "24, 7d or 20GB")
    rotation = Rotation(**limits)  # type: ignore[arg-type]
    for option, size in (("--rotate", rotation.every_bytes), ("--keep", rotation.keep_bytes)):
        if size is not None and size < _LEAST_BYTES:
            raise UsageProblem(
                f"{option} takes at least 1 MB: one frame of a busy server has 100 kB", "for example 100MB"
            )
    for option, length_s in (("--rotate", rotation.every_s), ("--keep", rotation.keep_s)):
        if length_s is not None and length_s < _LEAST_S:
            raise UsageProblem(
                f"{option} takes at least 1m: each file begins with a whole frame of 100 kB", "for example 1h"
            )
    if rotation.every_bytes and rotation.keep_bytes and rotation.keep_bytes < 2 * rotation.every_bytes:
        raise UsageProblem("--keep is smaller than two files of --rotate", "pass several times the size of --rotate")
    return rotation


def _put(limits: dict[str, float | int], option: str, text: str, ways: dict[str, _Way], examples: str) -> None:
    for name, parse in ways.items():
        value = parse(text.strip())
        if value is None:
            continue
        if name in limits:
            raise UsageProblem(f"{option} has two values of the same kind", f"pass one of each kind: {examples}")
        limits[name] = value
        return
    raise UsageProblem(f"{option} {text!r} is invalid", f"use {examples}; m is minutes, MB is megabytes")


def _time(text: str) -> float | None:
    return quantity(text, TIMES) or None


def _size(text: str) -> float | None:
    return quantity(text, SIZES) or None


def _count(text: str) -> int | None:
    return (int(text) or None) if _COUNT.fullmatch(text) else None


_LINES: Final = ".jsonl"
_STAMP: Final = "%Y%m%dT%H%M%SZ"
_STAMPED: Final = r"-(\d{8}T\d{6}Z)(?:-(\d{1,6}))?"


class Files(Protocol):
    """Destination of frames. It touches the disk, so all methods but `due` may raise `OSError` and
    `RecordingProblem`."""

    def next_path(self, now_ms: int) -> Path:
        """Return a name for the next file, of which there is none yet."""
        ...

    def due(self, age_s: float, size_bytes: int) -> bool:
        """Return whether a file of that age and size is followed by another one."""
        ...

    def tidy(self, current: Path, now_ms: int) -> int:
        """Remove the files that are not kept; return how many there were."""
        ...

    def close(self) -> None:
        """End: nothing more is written."""
        ...


class OneFile(Struct, frozen=True):
    """A single file; where it was removed, another of the same name."""

    path: Path

    def next_path(self, now_ms: int) -> Path:
        if self.path.parent == paths.recordings_dir():
            paths.private(self.path.parent)
        return self.path

    def due(self, age_s: float, size_bytes: int) -> bool:
        return False

    def tidy(self, current: Path, now_ms: int) -> int:
        return 0

    def close(self) -> None:
        """Do nothing: no lock is held."""


class RotatedFiles:
    """A file after the other: run.jsonl.gz becomes run-20261122T124007Z.jsonl.gz, the moment in UTC.

    Args:
        path: Pattern of the names. Its directory must exist.
        rotation: When a new file begins, and which are kept.

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
        if self._directory == paths.recordings_dir():
            paths.private(self._directory)
        self._lock_again()
        stamp = datetime.fromtimestamp(now_ms / 1000, UTC).strftime(_STAMP)
        path, serial = self._directory / f"{self._stem}-{stamp}{self._suffixes}", 2
        while path.exists():
            path, serial = self._directory / f"{self._stem}-{stamp}-{serial}{self._suffixes}", serial + 1
        return path

    def _lock_again(self) -> None:
        """Lock again: a directory that was removed and made again has no lock of ours."""
        if self._lock is not None and not self._lock_path.exists():
            self._lock.forget()
            self._lock = None
        if self._lock is None:
            self._lock = NameLock(self._lock_path)

    def due(self, age_s: float, size_bytes: int) -> bool:
        rotation = self._rotation
        return (rotation.every_s is not None and age_s >= rotation.every_s) or (
            rotation.every_bytes is not None and size_bytes >= rotation.every_bytes
        )

    def tidy(self, current: Path, now_ms: int) -> int:
        """Remove the oldest files first."""
        removed = 0
        rotation = self._rotation
        older = self._older_than(current)
        files, room = len(older) + 1, sum(file.size_bytes for file in older) + current.stat().st_size
        for file in older:
            if not (
                (rotation.keep_files is not None and files > rotation.keep_files)
                or (rotation.keep_bytes is not None and room > rotation.keep_bytes)
                or (rotation.keep_s is not None and now_ms / 1000 - file.written_s > rotation.keep_s)
            ):
                break
            if is_recording(file.path) and not is_locked(file.path):
                paths.remove(file.path)
                paths.remove(index_path(file.path))
                removed += 1
            files, room = files - 1, room - file.size_bytes
        return removed

    def _older_than(self, current: Path) -> list[_Older]:
        """Return all files named as ours are, the oldest first."""
        older = []
        for path in self._directory.iterdir():
            named = self._ours.fullmatch(path.name)
            if named is None or path == current or not path.is_file() or path.is_symlink():
                continue
            status = path.stat()
            older.append(
                _Older(
                    stamp=named[1],
                    serial=int(named[2] or 1),
                    path=path,
                    size_bytes=status.st_size,
                    written_s=status.st_mtime,
                )
            )
        return sorted(older, key=lambda file: (file.stamp, file.serial))

    def close(self) -> None:
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
    """Return run.jsonl.gz as run and .jsonl.gz."""
    stem, suffixes = name, ""
    for packing in PACKINGS:
        if stem.endswith(packing.suffix):
            stem, suffixes = stem.removesuffix(packing.suffix), packing.suffix
    if stem.endswith(_LINES):
        stem, suffixes = stem.removesuffix(_LINES), _LINES + suffixes
    return stem, suffixes
