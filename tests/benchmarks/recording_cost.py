"""What recording costs: bytes on disk and CPU per frame, for a made-up server with many busy backends.

    python -m tests.benchmarks.recording_cost [busy backends] [frames]
    python -m tests.benchmarks.recording_cost run.jsonl.gz

Every made-up busy backend changes its state, times, wait and counters in every frame. Those of a real server are less
regular and take more room: a recording of one is written anew. Garbage is looked for as often as the screen has it
(`cli/starting`): at Python's own pace that takes a tenth of the time, in any program that makes so many objects.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from pathlib import Path

from pgtop_tune.recording.format import FORMAT, Header
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.recording.writer import RecordingWriter
from tests.support.frames import frame

_GARBAGE = (5_000, 5, 5)


def main() -> None:
    gc.set_threshold(*_GARBAGE)
    if len(sys.argv) > 1 and not sys.argv[1].isdigit():
        frames = [one for _, one in RecordingReader(Path(sys.argv[1])).frames()]
    else:
        backends = int(sys.argv[1]) if len(sys.argv) > 1 else 150
        frames = [frame(second, backends=backends) for second in range(int(sys.argv[2]) if len(sys.argv) > 2 else 240)]
    count = len(frames)
    header = Header(FORMAT, "0", 0, "+00:00", 1.0, "benchmark")
    with tempfile.TemporaryDirectory() as directory:
        for name in ("plain.jsonl", "compressed.jsonl.gz", "compressed.jsonl.zst"):
            path = Path(directory, name)
            writer = RecordingWriter(path, header)
            begin = time.process_time()
            for one in frames:
                writer.write(one)
            writer.close()
            cpu_ms = (time.process_time() - begin) * 1000 / count
            print(f"{name:20} {path.stat().st_size / count:9.0f} bytes/frame  {cpu_ms:6.2f} ms CPU/frame")
        begin = time.process_time()
        read = sum(1 for _ in RecordingReader(Path(directory, "plain.jsonl")).frames())
        cpu_ms = (time.process_time() - begin) * 1000 / read
        print(f"{'reading':20} {cpu_ms:6.2f} ms CPU/frame")


if __name__ == "__main__":
    main()
