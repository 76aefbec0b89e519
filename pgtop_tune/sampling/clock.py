"""The session's clocks."""

from __future__ import annotations

import time


class SessionClock:
    """Seconds since it was made, monotonic, to a tenth of a millisecond (finer digits only cost space on disk)."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self) -> float:
        return round(time.monotonic() - self._start, 4)

    @staticmethod
    def wall_ms() -> int:
        """Milliseconds since the epoch on this machine's wall clock."""
        return int(time.time() * 1000)
