"""One row per moment, metric and labels: as CSV and as Parquet.

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

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.export.exported import Exported, ReadRow, WatchedInterval, read_all, read_once, wall_clock_ms
from pgtop_tune.export.openmetrics import shortest_number

COLUMNS: Final = ("time", "elapsed_s", "metric", "labels", "value", "unit", "reason")


class TidyRow(NamedTuple):
    """A row; `at_ms` is in milliseconds since the epoch, and None is an empty cell."""

    at_ms: int
    elapsed_s: float
    metric: str
    labels: str | None
    value: float | None
    unit: str | None
    reason: str | None


def tidy(rows: Sequence[Exported], moments: Iterable[WatchedInterval]) -> Iterator[TidyRow]:
    """Yield the rows of each moment; a counter only where it was read, with the time of its reading.

    A family without members, as without a standby, has no row.
    """
    for interval, reads in read_once(rows, moments):
        for row, points, reason, at_s in reads:
            at_ms = wall_clock_ms(interval, at_s)
            for labels, value in points:
                text = labels_text(row.labels, labels) if labels else None
                yield TidyRow(at_ms, at_s, row.id, text, value, row.unit or None, None)
            if reason:
                yield TidyRow(at_ms, at_s, row.id, None, None, row.unit or None, reason)


@lru_cache(maxsize=20_000)
def labels_text(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Return labels as a JSON object in ASCII: exact, and without characters that a terminal obeys."""
    return json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=True)


@lru_cache(maxsize=8)
def moment_text(at_ms: int) -> str:
    """Return a moment as in "2026-11-22T12:03:19.123Z"."""
    try:
        at = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# CSV as RFC 4180 has it, with "\n" as line end: tidy, or wide with a column per series.


def write_tidy(file: TextIO, rows: Sequence[Exported], moments: Iterable[WatchedInterval]) -> int:
    """Write `COLUMNS` of each row, and return the number of rows below the heading."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for row in tidy(rows, moments):
        value = "" if row.value is None else shortest_number(row.value)
        writer.writerow((moment_text(row.at_ms), row.elapsed_s, row.metric, row.labels, value, row.unit, row.reason))
        count += 1
    return count


def write_wide(file: TextIO, rows: Sequence[Exported], moments: Callable[[], Iterable[WatchedInterval]]) -> int:
    """Write a row per moment, and return the number of rows below the heading.

    Columns are time, elapsed_s, and each series, named `metric` or `metric{labels}`; units are those of the tidy form.
    A cell is empty without a value, and where a counter was not read since the row before.

    Args:
        moments: Returns the moments from the beginning; called twice, at first to find the series.
    """
    names: dict[str, dict[str, None]] = {row.id: {} for row in rows}
    for interval in moments():
        for read in read_all(rows, interval):
            names[read.row.id].update(dict.fromkeys(name for name, _ in _cells(read)))
    columns = [name for names_of_row in names.values() for name in names_of_row]
    writer = csv.DictWriter(file, ("time", "elapsed_s", *columns), lineterminator="\n")
    writer.writeheader()
    count = 0
    for interval, reads in read_once(rows, moments()):
        frame = interval.newest
        cells = {name: shortest_number(value) for read in reads for name, value in _cells(read)}
        writer.writerow({"time": moment_text(frame.taken_at_ms), "elapsed_s": frame.elapsed_s, **cells})
        count += 1
    return count


def _cells(read: ReadRow) -> Iterable[tuple[str, float]]:
    for labels, value in read.points:
        yield read.row.id + (labels_text(read.row.labels, labels) if labels else ""), value


# Parquet with the columns of the tidy form, through pyarrow, which is an extra.

_ROWS_AT_ONCE: Final = 65_536
"""Rows of a row group, which is in memory."""


def pyarrow() -> Any:
    """Return the library. Raises UsageProblem where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        hint = "run pip install pyarrow, or pass --format csv"
        raise UsageProblem("Parquet needs pyarrow, which is not installed", hint) from None
    return pyarrow


def write_parquet(path: Path, rows: Sequence[Exported], moments: Iterable[WatchedInterval]) -> int:
    """Write the file, and return the number of rows; an empty cell is null.

    Raises:
        UsageProblem: pyarrow is not installed.
        OSError: The file cannot be written.
    """
    arrow = pyarrow()
    text = arrow.string()
    kinds = (arrow.timestamp("ms", tz="UTC"), arrow.float64(), text, text, arrow.float64(), text, text)
    schema = arrow.schema(list(zip(COLUMNS, kinds, strict=True)))
    tidy_rows, count = tidy(rows, moments), 0
    with arrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while group := list(islice(tidy_rows, _ROWS_AT_ONCE)):
            columns = zip(*group, strict=True)
            arrays = [arrow.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
            writer.write_table(arrow.table(arrays, schema=schema))
            count += len(group)
    return count
