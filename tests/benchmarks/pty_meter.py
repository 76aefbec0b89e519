"""What a terminal program costs: runs it under a pty, reads all it writes, reads its CPU time from /proc.

    python tests/benchmarks/pty_meter.py --size 200x50 --seconds 30 --settle 5 --until "TPS" -- command …

prints one line of JSON. Steady figures leave out the first `settle` seconds. Linux only.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyte

_TICKS = os.sysconf("SC_CLK_TCK")
_TERMINALS = {
    "truecolor": {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
    "256": {"TERM": "xterm-256color", "COLORTERM": ""},
    "16": {"TERM": "xterm-16color", "COLORTERM": ""},
}
_ANSWERS = (
    (re.compile(rb"\x1b\[\?2026\$p"), b"\x1b[?2026;2$y"),
    (re.compile(rb"\x1b\[6n"), b"\x1b[1;1R"),
    (re.compile(rb"\x1b\[0?c"), b"\x1b[?62;22c"),
    (re.compile(rb"\x1b\[>0?q"), b"\x1bP>|pty_meter 1\x1b\\"),
    (re.compile(rb"\x1bP\+q[0-9a-fA-F;]*\x1b\\"), b"\x1bP0+r\x1b\\"),
)
"""What a terminal says when it is asked: programs wait for it. Source: XTerm Control Sequences."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was seen.

    Attributes:
        first_byte_s: From the start of the process to the first byte it wrote.
        first_paint_s: To the first moment its screen showed the awaited text; None when it never did.
        first_paint_cpu_s: CPU seconds of the process until then, with its children that have ended: on a shared machine
            the steadier figure.
        cpu_percent: User and system time of the process tree per second of the steady part, per cent of one core.
        start_cpu_s: CPU seconds of the process tree until the steady part began.
        bytes_per_s: Written to the terminal during the steady part.
        writes_per_s: Bursts (reads by the meter) per second of the steady part.
        total_bytes: Written altogether.
        peak_rss_mb: Largest resident size of the started process itself, 10^6 bytes.
        tree_rss_mb: Largest sum over the process tree seen at one look, 10^6 bytes.
        steady_s: Length of the steady part.
        exit_status: Of the process when it ended by itself; None when the meter ended it.
    """

    first_byte_s: float | None
    first_paint_s: float | None
    first_paint_cpu_s: float | None
    cpu_percent: float | None
    start_cpu_s: float | None
    bytes_per_s: float | None
    writes_per_s: float | None
    total_bytes: int
    peak_rss_mb: float
    tree_rss_mb: float
    steady_s: float
    exit_status: int | None


def measure(
    command: Sequence[str],
    *,
    columns: int = 200,
    rows: int = 50,
    seconds: float = 30.0,
    settle_s: float = 5.0,
    until: str = "",
    colours: str = "truecolor",
    environment: Mapping[str, str] | None = None,
    tee: Callable[[bytes], object] | None = None,
    press: str = "",
) -> Measurement:
    """Runs a command for so many seconds and ends it.

    Args:
        command: Program and arguments.
        columns: Width of its terminal.
        rows: Height of its terminal.
        seconds: From start to end.
        settle_s: Left out of the steady figures.
        until: A regular expression for the first paint; looked for in the rows of the screen, as long as it settles.
        colours: "truecolor", "256" or "16": what TERM and COLORTERM promise.
        environment: Added to the meter's own environment.
        tee: Gets everything the program writes.
        press: Keys that are typed half-way to the steady figures.
    """
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    surroundings = {**os.environ, **_TERMINALS[colours], **(environment or {})}
    for name in ("LINES", "COLUMNS"):
        surroundings.pop(name, None)
    started = time.monotonic()
    process = subprocess.Popen(command, preexec_fn=lambda: os.login_tty(slave), env=surroundings, close_fds=True)
    os.close(slave)
    try:
        sight = _Sight(until, columns, rows) if until else None
        return _watch(process, master, started, seconds, settle_s, sight, tee, press)
    finally:
        _end(process)
        os.close(master)


@dataclass(frozen=True, slots=True)
class _Arrived:
    """What was read from the terminal at once, and what the program had cost by then."""

    at_s: float
    cpu_s: float
    data: bytes


class _Sight:
    """A screen that is looked at until a pattern stands on it.

    Afterwards, from what was kept: drawing takes longer than the program does, and whoever draws does not read.
    """

    def __init__(self, pattern: str, columns: int, rows: int) -> None:
        self._pattern = re.compile(pattern)
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)

    def first_in(self, arrived: Sequence[_Arrived]) -> _Arrived | None:
        """With what a row showed the pattern for the first time."""
        for each in arrived:
            self._stream.feed(each.data)
            if any(self._pattern.search(row) for row in self._screen.display):
                return each
        return None


def _watch(
    process: subprocess.Popen[bytes],
    master: int,
    started: float,
    seconds: float,
    settle_s: float,
    sight: _Sight | None,
    tee: Callable[[bytes], object] | None,
    press: str,
) -> Measurement:
    first_byte_s: float | None = None
    arrived: list[_Arrived] = []
    total = steady_total = steady_writes = 0
    begin_cpu_s: float | None = None
    begin_at = end_at = started
    tree_rss = peak_rss = 0
    next_look = 0.0
    while (now := time.monotonic()) - started < seconds and process.poll() is None:
        # A look at all processes takes longer than a read may be late by while the first paint is awaited.
        if begin_cpu_s is not None and now >= next_look:
            next_look = now + 0.25
            peak_rss = max(peak_rss, _status_bytes(process.pid, "VmHWM"))
            tree_rss = max(tree_rss, sum(_status_bytes(pid, "VmRSS") for pid in process_tree(process.pid)))
        if press and now - started >= settle_s / 2:
            os.write(master, press.encode())
            press = ""
        if begin_cpu_s is None and now - started >= settle_s:
            begin_cpu_s, begin_at = _cpu_s(process.pid), now
        deadline = (
            started + (settle_s / 2 if press else settle_s)
            if begin_cpu_s is None
            else min(started + seconds, next_look)
        )
        if not select.select([master], [], [], max(0.0, deadline - now))[0]:
            continue
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        at_s = time.monotonic() - started
        first_byte_s = at_s if first_byte_s is None else first_byte_s
        total += len(data)
        if begin_cpu_s is not None:
            steady_total += len(data)
            steady_writes += 1
        if sight is not None and begin_cpu_s is None:
            arrived.append(_Arrived(at_s, cpu_seconds(process.pid), data))
        if tee is not None:
            tee(data)
        for asked, answer in _ANSWERS:
            for _ in asked.findall(data):
                os.write(master, answer)
    end_at = time.monotonic()
    end_cpu_s = _cpu_s(process.pid)
    steady_s = end_at - begin_at if begin_cpu_s is not None else 0.0
    ended = process.poll()
    seen = None if sight is None else sight.first_in(arrived)
    known = steady_s > 0 and begin_cpu_s is not None and ended is None
    return Measurement(
        first_byte_s=_rounded(first_byte_s),
        first_paint_s=None if seen is None else round(seen.at_s, 3),
        first_paint_cpu_s=None if seen is None else round(seen.cpu_s, 3),
        cpu_percent=round(100 * (end_cpu_s - (begin_cpu_s or 0.0)) / steady_s, 2) if known else None,
        start_cpu_s=_rounded(begin_cpu_s),
        bytes_per_s=round(steady_total / steady_s, 1) if known else None,
        writes_per_s=round(steady_writes / steady_s, 2) if known else None,
        total_bytes=total,
        peak_rss_mb=round(peak_rss / 1e6, 1),
        tree_rss_mb=round(tree_rss / 1e6, 1),
        steady_s=round(steady_s, 2),
        exit_status=ended,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks the process to end, then ends what is left of the session it leads."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            if number == signal.SIGTERM:
                process.terminate()
            else:
                os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on, so that index 1 is the parent; [] for a process that is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()


def process_tree(root: int) -> list[int]:
    """The process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def cpu_seconds(pid: int) -> float:
    """User and system seconds of a process, with its children that have ended and were waited for; 0 when gone."""
    return sum(int(field) for field in _stat(pid)[11:15]) / _TICKS


def _cpu_s(root: int) -> float:
    return sum(cpu_seconds(pid) for pid in process_tree(root))


def _status_bytes(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":")), 0)


def main() -> int:
    parser = argparse.ArgumentParser(description="What a terminal program costs.")
    parser.add_argument("--size", default="200x50", help="columns x rows")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--settle", type=float, default=5.0, help="seconds left out of the steady figures")
    parser.add_argument("--until", default="", help="regular expression that marks the first paint")
    parser.add_argument("--colours", choices=sorted(_TERMINALS), default="truecolor")
    parser.add_argument("--save", help="file that gets everything the program writes")
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args()
    columns, rows = (int(part) for part in chosen.size.split("x"))
    output = Path(chosen.save).open("wb") if chosen.save else None  # noqa: SIM115
    try:
        measurement = measure(
            chosen.command,
            columns=columns,
            rows=rows,
            seconds=chosen.seconds,
            settle_s=chosen.settle,
            until=chosen.until,
            colours=chosen.colours,
            tee=output.write if output else None,
        )
    finally:
        if output:
            output.close()
    print(json.dumps(asdict(measurement)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
