"""One row per moment, metric and labels: as CSV, JSON, Parquet and DuckDB.

time       moment of the look, UTC, by the clock of the machine that recorded; of a counter when it was read
elapsed_s  the same in seconds since the session began, monotonic
metric     "server.tps"
labels     JSON object with what tells the series of a metric apart; empty where there is one
value      empty when it cannot be said
unit       of the value; empty for a plain count
reason     why there is no value: the words of `model.absence.Reason`, or "cannot be said" of the first reading, a
           restart, a reset, or nothing to divide by; empty beside a value
host       name of the server's machine; empty where the recording does not tell it
cluster    system identifier of the server; the same

No cell of text begins with a sign that a spreadsheet takes for a formula, whatever names a server has.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from errno import EIO
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, TextIO

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.safe_text import printable
from pgtop_tune.export.exported import Exported, ReadRow, WatchedInterval, read_all, read_once, wall_clock_ms
from pgtop_tune.export.openmetrics import shortest_number
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame

COLUMNS: Final = ("time", "elapsed_s", "metric", "labels", "value", "unit", "reason", "host", "cluster")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a text that a spreadsheet takes for a formula."""
_ORIGIN_FRAMES: Final = 120
"""Frames at the begin of a recording within which it tells its machine and server."""


def no_formula(text: str) -> str:
    """Return a text for a cell, safe for a terminal and never a formula: an apostrophe stands before such a text."""
    safe = printable(text, max(len(text), 1))
    return f"'{safe}" if text.startswith(_FORMULA) else safe


class Origin(NamedTuple):
    """Machine and server of a recording; None where it does not tell them."""

    host: str | None = None
    cluster: str | None = None


def origin_of(frames: Iterable[Frame]) -> Origin:
    """Return the machine and the server that the first frames tell."""
    origin = Origin()
    for frame in islice(frames, _ORIGIN_FRAMES):
        machine, server = sections.machine(frame), sections.server(frame)
        host = None if isinstance(machine, Unavailable) else no_formula(machine.hostname)
        cluster = None if isinstance(server, Unavailable) else no_formula(server.system_identifier)
        origin = Origin(origin.host or host or None, origin.cluster or cluster or None)
        if origin.host and origin.cluster:
            break
    return origin


NOWHERE: Final = Origin()
_AFTER_VALUE: Final = 4
"""Columns behind the value."""


class MomentsOfRecording(NamedTuple):
    """A recording to export: its moments, from the beginning at each call, and its origin."""

    moments: Callable[[], Iterable[WatchedInterval]]
    origin: Origin = NOWHERE


class TidyRow(NamedTuple):
    """A row; `at_ms` is in milliseconds since the epoch, and None is an empty cell."""

    at_ms: int
    elapsed_s: float
    metric: str
    labels: str | None
    value: float | None
    unit: str | None
    reason: str | None
    host: str | None
    cluster: str | None


def tidy(rows: Sequence[Exported], moments: Iterable[WatchedInterval], origin: Origin = NOWHERE) -> Iterator[TidyRow]:
    """Yield the rows of each moment of a recording; a counter only where it was read, with the time of its reading.

    A family without members, as without a standby, has no row.
    """
    for interval, reads in read_once(rows, moments):
        for row, points, reason, at_s in reads:
            at_ms = wall_clock_ms(interval, at_s)
            for labels, value in points:
                text = labels_text(row.labels, labels) if labels else None
                yield TidyRow(at_ms, at_s, row.id, text, value, row.unit or None, None, *origin)
            if reason:
                yield TidyRow(at_ms, at_s, row.id, None, None, row.unit or None, reason, *origin)


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


