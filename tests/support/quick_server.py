"""Servers for tests in a moment: in memory where there is room, from a copy of a cluster that was made before.

What initdb and a file system on a disk that forgets thousands of files a minute take was a third of all tests' work.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pgtop_tune.cluster.binaries import Binaries
from pgtop_tune.cluster.throwaway import Throwaway

QUICK: Final[Mapping[str, str]] = MappingProxyType({"fsync": "off", "shared_buffers": "32MB"})
"""Settings of all test servers; a test that measures writing gives its own."""

TEMPLATES: Final = "PGTOP_TUNE_TEMPLATES"
"""Variable that names the directory of `new_templates`."""

_MEMORY: Final = Path("/dev/shm")
_ROOM: Final = 4 << 30
"""What must be free there: six workers have two dozen servers at a time, some with a gigabyte of WAL."""

_POLYNOMIAL: Final = 0x82F63B78
"""Of CRC-32C, reflected (PostgreSQL: src/port/pg_crc32c_sb8.c)."""
_IDENTIFIER_IN_WAL: Final = 24
"""Where the first page of a segment has it (PostgreSQL: XLogLongPageHeaderData)."""
_numbers = count()


def quick_server(binaries: Binaries, **settings: str) -> Throwaway:
    """A server of the caller's own, with an identifier of its own; with fsync=on it is on a disk, else in memory.

    Raises:
        ClusterProblem: It cannot be made or started.
    """
    with nullcontext() if settings.get("fsync") == "on" else _in_memory():
        return _Copied.create(binaries, settings={**QUICK, **settings})


class _Copied(Throwaway):
    """Takes a copy of the first cluster of its programs instead of making one."""

    def _initdb(self) -> None:
        template = _templates() / str(self.bin_dir).replace("/", "_")
        with template.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not template.exists():
                super()._initdb()
                if self.has_statements:
                    super()._create_extension()
                _copy(Path(str(self.data_dir)), template.with_suffix(".copy"))
                template.with_suffix(".copy").rename(template)
                return
        _copy(template, Path(str(self.data_dir)))
        _rename_cluster(Path(str(self.data_dir)))
        # Counters of a cluster that was just made are young, also late in a slow run.
        for kept in (Path(str(self.data_dir)) / "pg_stat").iterdir():
            kept.unlink()

    def _create_extension(self) -> None:
        """The copy has it."""


@contextmanager
def _in_memory() -> Iterator[None]:
    before = tempfile.tempdir
    try:
        if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM:
            tempfile.tempdir = str(_MEMORY)
        yield
    finally:
        tempfile.tempdir = before


def new_templates() -> Path:
    """Makes the directory, named by `TEMPLATES`, for the clusters that all workers of a run take copies of."""
    with _in_memory():
        return Path(tempfile.mkdtemp(prefix="pgtop-templates-"))


def _templates() -> Path:
    return Path(os.environ[TEMPLATES])


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def _rename_cluster(data_dir: Path) -> None:
    """Gives a cluster that was shut down another identifier, so that it is an original and no copy."""
    now = time.time_ns()
    identifier = struct.pack("=Q", (now // 10**9) << 32 | (now // 1000 % 10**6) << 12 | next(_numbers) & 0xFFF)
    control = data_dir / "global/pg_control"
    content = bytearray(control.read_bytes())
    end = next(at for at in range(64, 512, 4) if struct.pack("=I", _crc32c(content[:at])) == content[at : at + 4])
    content[:8] = identifier
    content[end : end + 4] = struct.pack("=I", _crc32c(content[:end]))
    control.write_bytes(content)
    for segment in (data_dir / "pg_wal").glob("0*"):
        with segment.open("r+b") as file:
            file.seek(_IDENTIFIER_IN_WAL)
            file.write(identifier)


@cache
def _crc_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


def _crc32c(content: bytes | bytearray) -> int:
    table, value = _crc_table(), 0xFFFFFFFF
    for byte in content:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF
