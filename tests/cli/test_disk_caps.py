"""--disk-cap and `disk_caps` of config.toml, through the real command line: into the recording and onto the screen."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.host import DiskCounters, DiskSample, HostSample
from pgtop_tune.recording.reader import RecordingReader
from tests.cli.runs import PROGRAM, run
from tests.support.servers import conninfo
from tests.terminal.screen import Terminal, environment

DISKS = tuple(psutil.disk_io_counters(perdisk=True) or ())
needs_disk = pytest.mark.skipif(not DISKS, reason="no disk here")


def recorded_disks(path: Path) -> tuple[DiskCounters, ...]:
    reader = RecordingReader(path)
    hosts = [frame.host for _, frame in reader.frames()]
    reader.close()
    assert isinstance(hosts[-1], HostSample)
    assert isinstance(hosts[-1].disks, DiskSample)
    return hosts[-1].disks.disks


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Small writes that reach the disk, as long as the block lasts."""
    ended = threading.Event()

    def write() -> None:
        with path.open("wb") as file:
            while not ended.wait(0.02):
                file.write(b"x" * 8192)
                file.flush()
                os.fsync(file.fileno())

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@needs_disk
def test_a_cap_stands_beside_the_counters_of_its_disk(server: Throwaway, tmp_path: Path) -> None:
    words = [f"--disk-cap={disk}=6000iops,90MB/s" for disk in DISKS]
    output = tmp_path / "a.jsonl"
    ran = run("record", "-q", "-o", str(output), "--seconds", "3", *words, conninfo(server), home=tmp_path)
    assert ran.status == 0, ran.err
    assert {(disk.cap_iops, disk.cap_bytes_per_s) for disk in recorded_disks(output)} == {(6000.0, 90e6)}


@needs_disk
def test_the_configuration_gives_caps_and_the_command_line_wins(server: Throwaway, tmp_path: Path) -> None:
    config = tmp_path / ".config" / "pgtop-tune" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f"disk_caps = {[f'{disk}=5iops' for disk in DISKS]}")
    output = tmp_path / "a.jsonl"
    ran = run(
        "record", "-q", "-o", str(output), "--seconds", "3", "--disk-cap", f"{DISKS[-1]}=7iops", conninfo(server),
        home=tmp_path,
    )  # fmt: skip
    assert ran.status == 0, ran.err
    for disk in recorded_disks(output):
        assert disk.cap_iops == (7.0 if disk.name == DISKS[-1] else 5.0)


@needs_disk
def test_the_screen_says_when_a_disk_is_at_its_cap(server: Throwaway, tmp_path: Path) -> None:
    caps = [f"--disk-cap={disk}=1iops" for disk in DISKS]
    command = (*PROGRAM, "top", *caps, conninfo(server))
    with writing(tmp_path / "written"), Terminal(command, environment(tmp_path), 160, 48) as terminal:
        shown = terminal.until("at its cap")
        line = next(line for line in shown.splitlines() if "at its cap" in line)
        assert line.strip().startswith("DISK")
        assert "of 1 IOPS" in line
        terminal.press("q")
        assert terminal.wait() == 0


@pytest.mark.parametrize("command", ["top", "demo", "record"])
def test_every_live_command_takes_the_option(command: str, tmp_path: Path) -> None:
    assert "--disk-cap" in run(command, "--help", home=tmp_path).out


@pytest.mark.parametrize("words", ["vda", "vda=fast", "=5iops"])
def test_what_is_no_cap_is_refused_before_anything_starts(words: str, tmp_path: Path) -> None:
    output = tmp_path / "a.jsonl"
    ran = run("record", "-o", str(output), "--disk-cap", words, "-h", "/nowhere", home=tmp_path)
    assert ran.status == 2
    assert "--disk-cap vda=6000iops,90MB/s" in ran.err
    assert not output.exists()
