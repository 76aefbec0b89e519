"""pgbench's `progress:` lines (stderr, one per second with -P 1), versions 13 to 18.

    progress: 10.0 s, 1234.5 tps, lat 8.097 ms stddev 1.234                                13, 14
    progress: 10.0 s, 1234.5 tps, lat 8.097 ms stddev 1.234, 0 failed                      15 and later
    …, lag 0.123 ms[, 5 skipped][, 7 retried, 9 retries]         with --rate, --latency-limit, --max-tries

With --progress-timestamp the first figure is seconds since the epoch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from pgtop_tune.model.bench import BenchProgress

PREFIX: Final = "progress: "

_UNSIGNED: Final = r"\d{1,18}(?:\.\d{1,18})?"
_NUMBER: Final = rf"-?(?:{_UNSIGNED}|nan|inf)"
_LINE: Final = re.compile(
    rf"progress: (?P<elapsed>{_UNSIGNED}) s, (?P<tps>{_NUMBER}) tps, "
    rf"lat (?P<latency>{_NUMBER}) ms stddev (?P<stddev>{_NUMBER})(?P<more>(?:, [^,]+)*)\s*",
    re.I,
)
_EPOCH_FROM_S: Final = 1e9
"""No run lasts thirty years; anything above is a moment, not a duration."""


def _number(text: str) -> float:
    """0.0 for nan and inf: pgbench divides by the count of an interval in which nothing ended."""
    value = float(text)
    return value if math.isfinite(value) else 0.0


_MORE: Final[tuple[tuple[re.Pattern[str], str, Callable[[str], float]], ...]] = (
    (re.compile(r"(\d{1,18}) failed"), "failed", int),
    (re.compile(rf"lag ({_NUMBER}) ms", re.I), "lag_ms", _number),
    (re.compile(r"(\d{1,18}) skipped"), "skipped", int),
    (re.compile(r"(\d{1,18}) retried"), "retried", int),
    (re.compile(r"(\d{1,18}) retries"), "retries", int),
)
"""What may follow: pattern, field of BenchProgress, and how its text is read."""


def parse_progress(line: str, started_epoch_s: float = 0.0) -> BenchProgress | None:
    """One line of pgbench's stderr.

    Args:
        started_epoch_s: When the run began; subtracted where the line has a moment instead of a duration.

    Returns:
        None when it is no progress line. In an interval in which no transaction ended, tps and latency are 0.0, as
        pgbench prints them.
    """
    if not line.startswith(PREFIX):
        return None
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    elapsed = float(match["elapsed"])
    more: dict[str, Any] = {}
    for part in match["more"].split(", ")[1:]:
        for pattern, field, read in _MORE:
            found = pattern.fullmatch(part.strip())
            if found:
                more[field] = read(found[1])
    return BenchProgress(
        elapsed_s=elapsed - started_epoch_s if elapsed >= _EPOCH_FROM_S else elapsed,
        tps=_number(match["tps"]),
        latency_ms=_number(match["latency"]),
        stddev_ms=_number(match["stddev"]),
        **more,
    )
