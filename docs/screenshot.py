"""Makes the pictures of the documentation from the real program: a demo in a pseudo-terminal, driven by its keys.

    python docs/screenshot.py            (make screenshot)

Runs `pgtop-tune demo`, presses keys as an operator does, and writes what the terminal shows meanwhile: docs/images has
a picture per row of `PICTURES`, and demo.cast, a recording of the first part for asciinema (`asciinema play`). Takes
five minutes. Needs the development packages (pyte).
"""

from __future__ import annotations

import argparse
import codecs
import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pyte

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs.terminal_svg import Cell, svg

COLUMNS, ROWS = 120, 40
WIDE: Final = (170, 46)
IMAGES: Final = Path(__file__).resolve().parent / "images"
PICTURES: Final = {
    "dashboard": "The dashboard on a server under load, a parameter just changed",
    "parameters": "The list of parameters: a change that reverts unless it is confirmed",
    "comparison": "Two windows of the tape and everything that differs between them",
    "waits": "Sessions by wait class over time, and each wait event beside the statements behind it",
    "host": "The machine: cores, and CPU, disk, pressure and memory over time",
    "locks": "A session idle in its transaction holds up the load: the first line says so",
    "experiment": "An experiment puts two values into force by turns under one load",
}
"""Name of the file and what it shows."""
CAST: Final = "demo.cast"
_CAST_S: Final = 100.0
_WITHIN_S: Final = 60.0
"""Time in which the screen must show what a key brings."""
_GROUND, _PLAIN = "#14181d", "#d5d9de"
_CLOCK: Final = re.compile(r"rec +(?:(\d\d):)?(\d\d):(\d\d)")
_ENDPOINT: Final = re.compile(r"@(/\S+):(\d+)")
_NAMED: Final = {
    "black": "#2b3036", "red": "#e06c75", "green": "#87d787", "brown": "#ffd75f", "blue": "#5fafff",
    "magenta": "#ff87ff", "cyan": "#5fd7ff", "white": "#d5d9de", "brightblack": "#8a8f98",
}  # fmt: skip
"""The terminal's own sixteen colours, as far as the dark theme leaves anything to them."""


class Terminal:
    """A program at one end, a screen at the other.

    Args:
        master: Our end of the pseudo-terminal.
        pid: The program.

    Attributes:
        cast: What the program wrote in its first time, as asciinema keeps it: (seconds, "o", text).
    """

    def __init__(self, master: int, pid: int) -> None:
        self._master, self._pid = master, pid
        self._began = time.monotonic()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.cast: list[tuple[float, str, str]] = []
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._screen.reset_mode(pyte.modes.DECAWM)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def text(self) -> str:
        """The screen's rows."""
        return "\n".join(self._screen.display)

    def until(self, what: str, seen: Callable[[str], bool], within_s: float = _WITHIN_S) -> None:
        """Reads until the screen fits.

        Raises:
            SystemExit: It does not within that time, or the program ended.
        """
        end = time.monotonic() + within_s
        while not seen(self.text):
            if time.monotonic() > end:
                raise SystemExit(f"the screen did not show {what} within {within_s:.0f} s; it shows:\n{self.text}")
            self.read()

    def read(self) -> None:
        """What has arrived, waiting a moment for it."""
        if not select.select([self._master], [], [], 0.2)[0]:
            return
        try:
            data = os.read(self._master, 65536)
        except OSError:
            raise SystemExit(f"the program ended early; it said:\n{self.text}") from None
        self._stream.feed(data)
        now_s = time.monotonic() - self._began
        if now_s < _CAST_S:
            self.cast.append((round(now_s, 3), "o", self._decoder.decode(data)))

    def resize(self, columns: int, rows: int) -> None:
        """Another size of the terminal."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._screen.resize(rows, columns)
        os.kill(self._pid, signal.SIGWINCH)

    def wait(self, seconds: float) -> None:
        """Reads for so long: some pictures need time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.read()

    def picture(self, name: str) -> None:
        """Writes what the terminal shows now."""
        drawn = svg(self.cells(), _GROUND, f"pgtop-tune: {PICTURES[name]}")
        (IMAGES / f"{name}.svg").write_text(drawn, encoding="utf-8")
        print(f"{name}.svg: {len(drawn) / 1024:.0f} kB", flush=True)

    def press(self, keys: str) -> None:
        """Types."""
        os.write(self._master, keys.encode())

    def close(self) -> None:
        """Escape, and a moment for it: with the next key at once it would be Alt and that key."""
        self.press("\x1b")
        self.wait(1.5)

    def cells(self) -> list[list[Cell]]:
        """The screen for drawing."""
        rows, columns = self._screen.lines, self._screen.columns
        return [[_cell(self._screen.buffer[y][x]) for x in range(columns)] for y in range(rows)]


def _cell(char: Any) -> Cell:
    colour, background = _colour(char.fg, _PLAIN), _colour(char.bg, "")
    if char.reverse:
        colour, background = background or _GROUND, colour
    return Cell(char.data, colour, background, char.bold)


def _colour(name: str, default: str) -> str:
    if name == "default":
        return default
    return _NAMED.get(name) or (f"#{name}" if re.fullmatch(r"[0-9a-f]{6}", name) else default or _PLAIN)


