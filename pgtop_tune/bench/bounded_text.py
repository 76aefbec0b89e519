"""Output of a program, kept up to a limit: its beginning and its end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

_HALF: Final = 32 * 1024
_LONGEST_LINE: Final = 4 * 1024


class LineSplitter:
    """Bytes in, whole lines out; a line that does not end is cut at 4096 bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Lines that are complete with this; invalid UTF-8 is replaced."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        return [line[:_LONGEST_LINE].decode("utf-8", "replace").rstrip("\r") for line in lines]

    def rest(self) -> list[str]:
        """The last line, when it came without its end."""
        return [line for line in self.feed(b"\n") if line]


async def lines_of(stream: asyncio.StreamReader, take: Callable[[str], None]) -> None:
    """Passes on a stream's lines until it ends."""
    splitter = LineSplitter()
    while data := await stream.read(2**16):
        for line in splitter.feed(data):
            take(line)
    for line in splitter.rest():
        take(line)


class BoundedText:
    """Lines, of which the first 32 kB and the last 32 kB are kept."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._head_room = _HALF
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._dropped = 0

    def add(self, line: str) -> None:
        """Keeps a line."""
        if self._head_room > 0:
            self._head.append(line)
            self._head_room -= len(line) + 1
            return
        self._tail.append(line)
        self._tail_size += len(line) + 1
        while self._tail_size > _HALF:
            self._tail_size -= len(self._tail.popleft()) + 1
            self._dropped += 1

    def text(self) -> str:
        """Everything that was kept; what was dropped in between is counted in a line of its own."""
        gap = [f"[{self._dropped} lines left out]"] if self._dropped else []
        return "\n".join((*self._head, *gap, *self._tail))
