"""Kept descriptors: right content every time, none too many, none left behind."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtop_tune.host.kernel_text import KeptFile, ProcessFiles, kept_descriptors, read_once


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Five processes that wait for their standard input to end."""
    started = [subprocess.Popen([sys.executable, "-ISc", "input()"], stdin=subprocess.PIPE) for _ in range(5)]
    yield started
    for child in started:
        child.kill()
        child.communicate()


def open_descriptors() -> int:
    """Of ours, those of files of processes: what other tests left open may be closed at any moment."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{name}").startswith("/proc/")
    return count


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()


def test_a_kept_file_is_read_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "counter"
    file = KeptFile(path)
    with pytest.raises(FileNotFoundError):
        file.read()
    for text in (b"1\n", b"a longer text\n", b"", b"x"):
        path.write_bytes(text)
        assert file.read() == text
    file.close()
    file.close()
    path.unlink()
    with pytest.raises(FileNotFoundError):
        file.read()


def test_files_of_several_pages_are_read_to_their_end(tmp_path: Path) -> None:
    path = tmp_path / "large"
    content = b"".join(b"line %d\n" % number for number in range(40_000))
    path.write_bytes(content)
    file = KeptFile(path)
    assert file.read() == file.read() == read_once(path) == content
    file.close()
    # A seq_file of many records hands over about a page at a time.
    vmstat = KeptFile("/proc/vmstat")
    for _ in range(2):
        assert len(vmstat.read().splitlines()) == len(Path("/proc/vmstat").read_bytes().splitlines())
    vmstat.close()


def test_a_file_without_end_is_cut() -> None:
    assert 0 < len(read_once("/dev/zero")) < 8 << 20


def test_processes_are_told_apart_and_their_files_kept(children: list[subprocess.Popen[bytes]]) -> None:
    before = open_descriptors()
    files = ProcessFiles("/proc", "stat", most=100)
    for _ in range(2):
        for child in children:
            assert files.read(child.pid).split()[0] == str(child.pid).encode()
    assert len(files) == 5
    assert open_descriptors() == before + 5
    files.keep_only([children[0].pid, children[1].pid, 1])
    assert open_descriptors() == before + 2
    files.close()
    assert open_descriptors() == before


def test_a_process_that_is_gone_is_gone_and_leaves_no_descriptor(children: list[subprocess.Popen[bytes]]) -> None:
    before = open_descriptors()
    files = ProcessFiles("/proc", "stat", most=100)
    child = children[0]
    files.read(child.pid)
    end(child)
    for _ in range(2):
        with pytest.raises((FileNotFoundError, ProcessLookupError)):
            files.read(child.pid)
    assert open_descriptors() == before


def test_beyond_the_bound_files_are_read_and_not_kept(children: list[subprocess.Popen[bytes]]) -> None:
    before = open_descriptors()
    files = ProcessFiles("/proc", "stat", most=2)
    for _ in range(2):
        assert all(files.read(child.pid).startswith(b"%d " % child.pid) for child in children)
    assert open_descriptors() == before + 2
    end(children[0])
    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        files.read(children[0].pid)
    files.read(children[4].pid)
    assert len(files) == 2
    files.close()


def test_the_bound_leaves_most_descriptors_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {1024: 341, 20_000: 4096, resource.RLIM_INFINITY: 4096, 12: 4}
    for soft, most in limits.items():
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert kept_descriptors() == most
