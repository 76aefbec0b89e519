"""Packed recordings are what the plain ones are."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.format import KEY_EVERY
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.recording.writer import RecordingWriter
from tests.support.frames import frame
from tests.support.recordings import HEADER, PACKED, read, unpacked, write

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def realistic(count: int) -> list[Frame]:
    return [frame(second) for second in range(count)]


@pytest.mark.parametrize("suffix", PACKED)
def test_a_packed_file_without_marks_reads(tmp_path: Path, suffix: str) -> None:
    # As it was written before, and as gzip and zstd pack a plain recording again.
    frames = realistic(KEY_EVERY + 3)
    plain = write(tmp_path / "a.jsonl", frames).read_bytes()
    packed = tmp_path / f"b.jsonl{suffix}"
    whole = gzip.compress(plain) if suffix == ".gz" else zstd.compress(plain)
    packed.write_bytes(whole)
    assert read(packed) == (frames, [])
    packed.write_bytes(whole[:-10])
    found, problems = read(packed)
    assert found == frames[: len(found)]
    assert "ends early" in problems[0]


@pytest.mark.parametrize("suffix", PACKED)
def test_a_packed_recording_unpacks_to_the_plain_one(tmp_path: Path, suffix: str) -> None:
    # Not to the byte: a process gets into the habit of one of several forms of a column.
    frames = realistic(KEY_EVERY * 2 + 5)
    plain = tmp_path / "a.jsonl"
    plain.write_bytes(unpacked(write(tmp_path / f"b.jsonl{suffix}", frames)))
    assert read(plain) == (frames, [])
    assert plain.read_bytes().startswith(write(tmp_path / "c.jsonl", []).read_bytes())


def test_without_its_library_zstandard_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.jsonl.zst", realistic(1))
    monkeypatch.setitem(sys.modules, zstd.__name__, None)
    monkeypatch.delattr(sys.modules[zstd.__name__.partition(".")[0]], "zstd")
    for attempt in (lambda: RecordingReader(path), lambda: RecordingWriter(tmp_path / "b.jsonl.zst", HEADER)):
        with pytest.raises(RecordingProblem, match=r"\.zst require the missing package") as refused:
            attempt()
        assert "pip install backports.zstd" in refused.value.hint
    assert not (tmp_path / "b.jsonl.zst").exists()


@pytest.mark.parametrize("wanted", [0, 1, KEY_EVERY - 1, KEY_EVERY, KEY_EVERY * 2 + 4])
def test_moments_and_frames_are_found_in_a_packed_file_as_in_a_plain_one(tmp_path: Path, wanted: int) -> None:
    frames = realistic(KEY_EVERY * 2 + 5)
    for name in ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst"):
        reader = RecordingReader(write(tmp_path / name, frames))
        assert reader.frame_count == len(frames)
        assert reader.elapsed_s(wanted) == frames[wanted].elapsed_s
        assert reader.index_at(frames[wanted].elapsed_s + 0.5) == wanted
        assert reader.index_at(-1.0) == 0
        reader.close()


@pytest.mark.parametrize("suffix", PACKED)
def test_damage_in_a_packed_file_costs_the_frames_up_to_the_next_key(tmp_path: Path, suffix: str) -> None:
    frames = realistic(KEY_EVERY * 3)
    path = write(tmp_path / f"a.jsonl{suffix}", frames)
    packed = bytearray(path.read_bytes())
    middle = len(packed) // 2
    packed[middle : middle + 40] = bytes(40)
    path.write_bytes(packed)
    found, problems = read(path)
    assert found[:KEY_EVERY] == frames[:KEY_EVERY]
    assert found[-KEY_EVERY].events[0].text == "frames are missing"
    assert replace(found[-KEY_EVERY], events=frames[-KEY_EVERY].events) == frames[-KEY_EVERY]
    assert found[1 - KEY_EVERY :] == frames[1 - KEY_EVERY :]
    assert len(found) < len(frames)
    assert len(problems) == 1
    assert "skipped up to the next key frame" in problems[0]
