"""The statement that takes most of the time: its name for other findings, tables that it reads row by row, and its time
for JIT compilation, planning, and executions that end in a rollback."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.sql_quoting import identifier
from pgtop_tune.base.units import about, count, duration, with_ms
from pgtop_tune.diagnosis.chains import cpu_ms, queue_ms, read_ms
from pgtop_tune.diagnosis.facts import FULL, WINDOW_S, WORKER, Facts, Statement
from pgtop_tune.diagnosis.finding import Deed
from pgtop_tune.diagnosis.rule import (
    FindingRule,
    Hit,
    culprit_of,
    evidence,
    explain,
    holder_deeds,
    page,
    plural,
    session_name,
    short_name,
    sql,
    stage,
)
from pgtop_tune.metrics import sections, server
from pgtop_tune.metrics.statements import StatementRate, statement_rates
from pgtop_tune.metrics.vacuum import GrownRelation, HorizonHolder, holders, table_rates
from pgtop_tune.model.relations import TableCounters
from pgtop_tune.model.waits import CPU

TIME: Final = "exec_us"
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
_ORDERED: Final = re.compile(r"\bLIMIT\b", re.IGNORECASE)
"""A query for the first rows may walk the index of their order, and not that of its condition."""
_SAVEPOINT: Final = re.compile(r"\s*(SAVEPOINT|RELEASE|ROLLBACK\s+TO)\b", re.IGNORECASE)
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
    return _SAVEPOINT.match(text) is not None


def savepoints_per_s(facts: Facts) -> float:
    """Return the savepoints per second that sessions set, without those that EXCEPTION blocks set."""
    rates = facts.once(rates_of)
    return sum(
        rate.grown.per_s("calls") or 0.0
        for rate in rates
        if facts.text_of(rate.counters.queryid).lstrip()[:9].upper() == "SAVEPOINT"
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
    if query.lstrip()[:6].upper() in ("DELETE", "UPDATE", "INSERT"):
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
        scan = replace(scan, table=max(dead, key=lambda row: row.n_dead_tup, default=None))
    scan = replace(scan, holder=_holder(facts, scan.rate.counters.queryid)) if scan.dead else scan
    # A few pages for a row are dead rows only where they are known to be kept.
    reads_much = scan.blocks >= max(_BLOCKS, _BLOCKS_FOR_ONE * scan.returned)
    return scan if reads_much or scan.holder is not None else None


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
    by_index = "a wrong index" if _ORDERED.search(statement.text) else "an index that many rows match"
    unsure = (
        "a missing index or a wrong plan" if scan.table is None else by_index if scan.by_index else "a missing index"
    )
    next_step = "show its plan; add an index on the filtered columns if few rows match. Not the cause if the plan reads few rows"
    under, own_plans = _generic(facts, scan)
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


# Time that is not for rows: JIT compilation, planning, executions that end in a rollback.

_HALF: Final = 0.5
_COMPILED_FROM: Final = 100_000.0
"""Default of jit_above_cost."""
_PLANNING: Final = "pg_stat_statements.track_planning"
_PLANS: Final = (CPU.lower(), "lwlock:lockmanager")
"""Waits of a session that plans."""
_ENDED: Final = 1.0
_SHORT_S: Final = 1.0
"""Longest execution of a statement that ends often enough for its counters to keep up with samples."""
_MANY_TABLES: Final = 20
_FAILS: Final = 1.0
_LEAST_MS: Final = 1.0
_LEAST_MS_FULL: Final = 5.0
"""Planning of an execution that samples can tell from its begin and end; the second on full CPUs."""
_FEWEST_LOOKS: Final = 30
_MESSAGE: Final = 60


def _calls_in(rate: StatementRate) -> float:
    return rate.grown.sum("calls") or 0


def _statement(facts: Facts, rate: StatementRate, share: float) -> Statement:
    counters = rate.counters
    return Statement(facts.text_of(counters.queryid), counters.queryid, counters.datname or "", share)


def _top_level(facts: Facts) -> list[StatementRate]:
    """Return the statements that ended, without those inside of functions, which count in their callers, too."""
    return [rate for rate in facts.once(rates_of) if rate.counters.toplevel and _calls_in(rate)]


def _jit(facts: Facts) -> Hit | None:
    """Find JIT compilation that takes most of a statement's time."""
    rates = _top_level(facts)
    rate = max(rates, key=lambda one: one.grown.sum("jit_us") or 0, default=None)
    whole_us = sum(one.grown.sum("exec_us") or 0 for one in rates)
    if rate is None or not whole_us or not (jit_us := rate.grown.sum("jit_us") or 0):
        return None
    own_us = max(rate.grown.sum("exec_us") or 0, jit_us)
    statement = _statement(facts, rate, min(jit_us / own_us, 1.0))
    if statement.share < _HALF or not statement.text:
        return None
    percent, calls = f"{100 * statement.share:.0f} %", _calls_in(rate)
    per_call = f"{with_ms(jit_us / calls / 1000.0)} of {with_ms(own_us / calls / 1000.0)} per execution"
    from_cost, role = facts.number("jit_above_cost"), rate.counters.usename
    is_lowered = from_cost is not None and from_cost < _COMPILED_FROM
    because = f"; jit_above_cost is {facts.shown('jit_above_cost')}" if is_lowered else ""
    deeds: list[Deed] = []
    if is_lowered:
        deeds.append(stage("jit_above_cost", "raise", "short statements are not compiled", f"{_COMPILED_FROM:.0f}"))
    if role is not None:
        effect = "its new sessions compile nothing"
        deeds.append(sql(f"ALTER ROLE {identifier(role)} SET jit = off;", effect, statement.database))
    says = f"JIT compilation takes {percent} of the time of {statement.words}"
    return Hit(
        sentence=f"{says}: {per_call}{because}",
        middle=(says,),
        short=f"JIT compilation, {percent} of {statement.words}",
        brief=f"JIT: {statement.words}",
        culprit=culprit_of(statement),
        statement=statement.words,
        impact_ms=min(min(jit_us / whole_us, 1.0) * (cpu_ms(facts) + queue_ms(facts)), facts.latency_ms),
        evidence=evidence(
            ("statement", statement.words),
            ("JIT compilation", per_call),
            ("functions compiled", f"{(rate.grown.sum('jit_functions') or 0) / calls:.0f} per execution"),
            ("jit_above_cost", facts.shown("jit_above_cost")),
        ),
        next_step="set jit = off for its role, or raise jit_above_cost. Not the cause if its executions last as long",
        deeds=(*deeds, *explain(statement, "shows the part of JIT"), page("5", "shows JIT of each statement")),
    )


