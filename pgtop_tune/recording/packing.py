"""How a recording is packed, told by the end of its name when it is written and by its first bytes when it is read.

A packed recording is a row of members: one for the header, then one for each key frame and what follows it. Each of
these has a mark with the number of its frame and its moment, so that a reader enters at any of them without unpacking
what stands before. Other programs (zcat, zstd -d) do not notice the marks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final, Protocol

from msgspec import Struct

from pgtop_tune.recording import gzip_members, zstd_members

MARK: Final = struct.Struct("<IQ")
"""Number of the frame, and its moment in tenths of a millisecond."""
MOST_MARKS: Final = 1 << 18
"""Half a year of a frame a second. What has more was not written by us, and must not fill the memory."""
_TICKS_PER_S: Final = 10_000
_CHUNK: Final = 1 << 22


class Member(Protocol):
    """Makes the bytes of one member."""

    def add(self, data: bytes) -> bytes:
        """Bytes to append, which a reader can unpack up to here."""
        ...

    def end(self) -> bytes:
        """The last bytes."""
        ...

    def cut(self) -> bytes:
        """The last bytes where those of the newest `add` are not in the file; none where the member is not at all."""
        ...


class Packing(Struct, frozen=True):
    """One way to pack.

    Attributes:
        suffix: How names end.
        shown_by: The command that prints what a file holds.
        begins: First bytes of a file.
        before_mark: What stands right before a mark, at the beginning of a member.
        member: Makes a member; its mark is empty for the one of the header.
        unpacked: What members hold, up to so many bytes, and whether they are whole; see `unpacked` of each.
        unpack: Passes on what a whole file without marks holds, piece by piece; False when it is torn.
    """

    suffix: str
    shown_by: str
    begins: bytes
    before_mark: bytes
    member: Callable[[bytes], Member]
    unpacked: Callable[[bytes, int], tuple[bytes, bool]]
    unpack: Callable[[IO[bytes], Callable[[bytes], object]], bool]


PACKINGS: Final = (
    Packing(
        ".gz",
        "zcat",
        b"\x1f\x8b",
        gzip_members.before_mark(MARK.size),
        gzip_members.GzipMember,
        gzip_members.unpacked,
        gzip_members.unpack,
    ),
    Packing(
        ".zst",
        "zstdcat",
        b"\x28\xb5\x2f\xfd",
        zstd_members.before_mark(MARK.size),
        zstd_members.ZstdMember,
        zstd_members.unpacked,
        zstd_members.unpack,
    ),
)


def packing_for(path: Path) -> Packing | None:
    """How a file of this name is written; None for plain lines."""
    return next((packing for packing in PACKINGS if packing.suffix == path.suffix), None)


def packing_of(begin: bytes) -> Packing | None:
    """How a file that begins with these bytes is packed; None when it is not."""
    return next((packing for packing in PACKINGS if begin.startswith(packing.begins)), None)


def mark(frame: int, elapsed_s: float) -> bytes:
    """The mark of the member that begins with this frame."""
    return MARK.pack(frame, max(int(elapsed_s * _TICKS_PER_S), 0))


def find_marks(file: IO[bytes], packing: Packing, begin: int = 0) -> Iterator[tuple[int, int, float]]:
    """Offset, frame number and moment of every marked member, ascending in all three; at most `MOST_MARKS`.

    Where a further recording was put behind the first one, its first member, number 0, is the last.
    """
    file.seek(begin)
    before, width = packing.before_mark, len(packing.before_mark) + MARK.size
    base, kept, frame, elapsed, found = begin, b"", -1, -1, 0
    while chunk := file.read(_CHUNK):
        data = kept + chunk
        place = 0
        while (at := data.find(before, place)) >= 0 and at + width <= len(data):
            number, ticks = MARK.unpack_from(data, at + len(before))
            place = at + width
            if number > frame and ticks >= elapsed:
                frame, elapsed, found = number, ticks, found + 1
                yield base + at, number, ticks / _TICKS_PER_S
                if found == MOST_MARKS:
                    return
            elif number == 0 and frame >= 0:
                yield base + at, 0, 0.0
                return
        rest = max(place, len(data) - width + 1)
        base, kept = base + rest, data[rest:]
