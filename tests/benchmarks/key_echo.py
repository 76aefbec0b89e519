"""From a key to its echo: how long until the screen shows what a key asks for, with a server and without its answer.

    python tests/benchmarks/key_echo.py --connections 50 --times 20

presses `?` twice on the real program and waits for the help to come and go, first on a busy server, then while
every process of the server is stopped. What the emulator itself takes is left out. Figures of a shared machine are to
be read, not asserted.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pgtop_tune.cluster.binaries import find_binaries
from pgtop_tune.cluster.throwaway import Throwaway

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.live_screen import busy
from tests.benchmarks.pty_meter import process_tree
from tests.terminal.screen import Terminal, environment

_SHOWN = "Tab next part"
_PAUSE_S = 0.35
"""Between two keys, so that they meet the screen at different moments of its second."""


def echoes_ms(terminal: Terminal, times: int) -> list[float]:
    """Milliseconds from each key to the screen that shows it."""
    found = []
    for _ in range(times):
        for key, shown in (("?", True), ("?", False)):
            deadline = time.monotonic() + _PAUSE_S
            while (left_s := deadline - time.monotonic()) > 0:
                terminal.read(left_s)
            pressed = time.monotonic()
            terminal.press(key)
            while (_SHOWN in terminal.text()) is not shown:
                terminal.read(0.05)
                if time.monotonic() - pressed > 30:
                    raise SystemExit(f"nothing after {key!r}:\n{terminal.text()}")
            found.append(1000 * (terminal.arrived_s - pressed))
    return found


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="From a key to its echo.")
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--rate", type=float, default=500.0, help="transactions per second of all clients")
    parser.add_argument("--times", type=int, default=20)
    chosen = parser.parse_args()
    settings = {"max_connections": str(chosen.connections + 20), "fsync": "off"}
    with tempfile.TemporaryDirectory() as home, Throwaway.create(find_binaries(), settings=settings) as cluster:
        postmaster = int((Path(str(cluster.data_dir)) / "postmaster.pid").read_text().split()[0])
        target = f"host={cluster.socket_dir} port={cluster.port} user={cluster.user} dbname=postgres"
        command = (sys.executable, "-m", "pgtop_tune", "top", target)
        with (
            busy(cluster, chosen.connections, chosen.rate),
            Terminal(command, environment(Path(home)), 200, 50) as terminal,
        ):
            terminal.until("PostgreSQL")
            _print("server answers", echoes_ms(terminal, chosen.times))
            stopped = process_tree(postmaster)
            try:
                for pid in stopped:
                    os.kill(pid, signal.SIGSTOP)
                terminal.until("no answer for")
                _print("server does not answer", echoes_ms(terminal, chosen.times))
            finally:
                for pid in reversed(stopped):
                    os.kill(pid, signal.SIGCONT)
    return 0


def _print(name: str, found: list[float]) -> None:
    ordered = sorted(found)
    print(
        f"{name:24} median {statistics.median(ordered):6.1f} ms  p90 {ordered[len(ordered) * 9 // 10]:6.1f} ms  "
        f"worst {ordered[-1]:6.1f} ms  of {len(ordered)} keys",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
