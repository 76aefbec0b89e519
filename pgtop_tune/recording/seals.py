"""Checksums at the end of lines: a line that was changed, is missing or stands twice is noticed, in plain files, too.

The one of a delta goes on from the line before. A key frame can be entered by itself: its own starts over, and it
says beside it (`after`) which one the line before has, of the first one the header.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

from msgspec import Struct

from pgtop_tune.recording.format import KEY

_KEY_START: Final = f'{{"{KEY}":'
_SEAL: Final = re.compile(rb'(?:,"after":(\d{1,10}))?,"crc":(\d{1,10})\}\s*\Z')
_LONGEST: Final = 48


class Seal(Struct, frozen=True):
    """What the end of a line says.

    Attributes:
        line: The line without it, as earlier versions wrote it.
        crc: Its checksum; None where it has none.
        after: That of the line before; only of key frames.
        whole: Whether the checksum is that of the line.
    """

    line: bytes
    crc: int | None = None
    after: int | None = None
    whole: bool = True


def sealed(line: str, before: int) -> tuple[str, int]:
    """A line with its checksum, and the checksum.

    Args:
        line: JSON of an object, ASCII, without line break.
        before: Checksum of the line before.
    """
    body, seed = line[:-1], before
    if line.startswith(_KEY_START):
        body, seed = f'{body},"after":{before}', 0
    crc = zlib.crc32(body.encode("ascii"), seed)
    return f'{body},"crc":{crc}}}', crc


def checksum(header: bytes) -> int:
    """Of the header's line."""
    return zlib.crc32(header.rstrip(b"\r\n"))


def seal_of(line: bytes, before: int | None) -> Seal:
    """What the end of a line says; of a delta behind an unknown line, whose checksum says nothing, it is whole.

    Args:
        before: Checksum of the line before; None where it is not known.
    """
    found = _SEAL.search(line, max(len(line) - _LONGEST, 0))
    if found is None:
        return Seal(line)
    crc, is_key = int(found[2]), line.startswith(_KEY_START.encode())
    seed = 0 if is_key else before
    whole = seed is None or zlib.crc32(memoryview(line)[: found.start(2) - len(b',"crc":')], seed) == crc
    return Seal(
        line=line[: found.start()] + b"}\n", crc=crc, after=None if found[1] is None else int(found[1]), whole=whole
    )
