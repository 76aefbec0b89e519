"""What an export costs per frame, and a page for Prometheus.

    python -m tests.benchmarks.export_cost [--minutes 15] [--backends 50]

exports a made-up recording of one frame a second in each format, in processes of their own, and makes pages of its
last frames. The wall clock of that recording starts over each minute, so OpenMetrics leaves most points out. Figures
of a shared machine are to be read, not asserted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pgtop_tune.export.catalogue import for_openmetrics
from pgtop_tune.export.exported import WatchedInterval
from pgtop_tune.export.openmetrics import Syntax, page
from tests.benchmarks.long_recording import write
from tests.support.frames import frame

WAYS = (
    ("a.csv",),
    ("a.csv.gz",),
    ("a.csv", "--wide"),
    ("a.csv", "--metrics", "server.*,client.*"),
    ("a.parquet",),
    ("a.om", "--every", "15s"),
)
_PAGES = 20


def main() -> None:
    """Prints a line per way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--backends", type=int, default=50)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        recording = Path(scratch) / "long.jsonl.gz"
        frames = write(recording, words.minutes / 60, words.backends)
        print(f"{frames} frames, {words.backends} busy sessions")
        for name, *options in WAYS:
            print(_export(recording, frames, Path(scratch) / name, options), flush=True)
    seen = [frame(second, backends=words.backends) for second in range(150)]
    began_s = time.process_time()
    for _ in range(_PAGES):
        text = page(for_openmetrics(), WatchedInterval(seen), Syntax.OPENMETRICS)
    took_ms = 1000 * (time.process_time() - began_s) / _PAGES
    lines = text.count("\n")
    print(f"a page of {lines} lines, {len(text) / 1000:.0f} kB: {took_ms:.1f} ms of CPU")


def _export(recording: Path, frames: int, output: Path, options: list[str]) -> str:
    command = [sys.executable, "-m", "pgtop_tune", "export", str(recording), "--force", "-o", str(output), *options]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    _, status, used = os.wait4(started.pid, 0)
    assert started.stderr is not None
    said = started.stderr.read().partition(" in ")[0].strip()
    cpu_s = used.ru_utime + used.ru_stime
    name = " ".join((output.name, *options))
    size_kb = output.stat().st_size / 1000
    each = f"{1000 * cpu_s / frames:.2f} ms of CPU a frame"
    return f"{name:40} {each}, {used.ru_maxrss / 1024:.0f} MB, {said}, {size_kb:,.0f} kB, status {status}"


if __name__ == "__main__":
    main()
