"""The statement that takes most of the time: its name for other findings, and tables that it reads row by row."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.sql_quoting import identifier
from pgtop_tune.base.units import about, count, duration
from pgtop_tune.diagnosis.chains import cpu_ms, queue_ms, read_ms
from pgtop_tune.diagnosis.facts import FULL, WORKER, Facts, Statement
from pgtop_tune.diagnosis.finding import Deed
from pgtop_tune.diagnosis.rule import (
    FindingRule,
    Hit,
    culprit_of,
    evidence,
    explain,
    holder_deeds,
    page,
    session_name,
    short_name,
    sql,
    stage,
)
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.statements import StatementRate, statement_rates
from pgtop_tune.metrics.vacuum import GrownRelation, HorizonHolder, holders, table_rates
from pgtop_tune.model.relations import TableCounters
from pgtop_tune.model.statements import first_word

TIME: Final = "exec_us"
CPU_RULES: Final = ("cpu.server", "cpu.full")
"""Findings of which a statement may be the cause."""
_ROWS: Final = 10_000
"""Rows that an execution reads one by one: an index would take some pages in their place."""
_READ_FOR_ONE: Final = 100
_WORKS: Final = 0.5
_SCANS: Final = 4.0
"""Scans of a table for each execution from which on one execution scans it several times."""
_NAMED: Final = 0.25
"""Least share of the time of all statements."""
_BLOCKS: Final = 200
"""Pages that an execution touches: 1.6 MB."""
_FEW_BLOCKS: Final = 20
"""Pages, and pages for each returned row, from which on dead rows that a transaction keeps are looked for."""
_SCAN: Final = 5.0
"""Pages that a scan takes at most before its first row: the levels of an index, or a small table."""
_FEWER: Final = 1_000.0
"""Pages that scans of unknown number may explain."""
_BLOCKS_FOR_ONE: Final = 50
"""Pages for each returned row; an index takes a handful."""
_DEAD_OF_LIVE: Final = 0.5
_HOLDS_S: Final = 10.0
_TABLE: Final = 20
_BRIEF: Final = 26
_CONDITION: Final = re.compile(r"\b(WHERE|JOIN|LIMIT|HAVING)\b")
_EQUALS: Final = re.compile(r"(?<![<>!])=\s*([$?'\d]|ANY\b)|(?<!NOT )\bIN\s*\(", re.IGNORECASE)
"""A comparison of a column, or of a function of it, to a value."""
_ARITHMETIC: Final = re.compile(r"[%+*/-]\s*[$?\d][\w.]*\)*\s*=")
"""A comparison of a sum or a remainder, which no index of the column helps."""
_DIFFERS: Final = re.compile(r"<>|!=|\bNOT IN\b", re.IGNORECASE)
_EARLIER: Final = 50
"""Executions before the window that tell how many pages one used to touch."""
_MORE_PAGES: Final = 5.0
"""Growth of the pages of an execution that another plan explains, and no growth of the table."""
_ORDERED: Final = re.compile(r"\bLIMIT\b|\b(MIN|MAX)\s*\(", re.IGNORECASE)
"""A query for the first rows, a minimum or a maximum may use the index of that order in place of the condition's."""
_ROLLBACK_TO: Final = re.compile(r"ROLLBACK\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b", re.IGNORECASE)
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
    text: str

    @property
    def statement(self) -> Statement:
        """Return the statement."""
        counters = self.rate.counters
        return Statement(self.text, counters.queryid, counters.datname or "", self.percent / 100.0)


def rates_of(facts: Facts) -> list[StatementRate]:
    """Return every statement with its growth over ten seconds."""
    return statement_rates(facts.interval)


def is_savepoint(text: str) -> bool:
    """Return whether a statement begins or ends a subtransaction of its session."""
    word = first_word(text)
    return word in ("SAVEPOINT", "RELEASE") or (word == "ROLLBACK" and _ROLLBACK_TO.search(text) is not None)


def savepoints_per_s(facts: Facts) -> float:
    """Return the savepoints per second that sessions set, without those that EXCEPTION blocks set."""
    rates = facts.once(rates_of)
    return sum(
        rate.grown.per_s("calls") or 0.0
        for rate in rates
        if first_word(facts.text_of(rate.counters.queryid)) == "SAVEPOINT"
    )


