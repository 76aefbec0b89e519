"""Recordings that earlier versions wrote read today as what was recorded then."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from pgtop_tune.recording.reader import RecordingReader

GOLDENS = Path(__file__).parent / "goldens"
"""Per version of the lines: a recording as it was written, and some of its frames as plain values."""


def same(seen: Any, recorded: Any) -> bool:
    """Whether every value of then is there; fields that came later are not looked at."""
    if isinstance(recorded, dict):
        return all(same(seen[name], value) for name, value in recorded.items())
    if isinstance(recorded, list):
        return len(seen) == len(recorded) and all(map(same, seen, recorded))
    return bool(seen == recorded)


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("*.jsonl*")), ids=lambda path: path.name)
def test_a_recording_of_an_earlier_version_reads(path: Path) -> None:
    expected = json.loads(gzip.decompress((GOLDENS / f"{path.name.partition('.')[0]}.frames.json.gz").read_bytes()))
    reader = RecordingReader(path)
    frames = dict(reader.frames())
    reader.close()
    assert reader.problems == []
    assert len(frames) == reader.frame_count == expected["count"]
    for index, values in expected["frames"].items():
        assert same(to_builtins(frames[int(index)]), values), index
