"""Somebody who has taken a server's place and asks whoever comes for the password."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CLEARTEXT: Final = struct.pack("!cii", b"R", 8, 3)
MD5: Final = struct.pack("!cii4s", b"R", 12, 5, b"salt")
_MECHANISM: Final = b"SCRAM-SHA-256\0\0"
SCRAM: Final = struct.pack("!cii", b"R", 8 + len(_MECHANISM), 10) + _MECHANISM
"""AuthenticationCleartextPassword, AuthenticationMD5Password, AuthenticationSASL without channel binding."""
_WANTS_ENCRYPTION: Final = (80877103, 80877104)
_PATIENCE_S: Final = 30.0


class RogueServer:
    """Accepts connections until it is closed.

    Attributes:
        asks: The authentication request that it answers every start-up packet with.
        callers: How many connections were made.
        answers: Messages of the kind `p` that came: passwords, proofs, the beginning of an exchange.
    """

    def __init__(self, listener: socket.socket, asks: bytes = CLEARTEXT) -> None:
        self.asks = asks
        self.callers = 0
        self.answers: list[bytes] = []
        self._listener = listener
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            self.callers += 1
            threading.Thread(target=self._receive, args=(caller,), daemon=True).start()

    def _receive(self, caller: socket.socket) -> None:
        caller.settimeout(_PATIENCE_S)
        with caller, contextlib.suppress(OSError, struct.error):
            stream = caller.makefile("rb")
            while self._starts(stream.read(4), stream.read) in _WANTS_ENCRYPTION:
                caller.sendall(b"N")
            caller.sendall(self.asks)
            kind, size = struct.unpack("!ci", stream.read(5))
            if kind == b"p":
                self.answers.append(stream.read(size - 4))

    @staticmethod
    def _starts(size: bytes, read: object) -> int:
        (length,) = struct.unpack("!i", size)
        packet: bytes = read(length - 4)  # type: ignore[operator]
        return int(struct.unpack("!i", packet[:4])[0])


@contextlib.contextmanager
def on_loopback(asks: bytes = CLEARTEXT) -> Iterator[tuple[RogueServer, str]]:
    """One on a TCP port; and the port."""
    with on_address("127.0.0.1", 0, asks) as (rogue, port):
        yield rogue, str(port)


@contextlib.contextmanager
def on_address(address: str, port: int, asks: bytes = CLEARTEXT) -> Iterator[tuple[RogueServer, int]]:
    """One on an address of this machine, and its port; 0 is any."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(64)
        yield RogueServer(listener, asks), int(listener.getsockname()[1])
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def in_directory(directory: Path, asks: bytes = CLEARTEXT) -> Iterator[RogueServer]:
    """One on the Unix socket of port 5432 there."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / ".s.PGSQL.5432"))
        listener.listen(64)
        yield RogueServer(listener, asks)
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
