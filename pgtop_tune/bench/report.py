"""pgbench's final report (stdout), versions 13 to 19, read line by line.

Figures of the run come first; "SQL script N: …" begins a section whose figures are indented with " - "; "statement
latencies in milliseconds…" begins a table. The "transactions" of a script include the skipped ones up to 14, and are
those that ended well from 15 to 17; from 18 on a line of its own counts these. pgbench counts for scripts and
statements without locks: with several threads their sums fall short of the run's by a few.

pgbench's `progress:` lines (stderr, one per second with -P 1), versions 13 to 19:

    progress: 10.0 s, 1234.5 tps, lat 8.097 ms stddev 1.234               (13, 14)
    progress: 10.0 s, 1234.5 tps, lat 8.097 ms stddev 1.234, 0 failed     (15 and later)
    …, lag 0.123 ms[, 5 skipped][, 7 retried, 9 retries]                  (--rate, --latency-limit, --max-tries)

With --progress-timestamp the first figure is seconds since the epoch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.model.bench import BenchProgress, BenchReport, ScriptReport, StatementReport

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


def _figure(text: str) -> float | None:
    """Return the number; None for nan and inf, which mean that nothing was processed."""
    value = float(text)
    return value if math.isfinite(value) else None


def _number(text: str) -> float:
    """Return the number; 0.0 for nan and inf: pgbench divides by the count of an interval in which nothing ended."""
    return _figure(text) or 0.0


_MORE: Final[tuple[tuple[re.Pattern[str], str, Callable[[str], float]], ...]] = (
    (re.compile(r"(\d{1,18}) failed"), "failed", int),
    (re.compile(rf"lag ({_NUMBER}) ms", re.I), "lag_ms", _number),
    (re.compile(r"(\d{1,18}) skipped"), "skipped", int),
    (re.compile(r"(\d{1,18}) retried"), "retried", int),
    (re.compile(r"(\d{1,18}) retries"), "retries", int),
)
"""Optional figures of a line: pattern, field of BenchProgress, and conversion of its text."""


def parse_progress(line: str, started_epoch_s: float = 0.0) -> BenchProgress | None:
    """Parse a line of pgbench's stderr.

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
    optional_figures: dict[str, Any] = {}
    for part in match["more"].split(", ")[1:]:
        for pattern, name, read in _MORE:
            figure = pattern.fullmatch(part.strip())
            if figure:
                optional_figures[name] = read(figure[1])
    return BenchProgress(
        elapsed_s=elapsed - started_epoch_s if elapsed >= _EPOCH_FROM_S else elapsed,
        tps=_number(match["tps"]),
        latency_ms=_number(match["latency"]),
        stddev_ms=_number(match["stddev"]),
        **optional_figures,
    )


_FLOAT: Final = f"({_NUMBER})"
_COUNT: Final = r"(\d{1,18})"

_Rows = tuple[tuple[re.Pattern[str], tuple[tuple[str, Callable[[str], Any]], ...]], ...]


def _rows(*rows: tuple[str, tuple[tuple[str, Callable[[str], Any]], ...]]) -> _Rows:
    return tuple((re.compile(pattern, re.I), fields) for pattern, fields in rows)


