"""What is written is read back exactly, whole or cut anywhere."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import TPS
from pgtop_tune.model.bench import LatencySecond
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.codec import codec_for
from pgtop_tune.recording.format import KEY_EVERY
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.recording.values import List
from pgtop_tune.recording.writer import RecordingWriter
from tests.recording.strategies import FRAMES
from tests.support.frames import frame
from tests.support.recordings import HEADER, PACKED, read, unpacked, write


def realistic(count: int) -> list[Frame]:
    return [frame(second) for second in range(count)]


@settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
@given(frames=st.lists(FRAMES, min_size=1, max_size=4))
def test_any_frames_survive_write_and_read_exactly(
    frames: list[Frame], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = write(tmp_path_factory.mktemp("r") / "a.jsonl", frames)
    assert read(path) == (frames, [])


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_key_frames_and_deltas_give_the_frames_back(tmp_path: Path, name: str) -> None:
    frames = realistic(KEY_EVERY * 2 + 5)
    path = write(tmp_path / name, frames)
    assert read(path) == (frames, [])
    reader = RecordingReader(path)
    for first in (0, 1, KEY_EVERY - 1, KEY_EVERY, KEY_EVERY + 1, len(frames) - 1):
        assert next(reader.frames(first)) == (first, frames[first])
    assert reader.length_s == frames[-1].elapsed_s
    reader.close()


def test_first_line_names_the_format_and_every_line_is_json(tmp_path: Path) -> None:
    lines = write(tmp_path / "a.jsonl", realistic(5)).read_text().splitlines()
    parsed = [json.loads(line) for line in lines]
    assert parsed[0]["format"] == "pgtop-tune/1.1"
    assert [sorted(line) for line in parsed[1:]] == [["after", "crc", "key"]] + [["crc", "delta"]] * 4


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", realistic(1))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", realistic(1))
    before = path.read_bytes()
    with pytest.raises(RecordingProblem, match="exists already"):
        RecordingWriter(path, HEADER)
    assert path.read_bytes() == before


def test_any_prefix_of_a_recording_reads(tmp_path: Path) -> None:
    frames = realistic(4)
    whole = write(tmp_path / "whole.jsonl", frames).read_bytes()
    first_line = whole.index(b"\n") + 1
    cut = tmp_path / "cut.jsonl"
    for length in range(first_line, len(whole), 997):
        cut.write_bytes(whole[:length])
        found, problems = read(cut)
        assert found == frames[: len(found)]
        torn = not whole[:length].endswith(b"\n")
        assert problems == (["the last line is torn and was skipped"] if torn else [])


@pytest.mark.parametrize("suffix", PACKED)
def test_a_torn_file_reads_up_to_the_tear(tmp_path: Path, suffix: str) -> None:
    frames = realistic(30)
    whole = write(tmp_path / f"whole.jsonl{suffix}", frames).read_bytes()
    cut = tmp_path / f"cut.jsonl{suffix}"
    cut.write_bytes(whole[: len(whole) * 2 // 3])
    found, problems = read(cut)
    assert 5 < len(found) < 30
    assert found == frames[: len(found)]
    assert problems


@pytest.mark.parametrize("suffix", PACKED)
def test_a_packed_recording_is_readable_while_it_is_written(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    writer = RecordingWriter(path, HEADER)
    frames = realistic(3)
    for one in frames:
        writer.write(one)
    assert read(path)[0] == frames
    writer.close()
    assert unpacked(path).count(b"\n") == 4


def test_a_damaged_line_costs_the_frames_up_to_the_next_key(tmp_path: Path) -> None:
    frames = realistic(KEY_EVERY + 3)
    path = write(tmp_path / "a.jsonl", frames)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[11] = lines[11][: len(lines[11]) // 2] + b"\n"
    path.write_bytes(b"".join(lines))
    found, problems = read(path)
    event = Event(frames[KEY_EVERY].taken_at_ms, EventKind.RECORDING, "frames are missing", found[10].events[0].detail)
    after = replace(frames[KEY_EVERY], events=(event, *frames[KEY_EVERY].events))
    assert found == [*frames[:10], after, *frames[KEY_EVERY + 1 :]]
    assert len(problems) == 1
    assert problems[0].startswith("line 12: ")
    assert next(RecordingReader(path).frames(KEY_EVERY))[1] == after, "also where nobody read what is damaged"


def _without_a_line(content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    del lines[KEY_EVERY + 10]
    return b"".join(lines)


def _unsealed_and_torn(content: bytes) -> bytes:
    lines = re.sub(rb'(,"after":\d+)?,"crc":\d+', b"", content).splitlines(keepends=True)
    lines[KEY_EVERY + 10] = b"{\n"
    return b"".join(lines)


def _flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ("suffix", "damage"), [("", _without_a_line), ("", _unsealed_and_torn), (".gz", _flipped), (".zst", _flipped)]
)
def test_no_rate_spans_frames_that_cannot_be_read(
    tmp_path: Path, suffix: str, damage: Callable[[bytes], bytes]
) -> None:
    frames = realistic(3 * KEY_EVERY)
    path = write(tmp_path / f"a.jsonl{suffix}", frames)
    path.write_bytes(damage(path.read_bytes()))
    found, problems = read(path)
    assert problems
    key = next(at for at, one in enumerate(found) if one.sequence == 2 * KEY_EVERY)
    assert found[key - 1].sequence < 2 * KEY_EVERY - 1
    assert TPS(Interval(found[: key + 1])) is None
    assert TPS(Interval(found[: key + 2])) == TPS(Interval(frames[: 2 * KEY_EVERY + 2])) is not None
    told = [one.sequence for one in found for event in one.events if event.text == "frames are missing"]
    assert told == [2 * KEY_EVERY]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a recording"),
        (b"\x00\x01\x02" * 50, "not a recording"),
        (b'{"hello": 1}\n', "not a recording"),
        (b'{"format": "pgtop-tune/2"}\n', "reads up to pgtop-tune/1"),
        (b'{"format": "pgtop-tune/x"}\n', "unknown format"),
        (b"[" * 100_000 + b"\n", "not a recording"),
    ],
)
def test_other_files_are_refused_in_one_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(RecordingProblem, match=words):
        RecordingReader(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingProblem, match=r"cannot read .*nothing\.jsonl"):
        RecordingReader(tmp_path / "nothing.jsonl")


@pytest.mark.parametrize(
    "line",
    [
        b'{"key": {"sequence": 1}}',
        b'{"key": {"sequence": "one", "taken_at_ms": 1, "elapsed_s": 0.0}}',
        b'{"key": {"sequence": 1, "taken_at_ms": 1, "elapsed_s": NaN}}',
        b'{"key": {"sequence": 1, "taken_at_ms": 1, "elapsed_s": 1.0, "events": {"a": 1}}}',
        b'{"key": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"key": {"sequence": ' + b"9" * 10_000 + b"}}",
        b'{"delta": {}}',
        b'{"other": {}}',
        b"42",
    ],
)
def test_hostile_lines_are_skipped_and_named(tmp_path: Path, line: bytes) -> None:
    path = write(tmp_path / "a.jsonl", [])
    path.write_bytes(path.read_bytes() + line + b"\n")
    found, problems = read(path)
    assert found == []
    assert len(problems) == 1
    assert problems[0].startswith("line 2: ")


@pytest.mark.parametrize("words", ["1e999", "1" * 340, "1e300", "-1e300", "900000000000000"])
def test_a_moment_that_no_clock_shows_is_not_how_long_a_recording_lasts(tmp_path: Path, words: str) -> None:
    path = write(tmp_path / "a.jsonl", realistic(3))
    *before, last = path.read_text().splitlines()
    path.write_text("\n".join([*before, re.sub(r'"elapsed_s":[\d.]+', f'"elapsed_s":{words}', last, count=1), ""]))
    reader = RecordingReader(path)
    assert reader.length_s == [frame for _, frame in reader.frames()][-1].elapsed_s
    assert len(reader.problems) == 1
    assert reader.problems[0].startswith("line 4: ")


@pytest.mark.parametrize("gone", [[[1]], [{}], [7], [None]])
def test_rows_that_left_are_named_by_text(tmp_path: Path, gone: object) -> None:
    frames = realistic(1)
    path = write(tmp_path / "a.jsonl", frames)
    line = {"delta": {"host": {"processes": {"processes": {"gone": gone}}}}}
    path.write_text(path.read_text() + json.dumps(line) + "\n")
    found, problems = read(path)
    assert found == frames
    assert len(problems) == 1
    assert problems[0].startswith("line 3: ")


_SECOND = {"second": 9, "logged": 2, "sum_us": 30, "max_us": 20, "buckets": [[1, 1], [2, 1]]}
_WHOLE_SECOND = {**_SECOND, "failed": 1, "skipped": 0, "lag_sum_us": None, "lag_max_us": 4, "scripts": []}


@pytest.mark.parametrize(
    "other",
    [
        _WHOLE_SECOND,
        _SECOND,
        {**_WHOLE_SECOND, "buckets": []},
        {**_WHOLE_SECOND, "newer": 1},
        {**_WHOLE_SECOND, "second": 9.0},
        {**_WHOLE_SECOND, "second": True},
        {**_WHOLE_SECOND, "lag_max_us": "4"},
        {**_WHOLE_SECOND, "buckets": [[1, 1], [2]]},
        {**_WHOLE_SECOND, "buckets": [[1, 1], [2, "1"]]},
        {**_WHOLE_SECOND, "buckets": None},
        {"second": 9},
        [],
        None,
    ],
)
def test_many_objects_at_once_read_as_each_by_itself(other: object) -> None:
    codec = codec_for(LatencySecond)
    rows = [_WHOLE_SECOND] * 5 + [other, _WHOLE_SECOND]
    try:
        each = tuple(codec.read(row) for row in rows)
    except RecordingProblem:
        with pytest.raises(RecordingProblem):
            List(codec).read(rows)
    else:
        assert List(codec).read(rows) == each


def test_fields_of_a_newer_version_are_ignored_and_missing_sections_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [])
    line = {"key": {"sequence": 7, "taken_at_ms": 5, "elapsed_s": 2.5, "weather": {"wind": 3}}}
    path.write_text(path.read_text() + json.dumps(line) + "\n")
    found, problems = read(path)
    assert problems == []
    assert found == [Frame(7, 5, 2.5)]
    assert str(found[0].host) == "not recorded"


def test_recordings_of_whole_rows_and_arrays_of_differences_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How tables were written before columns were packed.
    frames = realistic(3)
    monkeypatch.setattr("pgtop_tune.recording.codec.MANY", 1_000_000)
    path = write(tmp_path / "a.jsonl", frames)
    processes = frames[-1].host.processes.processes  # type: ignore[union-attr]
    columns = {"user_ticks": [7] * len(processes)}
    line = {"delta": {"host": {"processes": {"processes": {"columns": columns}}}}}
    path.write_text(path.read_text() + json.dumps(line) + "\n")
    found, problems = read(path)
    assert problems == []
    assert found[:3] == frames
    later = found[3].host.processes.processes  # type: ignore[union-attr]
    assert [row.user_ticks for row in later] == [row.user_ticks + 7 for row in processes]


@pytest.mark.parametrize(
    "packed",
    [
        [[1, 1], {"user_ticks": [1]}],
        [[1], {"user_ticks": [1, 2]}],
        [[9_000], {"user_ticks": [1]}],
        [[0], {"user_ticks": [1]}],
        [[1], {"user_ticks": {"by": 2, "more": ["x"]}}],
        [[1], {"user_ticks": {"from": None, "by": 1, "less": [1]}}],
        [[1], {"user_ticks": {"beside": "no such", "by": 1, "less": [1]}}],
        [[1], {"state": {"words": ["R"], "at": [2]}}],
        [[1], {"state": {"words": ["R"]}}],
        [[1], {"state": {"also": ["R"], "at": [3]}}],
        [[1], {"state": {"also": ["R"], "at": [0]}}],
        [[1], {"state": {"also": 1, "at": [1]}}],
        [[1], {"user_ticks": {"values": [None]}}],
        [[1]],
        "what",
        ["1", {"user_ticks": {"more": "!"}}],
        ["1", {"user_ticks": {"more": "1,22"}}],
        ["1", {"user_ticks": {"more": "1,="}}],
        ["1", {"user_ticks": {"more": "="}}],
        ["1", {"user_ticks": {"more": "1,1,1,1,1"}}],
        ["1", {"user_ticks": {"more": {"rows": "1"}}}],
        ["1", {"user_ticks": {"more": {"least": "x", "rows": "1"}}}],
        ["1", {"user_ticks": {"more": {"numbers": [1], "rows": "1"}}}],
        ["1", {"user_ticks": {"more": {"numbers": [1], "rows": 1}}}],
    ],
)
def test_hostile_columns_are_skipped_and_named(tmp_path: Path, packed: object) -> None:
    frames = realistic(1)
    path = write(tmp_path / "a.jsonl", frames)
    line = {"delta": {"host": {"processes": {"processes": {"packed": packed}}}}}
    path.write_text(path.read_text() + json.dumps(line) + "\n")
    found, problems = read(path)
    assert found == frames
    assert len(problems) == 1
    assert problems[0].startswith("line 3: ")
