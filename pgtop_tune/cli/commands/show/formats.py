"""The rows of `show` as a table, CSV, JSON and JSON lines. Rows are written one by one."""

from __future__ import annotations

import csv
import io
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

from msgspec import Struct
from rich.cells import cell_len

from pgtop_tune.base.safe_text import json_line, printable
from pgtop_tune.cli.commands.show import ShowFormat
from pgtop_tune.cli.output import say_lines, write_for_programs
from pgtop_tune.export.exported import WatchedInterval
from pgtop_tune.export.tidy import moment_text, no_formula
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.host_values import untold
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import HIDDEN_QUERY
from pgtop_tune.tui.pages.page import PageColumn
from pgtop_tune.tui.widgets.lines import GAP, ellipsized

SCHEMA: Final = "pgtop-tune.show/1"
_MEASURED: Final = 1_000
"""Rows that the widths of a table are taken from."""
_BECAUSE: Final = "; -"
"""Before the words of a definition that tell when a value is missing."""


class ShownRows(Struct, frozen=True):
    """The rows of one moment.

    Attributes:
        subject: Word of the command line.
        table: Id of the table.
        target: The server as the operator named it, or as the recording did.
        frame: The newest frame.
        interval: The frames; it notes absent sections.
        columns: In the order of the output.
        rows: In order; Unavailable where there are none to have.
        count: Number of rows before --limit.
    """

    subject: str
    table: str
    target: str
    frame: Frame
    interval: WatchedInterval
    columns: tuple[PageColumn, ...]
    rows: Sequence[Any] | Unavailable
    count: int

    @property
    def listed(self) -> Sequence[Any]:
        """Return the rows; none where they are unavailable."""
        return () if isinstance(self.rows, Unavailable) else self.rows


def write(moment: ShownRows, format: ShowFormat, *, headings: bool = True) -> None:
    """Write the rows to stdout.

    Args:
        headings: False leaves out the heading of CSV, which stands above the first rows.
    """
    if format is not ShowFormat.TABLE:
        write_for_programs()
    say_lines(_WRITERS[format](moment) if format is not ShowFormat.CSV else _csv(moment, headings=headings))


def program_value(column: PageColumn, row: Any) -> Any:
    """Return the value of a cell for programs; None for what is unknown, hidden or not there."""
    value = column.for_programs(row) if column.for_programs is not None else None
    if value == "" or value == HIDDEN_QUERY or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value


# JSON: a document a moment, or a line a row.


def document(moment: ShownRows) -> str:
    """Return the rows as JSON."""
    return "\n".join(_json(moment))


def _head(moment: ShownRows) -> dict[str, Any]:
    return {
        "schema": SCHEMA, "what": moment.subject, "table": moment.table, "time": moment_text(moment.frame.taken_at_ms)
    }  # fmt: skip


def server_facts(moment: ShownRows) -> dict[str, Any]:
    """Return the server and its machine; null for what the frame does not tell."""
    server, machine = sections.server(moment.frame), sections.machine(moment.frame)
    names = ("version", "version_num", "system_identifier", "cluster_name", "database", "user", "in_recovery")
    is_there = not isinstance(server, Unavailable)
    return {
        "target": moment.target,
        "host": None if isinstance(machine, Unavailable) else machine.hostname,
        **{name: getattr(server, name) if is_there and getattr(server, name) != "" else None for name in names},
    }


def _json(moment: ShownRows) -> Iterator[str]:
    columns = [
        {"id": column.id, "title": column.title, "unit": column.unit, "source": column.source}
        for column in moment.columns
    ]
    head = {**_head(moment), "server": server_facts(moment), "count": moment.count}
    yield json_line(head)[:-1] + ', "columns": ['
    yield from _separated(map(json_line, columns))
    yield '], "rows": ['
    empty = {column.id for column in moment.columns}
    yield from _separated(json_line(cells) for cells in _cells(moment, empty))
    yield f'], "unavailable": {json_line(_reasons(moment, empty))}}}'