class _Planned(Struct, frozen=True):
    """A statement with the time of its planning.

    Attributes:
        share: Share of planning in the time of the statement, 0 to 1.
        part: Its planning as a share of the work of all statements, 0 to 1.
        says: Figures for the sentence.
    """

    rate: StatementRate
    share: float
    part: float
    says: str


def _counted_planning(rates: list[StatementRate]) -> _Planned | None:
    """Return the statement with most planning, as pg_stat_statements counts it."""
    rate = max(rates, key=lambda one: one.grown.sum("plan_us") or 0)
    plan_us, exec_us = rate.grown.sum("plan_us") or 0, rate.grown.sum("exec_us") or 0
    whole_us = sum(one.grown.sum("plan_us", "exec_us") or 0 for one in rates)
    if not plan_us:
        return None
    means = (with_ms(part_us / _calls_in(rate) / 1000.0) for part_us in (plan_us, plan_us + exec_us))
    return _Planned(rate, plan_us / (plan_us + exec_us), plan_us / whole_us, " of ".join(means) + " per execution")


def _sampled_planning(facts: Facts, rates: list[StatementRate]) -> _Planned | None:
    """Return the statement whose sessions work far longer than its executions last: the rest is planning, most likely.

    A full machine hides work from samples, so the rest is at least that.
    """
    rate = max(rates, key=lambda one: facts.sampled(one.counters.queryid, *_PLANS))
    query_id = rate.counters.queryid
    working = facts.sampled(query_id, *_PLANS)
    # Several roles have an entry each.
    entries = [one for one in rates if one.counters.queryid == query_id]
    calls_per_s, executing = (sum(one.grown.per_s(name) or 0.0 for one in entries) for name in ("calls", "exec_us"))
    executing /= 1e6
    if working * facts.waits.looks < _FEWEST_LOOKS or calls_per_s < _ENDED or working / calls_per_s >= _SHORT_S:
        return None
    # Each execution needs some time to begin and to end; on full CPUs it waits for them meanwhile.
    least_ms = _LEAST_MS_FULL if (facts.busy or 0.0) >= FULL else _LEAST_MS
    if 1000.0 * (working - executing) / calls_per_s < least_ms:
        return None
    if (facts.of(server.ROLLBACKS) or 0.0) >= 0.1 * calls_per_s:
        # Executions that fail are sampled, and not counted.
        return None
    share, all_working = max(1.0 - executing / working, 0.0), facts.s(*_PLANS)
    says = f"{working:.1f} sessions work for it, its executions take {executing:.1f}"
    return _Planned(rate, share, min(share * working / all_working, 1.0) if all_working else 0.0, says)


