"""Files of pages and dialogs are in memory before a key asks for them."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from pgtop_tune.tui.preload import read_ahead


def in_memory(path: Path) -> bool:
    """Whether its last page can be read without waiting for the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(descriptor, [bytearray(1)], path.stat().st_size - 1, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    except OSError as problem:
        if problem.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("this file system is memory itself")
    finally:
        os.close(descriptor)


def test_compiled_files_are_read_ahead_and_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").mkdir()
    compiled, library, other = (tmp_path / "__pycache__" / name for name in ("page.pyc", "libpq-1.so.5.18", "page.png"))
    for path in (compiled, library, other):
        with path.open("wb") as file:
            file.write(os.urandom(1 << 18))
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert not in_memory(compiled)
    (tmp_path / "gone.pyc").symlink_to(tmp_path / "nowhere")
    read_ahead([tmp_path, tmp_path / "missing"])
    deadline_s = time.monotonic() + 30.0
    while not (in_memory(compiled) and in_memory(library)):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert not in_memory(other)
