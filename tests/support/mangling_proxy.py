"""A proxy in front of a real server that changes the answers: what a fork, a broken pooler or a stranger may send."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Final

Mangled = Callable[[bytes], bytes]
"""From a DataRow message to what is sent in its place."""


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


def row_of(values: list[bytes | None]) -> bytes:
    parts = [struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value for value in values]
    return message(b"D", struct.pack(">h", len(values)) + b"".join(parts))


def values_of(row: bytes) -> list[bytes | None]:
    (count,) = struct.unpack_from(">h", row, 5)
    found: list[bytes | None] = []
    at = 7
    for _ in range(count):
        (length,) = struct.unpack_from(">i", row, at)
        at += 4
        found.append(None if length < 0 else row[at : at + length])
        at += max(length, 0)
    return found


HOW: Final[dict[str, Mangled]] = {
    "null": lambda row: row_of([None] * len(values_of(row))),
    "one byte": lambda row: row_of([None if value is None else b"1" for value in values_of(row)]),
    "long": lambda row: row_of([None if value is None else value + b"\1" * 9 for value in values_of(row)]),
    "no columns": lambda row: row_of([]),
    "fewer columns": lambda row: row_of(values_of(row)[:-1]),
    "more columns": lambda row: row_of([*values_of(row), b"1"]),
    "no rows": lambda row: b"",
    "twice": lambda row: row + row,
    "cut": lambda row: message(b"D", row[5:-2]),
    "junk": lambda row: b"\xff\0\0\0\2" + row,
    "endless": lambda row: b"D\x7f\xff\xff\xff" + row[5:],
    "refused in the middle": lambda row: row + message(b"E", b"SERROR\0VERROR\0CXX000\0M" + b"no " * 40_000 + b"\0\0"),
    "64 MB": lambda row: row_of([*values_of(row)[:-1], b"9" * (64 << 20)]),
}
"""By name; each row of each answer."""


class ManglingProxy:
    """Accepts connections until it is closed, and leads them to a server.

    Attributes:
        how: What is done to rows; None leaves them. May be changed meanwhile.
    """

    def __init__(self, listener: socket.socket, server: tuple[str, int] | str, how: Mangled | None) -> None:
        self.how = how
        self._listener = listener
        self._server = server
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._lead, args=(caller,), daemon=True).start()

    def _lead(self, caller: socket.socket) -> None:
        path = isinstance(self._server, str)
        server = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        with caller, server, contextlib.suppress(OSError, struct.error):
            server.connect(self._server)
            threading.Thread(target=self._forward, args=(caller, server), daemon=True).start()
            stream = server.makefile("rb")
            if (first := stream.read(1)) in (b"N", b""):
                caller.sendall(first)
                first = stream.read(1)
            while first:
                size = stream.read(4)
                whole = first + size + stream.read(struct.unpack(">i", size)[0] - 4)
                caller.sendall(self.how(whole) if first == b"D" and self.how is not None else whole)
                first = stream.read(1)

    @staticmethod
    def _forward(caller: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := caller.recv(65536):
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def mangling(server: tuple[str, int] | str, how: Mangled | None) -> Iterator[tuple[ManglingProxy, int]]:
    """One on a TCP port of loopback; and the port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield ManglingProxy(listener, server, how), int(listener.getsockname()[1])
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