def _largest(facts: Facts, counter: str) -> _StatementPart | None:
    """Return the statement with the largest part of a counter of pg_stat_statements; None where its text is not known."""
    rates = [(rate, rate.grown.sum(counter) or 0) for rate in facts.once(rates_of)]
    total = sum(grown for _, grown in rates)
    rate, grown = max(rates, key=lambda pair: pair[1], default=(None, 0))
    text = facts.text_of(rate.counters.queryid) if rate is not None else ""
    if rate is None or not grown or not text:
        return None
    return _StatementPart(rate, rate.share or 0.0 if counter == TIME else 100.0 * grown / total, text)


class Named(Struct, frozen=True):
    """The statement of a finding, and the words about it.

    Attributes:
        statement: The statement; None where no statement has half of the finding.
        runs_s: Time for which it runs, where that is all that is known of it; else 0.
        total: Noun that its share is of: "statement time"; "" for the finding itself.
    """

    statement: Statement | None
    total: str = ""
    runs_s: float = 0.0

    @property
    def clause(self) -> str:
        """Return "; 63 % of statement time by SELECT …" for the end of a sentence; "" without a statement."""
        if self.statement is None:
            return ""
        if self.runs_s:
            return f"; {self.statement.words} has run for {duration(self.runs_s)}"
        of_total = f" of {self.total}" if self.total else ""
        return f"; {100 * self.statement.share:.0f} %{of_total} by {self.statement.words}"

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


