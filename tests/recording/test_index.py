"""The index beside a recording: opens it without reading it through, and is believed only where it fits."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgtop_tune.recording import blocks
from pgtop_tune.recording.blocks import index_path, keep_places, keeps_index
from pgtop_tune.recording.format import KEY_EVERY
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.recording.writer import RecordingWriter
from tests.support.frames import frame
from tests.support.recordings import HEADER

FRAMES = 3 * KEY_EVERY + 7
NAMES = ("run.jsonl", "run.jsonl.gz", "run.jsonl.zst")


@pytest.fixture(autouse=True)
def small_ones_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "WORTH_BYTES", 1)


def write(path: Path, frames: int = FRAMES, first: int = 0) -> RecordingWriter:
    writer = RecordingWriter(path, HEADER)
    for second in range(first, first + frames):
        writer.write(frame(second, backends=2))
    return writer


def sequences(path: Path) -> list[int]:
    reader = RecordingReader(path)
    try:
        found = [one.sequence for _, one in reader.frames()]
        assert reader.frame_count == len(found)
        assert [reader.index_at(second) for second in (0.0, 61.0, 190.0)] == [0, 61, min(190, len(found) - 1)]
        return found
    finally:
        reader.close()


def searched_from(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Where opening a recording begins to look for key frames."""
    begins: list[int] = []
    plain, packed = blocks._keys_and_lines, blocks.find_marks

    def keys(file: Any, begin: int) -> Iterator[tuple[int | None, int]]:
        begins.append(begin)
        return plain(file, begin)

    def marks(file: Any, packing: Any, begin: int = 0) -> Iterator[tuple[int, int, float]]:
        begins.append(begin)
        return packed(file, packing, begin)

    with monkeypatch.context() as patched:
        patched.setattr(blocks, "_keys_and_lines", keys)
        patched.setattr(blocks, "find_marks", marks)
        RecordingReader(path).close()
    return begins[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_read_through_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    write(path).close()
    assert sequences(path) == list(range(FRAMES))
    assert stat.S_IMODE(index_path(path).stat().st_mode) == 0o600
    last_key = json.loads(index_path(path).read_text())["places"][-1]
    assert last_key[1:] == [3 * KEY_EVERY, pytest.approx(3 * KEY_EVERY)]
    assert searched_from(path, monkeypatch) == last_key[0] > path.stat().st_size / 2
    assert sequences(path) == list(range(FRAMES))
    assert {each.name for each in tmp_path.iterdir()} == {name, name + ".index"}


@pytest.mark.parametrize("name", NAMES)
def test_what_was_appended_since_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    writer = write(path)
    sequences(path)
    begun_at = searched_from(path, monkeypatch)
    for second in range(FRAMES, 2 * FRAMES):
        writer.write(frame(second, backends=2))
    writer.close()
    assert sequences(path) == list(range(2 * FRAMES))
    assert searched_from(path, monkeypatch) > begun_at


@pytest.mark.parametrize("name", NAMES)
def test_the_index_of_another_file_is_not_believed(name: str, tmp_path: Path) -> None:
    path, other = tmp_path / name, tmp_path / f"other-{name}"
    write(path).close()
    write(other, frames=2 * FRAMES).close()
    sequences(path)
    sequences(other)
    index_path(other).replace(index_path(path))
    assert sequences(path) == list(range(FRAMES))


def test_a_recording_that_was_cut_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path).close()
    sequences(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:101]))
    assert sequences(path) == list(range(100))


@given(
    text=st.one_of(
        st.binary(max_size=60),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(st.sampled_from(("format", "edges", "places")), inner, max_size=3)
            ),
            max_leaves=12,
        ).map(lambda value: json.dumps(value).encode()),
    )
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_file_of_that_name_that_is_no_index_does_no_harm(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    if not path.exists():
        write(path, frames=KEY_EVERY + 2).close()
    index_path(path).write_bytes(text)
    reader = RecordingReader(path)
    assert (reader.frame_count, reader.problems) == (KEY_EVERY + 2, [])
    reader.close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shift", [(5, 0), (0, 7), (-3, -1)])
def test_an_index_that_lies_costs_frames_and_says_so_but_breaks_nothing(
    name: str, shift: tuple[int, int], tmp_path: Path
) -> None:
    path = tmp_path / name
    write(path).close()
    sequences(path)
    places = json.loads(index_path(path).read_text())["places"]
    lies = [(at + shift[0], first + shift[1], moment) for at, first, moment in places[1:]]
    with path.open("rb") as file:
        keep_places(path, file, [tuple(places[0]), *lies])
    reader = RecordingReader(path)
    found = [one.sequence for _, one in reader.frames()]
    assert len(found) <= FRAMES
    assert set(found) <= set(range(FRAMES))
    reader.close()


def test_an_index_without_checksums_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path, frames=3).close()
    index_path(path).write_text(json.dumps({"format": "pgtop-tune-index/1", "places": [[1, 0, 0.0]]}))
    reader = RecordingReader(path)
    assert (reader.frame_count, reader.problems) == (3, [])
    reader.close()


def test_where_no_index_can_be_written_the_recording_opens_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "run.jsonl"
    write(path).close()
    monkeypatch.setattr("pgtop_tune.recording.blocks.replacing", refuses)
    assert sequences(path) == list(range(FRAMES))
    assert not index_path(path).exists()


def test_a_program_that_writes_nothing_writes_no_index(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path).close()
    token = keeps_index.set(False)
    RecordingReader(path).close()
    keeps_index.reset(token)
    assert not index_path(path).exists()
    RecordingReader(path).close()
    assert index_path(path).exists()
