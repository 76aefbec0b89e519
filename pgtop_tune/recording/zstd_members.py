"""Members of a recording packed with Zstandard. See `packing`.

RFC 8878: a file is a sequence of frames, and decoders step over "skippable" ones. A member of ours is a skippable
frame with the mark, a frame of data, and a skippable frame with checksum and length of what was packed: the checksum
of a frame itself can be made by the library alone, which is not asked where a full disk cut it short.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, Final

from pgtop_tune.base.errors import RecordingProblem

if TYPE_CHECKING:
    from types import ModuleType

_OURS: Final = 0x184D2A5A
"""One of the sixteen magic numbers of skippable frames."""
_BEGIN: Final = struct.Struct("<II")
_NAME: Final = b"PT"
_CHECK: Final = struct.Struct("<2sII")
_LAST_BLOCK: Final = b"\x01\0\0"
"""An empty raw block, the last of its frame (RFC 8878, 3.1.1.2), where the frame before it was flushed."""
_LEVEL: Final = 6
"""Less CPU than gzip at its level 5, and a tenth fewer bytes."""
_CHUNK: Final = 1 << 16


def _library() -> ModuleType:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError:
        raise RecordingProblem(
            "recordings in .zst need a missing library",
            "pip install backports.zstd, or use a name ending in .gz",
        ) from None
    return zstd


def _skippable(content: bytes) -> bytes:
    return _BEGIN.pack(_OURS, len(content)) + content


def before_mark(mark_bytes: int) -> bytes:
    """What stands before a mark."""
    return _BEGIN.pack(_OURS, len(_NAME) + mark_bytes) + _NAME


class ZstdMember:
    """Implements `Member`.

    Args:
        mark: Stands before it; empty for none.

    Raises:
        RecordingProblem: The library is not installed.
    """

    def __init__(self, mark: bytes) -> None:
        self._begin = _skippable(_NAME + mark) if mark else b""
        self._begun = self._was_begun = False
        self._stream: Any = _library().ZstdCompressor(_LEVEL)
        self._now = self._was = (0, 0)

    def add(self, data: bytes) -> bytes:
        """See `Member.add`."""
        crc, size = self._was = self._now
        self._was_begun, self._begun = self._begun, True
        self._now = zlib.crc32(data, crc), size + len(data)
        packed: bytes = self._stream.compress(data, self._stream.FLUSH_BLOCK)
        return packed if self._was_begun else self._begin + packed

    def end(self) -> bytes:
        """See `Member.end`."""
        last: bytes = self._stream.flush() + _check(*self._now)
        return last if self._begun else self._begin + last

    def cut(self) -> bytes:
        """See `Member.cut`."""
        return _LAST_BLOCK + _check(*self._was) if self._was_begun else b""


def _check(crc: int, size: int) -> bytes:
    return _skippable(_CHECK.pack(_NAME, crc, size & 0xFFFFFFFF))


def unpacked(packed: bytes, most_bytes: int) -> tuple[bytes, bool]:
    """What members hold, and whether they are whole.

    Of a torn one what can be had; nothing of a damaged one, because numbers in it may be wrong.

    Args:
        packed: One member or several.
        most_bytes: Where unpacking stops.

    Raises:
        RecordingProblem: The library is not installed.
    """
    zstd = _library()
    found, member = b"", b""
    while packed:
        content = _content_of(packed)
        if content is not None:
            if content.startswith(_NAME) and len(content) == _CHECK.size:
                if content != _CHECK.pack(_NAME, zlib.crc32(member), len(member)):
                    return found, False
                found, member = found + member, b""
            packed = packed[_BEGIN.size + len(content) :]
            continue
        room = most_bytes - len(found) - len(member)
        if room <= 0:
            return found + member, False
        stream = zstd.ZstdDecompressor()
        try:
            member += stream.decompress(packed, room)
        except zstd.ZstdError:
            return found, False
        if not stream.eof:
            return found + member, False
        packed = stream.unused_data
    return found + member, not member


def _content_of(packed: bytes) -> bytes | None:
    """What the skippable frame of ours holds that stands here whole; None for anything else."""
    if len(packed) < _BEGIN.size:
        return None
    magic, length = _BEGIN.unpack_from(packed)
    whole = magic == _OURS and length <= len(packed) - _BEGIN.size
    return packed[_BEGIN.size : _BEGIN.size + length] if whole else None


def unpack(packed: IO[bytes], put: Callable[[bytes], object]) -> bool:
    """A file without marks, as zstd itself writes it; False when it is torn.

    Raises:
        RecordingProblem: The library is not installed.
    """
    zstd = _library()
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