def named(facts: Facts, counter: str, *waits: str, of_total: float | None = None, under_way: bool = False) -> Named:
    """Return the statement that most sessions run in some waits; where samples do not tell, by a counter.

    Args:
        counter: Counter of pg_stat_statements: `TIME`, "temp_blks_written", "shared_blks_read".
        waits: Waits of the finding, as for `Facts.statement`.
        under_way: Whether a statement that runs for long comes before the samples, because its counts are missing.
        of_total: Growth of the counter per second that the statement is to explain half of; None for no such figure. A
            statement that failed or has not ended yet is not counted.
    """
    part = _largest(facts, counter)
    too_little = of_total and part is not None and (part.rate.grown.per_s(counter) or 0.0) < of_total / 2.0
    if part is None or not part.statement.is_culprit or too_little:
        longest = facts.longest_statement() if under_way else None
        return Named(longest[0], runs_s=longest[1]) if longest is not None else Named(facts.statement(*waits))
    if of_total is None and (sampled := facts.statement(*waits)) is not None:
        return Named(sampled)
    # The time of statements includes their waits.
    return Named(part.statement, "statement time" if counter == TIME else "")


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
        of_trigger: Whether the statement does not name the table: a foreign key or a trigger reads it.
        holder: Holder of the dead rows of the table, oldest first; None where vacuum can remove them.
        by_scans: Whether the number of its scans explains its pages: of partitions, or of an index for many keys.
    """

    rate: StatementRate
    part: float
    blocks: float
    returned: float
    table: TableCounters | None = None
    rows: float = 0.0
    by_index: bool = False
    of_trigger: bool = False
    holder: HorizonHolder | None = None
    by_scans: bool = False

    @property
    def dead(self) -> int:
        """Number of dead rows of the table where they explain the reads; else 0."""
        table = self.table
        return (
            table.n_dead_tup
            if table is not None and table.n_dead_tup >= max(_ROWS, _DEAD_OF_LIVE * table.n_live_tup)
            else 0
        )


def _holder(facts: Facts, query_id: int) -> HorizonHolder | None:
    """Return the oldest holder of dead rows that has held them for a while, other than runs of the statement itself."""
    activity = facts.interval.now(sections.activity)
    rows = activity.backends if activity is not None else ()
    own_pids = {row.pid for row in rows if row.query_id == query_id and row.state == "active"}
    old = (one for one in holders(facts.interval) if one.since_s is None or one.since_s >= _HOLDS_S)
    return next((one for one in old if one.backend is None or one.backend[0] not in own_pids), None)


def _tables_of(facts: Facts, query: str) -> list[GrownRelation[TableCounters]]:
    """Return the tables named in a statement."""
    return [
        table
        for table in table_rates(facts.interval)
        if re.search(rf'(?<!\w)"?{re.escape(table.row.name.partition(".")[2])}"?(?!\w)', query)
    ]


def _worst(facts: Facts) -> _Scan | None:
    """Return the statement with most time among those that read far more than they return."""
    rates = facts.once(rates_of)
    # A statement inside of a function counts in the statement that calls it, too.
    whole_us = sum(rate.grown.sum("exec_us") or 0 for rate in rates if rate.counters.toplevel)
    scans: list[_Scan] = []
    for rate in rates:
        blocks, returned = rate.grown.each("shared_blks_hit", "calls"), rate.rows_per_call
        more = rate.grown.each("shared_blks_read", "calls")
        # A statement that spills sorts or hashes all that it reads.
        if blocks is None or more is None or returned is None or not whole_us or rate.grown.sum("temp_blks_written"):
            continue
        scan = _Scan(rate, min((rate.grown.sum("exec_us") or 0) / whole_us, 1.0), blocks + more, returned)
        if scan.part >= _NAMED and scan.blocks >= max(_FEW_BLOCKS, _FEW_BLOCKS * returned):
            scans.append(scan)
    located_scans = (_with_table(facts, scan) for scan in sorted(scans, key=lambda one: -one.part))
    return next((scan for scan in located_scans if scan is not None), None)


def _with_table(facts: Facts, scan: _Scan) -> _Scan | None:
    """Return the scan with the table that it reads; None where it reads little, or all of it by its nature."""
    query, calls = facts.text_of(scan.rate.counters.queryid), scan.rate.calls_per_s or 0.0
    if not query or _reads_all(query):
        return None
    tables, unnamed_tables = _tables_of(facts, query), list[GrownRelation[TableCounters]]()
    if first_word(query) in ("DELETE", "UPDATE", "INSERT"):
        # A foreign key or a trigger reads a table that the statement does not name.
        own_oids = {table.row.oid for table in tables}
        unnamed_tables = [table for table in table_rates(facts.interval) if table.row.oid not in own_oids]
    for scanned, counter, by_index in (("seq_scan", "seq_tup_read", False), ("idx_scan", "idx_tup_fetch", True)):
        read = [
            (_rows_of_call(table, scanned, counter, calls), table.row) for table in (*tables, *unnamed_tables) if calls
        ]
        rows, row = max(read, key=lambda pair: pair[0], default=(0.0, None))
        if row is not None and rows >= max(_ROWS, _READ_FOR_ONE * scan.returned):
            of_trigger = all(table.row is not row for table in tables)
            scan = replace(scan, table=row, rows=rows, by_index=by_index, of_trigger=of_trigger)
            break
    else:
        dead = [one.row for one in tables if one.row.n_dead_tup >= _ROWS]
        scan = replace(
            scan,
            table=max(dead, key=lambda row: row.n_dead_tup, default=None),
            by_scans=scan.blocks <= _pages_of_scans(facts, calls),
        )
    scan = replace(scan, holder=_holder(facts, scan.rate.counters.queryid)) if scan.dead else scan
    # A few pages for a row are dead rows only where they are known to be kept.
    reads_much = scan.blocks >= max(_BLOCKS, _BLOCKS_FOR_ONE * scan.returned)
    return scan if reads_much or scan.holder is not None else None


def _pages_of_scans(facts: Facts, calls_per_s: float) -> float:
    """Return the pages of an execution that the number of scans and of rows fetched by index explains.

    Partitions have names of their own, so scans of other statements are counted, too.
    """
    tables = table_rates(facts.interval)
    scans = [scans for table in tables if (scans := table.per_s("seq_scan", "idx_scan")) is not None]
    if not scans or not calls_per_s:
        return _FEWER
    fetched = sum(table.per_s("idx_tup_fetch") or 0.0 for table in tables)
    return (_SCAN * sum(scans) + fetched) / calls_per_s


def _rows_of_call(table: GrownRelation[TableCounters], scanned: str, counter: str, calls: float) -> float:
    """Return the rows of a table that an execution reads: with one scan at most the table, or what the scan reads.

    Counters of tables and of statements are read at other moments, so one scan may look like a few. Each parallel worker
    counts a scan, too.
    """
    read, scans = table.per_s(counter) or 0.0, table.per_s(scanned) or 0.0
    if not scans or scans >= _SCANS * calls:
        return read / calls
    return min(read / calls, max(read / scans, table.row.tuples))


def _reads_all(text: str) -> bool:
    """Return whether it reads whole tables by its nature: a utility command, or a query without any condition."""
    query = text.lstrip().upper()
    return query.startswith(_WHOLE_TABLES) or not _CONDITION.search(query)


def _scan(facts: Facts) -> Hit | None:
    busy_ms = cpu_ms(facts) + queue_ms(facts) + read_ms(facts)
    if not facts.latency_ms or busy_ms < _WORKS * facts.latency_ms or (scan := facts.once(_worst)) is None:
        return None
    part = _StatementPart(scan.rate, 100.0 * scan.part, facts.text_of(scan.rate.counters.queryid))
    statement, table, returned = part.statement, scan.table, scan.returned
    name = short_name(table.name.removeprefix("public."), _TABLE) if table is not None else ""
    amount = f"{count(scan.rows)} rows of {name}" if scan.rows else f"{count(scan.blocks)} pages"
    unit = "rows" if scan.rows else "pages"
    for_text = f"to return {returned:.0f}" if returned >= _WHOLE_ROW else "to return none"
    says, brief = (
        f"{text} reads {amount} {for_text}" for text in (statement.words, short_name(statement.text, _BRIEF))
    )
    block_bytes = scan.rate.block_bytes
    because, deeds, next_step = _cause(facts, scan, statement, name)
    clause = f"; {because}" if scan.holder is not None else f", {because}"
    dead = f"{count(scan.dead)} dead rows of {name}"
    name_of_holder = _name_of(facts, scan.holder) if scan.holder is not None else ""
    return Hit(
        sentence=f"{says}: {part.percent:.0f} % of the time{clause}",
        middle=(f"{says}; {because}", f"{dead} held by {name_of_holder} slow down {short_name(statement.text, _BRIEF)}")
        if name_of_holder
        else (f"{says}: {part.percent:.0f} % of the time", says),
        short=f"{dead} held by {name_of_holder}" if name_of_holder else brief,
        brief=""
        if name_of_holder
        else f"{short_name(statement.text, _BRIEF)} reads {count(scan.rows or scan.blocks)} {unit}",
        culprit=name_of_holder or culprit_of(statement),
        statement=statement.words,
        impact_ms=min(scan.part * busy_ms, facts.latency_ms),
        evidence=evidence(
            ("statement", statement.words),
            ("executions", f"{count(scan.rate.calls_per_s)}/s of {scan.rate.mean_ms or 0.0:.3g} ms"),
            (
                "pages",
                f"{count(scan.blocks)} ({about(scan.blocks * block_bytes)}) per execution" if block_bytes else None,
            ),
            ("rows read", f"{count(scan.rows)} of {name} per execution" if scan.rows else None),
            ("rows returned", f"{returned:.3g} per execution"),
            ("dead rows", dead if scan.dead else None),
        ),
        next_step=next_step,
        deeds=(*deeds, page("5", "shows pages and rows of each statement")),
        note=scan.by_scans and not scan.dead,
    )


def _name_of(facts: Facts, holder: HorizonHolder) -> str:
    """Return the name of a holder of dead rows: "session 9846 (erp_batch)", "slot debezium"."""
    activity = facts.interval.now(sections.activity)
    rows = activity.backends if activity is not None else ()
    backend = next((row for row in rows if holder.backend is not None and row.pid == holder.backend[0]), None)
    return holder.title if backend is None else session_name(backend)


def _cause(facts: Facts, scan: _Scan, statement: Statement, name: str) -> tuple[str, tuple[Deed, ...], str]:
    """Return the likely cause in words, its deeds and the next step."""
    plan = explain(statement, "shows whether it reads a whole table or by which index")
    if scan.holder is not None:
        since = f" for {duration(scan.holder.since_s)}" if scan.holder.since_s is not None else ""
        holder_name = _name_of(facts, scan.holder)
        return (
            f"{count(scan.dead)} dead rows of {name} are held back by {holder_name}{since}",
            (*holder_deeds(scan.holder), *plan),
            f"end {holder_name}, then VACUUM. Not the cause if pages per execution stay the same",
        )
    if scan.dead and scan.table is not None:
        vacuum = sql(f"VACUUM {identifier(*scan.table.name.split('.', 1))};", "removes dead rows", statement.database)
        return (
            f"likely {count(scan.dead)} dead rows of {name}", (vacuum, *plan),
            "VACUUM, then tune autovacuum for this table (page 8). Not the cause if pages per execution stay the same",
        )  # fmt: skip
    if scan.of_trigger:
        return (
            f"likely a foreign key of {name} without an index", (*plan, page("8", f"shows the scans of {name}")),
            f"add an index on the columns of {name} that refer to the changed table. Not the cause if its sequential scans"
            " go on",
        )  # fmt: skip
    is_ordered = _ORDERED.search(statement.text) is not None
    by_index = "a wrong index" if is_ordered else "an index that many rows match"
    if scan.by_scans:
        return "by many small scans", plan, "read fewer keys or partitions per execution; an index is there already"
    unsure = (
        "a missing index or a wrong plan" if scan.table is None else by_index if scan.by_index else "a missing index"
    )
    next_step = "show its plan; add an index on the filtered columns if few rows match. Not the cause if the plan reads few rows"
    under, own_plans = _generic(facts, scan)
    if scan.by_index and is_ordered and "$" in statement.text:
        # Nothing tells before 19 whether it is prepared.
        next_step = (
            "show its plan, and that for its values: a prepared statement may have one plan for all (plan_cache_mode)."
            " Not the cause if the plan reads few rows"
        )
        own_plans = own_plans or (
            stage(
                "plan_cache_mode", "set", "if it is prepared: a plan for each execution's values", "force_custom_plan"
            ),
        )
    before = _pages_before(scan.rate)
    if before is not None and scan.blocks >= _MORE_PAGES * before:
        return (
            f"likely another plan: {count(before)} pages before{under}", (*own_plans, *plan),
            "show its plan, and ANALYZE its tables; plan_cache_mode = force_custom_plan, where values differ much. Not the"
            " cause if the plan is as before",
        )  # fmt: skip
    if not _EQUALS.search(_ARITHMETIC.sub(" ", statement.text)) and not scan.by_index:
        # Without a comparison to a value most rows may match.
        differs = _DIFFERS.search(statement.text) is not None
        cause = "the whole table: <> matches most rows" if differs else "the whole table by design"
        if differs:
            next_step = "show its plan: an index helps only the few other rows, as a partial index on this condition"
        return f"likely {cause}{under}", (*plan, *own_plans, *worker_deeds(facts)), next_step
    return f"likely {unsure}{under}", (*plan, *own_plans), next_step


def _pages_before(rate: StatementRate) -> float | None:
    """Return the pages that an execution touched before the window; None where there were few of them."""
    row, grown = rate.counters, rate.grown
    calls = row.calls - (grown.sum("calls") or 0)
    pages = row.shared_blks_hit + row.shared_blks_read - (grown.sum("shared_blks_hit", "shared_blks_read") or 0)
    return pages / calls if calls >= _EARLIER else None


def _generic(facts: Facts, scan: _Scan) -> tuple[str, tuple[Deed, ...]]:
    """Return that the statement runs with a plan for all values, and the deed against it; nothing where that is not known.

    The server counts generic plans from 19 on; before, only the parameter that forces them tells.
    """
    if facts.setting("plan_cache_mode") == "force_generic_plan" and "$" in facts.text_of(scan.rate.counters.queryid):
        return (
            ", under a generic plan (plan_cache_mode)",
            (stage("plan_cache_mode", "set", "values that differ much get plans of their own", "auto"),),
        )
    generic = scan.rate.grown.sum("generic_plan_calls") or 0
    return (", under a generic plan" if generic >= _WORKS * (scan.rate.grown.sum("calls") or 1) else ""), ()


def worker_deeds(facts: Facts) -> tuple[Deed, ...]:
    """Return the deed against parallel workers that only share full CPUs; none where there are no workers."""
    if facts.s_of(WORKER, "*") < 1.0 or (facts.busy or 0.0) < FULL:
        return ()
    return (stage("max_parallel_workers_per_gather", "lower", "leaves the full CPUs to fewer processes"),)


RULES: Final = (
    FindingRule(
        id="stmt.scan",
        page="5",
        needs=(sections.statement_counters, sections.waits),
        find=_scan,
        before=(*CPU_RULES, "io.read.disk", "io.read.cache"),
        sure_of_cpu=True,
    ),
)