def _recorded_s(screen: str) -> int:
    """Seconds the session has been recorded, as the head says; 0 while it does not."""
    found = _CLOCK.search(screen)
    return int(found[1] or 0) * 3600 + int(found[2]) * 60 + int(found[3]) if found else 0


@contextmanager
def demo() -> Iterator[Terminal]:
    """`pgtop-tune demo` in a terminal of its own; left with its `q` in the end."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    program = Path(sys.executable).parent / "pgtop-tune"
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **{name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "SSH_CONNECTION")},
            "TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8",
            "TMPDIR": "/var/tmp", "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home,
        }  # fmt: skip
        process = subprocess.Popen(
            [program, "demo", "--theme", "dark"],
            stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        try:
            yield Terminal(master, process.pid)
        finally:
            _leave(process, master)


def _leave(process: subprocess.Popen[bytes], master: int) -> None:
    """Asks it to go, and reads what it says meanwhile so that it can."""
    process.send_signal(signal.SIGTERM)
    end = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < end:
        try:
            if select.select([master], [], [], 0.2)[0]:
                os.read(master, 65536)
        except OSError:
            break
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
    os.close(master)


def _tune(terminal: Terminal) -> None:
    """Changes max_wal_size between two marked windows, and compares them."""
    terminal.until("a load that has run a while", lambda text: _recorded_s(text) >= 25, 120)
    terminal.press("[")
    terminal.wait(20)
    terminal.press("]p")
    terminal.until("the parameters", lambda text: "max_wal_size  " in text and "remark" in text)
    terminal.press("+")
    terminal.until("the statement", lambda text: "ALTER SYSTEM" in text)
    terminal.press("a")
    terminal.until("the value read back", lambda text: "read back from pg_settings" in text)
    terminal.wait(3)
    terminal.picture("parameters")
    terminal.press("Y")
    terminal.until("the change confirmed", lambda text: "confirmed: " in text)
    terminal.close()
    terminal.until("the dashboard", lambda text: "remark" not in text)
    terminal.press("m")
    terminal.until("a place for a note", lambda text: "Enter ok" in text)
    terminal.press("twice the WAL\r")
    terminal.wait(12)
    terminal.press("[")
    terminal.wait(20)
    terminal.until("two minutes of load", lambda text: _recorded_s(text) >= 105, 120)
    terminal.picture("dashboard")
    terminal.press("]")
    terminal.until("the comparison", lambda text: "verdict" in text)
    terminal.wait(2)
    terminal.picture("comparison")
    terminal.close()
    terminal.close()


def _look(terminal: Terminal) -> None:
    """Two pages on a wide terminal, and a jam."""
    terminal.resize(*WIDE)
    terminal.press("3")
    terminal.until("the waits", lambda text: "events" in text)
    terminal.press("\x1b[B")
    terminal.wait(15)
    terminal.picture("waits")
    terminal.press("7")
    terminal.until("the machine", lambda text: "processes" in text)
    terminal.wait(3)
    terminal.picture("host")
    terminal.press("4")
    terminal.until("the endpoint", lambda text: _ENDPOINT.search(text) is not None)
    found = _ENDPOINT.search(terminal.text)
    if found is None:
        raise SystemExit("the head has no endpoint")
    with psycopg.connect(
        host=found[1], port=found[2], user="postgres", dbname="postgres", application_name="psql"
    ) as session:
        session.execute("UPDATE pgbench_branches SET bbalance = bbalance + 1")
        terminal.until("the jam", lambda text: re.search(r"STALLED 1\d s", text) is not None)
        terminal.picture("locks")
        session.rollback()
    terminal.resize(COLUMNS, ROWS)
    terminal.press("1")
    terminal.wait(15)


def _experiment(terminal: Terminal) -> None:
    """B is staged, and measured against A."""
    terminal.press("p")
    terminal.until("the parameters", lambda text: "max_wal_size  " in text and "remark" in text)
    terminal.press("/commit_delay\r\r")
    terminal.wait(1)
    terminal.press("500\r")
    terminal.until("the statement", lambda text: "ALTER SYSTEM" in text)
    terminal.close()
    terminal.close()
    terminal.until("the dashboard", lambda text: "remark" not in text)
    terminal.press("x")
    terminal.until("what B is", lambda text: "Enter start" in text)
    terminal.press("\r")
    terminal.until("the experiment", lambda text: "Enter start" not in text)
    terminal.wait(45)
    terminal.press("x")
    terminal.wait(2)
    terminal.picture("experiment")
    terminal.close()


def main() -> None:
    """Writes the pictures and the recording."""
    parser = argparse.ArgumentParser(description="Makes docs/images from the real program.")
    parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    with demo() as terminal:
        _tune(terminal)
        _look(terminal)
        _experiment(terminal)
        header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "pgtop-tune demo"}
        lines = [json.dumps(line, ensure_ascii=False) for line in (header, *terminal.cast)]
        (IMAGES / CAST).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        print(f"{CAST}: {(IMAGES / CAST).stat().st_size / 1024:.0f} kB")


if __name__ == "__main__":
    main()
