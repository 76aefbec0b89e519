"""The clock that nobody sets: seconds since the machine was started, time asleep included.

Source: clock_gettime(2), CLOCK_BOOTTIME; /proc/sys/kernel/random/boot_id; time_namespaces(7).
"""

from __future__ import annotations

import os
import time
from typing import Final

from pgtop_tune.process.process_key import boot_id

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC counts time asleep."""


def boot_clock_s() -> float:
    """Return the seconds since the machine was started."""
    return time.clock_gettime(_CLOCK)


def boot_clock_mark() -> str:
    """Return the name of this clock: processes with the same one read the same time. "" where nothing says."""
    boot = boot_id()
    try:
        # A container may have an offset of its own.
        namespace = os.readlink("/proc/self/ns/time")
    except OSError:
        namespace = ""
    return f"{boot} {namespace}".strip() if boot else ""
