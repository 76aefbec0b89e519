"""`record --rotate --keep` through the real command line, and what it says when it cannot write."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.recording.reader import RecordingReader
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.support.servers import conninfo

HASTY = """
import pgtop_tune.recording.files as rotation
from pgtop_tune.cli.app import main
rotation._LEAST_S = 1.0
main()
"""
"""The program, with files of seconds: the least that it takes is a minute."""


def test_a_rotated_recording_is_a_row_of_recordings(server: Throwaway, tmp_path: Path) -> None:
    words = ("--interval", "0.2", "--seconds", "4", "--rotate", "1s", "--keep", "2")
    ran = subprocess.run(
        [sys.executable, "-c", HASTY, "record", "-q", "-o", str(tmp_path / "a.jsonl.gz"), *words, conninfo(server)],
        capture_output=True, text=True, timeout=90, env=environment(tmp_path), cwd=ROOT,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    files = sorted(tmp_path.glob("a-*Z*.jsonl.gz"))
    assert len(files) == 2
    begun = ran.stderr.count("recording into ") + 1
    assert ran.stderr.count("older files removed by --keep: 1") == begun - 2
    assert f" in {begun} files (--keep removed {begun - 2}), the last one {files[-1]}" in ran.stderr
    for path in files:
        reader = RecordingReader(path)
        assert reader.frame_count > 0
        assert [index for index, _ in reader.frames()] == [*range(reader.frame_count)]
        assert reader.problems == []
        reader.close()


def test_what_cannot_be_understood_is_one_sentence(tmp_path: Path) -> None:
    ran = run("record", "-o", str(tmp_path / "a.jsonl"), "--rotate", "500M", home=tmp_path)
    assert ran.status == 2
    assert "MB is megabytes" in ran.err


def test_a_removed_directory_is_told_and_waited_for(server: Throwaway, tmp_path: Path) -> None:
    directory = tmp_path / "recordings"
    directory.mkdir()
    path = directory / "a.jsonl"
    command = [*PROGRAM, "record", "-q", "--interval", "0.2", "-o", str(path), conninfo(server)]
    env = environment(tmp_path)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env, cwd=ROOT) as recording:
        assert recording.stderr is not None
        until(lambda: path.exists() and path.stat().st_size > 10_000)
        shutil.rmtree(directory)
        assert "frames are lost until the recording can be written:" in recording.stderr.readline()
        directory.mkdir()
        assert "recording continues in" in recording.stderr.readline()
        until(lambda: path.stat().st_size > 10_000)
        recording.terminate()
        said = recording.stderr.read()
        assert recording.wait(60) == 0, said
    assert "frames are missing" in said


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