def write_tidy(file: TextIO, tidy_rows: Iterable[TidyRow]) -> int:
    """Write `COLUMNS` of each row, and return the number of rows below the heading."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for row in tidy_rows:
        value = "" if row.value is None else shortest_number(row.value)
        writer.writerow((moment_text(row.at_ms), row.elapsed_s, row.metric, row.labels, value, *row[-_AFTER_VALUE:]))
        count += 1
    return count


def write_wide(file: TextIO, rows: Sequence[Exported], recordings: Sequence[MomentsOfRecording]) -> int:
    """Write a row per moment, and return the number of rows below the heading.

    Columns are time, elapsed_s, host, cluster, and each series, named `metric` or `metric{labels}`; units are those of
    the tidy form. A cell is empty without a value, and where a counter was not read since the row before.

    Args:
        recordings: Each is read twice, at first to find the series.
    """
    names: dict[str, dict[str, None]] = {row.id: {} for row in rows}
    for interval in chain.from_iterable(recording.moments() for recording in recordings):
        for read in read_all(rows, interval):
            names[read.row.id].update(dict.fromkeys(name for name, _ in _cells(read)))
    columns = [name for names_of_row in names.values() for name in names_of_row]
    writer = csv.DictWriter(file, ("time", "elapsed_s", "host", "cluster", *columns), lineterminator="\n")
    writer.writeheader()
    count = 0
    for recording in recordings:
        for interval, reads in read_once(rows, recording.moments()):
            at = {"time": moment_text(interval.newest.taken_at_ms), "elapsed_s": interval.newest.elapsed_s}
            cells = {name: shortest_number(value) for read in reads for name, value in _cells(read)}
            writer.writerow({**at, **recording.origin._asdict(), **cells})
            count += 1
    return count


def _cells(read: ReadRow) -> Iterable[tuple[str, float]]:
    for labels, value in read.points:
        yield read.row.id + (labels_text(read.row.labels, labels) if labels else ""), value


# JSON with members named as the columns: one array, or an object a line.


def write_json(file: TextIO, tidy_rows: Iterable[TidyRow], *, lines: bool) -> int:
    """Write the rows, and return their number; `labels` is an object.

    Args:
        lines: One object a line, without an array around them.
    """
    first, between, last = ("", "\n", "\n") if lines else ("[\n", ",\n", "\n]\n")
    count = 0
    for row in tidy_rows:
        cells = dict(zip(COLUMNS, row, strict=True))
        cells |= {"time": moment_text(row.at_ms), "labels": None if row.labels is None else json.loads(row.labels)}
        file.write((between if count else first) + json.dumps(cells))
        count += 1
    file.write(last if count else "" if lines else "[]\n")
    return count


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


def write_parquet(path: Path, tidy_rows: Iterable[TidyRow]) -> int:
    """Write the file, and return the number of rows; an empty cell is null.

    Raises:
        UsageProblem: pyarrow is not installed.
        OSError: The file cannot be written.
    """
    arrow = pyarrow()
    text = arrow.string()
    kinds = (arrow.timestamp("ms", tz="UTC"), arrow.float64(), text, text, arrow.float64(), text, text, text, text)
    schema = arrow.schema(list(zip(COLUMNS, kinds, strict=True)))
    rows_left, count = iter(tidy_rows), 0
    with arrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while group := list(islice(rows_left, _ROWS_AT_ONCE)):
            columns = zip(*group, strict=True)
            arrays = [arrow.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
            writer.write_table(arrow.table(arrays, schema=schema))
            count += len(group)
    return count


# DuckDB: a database with one table, `metrics`, through duckdb, which is an extra.

_DUCKDB_KINDS: Final = (
    "TIMESTAMPTZ",
    "DOUBLE",
    "VARCHAR",
    "VARCHAR",
    "DOUBLE",
    "VARCHAR",
    "VARCHAR",
    "VARCHAR",
    "VARCHAR",
)


def duckdb() -> Any:
    """Return the library. Raises UsageProblem where it is not installed."""
    try:
        import duckdb
    except ImportError:
        hint = "run pip install duckdb, or write .parquet or .csv, which DuckDB reads, too"
        raise UsageProblem("a DuckDB file needs duckdb, which is not installed", hint) from None
    return duckdb


def write_duckdb(path: Path, tidy_rows: Iterable[TidyRow]) -> int:
    """Write a database, and return the number of rows; an empty cell is null.

    Raises:
        UsageProblem: duckdb is not installed.
        OSError: The file cannot be written.
    """
    library = duckdb()
    with TemporaryDirectory(dir=path.parent, prefix=f"{path.name}.") as directory:
        rows, new_database = Path(directory) / "rows.csv", Path(directory) / "new"
        with rows.open("w", encoding="utf-8", newline="") as file:
            count = write_tidy(file, tidy_rows)
        columns = ", ".join(f"'{name}': '{kind}'" for name, kind in zip(COLUMNS, _DUCKDB_KINDS, strict=True))
        source = str(rows).replace("'", "''")
        try:
            with library.connect(str(new_database)) as database:
                # An empty cell has no value: no text of a row is empty.
                read = f"read_csv('{source}', header = true, columns = {{{columns}}})"
                database.execute(f"CREATE TABLE metrics AS SELECT * FROM {read}")
        except library.Error as problem:
            raise OSError(EIO, str(problem)) from None
        new_database.chmod(0o600)
        new_database.replace(path)
    return count