def _tables_of_execution(facts: Facts, calls_per_s: float) -> int:
    """Return the number of tables that each execution scans, as far as that is known."""
    scans_per_call = [
        (table.per_s("seq_scan", "idx_scan") or 0.0) / calls_per_s for table in table_rates(facts.interval)
    ]
    return sum(scans >= _HALF for scans in scans_per_call)


def _plan(facts: Facts) -> Hit | None:
    """Find planning that takes most of a statement's time."""
    rates = _top_level(facts)
    if not rates:
        return None
    is_counted, is_off = (facts.setting(_PLANNING) == value for value in ("on", "off"))
    planned = _counted_planning(rates) if is_counted else None
    if planned is None or planned.share < _HALF:
        # The start of a plan with many tables is in no counter.
        planned, is_counted = _sampled_planning(facts, rates), False
    if planned is None or planned.share < _HALF:
        return None
    statement = _statement(facts, planned.rate, planned.share)
    plan_deeds = explain(statement, "shows its planning time, and the partitions in its plan")
    if not plan_deeds:
        return None
    percent = f"{100 * planned.share:.0f} %"
    scanned = _tables_of_execution(facts, planned.rate.calls_per_s or 1.0)
    tables = f"; it scans at least {scanned} tables" if scanned >= _MANY_TABLES else ""
    off = f"; {_PLANNING.partition('.')[2]} is off" if is_off else ""
    action = "planning" if is_counted else "planning, or starting its plan,"
    says = f"{action} takes {percent} of the time of {statement.words}"
    counts = (stage(_PLANNING, "set", "planning is counted: confirms or refutes it", "on"),) if is_off else ()
    return Hit(
        sentence=f"{says}: {planned.says}{tables}{off}",
        middle=(f"{says}{tables}", says),
        short=f"planning, {percent} of {statement.words}",
        brief=f"planning: {statement.words}",
        culprit=culprit_of(statement),
        statement=statement.words,
        impact_ms=min(planned.part * (cpu_ms(facts) + queue_ms(facts) + facts.b(_PLANS[1])), facts.latency_ms),
        evidence=evidence(
            ("statement", statement.words),
            ("planning", f"{percent}: {planned.says}"),
            ("tables scanned", f"{scanned} per execution" if scanned else None),
            ("executions", f"{count(planned.rate.calls_per_s)}/s"),
            (_PLANNING, facts.setting(_PLANNING)),
        ),
        next_step=(
            "prepare it once per session, or filter on the partition key, so that fewer tables are planned. Not the cause if"
            " EXPLAIN shows a short planning time"
        ),
        deeds=(*plan_deeds, *counts, page("5", "shows planning, where it is counted")),
        agreed=is_counted,
    )


def _failure(facts: Facts) -> str:
    """Return the most frequent error that the server logged within ten seconds; "" where no log is read."""
    logs = facts.interval.recent(sections.server_log, WINDOW_S, least=2)
    if len(logs) < 2:
        return ""
    known_ids = {line.id for line in logs[-1].lines}
    errors = [
        line.message.partition("\n")[0]
        for line in logs[0].lines
        if line.severity == "ERROR" and line.id not in known_ids
    ]
    return one_line(Counter(errors).most_common(1)[0][0], _MESSAGE) if errors else ""


