"""A day's recording: how long it takes to open it and to jump in it, and what memory that needs.

    python -m tests.benchmarks.long_recording [--hours 24] [--backends 150] [--plain]

writes a recording of one frame a second, made of one minute over and over with its moments moved on, and reads it in
processes of their own. Figures of a shared machine are to be read, not asserted.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
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
from pgtop_tune.recording.reader import RecordingReader
from tests.support.frames import frame

_ELAPSED = re.compile(r'"elapsed_s":[\d.]+')
_JUMPS = 20


def write(path: Path, hours: float, backends: int) -> int:
    """The recording; gives the number of its frames."""
    codec = codec_for(Frame)
    frames = [frame(second, backends=backends) for second in range(KEY_EVERY)]
    deltas = [codec.delta(before, after) for before, after in pairwise(frames)]
    lines = [json.dumps(each, separators=(",", ":")) for each in ({"key": codec.full(frames[0])},)]
    lines += [json.dumps({"delta": each}, separators=(",", ":")) for each in deltas]
    minutes = int(hours * 3600 / KEY_EVERY)
    packed = path.suffix == ".gz"
    with path.open("wb") as file:
        first = f"{header_line(Header(FORMAT, '0', 0, '+00:00', 1.0, 'benchmark'))}\n".encode()
        member = PACKINGS[0].member(b"")
        file.write(member.add(first) + member.end() if packed else first)
        for minute in range(minutes):
            begin = minute * KEY_EVERY
            member = PACKINGS[0].member(mark(begin, float(begin)))
            for second, line in enumerate(lines):
                data = (_ELAPSED.sub(f'"elapsed_s":{begin + second}.0', line, count=1) + "\n").encode()
                file.write(member.add(data) if packed else data)
            file.write(member.end() if packed else b"")
    return minutes * KEY_EVERY


def look(path: Path) -> dict[str, float]:
    """Opens and jumps; seconds, and the largest resident size of this process in MB."""
    empty_mb = _peak_mb()
    began = time.perf_counter()
    reader = RecordingReader(path)
    length_s = reader.length_s
    opened = time.perf_counter()
    spans, worked = [], []
    for jump in range(_JUMPS):
        started, begun = time.perf_counter(), time.process_time()
        next(reader.frames(reader.index_at(length_s * (jump * 7 % _JUMPS + 0.5) / _JUMPS)))
        spans.append(time.perf_counter() - started)
        worked.append(time.process_time() - begun)
    reader.close()
    return {
        "frames": reader.frame_count,
        "open_s": round(opened - began, 3),
        "jump_median_s": round(sorted(spans)[_JUMPS // 2], 4),
        "jump_worst_s": round(max(spans), 4),
        "jump_cpu_median_s": round(sorted(worked)[_JUMPS // 2], 4),
        "memory_mb": round(_peak_mb(), 1),
        "memory_before_mb": round(empty_mb, 1),
    }


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main() -> int:
    """Writes and looks."""
    parser = argparse.ArgumentParser(description="Opening and jumping in a long recording.")
    parser.add_argument("--hours", type=float, nargs="+", default=[1.0, 24.0])
    parser.add_argument("--backends", type=int, default=150, help="busy ones; as many idle ones come with them")
    parser.add_argument("--plain", action="store_true", help="not gzipped")
    parser.add_argument("--look", type=Path, help="an existing recording instead")
    chosen = parser.parse_args()
    if chosen.look:
        print(json.dumps(look(chosen.look)))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        for hours in chosen.hours:
            path = Path(directory, "long.jsonl" if chosen.plain else "long.jsonl.gz")
            write(path, hours, chosen.backends)
            size = path.stat().st_size / 1e6
            command = [sys.executable, "-m", "tests.benchmarks.long_recording", "--look", str(path)]
            ran = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"{hours:5.1f} h {size:8.1f} MB {ran.stdout.strip()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
