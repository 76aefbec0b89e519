"""What the live screen holds in memory while it watches a busy server: all, anonymous and of files, as time goes on.

    python -m tests.benchmarks.resident --connections 300 --seconds 240
    python -m tests.benchmarks.resident --versions ../before .

Several versions are directories that hold the package; they watch the same server at the same time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from pgtop_tune.cluster.binaries import find_binaries
from pgtop_tune.cluster.throwaway import Throwaway
from tests.benchmarks.live_screen import busy
from tests.terminal.screen import Terminal, environment

_ROOT = Path(__file__).resolve().parents[2]
_SIZES = ("VmRSS", "RssAnon", "RssFile")


def sizes_mb(pid: int) -> tuple[float, ...]:
    """Of a process, 10^6 bytes. Source: /proc/PID/status."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return tuple(int(lines[name].split()[0]) * 1024 / 1e6 for name in _SIZES)


def _read_all(terminals: list[Terminal], until_s: float) -> None:
    """Takes what they write, so that none waits for us."""

    def read(terminal: Terminal) -> None:
        while (left_s := until_s - time.monotonic()) > 0 and terminal.read(left_s):
            terminal.raw = b""

    threads = [threading.Thread(target=read, args=(terminal,)) for terminal in terminals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="What the live screen holds in memory.")
    parser.add_argument("--connections", type=int, default=300)
    parser.add_argument("--rate", type=float, default=1000.0, help="transactions per second of all clients")
    parser.add_argument("--size", default="200x50", help="columns x rows")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two looks")
    parser.add_argument("--versions", type=Path, nargs="+", default=[_ROOT])
    chosen = parser.parse_args()
    columns, lines = (int(part) for part in chosen.size.split("x"))
    settings = {"max_connections": str(chosen.connections + 20), "shared_buffers": "256MB", "fsync": "off"}
    with tempfile.TemporaryDirectory() as home, Throwaway.create(find_binaries(), settings=settings) as cluster:
        target = f"host={cluster.socket_dir} port={cluster.port} user={cluster.user} dbname=postgres"
        command = (sys.executable, "-m", "pgtop_tune", "top", target)
        with busy(cluster, chosen.connections, chosen.rate), ExitStack() as stack:
            terminals = []
            for version in chosen.versions:
                surroundings = {**environment(Path(home)), "PYTHONPATH": str(version.resolve()), "PYTHONSAFEPATH": "1"}
                terminals.append(stack.enter_context(Terminal(command, surroundings, columns, lines)))
            began_s = time.monotonic()
            while (now_s := time.monotonic() - began_s) < chosen.seconds:
                _read_all(terminals, time.monotonic() + min(chosen.every, chosen.seconds - now_s))
                for version, terminal in zip(chosen.versions, terminals, strict=True):
                    cells = "  ".join(
                        f"{name} {size:6.1f}" for name, size in zip(_SIZES, sizes_mb(terminal.pid), strict=True)
                    )
                    print(f"{time.monotonic() - began_s:5.0f} s  {cells} MB  {version}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
