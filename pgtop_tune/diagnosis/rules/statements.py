"""The statement that takes most of the time: its name for other findings, and tables that it reads row by row."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import count
from pgtop_tune.diagnosis.chains import cpu_ms, queue_ms, read_ms
from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.rule import FindingRule, Hit, evidence, short_name
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.statements import StatementRate, statement_rates
from pgtop_tune.metrics.vacuum import table_rates
from pgtop_tune.model.relations import TableCounters

TIME: Final = "exec_us"
_MOST: Final = 50.0
"""Per cent of the counter's sum over all statements."""
_ROWS: Final = 10_000
"""Rows that an execution reads one by one: an index would take some pages in their place."""
_READ_FOR_ONE: Final = 100
_WORKS: Final = 0.5


class _StatementPart(Struct, frozen=True):
    """A statement, and its part of the counter's sum over all statements, per cent."""

    rate: StatementRate
    percent: float

    @property
    def words(self) -> str:
        """Return the beginning of its text on one line."""
        return short_name(" ".join(self.rate.text.query.split())) if self.rate.text is not None else ""


def _rates(facts: Facts) -> list[StatementRate]:
    return statement_rates(facts.interval)


def _largest(facts: Facts, counter: str) -> _StatementPart | None:
    """Return the statement with the largest part of a counter of pg_stat_statements; None where its text is not known."""
    rates = [(rate, rate.grown.sum(counter) or 0) for rate in facts.once(_rates)]
    total = sum(grown for _, grown in rates)
    rate, grown = max(rates, key=lambda pair: pair[1], default=(None, 0))
    if rate is None or not grown or rate.text is None or not rate.text.query:
        return None
    return _StatementPart(rate, rate.share or 0.0 if counter == TIME else 100.0 * grown / total)


def statement_clause(facts: Facts, counter: str) -> str:
    """Return "; 63 % of statement time by SELECT …" for the end of a sentence; "" where no statement has half of it.

    Args:
        counter: Counter of pg_stat_statements: `TIME`, "temp_blks_written", "shared_blks_read".
    """
    part = _largest(facts, counter)
    if part is None or part.percent < _MOST:
        return ""
    # The time of statements includes their waits.
    whole_of = " of statement time" if counter == TIME else ""
    return f"; {part.percent:.0f} %{whole_of} by {part.words}"


def _scanned(facts: Facts, query: str) -> tuple[TableCounters, float] | None:
    """Return a table named in a statement whose rows are read one by one, and how many a second."""
    scanned = [
        (table.row, rows_per_s)
        for table in table_rates(facts.interval)
        if (rows_per_s := table.per_s("seq_tup_read") or 0.0) >= _ROWS
        and re.search(rf'(?<!\w)"?{re.escape(table.row.name.partition(".")[2])}"?(?!\w)', query)
    ]
    return max(scanned, key=lambda pair: pair[1], default=None)


def _scan(facts: Facts) -> Hit | None:
    busy_ms = cpu_ms(facts) + queue_ms(facts) + read_ms(facts)
    if not facts.latency_ms or busy_ms < _WORKS * facts.latency_ms or (part := _largest(facts, TIME)) is None:
        return None
    rate, share, calls, returned = part.rate, part.percent, part.rate.calls_per_s, part.rate.rows_per_call
    sorts = bool(rate.grown.sum("temp_blks_written"))
    if share < _MOST or not calls or returned is None or rate.text is None or sorts:
        # A statement that sorts or hashes beyond work_mem needs all these rows.
        return None
    scanned = _scanned(facts, rate.text.query)
    if scanned is None or scanned[1] < calls * max(_ROWS, _READ_FOR_ONE * returned):
        return None
    table, rows = short_name(scanned[0].name), scanned[1] / calls
    return Hit(
        sentence=f"{part.words} reads {count(rows)} rows of {table} to return {returned:.0f}: {share:.0f} % of the time",
        short=f"{part.words} reads {count(rows)} rows for {returned:.0f}: {share:.0f} %",
        impact_ms=min(share / 100.0 * busy_ms, facts.latency_ms),
        evidence=evidence(
            ("statement", part.words),
            ("executions", f"{count(calls)}/s of {rate.mean_ms or 0.0:.3g} ms"),
            ("rows read sequentially", f"{count(scanned[1])}/s of {table}"),
            ("rows returned", f"{returned:.3g} per execution"),
        ),
        next_step="show its plan (e); add an index on the filtered columns if few rows match. Not the cause if the plan has no Seq Scan",
    )


RULES: Final = (
    FindingRule(
        id="stmt.scan",
        page="5",
        needs=(sections.statement_counters, sections.relations, sections.waits),
        find=_scan,
        before=("cpu.server", "cpu.full", "io.read.disk", "io.read.cache"),
        sure_of_cpu=True,
    ),
)
