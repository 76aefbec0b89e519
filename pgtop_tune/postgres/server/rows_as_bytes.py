"""A prepared statement asked over asyncpg's connection, its rows as bytes.

asyncpg wakes a task and sets a timer for each statement. What is asked ten times a second is asked here, and a row that
was seen before is known by its bytes: a sixth of the sampler's time. The connection has our protocol, which hands on
what asyncpg awaits. What a server says while it ends a session that waits for no answer, asyncpg takes for a fault of
its own: it is kept here. `Connection._transport` is the only private name of asyncpg in use here.

Source: chapter "Frontend/Backend Protocol": extended query, message formats.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct, pack
from typing import Any, Final, cast

from pgtop_tune.base.foreign_answers import LONGEST_VALUE, MALFORMED

Answered = Callable[[list[bytes] | None], None]
"""Takes the rows, each as in a DataRow: number of columns, and of each length (-1 is NULL) and bytes. None where
the server refused or is gone; it is then asked in asyncpg's way, which tells why."""

_HEAD: Final = Struct(">cI")
_BINARY: Final = pack(">hh", 1, 1)
_EXECUTE: Final = b"E\0\0\0\x09\0\0\0\0\0"
"""Execute message for the unnamed portal, without a limit of rows."""
_SYNC: Final = b"S\0\0\0\x04"
_NEWS: Final = frozenset({b"N", b"S", b"A"})
"""NoticeResponse, ParameterStatus, NotificationResponse: they come at any time and are for asyncpg."""
_FATAL: Final = (b"VFATAL\0", b"VPANIC\0")
_MESSAGES_KEPT: Final = 100
_PIECE: Final = 64 * 1024


def asking(name: str, arguments: Sequence[int]) -> bytes:
    """Messages that run a prepared statement; its rows come in binary form."""
    texts = [str(argument).encode() for argument in arguments]
    values = b"".join(pack(">i", len(text)) + text for text in texts)
    bind = b"\0" + name.encode() + b"\0" + pack(">hh", 0, len(texts)) + values + _BINARY
    return b"B" + pack(">i", len(bind) + 4) + bind + _EXECUTE


def transport_of(raw: Any) -> asyncio.Transport | None:
    """`Connection._transport` of asyncpg; None of a connection that is another driver's."""
    transport = getattr(raw, "_transport", None)
    return transport if isinstance(transport, asyncio.Transport) else None


def read_in_pieces(transport: asyncio.Transport) -> None:
    """Has a transport read 64 kB at a time in place of 256, where it says how much it reads (`max_size` of asyncio's).

    glibc maps and unmaps memory for what is larger than `cli.memory` allows in its heap: a tenth of the sampler's
    time went into that, for answers of some hundred bytes.
    """
    if isinstance(getattr(transport, "max_size", None), int):
        cast(Any, transport).max_size = _PIECE


def error_fields(message: bytes) -> dict[str, bytes]:
    """Return the fields of an ErrorResponse by their letters."""
    parts = message[_HEAD.size :].split(b"\0")
    return {part[:1].decode("latin-1"): part[1:] for part in parts if part}


class RowsAsBytes(asyncio.Protocol):
    """Asks statements; in asyncpg's way nothing may be asked while answers are awaited.

    Args:
        transport: Of a connection of asyncpg that waits for no answer.
        idle: Called when no answer is awaited any more.

    Attributes:
        farewell: The message with which the server has ended the session; b"" where it has not, or asyncpg has it.
    """

    def __init__(self, transport: asyncio.Transport, idle: Callable[[], object]) -> None:
        read_in_pieces(transport)
        self._transport = transport
        self._idle = idle
        self._theirs = cast(asyncio.Protocol, transport.get_protocol())
        self._messages: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._awaited: deque[Answered] = deque()
        self._rest = b""
        self._rows: list[bytes] = []
        self._is_complete = False
        self.farewell = b""
        transport.set_protocol(self)

    @property
    def under_way(self) -> bool:
        """Return True while answers are awaited."""
        return bool(self._awaited)

    def ask(self, name: str, arguments: tuple[int, ...], answered: Answered) -> None:
        """Send a prepared statement as a transaction of its own.

        Args:
            name: Of the statement.
            arguments: As many numbers as it takes.
            answered: Called once, in the loop.
        """
        self._awaited.append(answered)
        self._transport.write(self._message(name, arguments))

    def _message(self, name: str, arguments: tuple[int, ...]) -> bytes:
        message = self._messages.get((name, arguments))
        if message is None:
            if len(self._messages) > _MESSAGES_KEPT:
                self._messages.clear()
            message = self._messages[name, arguments] = asking(name, arguments) + _SYNC
        return message

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`. Messages beside the answers are for asyncpg; an answer without sense ends it all."""
        if not self._awaited:
            self._hand_on(data)
            return
        try:
            self._take(data)
        except MALFORMED:
            self._transport.abort()

    def _take(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
            self._rest = b""
        at, size = 0, len(data)
        while size - at >= 5 and self._awaited:
            kind, length = _HEAD.unpack_from(data, at)
            end = at + 1 + length
            if not _HEAD.size - 1 <= length <= LONGEST_VALUE:
                raise ValueError("a message of PostgreSQL is longer than possible")
            if end > size:
                self._rest = data[at:]
                return
            if kind == b"D":
                self._rows.append(data[at + 5 : end])
            elif kind == b"C":
                self._is_complete = True
            elif kind == b"Z":
                self._answer()
            elif kind == b"E":
                if any(word in data[at:end] for word in _FATAL):
                    self._hand_on(data[at:end])
            elif kind in _NEWS:
                self._theirs.data_received(data[at:end])
            at = end
        if self._awaited:
            self._rest = data[at:]
        elif at < size:
            self._hand_on(data[at:])

    def _answer(self) -> None:
        """End the oldest transaction: with its rows, or with None where the server has refused it."""
        rows, self._rows = self._rows if self._is_complete else None, []
        self._is_complete = False
        self._awaited.popleft()(rows)
        if not self._awaited:
            self._idle()

    def _hand_on(self, data: bytes) -> None:
        """Hands on what is for asyncpg; the server ends a session with a message of its own."""
        if data[:1] == b"E" and any(word in data for word in _FATAL):
            self.farewell = data
        self._theirs.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`: asyncpg is told as well."""
        if exc is not None and not self._rest:
            self._read_farewell()
        self._rest = b""
        self._theirs.connection_lost(exc)
        self._is_complete = False
        while self._awaited:
            self._answer()

    def _read_farewell(self) -> None:
        """Read the server's last messages before a write of ours failed: asyncio does not read it any more."""
        socket = self._transport.get_extra_info("socket")
        if socket is None or self._transport.get_extra_info("ssl_object") is not None:
            return
        try:
            data = os.read(socket.fileno(), _PIECE)
        except OSError:
            return
        if data[:1] == b"E" and any(word in data for word in _FATAL):
            self.farewell = data

    def eof_received(self) -> bool | None:
        """See `asyncio.Protocol`."""
        return self._theirs.eof_received()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._theirs.pause_writing()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._theirs.resume_writing()
