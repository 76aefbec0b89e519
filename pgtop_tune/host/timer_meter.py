"""What reading the clock costs, by the server's own pg_test_timing; and how fast memory is copied.

Source: PostgreSQL documentation, pg_test_timing.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import time
from pathlib import Path
from typing import Final

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.process.guarded_program import start_guarded

_PROGRAM: Final = "pg_test_timing"
_OVERHEAD: Final = re.compile(r"including overhead:\s*([0-9.]+)\s*ns")
_PATIENCE_S: Final = 10.0
_COPY_BYTES: Final = 64 * 1024 * 1024
_COPIES: Final = 5


def program_beside(postmaster_pid: int | None, name: str = _PROGRAM) -> Path | None:
    """A program of the server's own installation, else the one in the PATH; None where there is none.

    Source: /proc/PID/exe of the postmaster.
    """
    try:
        binary = Path(os.readlink(f"/proc/{postmaster_pid}/exe")).parent / name
        if _trusted(binary) and _trusted(binary.parent):
            return binary
    except OSError:
        pass
    found = shutil.which(name)
    return Path(found) if found else None


def _trusted(path: Path) -> bool:
    """Whether nobody but root and ourselves can have put it there: a stranger's server must not run code as us."""
    seen = path.stat()
    return seen.st_uid in (0, os.geteuid()) and not seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def timer_overhead_ns(program: Path) -> float | Unavailable:
    """Nanoseconds for reading the clock once, the loop around it included; takes a second.

    Args:
        program: pg_test_timing.
    """
    try:
        running = start_guarded(
            [str(program), "--duration=1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as problem:
        return Unavailable(Reason.FAILED, f"{program}: {problem.strerror}")
    try:
        running.wait(_PATIENCE_S)
        assert running.process.stdout is not None
        said = running.process.stdout.read().decode("utf-8", "replace")
    except TimeoutError:
        return Unavailable(Reason.FAILED, f"{program} did not end within {_PATIENCE_S:.0f} s")
    finally:
        running.stop()
    return parse_overhead(said)


def parse_overhead(said: str) -> float | Unavailable:
    """Nanoseconds of a line "Per loop time including overhead: 22.36 ns", "Average loop time …" from 18 on."""
    found = _OVERHEAD.search(said)
    if found is None:
        return Unavailable(Reason.FAILED, "pg_test_timing says something we do not know")
    return float(found[1])


def copied_bytes_per_s() -> float:
    """How fast one core copies memory, the best of five times 64 MB."""
    source, target = memoryview(bytearray(_COPY_BYTES)), memoryview(bytearray(_COPY_BYTES))
    best = float("inf")
    for _ in range(_COPIES):
        began = time.perf_counter()
        target[:] = source
        best = min(best, time.perf_counter() - began)
    return _COPY_BYTES / best
