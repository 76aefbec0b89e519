"""CSV as RFC 4180 has it, with "\\n" as line end: tidy, or wide with a column per series."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from pgtop_tune.export.exported import Exported, ReadRow, WatchedInterval, read_all, read_once
from pgtop_tune.export.openmetrics import number
from pgtop_tune.export.tidy import COLUMNS, labels_text, moment_text, tidy


def write_tidy(file: TextIO, rows: Sequence[Exported], moments: Iterable[WatchedInterval]) -> int:
    """Columns as in `tidy`; gives the number of rows below the heading."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for row in tidy(rows, moments):
        value = "" if row.value is None else number(row.value)
        writer.writerow((moment_text(row.at_ms), row.elapsed_s, row.metric, row.labels, value, row.unit, row.reason))
        count += 1
    return count


def write_wide(file: TextIO, rows: Sequence[Exported], moments: Callable[[], Iterable[WatchedInterval]]) -> int:
    """A row per moment: time, elapsed_s, and a column per series, called `metric` or `metric{labels}`.

    Units are those of the tidy form; a cell without a value is empty, and so is that of a counter which was not read
    since the row before.

    Args:
        file: Where to.
        rows: What is wanted.
        moments: Gives the moments from the beginning, twice: the first time to see which series there are.

    Returns:
        The number of rows below the heading.
    """
    names: dict[str, dict[str, None]] = {row.id: {} for row in rows}
    for interval in moments():
        for read in read_all(rows, interval):
            names[read.row.id].update(dict.fromkeys(name for name, _ in _cells(read)))
    places = {name: place for place, name in enumerate(name for each in names.values() for name in each)}
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("time", "elapsed_s", *places))
    count = 0
    for interval, found in read_once(rows, moments()):
        line = [""] * len(places)
        for read in found:
            for name, value in _cells(read):
                line[places[name]] = number(value)
        writer.writerow((moment_text(interval.newest.taken_at_ms), interval.newest.elapsed_s, *line))
        count += 1
    return count


def _cells(read: ReadRow) -> Iterable[tuple[str, float]]:
    for labels, value in read.points:
        yield read.row.id + (labels_text(read.row.labels, labels) if labels else ""), value
