"""Times in which a load does nothing, as its progress lines tell them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from pgtop_tune.model.bench import BenchProgress, LatencySecond, Silence

_CLOCK_S: Final = 1.0
_SILENCES_KEPT: Final = 3600
"""Silences kept for a sampler that does not come."""


class Silences:
    """The silences of one run. Moments are milliseconds since the epoch, by the clock that reads the lines."""

    def __init__(self) -> None:
        self._over: deque[Silence] = deque(maxlen=_SILENCES_KEPT)
        self._lasting: Silence | None = None
        self._heard_s = 0.0
        self._busy_ms: int | None = None
        self._done = self._done_ms = 0.0

    def hear(self, line: BenchProgress, now_ms: int) -> None:
        """Take the next progress line. A transaction that failed has ended, too; one that was skipped never began."""
        seconds = max(line.elapsed_s - self._heard_s, 0.0)
        self._heard_s = line.elapsed_s
        if line.tps > 0 or line.failed:
            self.end(now_ms)
            self._busy_ms = now_ms
            self._done += line.tps * seconds
            self._done_ms += line.tps * seconds * line.latency_ms
            return
        since_ms, zero_s = self._busy_ms, seconds
        if self._lasting is not None:
            since_ms, zero_s = self._lasting.since_ms, self._lasting.zero_s + seconds
        if since_ms is None:
            since_ms = now_ms - round(1000.0 * line.elapsed_s)
        self._lasting = Silence(
            since_ms=since_ms, until_ms=None, zero_s=zero_s, usual_ms=self._done_ms / self._done if self._done else None
        )

    def read(self, seconds: Iterable[LatencySecond], now_ms: int) -> None:
        """Take seconds of the log: a transaction may stand there before the line comes that counts it."""
        lasting = self._lasting
        if lasting is None:
            return
        # The clock of another machine is known to the second.
        inside_s = lasting.since_ms / 1000 + _CLOCK_S
        if any(second.logged and second.second >= inside_s for second in seconds):
            self.end(now_ms)
            self._busy_ms = now_ms

    def rest(self, line: BenchProgress, now_ms: int) -> None:
        """Take a line of a time in which the load changes or pauses: nothing is silent."""
        self._heard_s = line.elapsed_s
        self._busy_ms = now_ms
        self.end(now_ms)

    def end(self, now_ms: int) -> None:
        """End the lasting silence: a transaction ended, or the run."""
        if self._lasting is not None:
            lasted = self._lasting
            self._lasting = None
            self._over.append(
                Silence(since_ms=lasted.since_ms, until_ms=now_ms, zero_s=lasted.zero_s, usual_ms=lasted.usual_ms)
            )

    def take(self) -> tuple[Silence, ...]:
        """Return the silences that ended since the last call, and the one that lasts."""
        silences = (*self._over, *(() if self._lasting is None else (self._lasting,)))
        self._over.clear()
        return silences
