"""Packing of a recording, told by the end of its name when it is written and by its first bytes when it is read.

A packed recording is a row of members: one for the header, then one for each key frame and the lines up to the next.
Each of these has a mark with the number of its frame and its moment, so that a reader enters at any of them without
unpacking what stands before. Other programs (zcat, zstd -d) do not notice the marks.

gzip. RFC 1952: a gzip file is a sequence of members, and a header may hold extra fields. Ours has the identifier PT
and holds the mark.

Zstandard. RFC 8878: a file is a sequence of frames, and decoders step over "skippable" ones. A member of ours is a
skippable frame with the mark, a frame of data, and a skippable frame with checksum and length of what was packed: the
checksum of a frame itself can be made by the library alone, which is not asked where a full disk cut it short.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from msgspec import Struct

from pgtop_tune.base.errors import RecordingProblem

if TYPE_CHECKING:
    from types import ModuleType

MARK: Final = struct.Struct("<IQ")
"""Number of the frame, and its moment in tenths of a millisecond."""
MOST_MARKS: Final = 1 << 18
"""Half a year of a frame a second. A file with more was not written by us, and must not fill the memory."""
_TICKS_PER_S: Final = 10_000
_SCAN_BYTES: Final = 1 << 22
_CHUNK: Final = 1 << 16


class Member:
    """Maker of the bytes of one member.

    Args:
        begin: Bytes before the packed data, the mark among them.
        compress: Packs a piece so that a reader can unpack it at once.
        finish: Ends the packed data.
        last_block: Ends packed data that were flushed, without the compressor.
        check: Bytes behind the packed data, of checksum and length of what was packed.
    """

    def __init__(
        self,
        begin: bytes,
        compress: Callable[[bytes], bytes],
        finish: Callable[[], bytes],
        last_block: bytes,
        check: Callable[[int, int], bytes],
    ) -> None:
        self._begin = begin
        self._compress = compress
        self._finish = finish
        self._last_block = last_block
        self._check = check
        self._begun = self._was_begun = False
        self._now = self._was = (0, 0)

    def add(self, data: bytes) -> bytes:
        """Return the bytes to append, which a reader can unpack up to here."""
        crc, size = self._was = self._now
        self._was_begun, self._begun = self._begun, True
        self._now = zlib.crc32(data, crc), (size + len(data)) & 0xFFFFFFFF
        packed = self._compress(data)
        return packed if self._was_begun else self._begin + packed

    def end(self) -> bytes:
        """Return the last bytes."""
        last = self._finish() + self._check(*self._now)
        return last if self._begun else self._begin + last

    def cut(self) -> bytes:
        """Return the last bytes for a file without the newest `add`; none where it has nothing of the member."""
        return self._last_block + self._check(*self._was) if self._was_begun else b""


_GZIP_PLAIN: Final = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_GZIP_LAST_BLOCK: Final = b"\x03\0"
"""An empty last block (RFC 1951, 3.2.3), where the stream before it was flushed."""
_GZIP_LEVEL: Final = 5
"""Level 6 takes 40 % more CPU for 2 % fewer bytes."""
_GZIP_WINDOW: Final = 31
"""zlib's number for a gzip header and its largest window."""


def _gzip_before_mark(mark_bytes: int) -> bytes:
    """Return the header of a member up to its mark."""
    return b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + struct.pack("<H2sH", mark_bytes + 4, b"PT", mark_bytes)


def _gzip_member(mark: bytes) -> Member:
    stream = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return Member(
        begin=_gzip_before_mark(len(mark)) + mark if mark else _GZIP_PLAIN,
        compress=lambda data: stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH),
        finish=lambda: stream.flush(zlib.Z_FINISH),
        last_block=_GZIP_LAST_BLOCK,
        check=struct.Struct("<II").pack,
    )


