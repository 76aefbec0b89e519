"""The cost of watching: CPU of this program, bytes to the terminal, and time of its statements on the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Metric, rate
from pgtop_tune.model.frame import Footprint

OWN_WINDOW_S: Final = 5.0


def _per_second(pick: Callable[[Footprint], float], factor: float = 1.0) -> Callable[[Interval], float | None]:
    def value(interval: Interval) -> float | None:
        recent = interval.recent(sections.footprint, OWN_WINDOW_S, least=2)
        if len(recent) < 2:
            return None
        newer, older = recent[0], recent[-1]
        found = rate(pick(older), pick(newer), older.at_s, newer.at_s)
        return None if found is None else factor * found

    return value


def _rss(interval: Interval) -> float | None:
    footprint = interval.now(sections.footprint)
    return None if footprint is None else float(footprint.rss_bytes)


OWN_CPU = Metric(
    "own.cpu", "own cost", "%", "CPU time of this program, user and system, in per cent of one core; mean of 5 s.",
    "Δ getrusage / Δt", _per_second(lambda footprint: footprint.cpu_s, 100.0), critical=5.0,
)  # fmt: skip
OWN_TERMINAL_BYTES = Metric(
    "own.terminal_bytes", "terminal", "bytes/s", "Bytes this program writes to the terminal per second; mean of 5 s.",
    "Δ bytes written / Δt", _per_second(lambda footprint: float(footprint.terminal_bytes)),
)  # fmt: skip
OWN_STATEMENT_MS = Metric(
    "own.statement_ms", "server", "ms/s", "Time per second in which a statement of this program runs; mean of 5 s.",
    "Δ wall time between sending a statement and its answer / Δt", _per_second(lambda footprint: footprint.statement_ms),
)  # fmt: skip
OWN_RSS = Metric(
    "own.rss", "memory", "bytes", "Resident memory of this program.", "/proc/self/statm", _rss,
)  # fmt: skip

METRICS: Final = (OWN_CPU, OWN_TERMINAL_BYTES, OWN_STATEMENT_MS, OWN_RSS)
