"""Storage I/O of the server and of others: from files of a made machine, and of a program that really writes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pgtop_tune.host.storage_io import StorageIoMeter, parse_storage_io
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import StorageIo

SERVER, SESSION, HELPER, OTHER = 100, 101, 102, 300
_STAT = "{pid} (a ) name) S {parent} " + " ".join(["0"] * 17) + " 4711 " + " ".join(["0"] * 25)


def machine(root: Path, **bytes_of: tuple[int, int, int]) -> None:
    """Files of processes: read_bytes, wchar and write_bytes of each."""
    for name, (read, handed, dirtied) in bytes_of.items():
        pid = {"server": SERVER, "session": SESSION, "helper": HELPER, "other": OTHER}[name]
        directory = root / "proc" / str(pid)
        directory.mkdir(parents=True, exist_ok=True)
        text = f"rchar: 9\nwchar: {handed}\nsyscr: 1\nsyscw: 1\nread_bytes: {read}\nwrite_bytes: {dirtied}\n"
        (directory / "io").write_text(f"{text}cancelled_write_bytes: 0\n")
        (directory / "stat").write_text(_STAT.format(pid=pid, parent=SERVER if name == "helper" else 1))


def looked(meter: StorageIoMeter, newer: Callable[[StorageIo], bool], own: tuple[int, ...] = (SESSION,)) -> StorageIo:
    deadline_s = time.monotonic() + 30.0
    while time.monotonic() < deadline_s:
        found = meter.latest(own, SERVER)
        if isinstance(found, StorageIo) and newer(found):
            return found
        time.sleep(0.01)
    raise AssertionError("no such look")


def test_children_of_the_postmaster_and_sessions_are_own_and_the_rest_is_foreign(tmp_path: Path) -> None:
    now_s = 0.0
    meter = StorageIoMeter(lambda: now_s, tmp_path)
    machine(tmp_path, server=(5, 5, 5), session=(1000, 700, 700), helper=(50, 0, 0), other=(10**9, 10**9, 10**9))
    before = looked(meter, lambda found: True)
    assert before == StorageIo(0.0, 0, 0, 0, 0, 0)
    # `wchar` of a pipe is no I/O, nor is a folio of which one byte was written.
    machine(tmp_path, session=(1500, 900, 10**9), helper=(80, 0, 0), other=(10**9 + 7, 2 * 10**9, 10**9 + 300))
    now_s = 1.0
    assert looked(meter, lambda found: found.at_s == 1.0) == StorageIo(1.0, 530, 200, 7, 300, 0)
    # The number of one that has ended is given to another, whose counters begin anew; a new one counts from nothing.
    machine(tmp_path, other=(40, 0, 0))
    now_s = 2.0
    assert looked(meter, lambda found: found.at_s == 2.0) == StorageIo(2.0, 530, 200, 47, 300, 0)


def test_what_another_program_writes_is_seen(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root may read /proc/PID/io of every program")
    began_s = time.monotonic()
    meter = StorageIoMeter(lambda: time.monotonic() - began_s)
    first = looked(meter, lambda found: True, own=(os.getpid(),))
    code = "import sys; open(sys.argv[1], 'wb', 0).write(b'x' * 40_000_000); input()"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "file")], stdin=subprocess.PIPE) as writer:
        enough = first.others_write_bytes + 40_000_000
        try:
            looked(meter, lambda found: found.others_write_bytes >= enough, own=(os.getpid(),))
        finally:
            writer.communicate(b"\n")


def test_no_file_to_be_read_is_absence(tmp_path: Path) -> None:
    meter = StorageIoMeter(lambda: 0.0, tmp_path)
    deadline_s = time.monotonic() + 30.0
    while "first look" in str(found := meter.latest((), None)) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert isinstance(found, Unavailable)
    assert "/proc" in found.detail


@pytest.mark.parametrize("text", [b"", b"wchar: 5\n", b"wchar: x\nread_bytes: 1\nwrite_bytes: 2\n"])
def test_a_file_that_is_none_of_the_kernels_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="/proc/PID/io"):
        parse_storage_io(text)
