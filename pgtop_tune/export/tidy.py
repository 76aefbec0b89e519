"""One row per moment, metric and labels: what CSV and Parquet have in common.

time       moment of the look, UTC, by the clock of the machine that recorded; of a counter when it was read
elapsed_s  the same in seconds since the session began, monotonic
metric     "server.tps"
labels     JSON object with what tells the series of a metric apart; empty where there is one
value      empty when it cannot be said
unit       of the value; empty for a plain count
reason     why there is no value: the words of `model.absence.Reason`, or "cannot be said" of the first reading, a
           restart, a reset, or nothing to divide by; empty beside a value

No cell of text begins with a sign that a spreadsheet takes for a formula, whatever names a server has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from pgtop_tune.export.exported import Exported, WatchedInterval, read_once, wall_clock_ms

COLUMNS: Final = ("time", "elapsed_s", "metric", "labels", "value", "unit", "reason")


class TidyRow(NamedTuple):
    """A row; `at_ms` is the moment in milliseconds since the epoch, `None` an empty cell."""

    at_ms: int
    elapsed_s: float
    metric: str
    labels: str | None
    value: float | None
    unit: str | None
    reason: str | None


def tidy(rows: Sequence[Exported], moments: Iterable[WatchedInterval]) -> Iterator[TidyRow]:
    """Rows of one moment after the other; a counter only where it was read, with the time of that.

    A family without members, no standby for instance, has none.
    """
    for interval, found in read_once(rows, moments):
        for row, points, reason, at_s in found:
            at_ms = wall_clock_ms(interval, at_s)
            for labels, value in points:
                words = labels_text(row.labels, labels) if labels else None
                yield TidyRow(at_ms, at_s, row.id, words, value, row.unit or None, None)
            if reason:
                yield TidyRow(at_ms, at_s, row.id, None, None, row.unit or None, reason)


@lru_cache(maxsize=20_000)
def labels_text(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Labels as a JSON object in ASCII: exact, and nothing in it that a terminal obeys."""
    return json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=True)


@lru_cache(maxsize=8)
def moment_text(at_ms: int) -> str:
    """ "2026-11-22T12:03:19.123Z"."""
    try:
        at = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
