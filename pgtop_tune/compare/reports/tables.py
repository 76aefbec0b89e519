"""Results as tables: one column per profile, or one row per endpoint and step, in plain text or Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.metrics.load import P99, Quantile
from pgtop_tune.metrics.run_validity import short_words
from pgtop_tune.model.run_result import RunResult

MISSING: Final = "-"
_ESCAPED: Final = str.maketrans({letter: f"\\{letter}" for letter in "\\|`["} | {"<": "&lt;"})
"""What would end a cell of Markdown, or begin code, a link or markup in it."""
_REFUSED: Final = re.compile(r"could not create connection for client (\d+)$", re.MULTILINE)
_ONE_THREAD: Final = re.compile(r" -j 1 ")
_WORDS: Final = 100
"""Of a reason in a cell."""


class Table(Struct, frozen=True):
    """Cells as text.

    Attributes:
        right: Columns whose cells are numbers, by index.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int]


class ResultFigure(Struct, frozen=True):
    """One figure of a result.

    Attributes:
        text: The figure in words.
    """

    title: str
    text: Callable[[RunResult], str]


def _number(value: float | None, digits: int) -> str:
    return MISSING if value is None else f"{value:.{digits}f}"


def _tps(result: RunResult) -> str:
    if result.state == "failed":
        return f"failed: {_reason(result)}"
    return _number(result.tps, 2) + (" (partial)" if result.partial else "")


def _reason(result: RunResult) -> str:
    """pgbench's own words, and how many clients had a connection before them."""
    words = one_line(short_words(result.message), _WORDS) or "no reason given"
    connected = connected_clients(result.command, result.stderr)
    return words + (f" (after {connected} clients)" if connected is not None else "")


def connected_clients(command: str, stderr: str) -> int | None:
    """How many clients of pgbench had a connection when the next one was refused; None where none was, or who knows.

    pgbench counts its clients from 0 and connects them in this order, but each of several threads its own share at the
    same time: then the number of the one that was refused says nothing.
    """
    refused = _REFUSED.search(stderr)
    return int(refused[1]) if refused and _ONE_THREAD.search(command) else None


def _of_success(text: Callable[[RunResult], str]) -> Callable[[RunResult], str]:
    """A failed run has no figures, whatever pgbench printed."""
    return lambda result: MISSING if result.state == "failed" else text(result)


def _percentile(result: RunResult, quantile: Quantile) -> str:
    value = result.percentile(quantile.per_cent)
    latencies = result.latencies
    return (
        MISSING if value is None or latencies is None else result.mark(latencies, quantile.per_cent) + _number(value, 3)
    )


FIGURES: Final = (
    ResultFigure("transactions", _of_success(lambda result: _number(result.processed, 0))),
    ResultFigure("failed", _of_success(lambda result: _number(result.failed, 0))),
    ResultFigure("latency avg, ms", _of_success(lambda result: _number(result.latency_average_ms, 3))),
    ResultFigure("p99, ms", _of_success(lambda result: _percentile(result, P99))),
    ResultFigure("connect, ms", _of_success(lambda result: _number(result.connection_ms, 3))),
    ResultFigure("qps", _of_success(lambda result: _number(result.qps, 2))),
    ResultFigure("tps", _tps),
)
_NAMES: Final = (
    ResultFigure("endpoint", lambda result: one_line(result.endpoint, 40)),
    ResultFigure("configuration", lambda result: result.configuration),
    ResultFigure("profile", lambda result: one_line(load_name(result), 40)),
    ResultFigure("clients", lambda result: str(result.spec.clients)),
    ResultFigure("rate", lambda result: "" if result.spec.rate_per_s is None else units.number(result.spec.rate_per_s)),
)


def load_name(result: RunResult) -> str:
    """The profile, or the scripts."""
    return result.profile or " ".join(script.name for script in result.scripts) or "scripts"


def table_of(results: Sequence[RunResult]) -> Table:
    """Profiles side by side where nothing but the profile differs, else a row for each run.

    The row names what differs between runs, and the clients always.
    """
    different = [name for name in _NAMES if len({name.text(result) for result in results}) > 1]
    if [name.title for name in different] == ["profile"]:
        return _side_by_side(results)
    named = [name for name in _NAMES if name in different or name.title == "clients"]
    columns = [*named, *FIGURES]
    rows = tuple(tuple(column.text(result) for column in columns) for result in results)
    words = {index for index, column in enumerate(columns) if column.title in ("endpoint", "configuration", "profile")}
    return Table(tuple(column.title for column in columns), rows, frozenset(range(len(columns))) - words)


def _side_by_side(results: Sequence[RunResult]) -> Table:
    heads = ("", *(one_line(load_name(result), 40) for result in results))
    rows = tuple((figure.title, *(figure.text(result) for result in results)) for figure in FIGURES)
    return Table(heads, rows, frozenset(range(1, len(heads))))


def as_markdown(table: Table) -> str:
    """A Markdown table; what would end a cell is escaped."""
    rule = ["---:" if index in table.right else "---" for index in range(len(table.heads))]
    lines = [[_cell(text) for text in table.heads], rule, *([_cell(text) for text in row] for row in table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_text(table: Table) -> str:
    """Columns aligned by spaces; a reason that is longer than its column's figures does not widen it."""
    last = len(table.heads) - 1
    widths = [
        max(len(row[index]) for row in (table.heads, *table.rows) if not _is_reason(row[index]))
        for index in range(len(table.heads))
    ]
    lines = []
    for row in (table.heads, *table.rows):
        cells = [
            text if _is_reason(text) and index == last
            else text.rjust(widths[index]) if index in table.right
            else text.ljust(widths[index])
            for index, text in enumerate(row)
        ]  # fmt: skip
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _is_reason(text: str) -> bool:
    return text.startswith("failed: ")


def _cell(text: str) -> str:
    return text.translate(_ESCAPED)


def percentile_words(result: RunResult) -> str:
    """p50 to p99.99 and the maximum on one line; "" when nothing was logged."""
    latencies = result.latencies
    if latencies is None:
        return ""
    mark = result.log_mark
    words = [
        f"p{quantile:g} {units.marked_ms(result.mark(latencies, quantile), value)}"
        for quantile, value in latencies.quantiles
    ]
    logged = f"{latencies.logged} of {result.processed}" if mark and result.processed else str(latencies.logged)
    return f"latency, ms: {'  '.join(words)}  max {units.marked_ms(mark, latencies.max_ms)}  ({logged} logged)"
