"""What the last hour in memory costs: CPU per frame, bytes held, and the time of a step back and of a jump.

    python -m tests.benchmarks.kept_hour run.jsonl.gz

The frames of the recording are handed over again and again, as long as an hour lasts.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from pgtop_tune.recording.history_buffer import HistoryBuffer
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.recording.replay import ReplaySource
from pgtop_tune.runtime.frame_window import KEEP_FRAMES
from pgtop_tune.runtime.ports import Step

_HOUR = 3600


async def moves(hour: HistoryBuffer) -> None:
    """Prints the CPU time until a moment is shown, and until everything that leads up to it is known."""
    last = [frame for _, frame in hour.frames(hour.frame_count - KEEP_FRAMES)]
    for name, by, steps_of in (
        ("first step back", -1, 2),
        ("step back by 20", -20, 2),
        ("jump by half an hour", -1800, 2),
    ):
        source = ReplaySource(hour, shown_frames=last)
        source.step(by)
        steps = source.steps()
        begin, spent_ms = time.process_time(), []
        for _ in range(steps_of):
            await anext(steps)
            spent_ms.append((time.process_time() - begin) * 1000)
        print(f"{name:22} {spent_ms[0]:7.1f} ms CPU until it is shown, {spent_ms[-1]:7.1f} ms with what leads up to it")


def main() -> None:
    """Fills an hour and prints."""
    reader = RecordingReader(Path(sys.argv[1]))
    frames = [frame for _, frame in reader.frames()]
    hour = HistoryBuffer()
    hour.accept(Step(tuple(frames[:4])))
    spent_s, most_s = 0.0, 0.0
    for second in range(4, _HOUR):
        frame = replace(frames[second % len(frames)], elapsed_s=float(second), sequence=second)
        begin = time.process_time()
        hour.accept(Step((frame,)))
        spent_s += (took_s := time.process_time() - begin)
        most_s = max(most_s, took_s)
    print(f"{'kept':22} {spent_s * 1000 / (_HOUR - 4):7.2f} ms CPU/frame, {most_s * 1000:.0f} ms at most")
    print(f"{'held':22} {hour.packed_bytes / 1e6:7.1f} MB, {hour.frame_count - hour.first} frames")
    asyncio.run(moves(hour))


if __name__ == "__main__":
    main()
