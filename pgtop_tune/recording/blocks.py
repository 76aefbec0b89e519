"""Key frames of a recording, at which it can be entered: found without reading what stands between them.

A packed recording has a member of its own for every key frame (see `compression`). Their marks are found by their
bytes, so a day of frames opens without being unpacked, and a jump unpacks one minute of it.

A file without a name in $TMPDIR that a recording is put into, as far as it can be one and there is room.

Where the key frames of a recording stand, in a file beside it: a large one is opened without being read through.

Never needed: where it is missing or does not fit, the recording is read through and the index made anew. It tells the
places up to the last key frame it knows; what was appended since is looked for from there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import IO, Final, Protocol

import msgspec
from msgspec import Struct

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.base.paths import opened, replacing
from pgtop_tune.recording.compression import MOST_MARKS, Packing, find_marks, packing_of
from pgtop_tune.recording.format import MAX_BLOCK_BYTES, MAX_LINE_BYTES, YEAR_9999_MS, read_header

_KEY_START: Final = b'{"key":'
_NEXT_KEY: Final = b"\n" + _KEY_START
_HEADER_START: Final = b'{"format":"pgtop-tune/'
"""Begin of a header, also behind a torn line. No text of a frame holds it: quotes in JSON strings are escaped."""
_ELAPSED: Final = re.compile(rb'"elapsed_s":\s*(-?\d+(?:\.\d*)?(?:e-?\d+)?)(?=[,}\s])')
_LINE_START: Final = 400
"""Bytes of a line that are searched for its moment, which stands at the front."""
_CHUNK: Final = 1 << 22
_BEGIN_BYTES: Final = 1 << 16
_FIRST_LINE: Final = 1 << 16
"""Bytes unpacked to find the end of a key frame's line; more for a longer one."""


class FrameBlock(Struct, frozen=True):
    """A key frame and the frames up to the next one.

    Attributes:
        offset, end: Position in the file.
        first: Number of its first frame.
        elapsed_s: Moment of its first frame; in a packed recording to the tenth of a millisecond below.
    """

    offset: int
    end: int
    first: int
    elapsed_s: float


