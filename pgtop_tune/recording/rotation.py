"""When a recording continues in a new file, and which of the older files are kept: as people say it.

--rotate 1h, --rotate 500MB             a new file every hour, or when one has 500 MB
--keep 24, --keep 20GB, --keep 7d       so many files, so much room, files of the last seven days
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.errors import UsageProblem
from pgtop_tune.runtime.time_words import seconds

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
