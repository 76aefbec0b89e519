"""A program on a real pty, read through a terminal emulator: what an operator sees and types."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import pyte

from tests.support.accounts import home_variables

DEADLINE_S = 60.0


class Terminal:
    """Runs a command on a pty of its own.

    Attributes:
        pid: Of the command.
        raw: Everything it wrote.
        arrived_s: When the last of it came, on the monotonic clock; the emulator's own work comes after.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        columns: int = 120,
        lines: int = 40,
        *,
        tells_size: bool = True,
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            size = (lines, columns) if tells_size else (0, 0)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            os.execvpe(command[0], list(command), {**environment, "TERM": "xterm-256color"})
        self._status: int | None = None
        self.raw = b""
        self.arrived_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        os.close(self._master)

    def read(self, seconds: float = 0.1) -> bool:
        """Takes what the command writes; False when it has closed the terminal."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.arrived_s = time.monotonic()
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def text(self) -> str:
        """The screen."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def until(self, words: str) -> str:
        """The screen as soon as it shows these words; fails after the deadline with what it shows instead."""
        deadline = time.monotonic() + DEADLINE_S
        while words not in self.text():
            open_still = self.read()
            if not open_still or time.monotonic() > deadline:
                raise AssertionError(f"{words!r} is not on the screen:\n{self.text()}")
        return self.text()

    def until_gone(self, words: str) -> None:
        """Reads until the screen does not show these words any more."""
        deadline = time.monotonic() + DEADLINE_S
        while words in self.text():
            assert self.read(), self.text()
            assert time.monotonic() < deadline, self.text()

    def resize(self, columns: int, lines: int) -> None:
        """Another size of the window."""
        self._screen.resize(lines, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        """Types."""
        os.write(self._master, keys.encode())

    def send(self, typed: bytes) -> None:
        """Types bytes, which need be no text, and waits until the program has read them."""
        os.write(self._master, typed)
        deadline = time.monotonic() + DEADLINE_S
        with open(f"/proc/{self.pid}/fd/0", "rb", buffering=0) as its_end:
            while fcntl.ioctl(its_end, termios.FIONREAD, bytes(4)) != bytes(4):
                assert self.read(0.02), self.text()
                assert time.monotonic() < deadline, self.text()

    def kill(self, number: int) -> None:
        """Sends a signal."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Reads to the end; the exit status, negative for a signal."""
        deadline = time.monotonic() + DEADLINE_S
        while self._status is None:
            self.read(0.05)
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self._status = os.waitstatus_to_exitcode(status)
            assert time.monotonic() < deadline, self.text()
        while select.select([self._master], [], [], 0.0)[0] and self.read():
            assert time.monotonic() < deadline, self.text()
        return self._status

    def modes(self) -> set[int]:
        """Private modes that are set: 1000 reports buttons of the mouse, 1003 every move."""
        return {mode >> 5 for mode in self._screen.mode if mode >= 32}

    def settings(self) -> list[object]:
        """What the terminal is set to, as `stty` shows it."""
        return termios.tcgetattr(self._master)


def environment(home: Path) -> dict[str, str]:
    """A user of a UTF-8 terminal without configuration of their own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PG", "XDG_", "SSH_", "TEXTUAL", "COLUMNS", "LINES"))
    }
    return {**kept, **home_variables(home), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
