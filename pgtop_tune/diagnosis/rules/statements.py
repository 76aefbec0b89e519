"""The statement that takes most of the time: its name for other findings, and tables that it reads row by row."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from pgtop_tune.base.sql_quoting import identifier
from pgtop_tune.base.units import count, size
from pgtop_tune.diagnosis.chains import cpu_ms, queue_ms, read_ms
from pgtop_tune.diagnosis.facts import Facts, Statement
from pgtop_tune.diagnosis.rule import FindingRule, Hit, culprit_of, evidence, explain, page, short_name, sql
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.statements import StatementRate, statement_rates
from pgtop_tune.metrics.vacuum import GrownRelation, table_rates
from pgtop_tune.model.relations import TableCounters

TIME: Final = "exec_us"
_MOST: Final = 50.0
"""Per cent of the counter's sum over all statements."""
_ROWS: Final = 10_000
"""Rows that an execution reads one by one: an index would take some pages in their place."""
_READ_FOR_ONE: Final = 100
_WORKS: Final = 0.5
_NAMED: Final = 0.25
"""Least share of the time of all statements."""
_BLOCKS: Final = 200
"""Pages that an execution touches: 1.6 MB."""
_BLOCKS_FOR_ONE: Final = 50
"""Pages for each returned row; an index takes a handful."""
_DEAD_OF_LIVE: Final = 2
_CONDITION: Final = re.compile(r"\b(WHERE|JOIN|LIMIT|HAVING)\b")
_WHOLE_ROW: Final = 0.5
_WHOLE_TABLES: Final = (
    "COPY",
    "VACUUM",
    "ANALYZE",
    "CREATE",
    "ALTER",
    "CLUSTER",
    "REINDEX",
    "REFRESH",
    "EXPLAIN",
    "CALL",
    "DO",
)


class _StatementPart(Struct, frozen=True):
    """A statement, and its part of the counter's sum over all statements, per cent."""

    rate: StatementRate
    percent: float

    @property
    def statement(self) -> Statement | None:
        """Return the statement; None where its text is not known."""
        if self.rate.text is None:
            return None
        counters = self.rate.counters
        return Statement(self.rate.text.query, counters.queryid, counters.datname or "", self.percent / 100.0)


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


class Named(Struct, frozen=True):
    """The statement of a finding, and the words about it.

    Attributes:
        statement: The statement; None where no statement has half of the finding.
        whole: Noun that its share is of: "statement time"; "" for the finding itself.
    """

    statement: Statement | None
    whole: str = ""

    @property
    def clause(self) -> str:
        """Return "; 63 % of statement time by SELECT …" for the end of a sentence; "" without a statement."""
        if self.statement is None:
            return ""
        of_whole = f" of {self.whole}" if self.whole else ""
        return f"; {100 * self.statement.share:.0f} %{of_whole} by {self.statement.words}"

    @property
    def brief(self) -> str:
        """Return ": SELECT …" for a short form; "" without a statement."""
        return "" if self.statement is None else f": {self.statement.words}"

    @property
    def words(self) -> str:
        """Return the beginning of the statement; "" without one."""
        return "" if self.statement is None else self.statement.words

    @property
    def culprit(self) -> str:
        """Return the words with which it begins, for `Hit.culprit`."""
        return culprit_of(self.statement)


def named(facts: Facts, counter: str, *waits: str) -> Named:
    """Return the statement with at least half of a counter; of one that has not ended yet, of the samples of its waits.

    Args:
        counter: Counter of pg_stat_statements: `TIME`, "temp_blks_written", "shared_blks_read"; "" for samples only.
        waits: Waits of the finding, as for `Facts.statement`.
    """
    sampled = facts.statement(*waits) if waits else None
    part = _largest(facts, counter) if counter else None
    if part is not None and part.percent >= _MOST and (sampled is None or part.percent >= 100.0 * sampled.share):
        # The time of statements includes their waits.
        return Named(part.statement, "statement time" if counter == TIME else "")
    return Named(sampled)


class _Scan(Struct, frozen=True):
    """A statement that reads far more than it returns.

    Attributes:
        rate: The statement.
        part: Its share of the time of all statements, 0 to 1.
        blocks: Blocks of tables and indexes that an execution touches.
        returned: Rows that an execution returns.
        table: Table that it reads row by row; None while it is not known.
        rows: Rows of it that an execution reads.
        by_index: Whether these rows come from an index scan.
    """

    rate: StatementRate
    part: float
    blocks: float
    returned: float
    table: TableCounters | None = None
    rows: float = 0.0
    by_index: bool = False


def _tables_of(facts: Facts, query: str) -> list[GrownRelation[TableCounters]]:
    """Return the tables named in a statement."""
    return [
        table
        for table in table_rates(facts.interval)
        if re.search(rf'(?<!\w)"?{re.escape(table.row.name.partition(".")[2])}"?(?!\w)', query)
    ]


def _is_wasteful(rate: StatementRate, whole_us: float, blocks: float, returned: float) -> bool:
    """Return whether a statement reads many blocks for each row; one that spills sorts or hashes all that it reads."""
    share = (rate.grown.sum("exec_us") or 0) / whole_us
    return (
        share >= _NAMED
        and blocks >= max(_BLOCKS, _BLOCKS_FOR_ONE * returned)
        and not rate.grown.sum("temp_blks_written")
    )