def _failing(facts: Facts) -> Hit | None:
    """Find a statement on which sessions work and whose executions do not end: they time out, or fail."""
    rollbacks, statement = facts.of(server.ROLLBACKS) or 0.0, facts.statement("*")
    if rollbacks < _FAILS or statement is None or statement.query_id is None or not facts.tps:
        return None
    query_id, sampled = statement.query_id, facts.sampled(statement.query_id, "*")
    counted = sum(
        rate.grown.per_s("exec_us") or 0.0 for rate in facts.once(rates_of) if rate.counters.queryid == query_id
    )
    lost, runs_s = sampled - counted / 1e6, facts.longest_run_s(query_id)
    # One that has not ended yet is not counted, either: those that fail end as often as transactions roll back.
    if lost < _HALF * sampled or not _ends_within(facts, query_id, rollbacks, runs_s):
        return None
    error, limit = facts.once(_failure), facts.shown("statement_timeout")
    because = f": {error}" if error else ", canceled by a timeout or with an error"
    says = f"{statement.words} fails {plural(rollbacks, 'time')} per second after up to {duration(runs_s)}"
    return Hit(
        sentence=f"{says}{because}; {100 * lost / sampled:.0f} % of its time is lost",
        middle=(f"{says}{because}", says),
        short=f"{statement.words} fails {count(rollbacks)}/s",
        brief=f"{culprit_of(statement)}… fails {count(rollbacks)}/s",
        culprit=culprit_of(statement),
        statement=statement.words,
        impact_ms=min(1000.0 * lost / facts.tps, facts.latency_ms),
        evidence=evidence(
            ("statement", statement.words),
            ("transactions rolled back", f"{count(rollbacks)}/s"),
            ("sessions that run it", f"{sampled:.1f}"),
            ("executions that ended", f"{counted / 1e6:.1f} sessions' time"),
            ("longest run seen", duration(runs_s)),
            ("most frequent error", error or None),
            ("statement_timeout", limit if limit not in ("", "0") else "none for the server; roles may have their own"),
        ),
        next_step=(
            "read the errors on page 2 (57014 is a timeout or a cancel); make it faster, or let its clients wait longer"
            " between retries"
        ),
        deeds=(*explain(statement, "shows why it takes so long"), page("2", "shows the errors in the server log")),
        looks=sampled * facts.waits.looks,
        agreed=bool(error),
    )


def _ends_within(facts: Facts, query_id: int, rollbacks: float, runs_s: float) -> bool:
    """Return whether runs of at most that length, as many as transactions roll back, are half of those that run."""
    running = [
        sum(row.query_id == query_id and row.state == "active" for row in sample.backends)
        for sample in facts.interval.recent(sections.activity, WINDOW_S)
    ]
    return runs_s < WINDOW_S / 2 and bool(running) and rollbacks * runs_s >= _HALF * sum(running) / len(running)


_NEEDS: Final = (sections.statement_counters, sections.waits)
_CPU_RULES: Final = ("cpu.server", "cpu.full")
RULES: Final = (
    FindingRule(
        id="stmt.scan",
        page="5",
        needs=_NEEDS,
        find=_scan,
        before=(*_CPU_RULES, "io.read.disk", "io.read.cache"),
        sure_of_cpu=True,
    ),
    FindingRule(id="plan.jit", page="5", needs=_NEEDS, find=_jit, before=(*_CPU_RULES, "stmt.scan"), sure_of_cpu=True),
    FindingRule(
        id="plan.time",
        page="5",
        needs=(*_NEEDS, sections.parameters),
        find=_plan,
        before=(*_CPU_RULES, "lw.locks"),
        sure_of_cpu=True,
    ),
    FindingRule(
        id="stmt.fails",
        page="2",
        needs=(*_NEEDS, sections.database, sections.activity),
        find=_failing,
        before=(*_CPU_RULES, "stmt.scan", "io.read.disk", "io.read.cache"),
        sure_of_cpu=True,
    ),
)