_SHARED: Final = (
    (rf"number of failed transactions: {_COUNT}", (("failed", int),)),
    (rf"number of serialization failures: {_COUNT}", (("serialization_failures", int),)),
    (rf"number of deadlock failures: {_COUNT}", (("deadlock_failures", int),)),
    (rf"number of transactions retried: {_COUNT}", (("retried", int),)),
    (rf"total number of retries: {_COUNT}", (("retries", int),)),
    (rf"number of transactions skipped: {_COUNT}", (("skipped", int),)),
    (rf"latency average = {_FLOAT} ms", (("latency_average_ms", _figure),)),
    (rf"latency stddev = {_FLOAT} ms", (("latency_stddev_ms", _figure),)),
)
_RUN: Final = _rows(
    *_SHARED,
    (r"pgbench \((.+), server (.+)\)$", (("version", str), ("server_version", str))),
    (r"pgbench \((.+)\)$", (("version", str),)),
    (r"transaction type: (.+)", (("transaction_type", str),)),
    (r"query mode: (\w+)", (("query_mode", str),)),
    (rf"scaling factor: {_COUNT}", (("scale", int),)),
    (rf"number of clients: {_COUNT}", (("clients", int),)),
    (rf"number of threads: {_COUNT}", (("threads", int),)),
    (rf"maximum number of tries: {_COUNT}", (("max_tries", int),)),
    (rf"duration: {_COUNT} s", (("duration_s", int),)),
    (rf"number of transactions per client: {_COUNT}", (("transactions_per_client", int),)),
    (rf"number of transactions actually processed: {_COUNT}/{_COUNT}", (("processed", int), ("asked", int))),
    (rf"number of transactions actually processed: {_COUNT}", (("processed", int),)),
    (rf"number of transactions above the .* latency limit: {_COUNT}", (("latency_limit_exceeded", int),)),
    (
        rf"rate limit schedule lag: avg {_FLOAT} \(max {_FLOAT}\)",
        (("schedule_lag_ms", _figure), ("schedule_lag_max_ms", _figure)),
    ),
    (rf"initial connection time = {_FLOAT} ms", (("initial_connection_ms", _figure),)),
    (rf"average connection time = {_FLOAT} ms", (("average_connection_ms", _figure),)),
    (rf"tps = {_FLOAT} \((?:without initial connection time|including reconnection times)\)", (("tps", _figure),)),
    # 13 has two lines; this one compares with what later versions print.
    (rf"tps = {_FLOAT} \(excluding connections establishing\)", (("tps", _figure),)),
)
_SCRIPT: Final = _rows(
    *_SHARED,
    (rf"weight: {_COUNT} \(targets {_FLOAT}% of total\)", (("weight", int), ("target_percent", _figure))),
    (rf"{_COUNT} transactions \([^,]*, tps = {_FLOAT}\)", (("transactions", int), ("tps", _figure))),
    (rf"{_COUNT} transactions \([^,]*\)$", (("transactions_begun", int),)),
    (
        rf"number of transactions actually processed: {_COUNT} \(tps = {_FLOAT}\)",
        (("processed", int), ("tps", _figure)),
    ),
)
_SECTION: Final = re.compile(rf"SQL script {_COUNT}: (.*)")
_TABLE: Final = re.compile(r"(?: - )?statement latencies in milliseconds(,? (?:and )?failures)?( and retries)?:$")
_CELLS: Final = tuple(
    # One blank before the text in 18, two before that; further ones are the script's own.
    re.compile(rf" +{_FLOAT}" + rf" +{_COUNT}" * counts + r"(?:  ?(\S.*|.*))?", re.I)
    for counts in range(3)
)


class _ReportSection(Struct):
    """Figures that were found so far, of the run (number 0) or of a script."""

    number: int = 0
    name: str = ""
    figures: dict[str, Any] = {}
    statements: list[StatementReport] = []

    def read(self, line: str, rows: _Rows) -> None:
        """Read a line; the first figure of a kind counts."""
        for pattern, fields in rows:
            match = pattern.match(line)
            if match is None:
                continue
            for (name, convert), text in zip(fields, match.groups(), strict=True):
                value = convert(text)
                if value is not None:
                    self.figures.setdefault(name, value)
            return

    def script(self) -> ScriptReport:
        figures = dict(self.figures)
        transactions = figures.pop("transactions", None)
        if figures.pop("transactions_begun", None) == 0:
            # 18 says no more of a script that was never chosen.
            figures.setdefault("processed", 0)
        if transactions is not None and "processed" not in figures:
            # Before 15 there is no line about failures, and the skipped ones are counted in.
            figures["processed"] = transactions - (figures.get("skipped", 0) if "failed" not in figures else 0)
        return ScriptReport(self.number, self.name, **figures, statements=tuple(self.statements))


def parse_report(stdout: str) -> BenchReport | None:
    """Parse the report in pgbench's stdout; return None where there is none, because the run never began.

    A figure that is printed as nan or inf (nothing was processed) is None.
    """
    sections = [_ReportSection()]
    count_columns: int | None = None
    for line in stdout.splitlines():
        section, table = _SECTION.match(line), _TABLE.match(line)
        if section:
            sections.append(_ReportSection(int(section[1]), section[2]))
            count_columns = None
        elif table:
            count_columns = sum(column is not None for column in table.groups())
        elif count_columns is not None:
            statement = _statement(line, count_columns)
            if statement is not None:
                sections[-1].statements.append(statement)
        elif len(sections) == 1:
            sections[0].read(line, _RUN)
        elif line.startswith(" - "):
            sections[-1].read(line[3:], _SCRIPT)
    run, *scripts = sections
    if "processed" not in run.figures:
        return None
    return BenchReport(
        **run.figures,
        scripts=tuple(script.script() for script in scripts),
        statements=tuple(run.statements),
        raw=stdout,
    )


def _statement(line: str, count_columns: int) -> StatementReport | None:
    match = _CELLS[count_columns].fullmatch(line)
    latency_ms = _figure(match[1]) if match else None
    if match is None or latency_ms is None:
        return None
    failures = int(match[2]) if count_columns > 0 else None
    retries = int(match[3]) if count_columns > 1 else None
    return StatementReport(
        text=match[count_columns + 2] or "", latency_ms=latency_ms, failures=failures, retries=retries
    )
