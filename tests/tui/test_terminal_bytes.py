"""What really reaches a terminal, read at the other end of a pty."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest

from tests.support.canvas_probe import shown

COLUMNS, ROWS = 60, 8
DEADLINE_S = 60.0
OURS = re.compile(rb"\x1b\[[0-9;]*[HmCK]|\x1b\[\?2026[hl]|\r+\n")
MARKS = re.compile(rb"\x1b\]0;shown [^\x07]*\x07")


class Probe:
    """The program of `tests.support.canvas_probe` and its terminal."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master = master
        self._process = process
        self._seen = bytearray()
        self._read = 0
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self.screen.reset_mode(pyte.modes.DECAWM)
        self._stream = pyte.ByteStream(self.screen)

    def _more(self, deadline: float) -> None:
        assert time.monotonic() < deadline, bytes(self._seen[self._read :])
        if select.select([self._master], [], [], 0.2)[0]:
            self._seen += os.read(self._master, 65536)

    def until_shown(self, what: str) -> bytes:
        """Everything written up to the mark for this, without it."""
        mark = shown(what).encode()
        deadline = time.monotonic() + DEADLINE_S
        while (end := self._seen.find(mark, self._read)) < 0:
            self._more(deadline)
        written = MARKS.sub(b"", self._seen[self._read : end])
        self._read = end + len(mark)
        self._stream.feed(written)
        return written

    def until_rows(self, rows: list[str]) -> None:
        """Reads on until the terminal shows just this."""
        deadline = time.monotonic() + DEADLINE_S
        while self.rows() != rows:
            self._stream.feed(bytes(self._seen[self._read :]))
            self._read = len(self._seen)
            if self.rows() != rows:
                self._more(deadline)

    def press(self, key: str) -> bytes:
        """Presses a key; everything written because of it."""
        return self.type(key, key)

    def type(self, text: str, key: str) -> bytes:
        """Sends what a terminal sends for this key; everything written because of it."""
        os.write(self._master, text.encode())
        return self.until_shown(key)

    def ask_to_end(self) -> None:
        """Without a key: by a signal."""
        self._process.send_signal(signal.SIGUSR1)

    def until_ended(self) -> int:
        """The exit status."""
        deadline = time.monotonic() + DEADLINE_S
        while self._process.poll() is None:
            assert time.monotonic() < deadline
            if select.select([self._master], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):  # nobody has the other end any more
                    os.read(self._master, 65536)
        return self._process.returncode

    def until_asleep(self) -> None:
        """Waits until every thread of the program waits for events and none has woken for a while."""
        threads = Path(f"/proc/{self._process.pid}/task")
        deadline = time.monotonic() + DEADLINE_S
        looks: list[str] = []
        while len(looks) < 20:
            assert time.monotonic() < deadline, looks
            statuses = [(thread / "status").read_text() for thread in sorted(threads.iterdir())]
            now = "".join(status.partition("voluntary_ctxt_switches")[2] for status in statuses)
            looks = [*looks, now] if looks and looks[-1] == now else [now]
            time.sleep(0.02)

    def resize(self, columns: int, rows: int) -> None:
        """Gives the terminal another size and empties its screen, as the worst of terminals would."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)
        self.screen.reset()
        self.screen.reset_mode(pyte.modes.DECAWM)

    def rows(self) -> list[str]:
        """What the terminal shows, without trailing blanks."""
        return [row.rstrip() for row in self.screen.display]


@pytest.fixture
def probe() -> Iterator[Probe]:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "", "TEXTUAL_FPS": "60"}
    for name in ("NO_COLOR", "LINES", "COLUMNS"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "tests.support.canvas_probe"]
    process = subprocess.Popen(command, preexec_fn=lambda: os.login_tty(slave), env=environment)
    os.close(slave)
    try:
        running = Probe(master, process)
        os.write(master, b"\x1b[?2026;2$y")
        running.until_shown(f"{COLUMNS}x{ROWS}")
        yield running
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        os.close(master)


def test_an_unchanged_picture_writes_no_byte_and_a_changed_digit_few(probe: Probe) -> None:
    probe.press("a")
    assert probe.rows()[:2] == ["row 0 steady 12.5", "row 1 steady 12.5"]
    assert probe.press("a") == b""
    assert probe.press("b") == b"\x1b[?2026h\x1b[4;17H\x1b[1m7\x1b[m\x1b[?2026l"
    assert probe.rows()[3] == "row 3 steady 12.7"


def test_a_full_repaint_of_the_same_picture_writes_no_byte(probe: Probe) -> None:
    probe.press("a")
    assert probe.press("r") == b""


def test_plain_text_takes_no_colour_sequences(probe: Probe) -> None:
    written = probe.press("a")
    assert b"m steady" not in written.replace(b"\x1b[m", b"")
    assert written.count(b"row") == 6


def test_nothing_hostile_reaches_the_terminal(probe: Probe) -> None:
    written = probe.press("h")
    left = OURS.sub(b"", written).decode()
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", left)
    assert "[bold]" in left
    assert probe.screen.title != "owned"


def test_disputed_and_wide_characters_are_written_as_they_are(probe: Probe) -> None:
    assert "漢字 and 👩‍💻".replace("\u200d", "·") in probe.press("w").decode()


def test_what_lay_over_the_canvas_is_painted_over(probe: Probe) -> None:
    before = (probe.press("a"), probe.rows())[1]
    probe.press("m")
    assert probe.rows()[2] == "row OVER ITy 12.5"
    probe.press("m")
    assert probe.rows() == before


def test_a_resized_terminal_is_painted_anew(probe: Probe) -> None:
    probe.press("a")
    probe.resize(30, 5)
    probe.until_rows([f"row {y} steady 12.5" for y in range(5)])


def test_a_resize_wakes_a_program_that_sleeps(probe: Probe) -> None:
    probe.press("s")
    probe.press("a")
    probe.until_asleep()
    probe.resize(30, 5)
    probe.until_rows([f"row {y} steady 12.5" for y in range(5)])


def test_no_thread_wakes_while_no_key_comes_and_each_key_is_taken_after_it(probe: Probe) -> None:
    for key in ("a", "b"):
        probe.until_asleep()
        probe.press(key)
    probe.until_asleep()
    # Escape is told from the begin of a longer sequence by the pause behind it.
    probe.type("\x1b", "escape")
    probe.type("\x1b[A", "up")
    probe.type("漢", "漢")


def test_the_program_ends_while_it_waits_for_a_key(probe: Probe) -> None:
    probe.press("a")
    probe.until_asleep()
    probe.ask_to_end()
    assert probe.until_ended() == 0
