"""A frame with those before it, read as far as somebody asks."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtop_tune.cli.commands.recordings import ExportRequest
from pgtop_tune.cli.commands.recordings.export import export_recording
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.minutes import PastReader
from pgtop_tune.recording.reader import RecordingReader
from tests.support.frames import frame
from tests.support.recordings import write

LONGEST = 150


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty minutes, a frame a second."""
    return write(tmp_path_factory.mktemp("past") / "run.jsonl.gz", (frame(each, backends=2) for each in range(1200)))


def test_every_past_is_that_of_the_recording(recording: Path) -> None:
    reader = RecordingReader(recording)
    whole = [each for _, each in reader.frames()]
    past = PastReader(reader, LONGEST)
    for newest in (0, 1, 59, 60, 61, 140, 149, 150, 151, 400, 1199):
        found = past.until(newest)
        assert found[-1] == whole[newest]
        assert list(found) == whole[max(newest - LONGEST + 1, 0) : newest + 1]
        assert found[-2:] == whole[max(newest - 1, 0) : newest + 1]
        with pytest.raises(IndexError):
            found[len(found)]
    reader.close()


def test_a_damaged_frame_is_the_one_before_it_and_never_a_moment_of_its_own(recording: Path, tmp_path: Path) -> None:
    lines = gzip.decompress(recording.read_bytes()).splitlines(keepends=True)[:301]
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(b"".join([lines[0], b"{}\n", *lines[2:131], b"{}\n", *lines[132:]]))
    reader = RecordingReader(torn)
    found = PastReader(reader, LONGEST).until(175)
    assert [each.sequence for each in found][:60] == [*[60] * 35, *range(61, 86)]
    assert found[-1].sequence == 129
    reader.close()
    out = tmp_path / "out.csv"
    export_recording(ExportRequest(files=[torn], output=out, metrics=["up"], every="25s"))
    with out.open(encoding="utf-8") as file:
        moments = [float(row["elapsed_s"]) for row in csv.DictReader(file)]
    assert moments == [60, 75, 100, 125, 180, 200, 225, 250, 275]


def test_an_export_now_and_then_reads_what_it_needs(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    frames_of = RecordingReader.frames_of

    def counted(self: RecordingReader, place: int) -> Iterator[tuple[int, Frame]]:
        nonlocal read
        for found in frames_of(self, place):
            read += 1
            yield found

    monkeypatch.setattr(RecordingReader, "frames_of", counted)
    export_recording(ExportRequest(files=[recording], output=tmp_path / "out.csv", every="5m"))
    assert read < 4 * 2 * 60
    export_recording(ExportRequest(files=[recording], output=tmp_path / "all.csv", every="10s"))
    assert read < 4 * 2 * 60 + 1200 + 2 * 60
