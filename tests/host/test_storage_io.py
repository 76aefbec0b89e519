"""Storage I/O of the server and of others: from files of a made machine, and of a program that really writes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pgtop_tune.host.storage_io import StorageIoMeter, parse_storage_io
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import StorageIo

INIT, SERVER, SESSION, HELPER, SHELL, OTHER, CHILD, KERNEL = 1, 100, 101, 102, 200, 300, 301, 400
_PLACES = {
    "init": (INIT, 0), "server": (SERVER, INIT), "session": (SESSION, SERVER), "helper": (HELPER, SERVER),
    "shell": (SHELL, HELPER), "other": (OTHER, INIT), "child": (CHILD, OTHER), "kernel": (KERNEL, INIT),
}  # fmt: skip
"""Pid and parent by name."""
_STAT = "{pid} (a ) name) S {parent} 0 0 0 0 {flags} " + " ".join(["0"] * 12) + " 4711 " + " ".join(["0"] * 25)


def machine(root: Path, **bytes_of: tuple[int, int, int]) -> None:
    """Files of processes: read_bytes, wchar and write_bytes of each."""
    for name, (read, handed, dirtied) in bytes_of.items():
        pid, parent = _PLACES[name]
        directory = root / "proc" / str(pid)
        directory.mkdir(parents=True, exist_ok=True)
        text = f"rchar: 9\nwchar: {handed}\nsyscr: 1\nsyscw: 1\nread_bytes: {read}\nwrite_bytes: {dirtied}\n"
        (directory / "io").write_text(f"{text}cancelled_write_bytes: 0\n")
        flags = 0x0020_0040 if name == "kernel" else 0x0040_0100
        (directory / "stat").write_text(_STAT.format(pid=pid, parent=parent, flags=flags))


def ended(root: Path, name: str) -> None:
    """The process is gone."""
    shutil.rmtree(root / "proc" / str(_PLACES[name][0]))


class Looks:
    """Looks at a made machine, a second apart."""

    def __init__(self, root: Path) -> None:
        self._now_s = 0.0
        self._meter = StorageIoMeter(lambda: self._now_s, root)
        self._sums = (0, 0, 0, 0)

    def next(self) -> tuple[int, int, int, int]:
        """What was read and written since the look before: own, and others'."""
        self._now_s += 1.0
        found = looked(self._meter, lambda found: found.at_s == self._now_s)
        before = self._sums
        self._sums = (found.own_read_bytes, found.own_write_bytes, found.others_read_bytes, found.others_write_bytes)
        own_read, own_written, read, written = (now - then for now, then in zip(self._sums, before, strict=True))
        return own_read, own_written, read, written


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
    machine(
        tmp_path,
        init=(0, 0, 0),
        server=(5, 5, 5),
        session=(1000, 700, 700),
        helper=(50, 0, 0),
        other=(10**9, 10**9, 10**9),
        kernel=(0, 0, 0),
    )
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


def test_without_threads_of_the_kernel_in_sight_there_are_programs_out_of_sight(tmp_path: Path) -> None:
    """So it is in a container, whose /proc shows its own processes only."""
    meter = StorageIoMeter(lambda: 0.0, tmp_path)
    machine(tmp_path, init=(0, 0, 0), server=(5, 5, 5), session=(1000, 700, 700), other=(1, 1, 1))
    assert looked(meter, lambda found: True) == StorageIo(0.0, 0, 0, 0, 0, 1)


def test_a_program_that_a_process_of_the_server_starts_is_the_server_s(tmp_path: Path) -> None:
    """An archive_command, say: the load makes the WAL that it copies."""
    looks = Looks(tmp_path)
    machine(tmp_path, init=(0, 0, 0), server=(0, 0, 0), session=(0, 0, 0), helper=(0, 0, 0), other=(0, 0, 0))
    assert looks.next() == (0, 0, 0, 0)
    machine(tmp_path, shell=(16, 32, 32))
    assert looks.next() == (16, 32, 0, 0)


def test_a_process_that_ends_counts_once(tmp_path: Path) -> None:
    """Its parent takes over its counters, with all that it did in its life."""
    looks = Looks(tmp_path)
    machine(tmp_path, init=(0, 0, 0), server=(0, 0, 0), other=(5, 0, 0), child=(7000, 9000, 9000))
    assert looks.next() == (0, 0, 0, 0)
    machine(tmp_path, child=(7010, 9020, 9020))
    assert looks.next() == (0, 0, 10, 20)
    ended(tmp_path, "child")
    machine(tmp_path, other=(5 + 7013, 9024, 9024))
    assert looks.next() == (0, 0, 3, 4)
    # The parent of one that ended reads its own files afterwards as before.
    machine(tmp_path, other=(5 + 7014, 9024, 9024))
    assert looks.next() == (0, 0, 1, 0)


