"""Reading what somebody else appends, and giving the space back."""

from __future__ import annotations

import errno
import os
from ctypes import set_errno
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.bench.transaction_log import CHUNK_BYTES, GrowingFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def writer(path: Path) -> BinaryIO:
    """As pgbench opens it: not for appending."""
    return path.open("wb", buffering=0)


def test_whole_lines_once_and_a_torn_one_when_it_is_whole(path: Path) -> None:
    with writer(path) as out:
        file = GrowingFile(path)
        assert file.read() == b""
        out.write(b"one\ntw")
        assert file.read() == b"one\n"
        assert file.read() == b""
        out.write(b"o\nthree\n")
        assert file.read() == b"two\nthree\n"
        file.close()


@given(st.lists(st.binary(min_size=1, max_size=9000).map(lambda b: b.replace(b"\0", b"x")), max_size=8))
def test_nothing_is_lost_or_read_twice(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("growing") / "log"
    with writer(path) as out:
        file = GrowingFile(path)
        seen = b""
        for piece in pieces:
            out.write(piece)
            seen += b"".join(iter(file.read, b""))
        out.write(b"\n")
        seen += b"".join(iter(file.read, b""))
        file.close()
    assert seen == b"".join(pieces) + b"\n"


def test_what_was_read_takes_no_space(path: Path) -> None:
    with writer(path) as out:
        file = GrowingFile(path)
        for _ in range(50):
            out.write(b"x" * 99_999 + b"\n")
            file.read()
        assert os.stat(path).st_size == 5_000_000
        assert file.punches
        assert os.stat(path).st_blocks * 512 <= 3 * 4096
        file.close()


def refusing(fd: int, mode: int, offset: int, length: int) -> int:
    set_errno(errno.EOPNOTSUPP)
    return -1


def test_where_punching_is_refused_the_file_is_cut_and_reading_goes_on(path: Path) -> None:
    line = b"x" * 99_999 + b"\n"
    with writer(path) as out:
        file = GrowingFile(path, fallocate=refusing)
        lines = 0
        for number in range(200):
            out.write(line)
            if number % 2:
                lines += file.read().count(b"\n")
        assert not file.punches
        assert os.stat(path).st_size == 20_000_000
        assert os.stat(path).st_blocks * 512 < 9_000_000
        # One line is given up with each cut.
        assert 190 <= lines <= 200
        file.close()


def test_what_waits_is_read_in_chunks_and_not_cut_off_before_it_was_read(path: Path) -> None:
    lines = [b"%06d %s\n" % (number, b"x" * 90) for number in range(60_000)]
    with writer(path) as out:
        file = GrowingFile(path, fallocate=refusing)
        out.write(b"".join(lines))
        chunks = list(iter(file.read, b""))
        file.close()
    assert max(map(len, chunks)) <= CHUNK_BYTES
    assert b"".join(chunks) == b"".join(lines)
    assert os.stat(path).st_size == 0
