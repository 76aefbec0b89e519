"""Where the key frames of a recording stand, in a file beside it: a large one is opened without being read through.

Never needed: where it is missing or does not fit, the recording is read through and the index made anew. It tells the
places up to the last key frame it knows; what was appended since is looked for from there.
"""

from __future__ import annotations

import contextlib
import json
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.base.paths import opened, replacing
from pgtop_tune.recording.format import parse_line
from pgtop_tune.recording.packing import MOST_MARKS

SUFFIX: Final = ".index"
FORMAT: Final = "pgtop-tune-index/1"
WORTH_BYTES: Final = 32 << 20
"""A recording that takes less reading is read through faster than anybody notices."""
_EDGE_BYTES: Final = 4096
_MOST_BYTES: Final = 64 << 20

Place = tuple[int, int, float]
"""Offset of a key frame (of its member, where packed), the number of the frame, and its moment in elapsed seconds."""


def index_path(recording: Path) -> Path:
    """Where the index of a recording is kept: run.jsonl.gz.index."""
    return recording.with_name(recording.name + SUFFIX)


def known_places(recording: Path, file: IO[bytes]) -> list[Place]:
    """Places of key frames from the first one on; empty where no index fits the file.

    Args:
        recording: Its path.
        file: The same, open.
    """
    try:
        with opened(index_path(recording)) as found:
            parsed = parse_line(found.read(_MOST_BYTES))
        places = _places(parsed)
        return places if places and parsed.get("edges") == _edges(file, places[-1][0]) else []
    except (OSError, RecordingProblem):
        return []


def keep_places(recording: Path, file: IO[bytes], places: Sequence[Place]) -> None:
    """Writes the index, for its user only; where that cannot be done, the recording is read through next time."""
    text = json.dumps({"format": FORMAT, "edges": _edges(file, places[-1][0]), "places": places})
    with contextlib.suppress(OSError), replacing(index_path(recording)) as made:
        made.write(f"{text}\n".encode())


def _places(parsed: Any) -> list[Place]:
    """The places of an index, none when it is no index: a file may be anybody's."""
    if type(parsed) is not dict or parsed.get("format") != FORMAT or type(parsed.get("places")) is not list:
        return []
    found: list[Place] = []
    offset = first = -1
    for place in parsed["places"][:MOST_MARKS]:
        if type(place) is not list or [type(part) for part in place] not in ([int, int, float], [int, int, int]):
            return []
        if place[0] <= offset or place[1] <= first or not math.isfinite(place[2]):
            return []
        offset, first = place[0], place[1]
        found.append((offset, first, float(place[2])))
    return found


def _edges(file: IO[bytes], end: int) -> list[int]:
    """Checksums of the first bytes, and of the last ones before the end: a recording only ever grows."""
    file.seek(0)
    begin = file.read(min(_EDGE_BYTES, end))
    file.seek(max(end - _EDGE_BYTES, 0))
    before = file.read(min(_EDGE_BYTES, end))
    return [end, zlib.crc32(begin), zlib.crc32(before), len(before)]