def _gzip_unpacked(packed: bytes, most_bytes: int) -> tuple[bytes, bool]:
    content = b""
    while packed:
        if len(content) >= most_bytes:
            return content, False
        stream = zlib.decompressobj(_GZIP_WINDOW)
        try:
            content += stream.decompress(packed, most_bytes - len(content))
        except zlib.error:
            return content, False
        if not stream.eof:
            return content, False
        packed = stream.unused_data
    return content, True


def _gzip_unpack(packed: IO[bytes], put: Callable[[bytes], object]) -> bool:
    # The gzip module would give up the whole block before a tear.
    stream = zlib.decompressobj(_GZIP_WINDOW)
    packed.seek(0)
    try:
        while block := packed.read(_CHUNK):
            while block:
                if stream.eof:
                    stream = zlib.decompressobj(_GZIP_WINDOW)
                put(stream.decompress(block, _CHUNK))
                block = stream.unused_data if stream.eof else stream.unconsumed_tail
        put(stream.flush())
    except zlib.error:
        return False
    return stream.eof


_SKIPPABLE: Final = 0x184D2A5A
"""One of the sixteen magic numbers of skippable frames."""
_SKIPPABLE_BEGIN: Final = struct.Struct("<II")
_NAME: Final = b"PT"
_ZSTD_CHECK: Final = struct.Struct("<2sII")
_ZSTD_LAST_BLOCK: Final = b"\x01\0\0"
"""An empty raw block, the last of its frame (RFC 8878, 3.1.1.2), where the frame before it was flushed."""
_ZSTD_LEVEL: Final = 6
"""Less CPU than gzip at its level 5, and a tenth fewer bytes."""


def _zstd() -> ModuleType:
    """Import the library.

    Raises:
        RecordingProblem: It is not installed.
    """
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError:
        raise RecordingProblem(
            "recordings in .zst require the missing package backports.zstd",
            "pip install backports.zstd, or use a name ending in .gz",
        ) from None
    return zstd


def _skippable(content: bytes) -> bytes:
    return _SKIPPABLE_BEGIN.pack(_SKIPPABLE, len(content)) + content


def _zstd_check(crc: int, size: int) -> bytes:
    return _skippable(_ZSTD_CHECK.pack(_NAME, crc, size))


def _zstd_member(mark: bytes) -> Member:
    stream: Any = _zstd().ZstdCompressor(_ZSTD_LEVEL)
    return Member(
        begin=_skippable(_NAME + mark) if mark else b"",
        compress=lambda data: stream.compress(data, stream.FLUSH_BLOCK),
        finish=stream.flush,
        last_block=_ZSTD_LAST_BLOCK,
        check=_zstd_check,
    )


def _zstd_unpacked(packed: bytes, most_bytes: int) -> tuple[bytes, bool]:
    zstd = _zstd()
    checked, member = b"", b""
    while packed:
        content = _skippable_content(packed)
        if content is not None:
            if content.startswith(_NAME) and len(content) == _ZSTD_CHECK.size:
                if content != _ZSTD_CHECK.pack(_NAME, zlib.crc32(member), len(member)):
                    return checked, False
                checked, member = checked + member, b""
            packed = packed[_SKIPPABLE_BEGIN.size + len(content) :]
            continue
        room = most_bytes - len(checked) - len(member)
        if room <= 0:
            return checked + member, False
        stream = zstd.ZstdDecompressor()
        try:
            member += stream.decompress(packed, room)
        except zstd.ZstdError:
            return checked, False
        if not stream.eof:
            return checked + member, False
        packed = stream.unused_data
    return checked + member, not member


def _skippable_content(packed: bytes) -> bytes | None:
    """Return the content of a whole skippable frame of ours at the beginning; None for anything else."""
    if len(packed) < _SKIPPABLE_BEGIN.size:
        return None
    magic, length = _SKIPPABLE_BEGIN.unpack_from(packed)
    is_whole = magic == _SKIPPABLE and length <= len(packed) - _SKIPPABLE_BEGIN.size
    return packed[_SKIPPABLE_BEGIN.size : _SKIPPABLE_BEGIN.size + length] if is_whole else None


