"""A recording that cannot be written stops, says so, and goes on when it can; files of a set follow each other."""

from __future__ import annotations

import gzip
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pgtop_tune.base.errors import RecordingProblem, UsageProblem
from pgtop_tune.model.events import EventKind
from pgtop_tune.recording.blocks import index_path
from pgtop_tune.recording.files import Rotation, parse_rotation
from pgtop_tune.recording.recorder import Recorder
from pgtop_tune.runtime.ports import Step
from tests.support.frames import frame
from tests.support.recordings import read

NAMES = ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst")
FEW = {"backends": 4}


def record(recorder: Recorder, first: int, last: int) -> None:
    for second in range(first, last):
        recorder.accept(Step((frame(second, **FEW),)))  # type: ignore[arg-type]


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("written", [3, 60])
def test_a_full_disk_stops_the_recording_and_it_goes_on_when_there_is_room(
    tmp_path: Path, name: str, written: int
) -> None:
    # 60 frames: the next one is a key frame, and what fails is the end of the member before it.
    path = tmp_path / name
    recorder = Recorder("bench", 1.0)
    recorder.start(str(path))
    record(recorder, 0, written)
    with no_file_larger_than(path.stat().st_size + 1):
        record(recorder, written, written + 4)
        stopped = recorder.state()
        assert "File too large" in stopped.problem
        assert stopped.path == str(path)
        assert read(path)[0] == [frame(second, **FEW) for second in range(written)]  # type: ignore[arg-type]
    record(recorder, written + 4, written + 20)
    assert recorder.state().problem == ""
    recorder.close()
    frames, problems = read(path)
    assert problems == []
    gone = recorder.frames_missing
    assert 4 <= gone <= 8
    assert [one.sequence for one in frames] == [*range(written), *range(written + gone, written + 20)]
    told = frames[written].events[0]
    assert told.kind is EventKind.RECORDING
    assert told.text == f"{gone} frames not recorded"
    assert "File too large" in told.detail
    if name.endswith(".gz"):
        gzip.decompress(path.read_bytes())
    if name.endswith(".zst") and shutil.which("zstd"):
        subprocess.run(["zstd", "-tq", str(path)], check=True)


def test_tries_become_seldom_while_nothing_can_be_written(tmp_path: Path) -> None:
    recorder = Recorder("bench", 1.0)
    recorder.start(str(tmp_path / "a.jsonl"))
    with no_file_larger_than(1):
        record(recorder, 0, 300)
        assert recorder.frames_missing == 300
    record(recorder, 300, 335)
    recorder.close()
    assert 0 < 335 - recorder.frames_missing <= 35
    assert recorder.frames_written == 335 - recorder.frames_missing