def _worst(facts: Facts) -> _Scan | None:
    """Return the statement with most time among those that read far more than they return."""
    rates = [rate for rate in facts.once(_rates) if rate.text is not None and rate.text.query]
    # A statement inside of a function counts in the statement that calls it, too.
    whole_us = sum(rate.grown.sum("exec_us") or 0 for rate in rates if rate.counters.toplevel)
    found: list[_Scan] = []
    for rate in rates:
        blocks, returned = rate.grown.each("shared_blks_hit", "calls"), rate.rows_per_call
        more = rate.grown.each("shared_blks_read", "calls")
        if blocks is None or more is None or returned is None or not whole_us or _reads_all(rate):
            continue
        if _is_wasteful(rate, whole_us, blocks + more, returned):
            part = min((rate.grown.sum("exec_us") or 0) / whole_us, 1.0)
            found.append(_Scan(rate, part, blocks + more, returned))
    scan = max(found, key=lambda one: one.part, default=None)
    if scan is None or scan.rate.text is None:
        return None
    calls = scan.rate.calls_per_s or 0.0
    for counter, by_index in (("seq_tup_read", False), ("idx_tup_fetch", True)):
        tables = [(table.per_s(counter) or 0.0, table) for table in _tables_of(facts, scan.rate.text.query)]
        rows_per_s, table = max(tables, key=lambda pair: pair[0], default=(0.0, None))
        rows = rows_per_s / calls if calls else 0.0
        if table is not None and rows >= max(_ROWS, _READ_FOR_ONE * scan.returned):
            return _Scan(scan.rate, scan.part, scan.blocks, scan.returned, table.row, rows, by_index)
    dead = [one.row for one in _tables_of(facts, scan.rate.text.query) if one.row.n_dead_tup >= _ROWS]
    return _Scan(
        scan.rate, scan.part, scan.blocks, scan.returned, max(dead, key=lambda row: row.n_dead_tup, default=None)
    )


def _reads_all(rate: StatementRate) -> bool:
    """Return whether it reads whole tables by its nature: a utility command, or a query without any condition."""
    query = rate.text.query.lstrip().upper() if rate.text is not None else ""
    return query.startswith(_WHOLE_TABLES) or not _CONDITION.search(query)


def _scan(facts: Facts) -> Hit | None:
    busy_ms = cpu_ms(facts) + queue_ms(facts) + read_ms(facts)
    if not facts.latency_ms or busy_ms < _WORKS * facts.latency_ms or (scan := facts.once(_worst)) is None:
        return None
    part = _StatementPart(scan.rate, 100.0 * scan.part)
    statement, table, returned = part.statement, scan.table, scan.returned
    assert statement is not None
    time_text, for_text = (
        f"{part.percent:.0f} % of the time",
        f"for {returned:.0f}" if returned >= _WHOLE_ROW else "for none",
    )
    block_bytes = scan.rate.block_bytes
    dead = table is not None and table.n_dead_tup >= max(_ROWS, _DEAD_OF_LIVE * table.n_live_tup)
    name = short_name(table.name.removeprefix("public.")) if table is not None else ""
    if table is None or not scan.rows:
        read = f"{count(scan.blocks)} pages"
        likely = (
            f"likely {count(table.n_dead_tup)} dead rows of {name}"
            if table is not None and dead
            else "likely a missing index or a wrong plan"
        )
    else:
        read = f"{count(scan.rows)} rows of {name}"
        likely = "likely a wrong index" if scan.by_index else "likely a missing index"
        likely = f"likely {count(table.n_dead_tup)} dead rows" if dead else likely
    says = f"{statement.words} reads {read} {for_text}"
    deeds = explain(statement, "shows whether it reads the table by Seq Scan or by which index")
    if dead and table is not None:
        deeds = (
            sql(
                f"VACUUM {_identifier(table.name)};",
                "removes dead rows, unless a transaction still sees them (9)",
                statement.database,
            ),
            *deeds,
        )
    return Hit(
        sentence=f"{says}: {time_text}, {likely}",
        middle=(f"{says}: {time_text}",),
        short=says,
        culprit=culprit_of(statement),
        statement=statement.words,
        impact_ms=min(scan.part * busy_ms, facts.latency_ms),
        evidence=evidence(
            ("statement", statement.words),
            ("executions", f"{count(scan.rate.calls_per_s)}/s of {scan.rate.mean_ms or 0.0:.3g} ms"),
            (
                "pages",
                f"{count(scan.blocks)} ({size(scan.blocks * block_bytes)}B) an execution" if block_bytes else None,
            ),
            ("rows read by an execution", f"{count(scan.rows)} of {name}" if scan.rows else None),
            ("rows returned", f"{returned:.3g} an execution"),
            ("dead rows", f"{count(table.n_dead_tup)} of {name}" if table is not None and dead else None),
        ),
        next_step=(
            "VACUUM, and end the transaction that holds dead rows back (9). If pages per execution stay, it was the plan"
            if dead
            else "explain it (e): an index on the columns it filters by. If the plan reads few rows, it was not the cause"
        ),
        deeds=(*deeds, page("5", "shows pages and rows of each statement")),
    )


def _identifier(name: str) -> str:
    schema, _, table = name.partition(".")
    return identifier(schema, table)


RULES: Final = (
    FindingRule(
        id="stmt.scan",
        page="5",
        needs=(sections.statement_counters, sections.waits),
        find=_scan,
        before=("cpu.server", "cpu.full", "io.read.disk", "io.read.cache"),
        sure_of_cpu=True,
    ),
)