class Blocks(Protocol):
    """An open recording, block by block.

    Attributes:
        header: Its first line.
        blocks: In the order of the frames.
        problem: Damage at its end; "" without any.
    """

    header: bytes
    blocks: list[FrameBlock]
    problem: str

    def lines(self, block: FrameBlock) -> Iterator[bytes]:
        """Yield the whole lines of a block, fewer than it has where it is damaged."""
        ...

    def grow(self) -> bool:
        """Look for more at the end of the file; the last block is found anew, and blocks may follow it."""
        ...

    def first_line(self, block: FrameBlock) -> bytes:
        """Return the line of its key frame; b"" where that is damaged."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


def open_blocks(path: Path) -> Blocks:
    """Open a recording, whichever way it is stored.

    Raises:
        OSError: It cannot be read.
        RecordingProblem: It is none, no room to unpack it, or the library that unpacks it is not installed.
    """
    file = opened(path)
    try:
        begin = file.read(_BEGIN_BYTES)
        packing = packing_of(begin)
        # Before the file is scanned or unpacked: one that is no recording may have no end.
        _check_begin(begin, packing)
        known_keys = known_places(path, file)
        if packing is None:
            plain = PlainBlocks(file, known_keys=known_keys)
            _keep_index(path, file, known_keys, plain.blocks)
            return plain
        marks = [*known_keys[:-1], *find_marks(file, packing, known_keys[-1][0] if known_keys else 0)]
        if marks:
            packed = PackedBlocks(file, packing, marks)
            _keep_index(path, file, known_keys, packed.blocks)
            return packed
        unpacked = SpoolFile(file)
        try:
            torn = not packing.unpack(file, unpacked.write)
        except BaseException:
            unpacked.close()
            raise
        file.close()
        return PlainBlocks(unpacked.file, _TORN if torn else "", packing=packing)
    except BaseException:
        file.close()
        raise


def _check_begin(begin: bytes, packing: Packing | None) -> None:
    text = begin if packing is None else packing.unpacked(begin, MAX_LINE_BYTES)[0]
    if packing is not None and not text:
        raise RecordingProblem(
            "the compressed file is truncated or damaged near its beginning", "copy the recording again"
        )
    read_header(text.partition(b"\n")[0])


def _keep_index(path: Path, file: IO[bytes], known_keys: Sequence[Place], blocks: Sequence[FrameBlock]) -> None:
    """Write the index of a recording that took long to scan."""
    read_from = known_keys[-1][0] if known_keys else 0
    if keeps_index.get() and blocks and blocks[-1].offset - read_from >= WORTH_BYTES:
        keep_places(path, file, [(block.offset, block.first, block.elapsed_s) for block in blocks])


def is_recording(path: Path) -> bool:
    """Return whether a file begins as a recording that this version reads; only its beginning is read."""
    try:
        with opened(path) as file:
            begin = file.read(_BEGIN_BYTES)
        _check_begin(begin, packing_of(begin))
    except (OSError, RecordingProblem):
        return False
    return True


_TORN: Final = "the compressed file ends early (still being written, or truncated); read up to that point"
_SECOND: Final = "another recording begins at line {} and is not read; extract it with: {} > second.jsonl"
_TOO_MANY: Final = f"more than {MOST_MARKS} key frames, unlike any recording; read up to that point"


class PlainBlocks:
    """Lines of a file, as `Blocks`.

    Args:
        file: Open; closed by `close`.
        problem: Known damage.
        known_keys: Places of key frames from the first on, of an index.
        packing: Packing of the file that this one was unpacked from.
    """

    def __init__(
        self, file: IO[bytes], problem: str = "", known_keys: Sequence[Place] = (), packing: Packing | None = None
    ) -> None:
        self._file = file
        self._packing = packing
        self.problem = problem
        file.seek(0)
        self.header = file.readline(MAX_LINE_BYTES)
        self._size = 0
        self._is_over = False
        begin = known_keys[-1] if known_keys else (file.tell(), 0, 0.0)
        self.blocks = [
            FrameBlock(offset=at, end=after, first=first, elapsed_s=elapsed_s)
            for (at, first, elapsed_s), (after, *_) in pairwise(known_keys)
        ]
        self._scan(*begin)

    def _scan(self, begin: int, frames: int, elapsed_s: float) -> None:
        """Append the blocks from an offset on, before which so many frames stand."""
        file, starts = self._file, [(begin, frames)]
        stop: int | None = None
        for offset, count, further in _keys_and_lines(file, begin):
            frames, stop = frames + count, further
            if offset is not None:
                starts.append((offset, frames))
            if len(starts) > MOST_MARKS:
                self.problem = _TOO_MANY
                break
        self._size = file.seek(0, 2) if stop is None else stop
        if stop is not None:
            tail = f"tail -c +{stop + 1}"
            command = f"{tail} FILE" if self._packing is None else f"{self._packing.shown_by} FILE | {tail}"
            self.problem, self._is_over = _SECOND.format(frames + 2, command), True
        whole_end = self._last_line_end(begin, self._size)
        if whole_end < self._size:
            self.problem = self.problem or "the last line is torn and was skipped"
        starts = [start for start in starts if start[0] < whole_end]
        ends = [*[offset for offset, _ in starts][1:], whole_end]
        for (offset, first), stop in zip(starts, ends):  # noqa: B905
            file.seek(offset)
            elapsed_s = moment_of_line(file.readline(_LINE_START), elapsed_s)
            self.blocks.append(FrameBlock(offset=offset, end=stop, first=first, elapsed_s=elapsed_s))

    def grow(self) -> bool:
        if not self.blocks or self._is_over or self._file.seek(0, 2) <= self._size:
            return False
        last = self.blocks.pop()
        self._scan(last.offset, last.first, last.elapsed_s)
        return True

    def _last_line_end(self, begin: int, size: int) -> int:
        end = size
        while end > begin:
            start = max(begin, end - _CHUNK)
            self._file.seek(start)
            line_end = self._file.read(end - start).rfind(b"\n")
            if line_end >= 0:
                return start + line_end + 1
            end = start
        return begin

    def lines(self, block: FrameBlock) -> Iterator[bytes]:
        position = block.offset
        while position < block.end:
            self._file.seek(position)
            line = self._file.readline(min(block.end - position, MAX_LINE_BYTES))
            if not line:
                return
            position += len(line)
            yield line

    def first_line(self, block: FrameBlock) -> bytes:
        self._file.seek(block.offset)
        return self._file.readline(min(block.end - block.offset, MAX_LINE_BYTES))

    def close(self) -> None:
        self._file.close()


def _keys_and_lines(file: IO[bytes], begin: int) -> Iterator[tuple[int | None, int, int | None]]:
    """Yield the key lines, each with the number of lines between the one before and it; at the end, none and the rest.

    The third is where a further recording begins; None where none was put behind.
    """
    file.seek(begin)
    base, kept, count = begin, b"", 0
    while chunk := file.read(_CHUNK):
        data = kept + chunk
        header = data.find(_HEADER_START)
        if header >= 0:
            data = data[:header]
        position = 0
        while (line_end := data.find(_NEXT_KEY, position)) >= 0:
            yield base + line_end + 1, count + data.count(b"\n", position, line_end + 1), None
            position, count = line_end + 1, 0
        if header >= 0:
            yield None, count + data.count(b"\n", position), base + header
            return
        # A tail that may begin a key line or a header is searched again with the next chunk.
        scanned = max(position, len(data) - len(_HEADER_START) + 1)
        count += data.count(b"\n", position, scanned)
        base, kept = base + scanned, data[scanned:]
    yield None, count + kept.count(b"\n"), None


class PackedBlocks:
    """Members of a packed file, as `Blocks`."""

    def __init__(self, file: IO[bytes], packing: Packing, marks: list[tuple[int, int, float]]) -> None:
        self._file = file
        self._packing = packing
        self._is_over = False
        self.blocks: list[FrameBlock] = []
        header, _ = self._text(0, marks[0][0])
        self.header = header.partition(b"\n")[0] + b"\n"
        self._add(marks)
        _, is_whole = self._text(self.blocks[-1].offset, self.blocks[-1].end)
        self.problem = "" if is_whole else _TORN if len(marks) < MOST_MARKS else _TOO_MANY
        if self._is_over:
            line = self.blocks[-1].first + sum(1 for _ in self.lines(self.blocks[-1])) + 2
            self.problem = _SECOND.format(line, f"{packing.shown_by} FILE | tail -n +{line}")
        if self.blocks[0].first:
            self.problem = f"the first {self.blocks[0].first} frames are damaged and were skipped"

    def _add(self, marks: list[tuple[int, int, float]]) -> None:
        ends = [offset for offset, _, _ in marks[1:]]
        if marks[-1][1] == 0 < len(ends):
            marks = marks[:-1]
            self._is_over = True
        else:
            ends.append(self._file.seek(0, 2))
        self.blocks += [
            FrameBlock(offset=offset, end=end, first=first, elapsed_s=elapsed_s)
            for (offset, first, elapsed_s), end in zip(marks, ends, strict=True)
        ]

    def grow(self) -> bool:
        if self._is_over or self._file.seek(0, 2) <= self.blocks[-1].end:
            return False
        self._add(list(find_marks(self._file, self._packing, self.blocks.pop().offset)))
        return True

    def _text(self, offset: int, end: int) -> tuple[bytes, bool]:
        self._file.seek(offset)
        return self._packing.unpacked(self._file.read(min(end - offset, MAX_BLOCK_BYTES)), MAX_BLOCK_BYTES)

    def lines(self, block: FrameBlock) -> Iterator[bytes]:
        text, _ = self._text(block.offset, block.end)
        if self._is_over and (header := text.find(_HEADER_START)) >= 0:
            text = text[:header]
        yield from BytesIO(text[: text.rfind(b"\n") + 1])

    def first_line(self, block: FrameBlock) -> bytes:
        self._file.seek(block.offset)
        packed = self._file.read(min(block.end - block.offset, MAX_BLOCK_BYTES))
        most, text = _FIRST_LINE, self._packing.unpacked(packed, _FIRST_LINE)[0]
        while b"\n" not in text and len(text) == most < MAX_LINE_BYTES:
            most *= 8
            text = self._packing.unpacked(packed, most)[0]
        return text[: text.find(b"\n") + 1]

    def close(self) -> None:
        self._file.close()


def moment_of_line(line: bytes, otherwise: float) -> float:
    """Return `elapsed_s` of a line; the other value where it has none that a clock shows."""
    match = _ELAPSED.search(line[:_LINE_START])
    elapsed_s = float(match[1]) if match else otherwise
    return elapsed_s if abs(elapsed_s) < YEAR_9999_MS else otherwise


_FREE_SHARE: Final = 0.1
"""Share of the file system that is left free: it may be the one of a database server."""
_LOOK_EVERY: Final = 16 << 20
_SMALL_BYTES: Final = 64 << 20
_MOST_RATIO: Final = 100
"""Most bytes that a byte unpacks to: recordings have 5 to 30, made-up files up to a thousand."""


class SpoolFile:
    """A file without a name in $TMPDIR to which the bytes of a recording are appended.

    Args:
        packed: The file they are unpacked from; None where they are not.

    Attributes:
        file: The bytes written so far; it has no name.
    """

    def __init__(self, packed: IO[bytes] | None = None) -> None:
        self.file: Final = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._packed = packed
        self._size = self._line = self._looked = 0

    def write(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            RecordingProblem: No recording goes on like this, or there is no room for it.
            OSError: They cannot be written.
        """
        # Packed bytes have line breaks, too.
        end = data.rfind(b"\n")
        self._line = self._line + len(data) if end < 0 else len(data) - end - 1
        self._size += len(data)
        if self._line > MAX_LINE_BYTES:
            raise RecordingProblem("a line is too long for a recording", "the file is damaged or forged")
        most = _SMALL_BYTES + _MOST_RATIO * (0 if self._packed is None else self._packed.tell())
        if self._packed is not None and self._size > most:
            raise RecordingProblem(
                f"the file unpacks to more than {_MOST_RATIO} times its size, unlike any recording",
                "if this is a recording, unpack it with gzip or zstd and open the result",
            )
        if self._size >= self._looked:
            self._looked = self._size + _LOOK_EVERY
            self._check_room()
        view = memoryview(data)
        while view:
            view = view[self.file.write(view) or 0 :]

    def _check_room(self) -> None:
        room = os.fstatvfs(self.file.fileno())
        if self._size > _LOOK_EVERY and room.f_bavail < _FREE_SHARE * room.f_blocks:
            raise RecordingProblem(
                f"less than 10 % of the file system of {Path(tempfile.gettempdir())} is free",
                "set TMPDIR to another directory",
            )

    def close(self) -> None:
        """Close the file; its bytes are gone."""
        self.file.close()