def test_a_parent_that_is_read_before_it_takes_over_gets_a_look_more(tmp_path: Path) -> None:
    looks = Looks(tmp_path)
    machine(tmp_path, init=(0, 0, 0), server=(0, 0, 0), other=(0, 0, 0), child=(7000, 9000, 9000))
    looks.next()
    ended(tmp_path, "child")
    assert looks.next() == (0, 0, 0, 0)
    machine(tmp_path, other=(7002, 9003, 9003))
    assert looks.next() == (0, 0, 2, 3)
    # One that nobody waited for hands nothing on, so there is nothing to take off later.
    machine(tmp_path, other=(27000, 29000, 29000))
    assert looks.next() == (0, 0, 19998, 19997)


def test_a_child_and_its_parent_that_end_together_count_once(tmp_path: Path) -> None:
    looks = Looks(tmp_path)
    machine(tmp_path, init=(1, 1, 1), server=(0, 0, 0), other=(100, 100, 100), child=(7000, 9000, 9000))
    looks.next()
    ended(tmp_path, "child")
    ended(tmp_path, "other")
    machine(tmp_path, init=(1 + 7103, 1 + 9104, 1 + 9104))
    assert looks.next() == (0, 0, 3, 4)


def test_a_program_that_lives_between_two_looks_is_seen_by_its_parent(tmp_path: Path) -> None:
    looks = Looks(tmp_path)
    machine(tmp_path, init=(0, 0, 0), server=(0, 0, 0), helper=(0, 0, 0), other=(0, 0, 0))
    looks.next()
    machine(tmp_path, other=(0, 500, 500), helper=(300, 0, 0))
    assert looks.next() == (300, 0, 0, 500)


def test_threads_of_the_kernel_work_for_others_and_do_not_count(tmp_path: Path) -> None:
    """A file system that reads in threads of its own (ZFS), a loop device: what they read is the server's too."""
    looks = Looks(tmp_path)
    machine(tmp_path, init=(0, 0, 0), server=(0, 0, 0), session=(0, 0, 0), kernel=(0, 0, 0))
    looks.next()
    machine(tmp_path, session=(40, 0, 0), kernel=(4000, 0, 0))
    assert looks.next() == (40, 0, 0, 0)


@pytest.mark.root
def test_a_child_of_a_shell_that_has_done_much_is_no_burst_when_it_ends(tmp_path: Path) -> None:
    """On this kernel, with a real program: 30 MB were written before the first look, and are not told as of now."""
    began_s = time.monotonic()
    meter = StorageIoMeter(lambda: time.monotonic() - began_s)
    writer = "import sys; open(sys.argv[1], 'wb', 0).write(b'x' * 30_000_000); print(flush=True); input()"
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]]); print(flush=True); input()"
    command = [sys.executable, "-c", parent, writer, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        try:
            shell.stdout.readline()
            first = looked(meter, lambda found: True, own=(shell.pid,))
            shell.stdin.write("\n")
            shell.stdout.readline()
            until_s = time.monotonic() - began_s
            last = looked(meter, lambda found: found.at_s > until_s + 1.0, own=(shell.pid,))
        finally:
            shell.stdin.close()
    assert last.own_write_bytes - first.own_write_bytes < 10_000_000


@pytest.mark.root
def test_what_another_program_writes_is_seen(tmp_path: Path) -> None:
    began_s = time.monotonic()
    meter = StorageIoMeter(lambda: time.monotonic() - began_s)
    first = looked(meter, lambda found: True, own=(os.getpid(),))
    code = "import sys; open(sys.argv[1], 'wb', 0).write(b'x' * 40_000_000); input()"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "file")], stdin=subprocess.PIPE) as writer:
        enough = first.others_write_bytes + 40_000_000
        try:
            looked(meter, lambda found: found.others_write_bytes >= enough, own=())
        finally:
            writer.communicate(b"\n")


def test_no_file_to_be_read_is_absence(tmp_path: Path) -> None:
    meter = StorageIoMeter(lambda: 0.0, tmp_path)
    deadline_s = time.monotonic() + 30.0
    while "first reading" in str(found := meter.latest((), None)) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert isinstance(found, Unavailable)
    assert "/proc" in found.detail


@pytest.mark.parametrize("text", [b"", b"wchar: 5\n", b"wchar: x\nread_bytes: 1\nwrite_bytes: 2\n"])
def test_a_file_that_is_none_of_the_kernels_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="/proc/PID/io"):
        parse_storage_io(text)
