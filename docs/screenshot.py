"""Makes docs/images/dashboard.svg from the real program: a demo in a pseudo-terminal, its screen after a minute.

    python docs/screenshot.py            (make screenshot)

Runs `pgtop-tune demo` at 120×40, changes max_wal_size once by its keys and keeps it, puts a note on the tape, and
draws what the terminal shows then. Needs the development packages (pyte).
"""

from __future__ import annotations

import argparse
import fcntl
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

import pyte

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs.terminal_svg import Cell, svg

COLUMNS, ROWS = 120, 40
PICTURE: Final = Path(__file__).resolve().parent / "images" / "dashboard.svg"
TITLE: Final = "pgtop-tune: the dashboard on a server under load, a parameter just changed"
_DEADLINE_S: Final = 300.0
_GROUND, _PLAIN = "#14181d", "#d5d9de"
_CLOCK: Final = re.compile(r"rec (\d\d):(\d\d):(\d\d)")
_NAMED: Final = {
    "black": "#2b3036", "red": "#e06c75", "green": "#87d787", "brown": "#ffd75f", "blue": "#5fafff",
    "magenta": "#ff87ff", "cyan": "#5fd7ff", "white": "#d5d9de", "brightblack": "#8a8f98",
}  # fmt: skip
"""The terminal's own sixteen colours, as far as the dark theme leaves anything to them."""


class Terminal:
    """A program at one end, a screen at the other.

    Args:
        master: Our end of the pseudo-terminal.
    """

    def __init__(self, master: int) -> None:
        self._master = master
        self._end = time.monotonic() + _DEADLINE_S
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._screen.reset_mode(pyte.modes.DECAWM)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def text(self) -> str:
        """The screen's rows."""
        return "\n".join(self._screen.display)

    def until(self, what: str, seen: Callable[[str], bool]) -> None:
        """Reads until the screen fits.

        Raises:
            SystemExit: It does not within the time that is left, or the program ended.
        """
        while not seen(self.text):
            if time.monotonic() > self._end:
                raise SystemExit(f"the screen never showed {what}; it shows:\n{self.text}")
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

    def press(self, keys: str) -> None:
        """Types."""
        os.write(self._master, keys.encode())

    def cells(self) -> list[list[Cell]]:
        """The screen for drawing."""
        return [[_cell(self._screen.buffer[y][x]) for x in range(COLUMNS)] for y in range(ROWS)]


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
    return int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3]) if found else 0


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
            "TMPDIR": "/var/tmp", "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home,
        }  # fmt: skip
        process = subprocess.Popen(
            [program, "demo", "--theme", "dark"],
            stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        try:
            yield Terminal(master)
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


def take(seconds: int) -> str:
    """Runs the demo and returns its picture.

    Args:
        seconds: How long the load shall have run.
    """
    with demo() as terminal:
        terminal.until("a load that has run a while", lambda text: _recorded_s(text) >= seconds // 3)
        terminal.press("p")
        terminal.until("the parameters", lambda text: "max_wal_size  " in text and "remark" in text)
        terminal.press("+")
        terminal.until("the statement", lambda text: "ALTER SYSTEM" in text)
        terminal.press("a")
        terminal.until("the value read back", lambda text: "read back from pg_settings" in text)
        terminal.press("Y")
        terminal.until("the change confirmed", lambda text: "confirmed: " in text)
        terminal.press("\x1b")
        terminal.until("the dashboard", lambda text: "remark" not in text)
        terminal.until("some time after the change", lambda text: _recorded_s(text) >= seconds * 2 // 3)
        terminal.press("m")
        terminal.until("a place for a note", lambda text: "Enter ok" in text)
        terminal.press("twice the WAL\r")
        terminal.until("a minute of load", lambda text: "Enter ok" not in text and _recorded_s(text) >= seconds)
        return svg(terminal.cells(), _GROUND, TITLE)


def main() -> None:
    """Writes the picture."""
    parser = argparse.ArgumentParser(description="Makes docs/images/dashboard.svg from the real program.")
    parser.add_argument("--seconds", type=int, default=100, help="how long the load runs before the picture is taken")
    parser.add_argument("--output", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    picture = take(arguments.seconds)
    arguments.output.parent.mkdir(exist_ok=True)
    arguments.output.write_text(picture, encoding="utf-8")
    print(f"{arguments.output.name}: {len(picture) / 1024:.0f} kB")


if __name__ == "__main__":
    main()
