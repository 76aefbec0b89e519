"""Programs called pgbench that run on this machine, whoever started them."""

from __future__ import annotations

import contextlib
import os
from typing import Final

_NAME: Final = b"pgbench\n"
_MOST: Final = 8


def pgbench_processes(proc: str = "/proc") -> tuple[int, ...]:
    """Their pids, ascending; the first eight. None where there is no /proc.

    Source: /proc/PID/comm.
    """
    try:
        pids = sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    except OSError:
        return ()
    found: list[int] = []
    for pid in pids:
        # It may have ended since.
        with contextlib.suppress(OSError), open(f"{proc}/{pid}/comm", "rb") as file:
            if file.read() == _NAME:
                found.append(pid)
    return tuple(found[:_MOST])