_INDEX_FORMAT: Final = "pgtop-tune-index/1"
WORTH_BYTES: Final = 32 << 20
"""Size from which on an index is worth it."""
keeps_index: Final = ContextVar("keeps_index", default=True)
"""Whether an index is written beside a large recording; False for readers that write nothing."""
_EDGE_BYTES: Final = 4096
_MOST_INDEX_BYTES: Final = 64 << 20

Place = tuple[int, int, float]
"""Offset of a key frame (of its member, where packed), the number of the frame, and its moment in elapsed seconds."""


def index_path(recording: Path) -> Path:
    """Return the path of the index of a recording: run.jsonl.gz.index."""
    return recording.with_name(recording.name + ".index")


class _Index(Struct, frozen=True):
    format: str
    edges: list[int]
    places: list[Place]


def known_places(recording: Path, file: IO[bytes]) -> list[Place]:
    """Return the places of key frames from the first one on; none where no index fits the file.

    Args:
        recording: Its path.
        file: The same, open.
    """
    try:
        with opened(index_path(recording)) as index_file:
            index = msgspec.json.decode(index_file.read(_MOST_INDEX_BYTES), type=_Index)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    # The file may be another program's.
    places = index.places[:MOST_MARKS]
    ascends = all(before[0] < after[0] and before[1] < after[1] for before, after in pairwise([(-1, -1, 0.0), *places]))
    fits = places and ascends and index.format == _INDEX_FORMAT and index.edges == _edges(file, places[-1][0])
    return places if fits else []


def keep_places(recording: Path, file: IO[bytes], places: Sequence[Place]) -> None:
    """Write the index, for its user only; where that fails, the recording is read through next time."""
    text = json.dumps({"format": _INDEX_FORMAT, "edges": _edges(file, places[-1][0]), "places": places})
    with contextlib.suppress(OSError), replacing(index_path(recording)) as index_file:
        index_file.write(f"{text}\n".encode())


def _edges(file: IO[bytes], end: int) -> list[int]:
    """Return checksums of the first bytes, and of the last ones before the end: a recording only ever grows."""
    file.seek(0)
    begin = file.read(min(_EDGE_BYTES, end))
    file.seek(max(end - _EDGE_BYTES, 0))
    before = file.read(min(_EDGE_BYTES, end))
    return [end, zlib.crc32(begin), zlib.crc32(before), len(before)]