def _separated(texts: Iterable[str]) -> Iterator[str]:
    before = None
    for text in texts:
        if before is not None:
            yield f" {before},"
        before = text
    if before is not None:
        yield f" {before}"


def _cells(moment: ShownRows, empty: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows as objects, and take columns with a value out of `empty`."""
    for row in moment.listed:
        cells = {column.id: program_value(column, row) for column in moment.columns}
        if empty:
            empty -= {name for name in empty if cells[name] is not None}
        yield cells


def _reasons(moment: ShownRows, empty: set[str]) -> dict[str, Any]:
    """Return why there are no rows, or no values in a column, as far as that is known."""
    if isinstance(moment.rows, Unavailable):
        return {"rows": _reason(moment.rows)}
    if not moment.rows:
        return {}
    absent = ((column.id, _why_empty(moment, column)) for column in moment.columns if column.id in empty)
    return {name: _reason(reason) for name, reason in absent if reason is not None}


def _reason(absent: Unavailable | str) -> dict[str, str]:
    if isinstance(absent, str):
        return {"reason": "no value", "detail": absent}
    return {"reason": str(absent.reason), "detail": absent.detail}


def _why_empty(moment: ShownRows, column: PageColumn) -> Unavailable | str | None:
    lacking = untold(moment.frame, column.metric) if column.metric else None
    if lacking is not None:
        return lacking
    moment.interval.absent = None
    program_value(column, moment.listed[0])
    because = column.definition.partition(_BECAUSE)[2].strip().rstrip(".")
    return moment.interval.absent or because or None


def _json_lines(moment: ShownRows) -> Iterator[str]:
    """Yield a line a row; of a moment without rows to have, one with the reason."""
    head = json_line(_head(moment))[:-1]
    if isinstance(moment.rows, Unavailable):
        yield f'{head}, "unavailable": {json_line(_reasons(moment, set()))}}}'
    for cells in _cells(moment, set()):
        yield f'{head}, "row": {json_line(cells)}}}'


# CSV as RFC 4180 has it, with "\n" as line end.


def _csv(moment: ShownRows, *, headings: bool) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="")
    at = moment_text(moment.frame.taken_at_ms)
    heads: list[list[Any]] = [["time", *(column.id for column in moment.columns)]] if headings else []
    rows = ([at, *(_csv_cell(program_value(column, row)) for column in moment.columns)] for row in moment.listed)
    for cells in chain(heads, rows):
        writer.writerow(cells)
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _csv_cell(value: Any) -> Any:
    """Return a cell: text is safe for a terminal, and none is a formula."""
    if isinstance(value, list | tuple | dict):
        return json_line(value)
    if not isinstance(value, str):
        return value
    return no_formula(value)


# A table for people: the page's words.


def _table(moment: ShownRows) -> Iterator[str]:
    if isinstance(moment.rows, Unavailable):
        return
    first = iter(moment.rows)
    measured = [_texts(moment.columns, row) for row in islice(first, _MEASURED)]
    heads = [column.title or column.id for column in moment.columns]
    widths = [max(map(cell_len, texts)) for texts in zip(heads, *measured, strict=True)]
    most = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else None
    for texts in chain((heads,), measured, (_texts(moment.columns, row) for row in first)):
        yield _aligned(moment.columns, texts, widths, most)


def _texts(columns: Sequence[PageColumn], row: Any) -> list[str]:
    return [printable(column.text(row)) for column in columns]


def _aligned(columns: Sequence[PageColumn], texts: Sequence[str], widths: Sequence[int], most: int | None) -> str:
    cells = []
    for column, text, width in zip(columns, texts, widths, strict=True):
        blanks = " " * (width - cell_len(text))
        cells.append(blanks + text if column.align == "right" else text + blanks)
    line = (" " * max(GAP, 2)).join(cells).rstrip()
    return line if most is None or cell_len(line) <= most else ellipsized(line, most, "…").rstrip()


_WRITERS: Final = {ShowFormat.TABLE: _table, ShowFormat.JSON: _json, ShowFormat.JSONL: _json_lines}