def _zstd_unpack(packed: IO[bytes], put: Callable[[bytes], object]) -> bool:
    zstd = _zstd()
    packed.seek(0)
    stream = zstd.ZstdDecompressor()
    while block := packed.read(_CHUNK):
        while block:
            if stream.eof:
                stream = zstd.ZstdDecompressor()
            try:
                put(stream.decompress(block, _CHUNK))
                while not stream.eof and not stream.needs_input:
                    put(stream.decompress(b"", _CHUNK))
            except zstd.ZstdError:
                return False
            block = stream.unused_data if stream.eof else b""
    return bool(stream.eof)


class Packing(Struct, frozen=True):
    """One way to pack. With .zst, the functions raise a RecordingProblem where the library is not installed.

    Attributes:
        suffix: End of the names.
        shown_by: The command that prints the content of a file.
        begins: First bytes of a file.
        before_mark: Bytes right before a mark, at the beginning of a member.
        member: Makes a member; its mark is empty for the one of the header.
        unpacked: Returns the content of one member or several, up to so many bytes, and whether they are whole: of a
            torn one the part that can be had; nothing of a damaged one, because numbers in it may be wrong.
        unpack: Passes on the content of a file without marks, as older versions, gzip and zstd write it, piece by
            piece; False when it is torn.
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
        suffix=".gz",
        shown_by="zcat",
        begins=b"\x1f\x8b",
        before_mark=_gzip_before_mark(MARK.size),
        member=_gzip_member,
        unpacked=_gzip_unpacked,
        unpack=_gzip_unpack,
    ),
    Packing(
        suffix=".zst",
        shown_by="zstdcat",
        begins=b"\x28\xb5\x2f\xfd",
        before_mark=_SKIPPABLE_BEGIN.pack(_SKIPPABLE, len(_NAME) + MARK.size) + _NAME,
        member=_zstd_member,
        unpacked=_zstd_unpacked,
        unpack=_zstd_unpack,
    ),
)


def packing_for(path: Path) -> Packing | None:
    """Return the packing for a file of this name; None for plain lines."""
    return next((packing for packing in PACKINGS if packing.suffix == path.suffix), None)


def packing_of(begin: bytes) -> Packing | None:
    """Return the packing of a file that begins with these bytes; None when it is not packed."""
    return next((packing for packing in PACKINGS if begin.startswith(packing.begins)), None)


def mark(frame: int, elapsed_s: float) -> bytes:
    """Return the mark of the member that begins with this frame."""
    return MARK.pack(frame, max(int(elapsed_s * _TICKS_PER_S), 0))


def find_marks(file: IO[bytes], packing: Packing, begin: int = 0) -> Iterator[tuple[int, int, float]]:
    """Yield offset, frame number and moment of every marked member, ascending in all three; at most `MOST_MARKS`.

    Where a further recording was put behind the first one, its first member, number 0, is the last.
    """
    file.seek(begin)
    before, width = packing.before_mark, len(packing.before_mark) + MARK.size
    base, kept, frame, elapsed, marks = begin, b"", -1, -1, 0
    while chunk := file.read(_SCAN_BYTES):
        data = kept + chunk
        position = 0
        while (at := data.find(before, position)) >= 0 and at + width <= len(data):
            number, ticks = MARK.unpack_from(data, at + len(before))
            position = at + width
            if number > frame and ticks >= elapsed:
                frame, elapsed, marks = number, ticks, marks + 1
                yield base + at, number, ticks / _TICKS_PER_S
                if marks == MOST_MARKS:
                    return
            elif number == 0 and frame >= 0:
                yield base + at, 0, 0.0
                return
        scanned = max(position, len(data) - width + 1)
        base, kept = base + scanned, data[scanned:]
