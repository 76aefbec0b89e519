"""Results as tables: one column per profile, or one row per endpoint and step, in plain text or Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table
from pgtop_tune.metrics.load import P99, Quantile
from pgtop_tune.metrics.run_validity import short_words
from pgtop_tune.model.run_result import RunResult

_REFUSED: Final = re.compile(r"could not create connection for client (\d+)$", re.MULTILINE)
_ONE_THREAD: Final = re.compile(r" -j 1 ")
_WORDS: Final = 100
"""Of a reason in a cell."""


class ResultFigure(Struct, frozen=True):
    """One figure of a result.

    Attributes:
        text: The figure in words.
    """

    title: str
    text: Callable[[RunResult], str]


def _tps(result: RunResult) -> str:
    if result.state == "failed":
        return f"failed: {_reason(result)}"
    return units.decimal(result.tps, 2) + (" (partial)" if result.partial else "")


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
    return lambda result: units.UNKNOWN if result.state == "failed" else text(result)


def _percentile(result: RunResult, quantile: Quantile) -> str:
    value, latencies = result.percentile(quantile.per_cent), result.latencies
    if value is None or latencies is None:
        return units.UNKNOWN
    return result.mark(latencies, quantile.per_cent) + units.decimal(value, 3)


FIGURES: Final = (
    ResultFigure("transactions", _of_success(lambda result: units.decimal(result.processed, 0))),
    ResultFigure("failed", _of_success(lambda result: units.decimal(result.failed, 0))),
    ResultFigure("latency avg, ms", _of_success(lambda result: units.decimal(result.latency_average_ms, 3))),
    ResultFigure("p99, ms", _of_success(lambda result: _percentile(result, P99))),
    ResultFigure("connect, ms", _of_success(lambda result: units.decimal(result.connection_ms, 3))),
    ResultFigure("qps", _of_success(lambda result: units.decimal(result.qps, 2))),
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
