"""Which sections of a real recording weigh: bytes it would be shorter without each, and CPU to compare it.

    python -m tests.benchmarks.recording_sections run.jsonl.gz

writes the frames anew, in memory, as the recorder does.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.codec import codec_for
from pgtop_tune.recording.compression import PACKINGS, mark
from pgtop_tune.recording.format import DELTA, KEY, KEY_EVERY
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.recording.values import SAME

_PARTS = ("postgres", "host")


def packed_bytes(lines: list[dict[str, Any]]) -> int:
    """Of the lines as a gzipped recording has them."""
    member, total = PACKINGS[0].member(b""), 0
    for line in lines:
        if KEY in line:
            total += len(member.end())
            member = PACKINGS[0].member(mark(0, 0.0))
        total += len(member.add(json.dumps(line, separators=(",", ":")).encode() + b"\n"))
    return total


def without(line: dict[str, Any], part: str, section: str) -> dict[str, Any]:
    """The line without one section."""
    ((kind, body),) = line.items()
    if not isinstance(body.get(part), dict):
        return line
    return {kind: {**body, part: {name: value for name, value in body[part].items() if name != section}}}


def compared_ms(frames: list[Frame], part: str, section: str) -> float:
    """CPU milliseconds per frame to compare one section."""
    begin = time.process_time()
    for older, newer in pairwise(frames):
        before, after = (getattr(getattr(frame, part), section, None) for frame in (older, newer))
        if after is not before and type(after) is type(before):
            codec_for(type(after)).delta(before, after)
    return 1000 * (time.process_time() - begin) / len(frames)


def main() -> None:
    """Reads, writes anew, prints."""
    reader = RecordingReader(Path(sys.argv[1]))
    frames = [frame for _, frame in reader.frames()]
    reader.close()
    codec = codec_for(Frame)
    begin = time.process_time()
    lines: list[dict[str, Any]] = []
    for index, frame in enumerate(frames):
        if index % KEY_EVERY == 0:
            lines.append({KEY: codec.full(frame)})
        else:
            difference = codec.delta(frames[index - 1], frame)
            lines.append({DELTA: {} if difference is SAME else difference})
    compared = time.process_time()
    whole = packed_bytes(lines)
    packed = time.process_time()
    count = len(frames)
    print(
        f"{count} frames: {whole / count:.0f} bytes/frame, compared in {1000 * (compared - begin) / count:.2f} ms, "
        f"written in {1000 * (packed - compared) / count:.2f} ms CPU"
    )
    rows = []
    for part in _PARTS:
        for field in getattr(frames[-1], part).__struct_fields__:
            less = whole - packed_bytes([without(line, part, field) for line in lines])
            rows.append((less / count, compared_ms(frames, part, field), f"{part}.{field}"))
    for weight, spent_ms, name in sorted(rows, reverse=True):
        if weight >= 1:
            print(f"{name:34} {weight:8.0f} bytes {spent_ms:7.3f} ms")


if __name__ == "__main__":
    main()