@pytest.mark.root
def test_a_real_small_disk_fills_and_is_emptied(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(20_000))
        recorder = Recorder("bench", 1.0)
        recorder.start(str(disk / "a.jsonl"))
        second = 0
        while not recorder.state().problem:
            record(recorder, second, second + 1)
            second += 1
            assert second < 1000
        assert recorder.state().problem.startswith("No space left on device")
        ballast.unlink()
        record(recorder, second, second + 3)
        assert recorder.state().problem == ""
        recorder.close()
        frames, problems = read(disk / "a.jsonl")
        assert problems == []
        assert frames[-1].sequence == second + 2
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(RecordingProblem, match="Read-only file system"):
            Recorder("bench", 1.0).start(str(disk / "b.jsonl"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_removed_directory_is_waited_for_and_the_recording_begins_anew(tmp_path: Path) -> None:
    directory = tmp_path / "recordings"
    directory.mkdir()
    recorder = Recorder("bench", 1.0)
    recorder.start(str(directory / "a.jsonl.gz"))
    record(recorder, 0, 5)
    shutil.rmtree(directory)
    record(recorder, 5, 15)
    assert recorder.state().problem
    assert not directory.exists()
    directory.mkdir()
    record(recorder, 15, 40)
    recorder.close()
    frames, problems = read(directory / "a.jsonl.gz")
    assert problems == []
    assert frames[-1].sequence == 39
    assert frames[0].events[0].text == f"{recorder.frames_missing} frames not recorded"


def test_a_second_process_cannot_write_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    first = Recorder("bench", 1.0)
    first.start(str(path))
    with pytest.raises(RecordingProblem, match="another process is recording into"):
        Recorder("bench", 1.0).start(str(path))
    first.close()
    with pytest.raises(RecordingProblem, match="exists already"):
        Recorder("bench", 1.0).start(str(path))


def test_a_second_process_cannot_record_into_the_same_set(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    first = Recorder("bench", 1.0, rotation=Rotation(every_s=10.0))
    first.start(str(path))
    with pytest.raises(RecordingProblem, match="another process is recording into these files"):
        Recorder("bench", 1.0, rotation=Rotation(every_s=10.0)).start(str(path))
    Recorder("bench", 1.0, rotation=Rotation(every_s=10.0)).start(str(tmp_path / "b.jsonl.gz"))
    first.close()
    second = Recorder("bench", 1.0, rotation=Rotation(every_s=10.0))
    second.start(str(path))
    second.close()
    assert not list(tmp_path.glob(".a*"))


@pytest.mark.parametrize("name", NAMES)
def test_every_file_of_a_set_is_a_recording_by_itself(tmp_path: Path, name: str) -> None:
    recorder = Recorder("bench", 1.0, rotation=Rotation(every_s=10.0))
    recorder.start(str(tmp_path / name))
    record(recorder, 0, 35)
    recorder.close()
    found = [read(path) for path in in_order(tmp_path)]
    assert [problems for _, problems in found] == [[]] * 4
    assert [[one.sequence for one in frames] for frames, _ in found] == [
        [*range(10)], [*range(10, 20)], [*range(20, 30)], [*range(30, 35)],
    ]  # fmt: skip
    assert recorder.files_begun == 4


def in_order(directory: Path) -> list[Path]:
    return sorted(
        (path for path in directory.iterdir() if path.name[0] != "."), key=lambda path: read(path)[0][0].sequence
    )


def test_a_set_goes_on_in_a_new_file_when_one_is_large_and_the_oldest_go(tmp_path: Path) -> None:
    recorder = Recorder("bench", 1.0, rotation=Rotation(every_bytes=40_000.0, keep_bytes=130_000.0))
    recorder.start(str(tmp_path / "a.jsonl"))
    record(recorder, 0, 150)
    recorder.close()
    files = in_order(tmp_path)
    assert recorder.files_begun > len(files) > 1
    assert sum(path.stat().st_size for path in files) < 180_000
    assert read(files[-1])[0][-1].sequence == 149


def test_what_is_not_kept_is_removed_and_nothing_else(tmp_path: Path) -> None:
    strange = {
        "a-20200101T000000Z.jsonl": b"named as ours, and not a recording\n",
        "ab-20200101T000000Z.jsonl": None,
        "a-20200101T000000Z.jsonl.gz": None,
        "a-2020.jsonl": None,
    }
    whole = tmp_path / "whole.jsonl"
    first = Recorder("bench", 1.0)
    first.start(str(whole))
    record(first, 0, 2)
    first.close()
    for name, content in strange.items():
        (tmp_path / name).write_bytes(whole.read_bytes() if content is None else content)
    old = tmp_path / "a-20210101T000000Z.jsonl"
    shutil.copy(whole, old)
    recorder = Recorder("bench", 1.0, rotation=Rotation(every_s=10.0, keep_files=2))
    recorder.start(str(tmp_path / "a.jsonl"))
    record(recorder, 0, 35)
    recorder.close()
    assert not old.exists()
    assert all((tmp_path / name).exists() for name in strange)
    ours = [path for path in tmp_path.glob("a-*Z*.jsonl") if path.name not in strange]
    assert len(ours) == 2
    assert {read(path)[0][0].sequence for path in ours} == {20, 30}


def test_files_of_long_ago_are_removed_by_their_age(tmp_path: Path) -> None:
    recorder = Recorder("bench", 1.0, rotation=Rotation(every_s=10.0, keep_s=3600.0))
    recorder.start(str(tmp_path / "a.jsonl"))
    record(recorder, 0, 11)
    first = in_order(tmp_path)[0]
    index_path(first).write_text("{}")
    os.utime(first, (0, frame(0).taken_at_ms / 1000 - 4000))
    record(recorder, 11, 21)
    recorder.close()
    assert not first.exists()
    assert not index_path(first).exists()
    assert len(in_order(tmp_path)) == 2


@pytest.mark.parametrize(
    ("rotate", "keep", "meant"),
    [
        ([], [], None),
        (["1h"], [], Rotation(every_s=3600.0)),
        (["1h30m", "500MB"], ["24"], Rotation(every_s=5400.0, every_bytes=500e6, keep_files=24)),
        (["1GiB"], ["7d", "20GB"], Rotation(every_bytes=2.0**30, keep_s=604_800.0, keep_bytes=20e9)),
    ],
)
def test_rotation_is_said_as_people_say_it(rotate: list[str], keep: list[str], meant: Rotation | None) -> None:
    assert parse_rotation(rotate, keep) == meant


@pytest.mark.parametrize(
    ("rotate", "keep", "words"),
    [
        ([], ["7d"], "--keep requires --rotate"),
        (["500M"], [], "'500M' is invalid"),
        (["60"], [], "'60' is invalid"),
        (["0s"], [], "'0s' is invalid"),
        (["1h", "2h"], [], "two values of the same kind"),
        (["1h"], ["0"], "'0' is invalid"),
        (["1h"], ["-3"], "'-3' is invalid"),
        (["1h"], ["all"], "'all' is invalid"),
        (["15kB"], [], "--rotate takes at least 1 MB"),
        (["1h"], ["20kB"], "--keep takes at least 1 MB"),
        (["1s"], [], "--rotate takes at least 1m"),
        (["500MB"], ["59s"], "--keep takes at least 1m"),
        (["10MB"], ["15MB"], "--keep is smaller than two files"),
    ],
)
def test_what_is_not_understood_is_refused(rotate: list[str], keep: list[str], words: str) -> None:
    with pytest.raises(UsageProblem, match=words):
        parse_rotation(rotate, keep)
