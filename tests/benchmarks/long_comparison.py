"""Two recordings of a day: how long it takes to compare them, and what memory that needs.

    python -m tests.benchmarks.long_comparison [--hours 24] [--backends 150]

makes two recordings of one frame a second and runs `pgtop-tune compare` on them in a process of its own. Key frames are
those of their moment, the lines between are the differences of the first minute with their moments moved on. Figures of
a shared machine are to be read, not asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.codec import codec_for
from pgtop_tune.recording.compression import PACKINGS, mark
from pgtop_tune.recording.format import FORMAT, KEY_EVERY, Header, header_line
from tests.support.frames import frame

_MOMENTS = re.compile(r'"(at_s|elapsed_s|second)":(\d+)')


def write(path: Path, hours: float, backends: int) -> int:
    """The recording; gives the number of its frames."""
    codec = codec_for(Frame)
    frames = [frame(second, backends=backends) for second in range(KEY_EVERY)]
    lines = [
        json.dumps({"delta": codec.delta(before, after)}, separators=(",", ":")) for before, after in pairwise(frames)
    ]
    minutes = int(hours * 3600 / KEY_EVERY)
    with path.open("wb") as file:
        member = PACKINGS[0].member(b"")
        file.write(member.add(f"{header_line(Header(FORMAT, '0', 0, '+00:00', 1.0, 'benchmark'))}\n".encode()))
        file.write(member.end())
        for minute in range(minutes):
            begin = minute * KEY_EVERY
            member = PACKINGS[0].member(mark(begin, float(begin)))
            key = json.dumps({"key": codec.full(frame(begin, backends=backends))}, separators=(",", ":"))
            file.write(member.add(key.encode() + b"\n"))
            for line in lines:
                file.write(member.add(_moved(line, begin).encode() + b"\n"))
            file.write(member.end())
    return minutes * KEY_EVERY


def _moved(line: str, by_s: int) -> str:
    return _MOMENTS.sub(lambda found: f'"{found[1]}":{int(found[2]) + by_s}', line)


def main() -> int:
    """Writes and compares."""
    parser = argparse.ArgumentParser(description="Comparing two long recordings.")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--backends", type=int, default=150, help="busy ones; as many idle ones come with them")
    parser.add_argument("--keep", type=Path, help="a directory with recordings of an earlier run, or for those of this")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = chosen.keep or Path(directory)
        paths = [place / f"{name}.jsonl.gz" for name in ("a", "b")]
        for path in paths:
            if not path.exists():
                write(path, chosen.hours, chosen.backends)
        command = [sys.executable, "-m", "pgtop_tune", "compare", *map(str, paths)]
        began, cpu = time.perf_counter(), os.times()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        taken_s, after = time.perf_counter() - began, os.times()
        cpu_s = after.children_user + after.children_system - cpu.children_user - cpu.children_system
        print(f"{chosen.hours:g} h with {chosen.backends} busy backends: {taken_s:.1f} s, {cpu_s:.1f} s of CPU")
        print(f"{paths[0].stat().st_size / 1e6:.0f} MB each; load average {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
