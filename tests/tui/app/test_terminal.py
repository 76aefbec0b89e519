"""A real terminal that is read, not read, hung up, and left by signals."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tests.support.screen_program

DEADLINE_S = 60.0


class Terminal:
    """The screen program under a pty of 120×40."""

    def __init__(self, report: Path, seconds_per_frame: float) -> None:
        self._report = report
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = os.dup(slave)
        program = Path(tests.support.screen_program.__file__)
        root = program.parent.parent.parent
        environment = os.environ | {"TERM": "xterm-256color", "PYTHONPATH": str(root)}
        self.process = subprocess.Popen(
            [sys.executable, str(program), str(report), str(seconds_per_frame)],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=environment, cwd=root,
        )  # fmt: skip
        os.close(slave)
        self.seen = b""

    def report(self) -> dict[str, int]:
        """What the program has said last."""
        try:
            return dict(json.loads(self._report.read_text()))
        except (OSError, ValueError):
            return {"frames": 0, "taken": 0, "closed": False, "status": -1}

    def read(self) -> None:
        """Takes what the program has written."""
        while select.select([self._master], [], [], 0.02)[0]:
            try:
                self.seen += os.read(self._master, 65_536)
            except OSError:
                return

    def type(self, keys: bytes) -> None:
        """Presses keys."""
        os.write(self._master, keys)

    def hang_up(self) -> None:
        """The other end is gone."""
        os.close(self.slave)
        os.close(self._master)
        self._master = self.slave = -1

    def until(self, condition: Callable[[], object], *, reading: bool = True) -> None:
        """Waits until it is so."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, (self.report(), self.process.poll(), self.seen[-2_000:])
            if reading:
                self.read()
            else:
                select.select([], [], [], 0.02)

    def ended(self, *, reading: bool = True) -> int:
        """Waits for the end of the program."""
        self.until(lambda: self.process.poll() is not None, reading=reading)
        if reading:
            self.read()
        return self.process.returncode

    def close(self) -> None:
        """Leaves nothing behind."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for number in {self._master, self.slave} - {-1}:
            with contextlib.suppress(OSError):
                os.close(number)


@pytest.fixture
def terminal(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path / "report.json", getattr(request, "param", 0.1))
    try:
        terminal.until(lambda: b"sessions" in terminal.seen)
        terminal.until(lambda: terminal.report()["taken"] > 3)
        yield terminal
    finally:
        terminal.close()


def _is_restored(terminal: Terminal) -> None:
    assert b"\x1b[?1049l" in terminal.seen, "the normal screen was not restored"
    assert b"\x1b[?25h" in terminal.seen, "the cursor was not shown again"
    assert termios.tcgetattr(terminal.slave)[3] == terminal.before[3]
    assert terminal.report()["closed"] is True


def test_q_leaves_and_restores_the_terminal(terminal: Terminal) -> None:
    terminal.type(b"q")
    assert terminal.ended() == 0
    _is_restored(terminal)


def test_ctrl_l_draws_also_what_never_changes(terminal: Terminal) -> None:
    name = b"db1"
    before, frames = terminal.seen.count(name), terminal.report()["taken"]
    terminal.until(lambda: terminal.report()["taken"] > frames + 5)
    assert terminal.seen.count(name) == before, "what never changes is written once"
    terminal.type(b"\x0c")
    terminal.until(lambda: terminal.seen.count(name) == before + 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1])
def test_a_signal_closes_everything_and_restores_the_terminal(terminal: Terminal, number: signal.Signals) -> None:
    terminal.process.send_signal(number)
    assert terminal.ended() == 128 + number
    _is_restored(terminal)


def test_a_terminal_that_is_gone_ends_the_screen(terminal: Terminal) -> None:
    terminal.hang_up()
    terminal.ended(reading=False)
    assert terminal.report()["closed"] is True
    assert terminal.report()["status"] == 128 + signal.SIGHUP


@pytest.mark.parametrize("terminal", [0.005], indirect=True)
def test_a_terminal_that_does_not_read_stops_neither_the_engine_nor_the_way_out(terminal: Terminal) -> None:
    def behind() -> int:
        report = terminal.report()
        return report["frames"] - report["taken"]

    terminal.until(lambda: behind() > 400, reading=False)
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.ended(reading=False) == 128 + signal.SIGTERM
    assert terminal.report()["closed"] is True


@pytest.mark.long
@pytest.mark.parametrize("terminal", [0.005], indirect=True)
def test_a_stalled_terminal_that_is_hung_up_ends_the_screen(terminal: Terminal) -> None:
    def behind() -> int:
        report = terminal.report()
        return report["frames"] - report["taken"]

    terminal.until(lambda: behind() > 400, reading=False)
    terminal.hang_up()
    terminal.ended(reading=False)
    assert terminal.report()["closed"] is True
