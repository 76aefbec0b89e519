"""The demo without a screen: from nothing to figures, and nothing left behind however it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtop_tune.recording.reader import RecordingReader
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.support.processes import alive, eventually

LINE = re.compile(r"^\d\d:\d\d:\d\d +(\S+) +(\S+) +(\S+) +(\S+) +(\S+) +(\S.*)$")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    home = tmp_path_factory.mktemp("demo")
    output = home / "out.jsonl"
    ran = run("demo", "--headless", "--seconds", "6", "-s", "1", "-c", "1", "--record", str(output), home=home)
    assert ran.status == 0, ran.err
    return output, ran.out, ran.err


def test_every_line_after_the_first_three_has_throughput(finished: tuple[Path, str, str]) -> None:
    rows = [found.groups() for found in map(LINE.match, finished[1].splitlines()) if found]
    assert len(rows) >= 5
    assert all(float(tps) > 0 for tps, *_ in rows[3:])
    # On a machine that is busy otherwise a second may have too few transactions for a p99.
    told = [(float(p50), float(p99)) for _, p50, p99, *_ in rows[4:] if "-" not in (p50, p99)]
    assert told
    assert all(p99 >= p50 > 0 for p50, p99 in told)
    assert "s of load · tps " in finished[1]


def test_the_recording_is_what_the_format_says(finished: tuple[Path, str, str]) -> None:
    lines = [json.loads(line) for line in finished[0].read_text().splitlines()]
    assert lines[0]["format"] == "pgtop-tune/1.1"
    assert all("key" in line or "delta" in line for line in lines[1:])
    reader = RecordingReader(finished[0])
    frames = [frame for _, frame in reader.frames()]
    assert reader.problems == []
    assert len(frames) >= 5
    reader.close()


def test_it_says_which_binaries_it_took_and_where_the_recording_is(finished: tuple[Path, str, str]) -> None:
    assert re.search(r"^PostgreSQL \d+\.\d+.* \(.+\)$", finished[2], re.MULTILINE)
    assert f"recording: {finished[0]}" in finished[1]


def test_the_recording_replays_as_the_same_lines(finished: tuple[Path, str, str], tmp_path: Path) -> None:
    live = [line for line in finished[1].splitlines() if LINE.match(line)]
    again = run("replay", "--lines", str(finished[0]), home=tmp_path)
    assert again.status == 0
    assert [line for line in again.out.splitlines() if LINE.match(line)] == live


class Demo:
    """A headless demo under way, with its children."""

    def __init__(self, home: Path) -> None:
        self.temporary = home / "tmp"
        self.temporary.mkdir()
        os.chmod(home, 0o755)
        os.chmod(self.temporary, 0o1777)
        self.process = subprocess.Popen(
            [
                *PROGRAM,
                "demo",
                "--headless",
                "--seconds",
                "120",
                "-s",
                "1",
                "-c",
                "1",
                "--record",
                str(home / "a.jsonl"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(home, TMPDIR=str(self.temporary)),
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        deadline = time.monotonic() + 60
        for line in self.process.stdout:
            if (found := LINE.match(line)) and found[1] not in ("-", "0.0"):
                break
            assert time.monotonic() < deadline
        # The server has transactions of its own before pgbench runs.
        self.children = descendants(self.process.pid)
        while not all(any(word in name for name in self.children.values()) for word in ("pgbench", "postgres")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
            self.children = descendants(self.process.pid)

    def left(self) -> dict[int, str]:
        return {pid: name for pid, name in self.children.items() if alive(pid)}


def descendants(pid: int) -> dict[int, str]:
    """Pid → command line of every process below one."""
    below: dict[int, str] = {}
    parents = {pid}
    entries = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    for candidate in sorted(entries):
        try:
            stat = Path(f"/proc/{candidate}/stat").read_text()
            words = Path(f"/proc/{candidate}/cmdline").read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(stat.rpartition(")")[2].split()[1]) in parents:
            parents.add(candidate)
            below[candidate] = words
    return below


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.long),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_however_it_ends_nothing_keeps_running_and_nothing_is_left(number: int, status: int, tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    demo.process.send_signal(number)
    assert demo.process.wait(60) == status
    assert eventually(lambda: not demo.left()), demo.left()
    assert eventually(lambda: not list(demo.temporary.iterdir())), list(demo.temporary.iterdir())
    reader = RecordingReader(tmp_path / "a.jsonl")
    assert reader.frame_count >= 2
    reader.close()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that the server's account can get to; pytest's own are closed to everybody else."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


@pytest.mark.long
def test_a_kept_cluster_is_used_again(open_directory: Path, tmp_path: Path) -> None:
    keep = open_directory / "keep"
    words = ("demo", "--headless", "--seconds", "3", "-s", "1", "-c", "1", "--keep", str(keep))
    first = run(*words, home=tmp_path)
    assert first.status == 0, first.err
    assert "generating data" in first.err
    second = run(*words, home=tmp_path)
    assert second.status == 0, second.err
    assert "generating data" not in second.err
    assert (keep / "data" / "PG_VERSION").exists()
