"""What this process itself costs."""

from __future__ import annotations

import os
import resource
import sys
import time
from typing import Final

from msgspec import Struct

from pgtop_tune.host.kernel_text import KeptFile, unsigned


class OwnCost(Struct, frozen=True):
    """Since this process started.

    Attributes:
        cpu_s: CPU seconds of all its threads, user and system.
        rss_bytes: Resident set now; where there is no /proc, the largest it ever was.
    """

    cpu_s: float
    rss_bytes: int


_MAXRSS_UNIT_BYTES: Final = 1 if sys.platform == "darwin" else 1024


class OwnCostMeter:
    """Reads our own cost; cheap enough for every frame.

    Source: clock_gettime(CLOCK_PROCESS_CPUTIME_ID) and field 2 of /proc/self/statm, in pages.
    """

    def __init__(self) -> None:
        self._page_bytes = os.sysconf("SC_PAGESIZE")
        # The number, not "self": a descriptor of /proc/self would go on naming the parent after a fork.
        self._statm = KeptFile(f"/proc/{os.getpid()}/statm")

    def read(self) -> OwnCost:
        """The cost up to now."""
        return OwnCost(time.process_time(), self._rss_bytes())

    def close(self) -> None:
        """Closes the file kept open."""
        self._statm.close()

    def _rss_bytes(self) -> int:
        try:
            return unsigned(self._statm.read().split(None, 2)[1]) * self._page_bytes
        except (OSError, ValueError, IndexError):
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT_BYTES
