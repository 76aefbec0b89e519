"""Page 5: what each statement costs, from the growth of pg_stat_statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import UNKNOWN, count, ms, percent, size, wall_clock, with_ms
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import QPS, is_on
from pgtop_tune.metrics.server import number as setting_of
from pgtop_tune.metrics.statements import (
    STATEMENT_EVICTIONS,
    STATEMENT_LOAD,
    StatementRate,
    statement_rates,
    statement_sum,
    unknown_text,
)
from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.model.backend_action import StatementToPlan
from pgtop_tune.model.postgres import StatementTotals
from pgtop_tune.model.statements import StatementCounters, StatementSample
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.pages.page import Page, PageTable, figure, section_rows, word
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, wrapped
from pgtop_tune.tui.widgets.lines import labelled as labelled_lines
from pgtop_tune.tui.widgets.phrase import Phrase, absence, alarm, labelled, lasting, summed

_VIEW: Final = "pg_stat_statements"
_LABEL: Final = 18
_CALLED: Final = 60
"""Characters of a query above its details."""


def _bytes_of(*blocks: str) -> Callable[[Any], float | None]:
    def value(row: Any) -> float | None:
        rate: float | None = row.bytes_per_s(*blocks)
        return rate

    return value


def _used(*names: str) -> Callable[[Any], bool]:
    """Return whether one of these counters of a row ever grew."""
    return lambda row: any(getattr(row.counters, name) for name in names)


def _query(row: StatementRate) -> str:
    text = row.text
    if not row.counters.id:
        return "sum of the top-level statements listed"
    return unknown_text(row.counters.queryid) if text is None or not text.query else one_line(text.query, 1_000)


def _total_ms(row: Any) -> float:
    return float(row.counters.exec_us) / 1000.0


_COLUMNS: Final = (
    figure("ms-per-s", "ms/s", 7, attrgetter("ms_per_s"), ms,
           "Milliseconds of execution per second; 1,000 keep one session busy.", f"Δ {_VIEW}.total_exec_time / Δt"),
    figure("share", "time%", 5, attrgetter("share"), percent,
           "Share of the execution time of all top-level statements.",
           f"Δ total_exec_time / Σ Δ total_exec_time of {_VIEW}"),
    figure("calls", "calls/s", 7, attrgetter("calls_per_s"), count,
           "Executions that ended per second.", f"Δ {_VIEW}.calls / Δt"),
    figure("mean", "mean ms", 7, attrgetter("mean_ms"), ms,
           "Milliseconds per execution.", f"Δ {_VIEW}.total_exec_time / Δ calls"),
    figure("rows", "rows/c", 6, attrgetter("rows_per_call"), count,
           "Rows returned or affected per execution.", f"Δ {_VIEW}.rows / Δ calls"),
    figure("hit", "hit%", 5, attrgetter("hit_share"), percent,
           "Share of the shared blocks found in shared buffers.",
           f"Δ {_VIEW}.shared_blks_hit / Δ (shared_blks_hit + shared_blks_read)"),
    figure("read", "readB/s", 7, _bytes_of("shared_blks_read", "local_blks_read"), size,
           "Bytes per second read into buffers, shared and local.",
           f"Δ {_VIEW}.(shared_blks_read + local_blks_read) · block_size / Δt",
           used=_used("shared_blks_read", "local_blks_read")),
    figure("dirtied", "dirtyB/s", 8, _bytes_of("shared_blks_dirtied"), size,
           "Bytes per second of shared buffers dirtied.", f"Δ {_VIEW}.shared_blks_dirtied · block_size / Δt",
           used=_used("shared_blks_dirtied")),
    figure("written", "wrtB/s", 7, _bytes_of("shared_blks_written", "local_blks_written"), size,
           "Bytes per second that the statement had to write itself, because no clean buffer was available.",
           f"Δ {_VIEW}.(shared_blks_written + local_blks_written) · block_size / Δt",
           used=_used("shared_blks_written", "local_blks_written")),
    figure("temp", "tempB/s", 7, _bytes_of("temp_blks_read", "temp_blks_written"), size,
           "Bytes per second read and written in temporary files: sorts and hashes beyond work_mem.",
           f"Δ {_VIEW}.(temp_blks_read + temp_blks_written) · block_size / Δt",
           used=_used("temp_blks_read", "temp_blks_written")),
    figure("wal", "WALB/s", 7, attrgetter("wal_bytes_per_s"), size,
           "Bytes of WAL per second.", f"Δ {_VIEW}.wal_bytes / Δt", used=_used("wal_bytes")),
    figure("io-time", "I/O ms/s", 8, attrgetter("io_ms_per_s"), ms,
           "Milliseconds per second of reads and writes; - while track_io_timing is off.",
           f"Δ {_VIEW}.(blk_read_time + blk_write_time + temp_blk_…_time) / Δt",
           used=_used("blk_read_us", "blk_write_us", "temp_blk_us")),
    figure("jit", "JIT ms/s", 8, attrgetter("jit_ms_per_s"), ms,
           "Milliseconds per second of compiling; - before version 1.10 of the extension.",
           f"Δ {_VIEW}.(jit_generation_time + jit_inlining_time + jit_optimization_time + jit_emission_time) / Δt",
           used=_used("jit_us")),
    figure("planning", "plan ms/s", 9, attrgetter("planning_ms_per_s"), ms,
           "Milliseconds of planning per second; - while pg_stat_statements.track_planning is off.",
           f"Δ {_VIEW}.total_plan_time / Δt", used=_used("plan_us")),
    figure("generic", "generic/s", 9, lambda row: row.grown.per_s("generic_plan_calls"), count,
           "Executions of prepared statements with a generic plan, per second; - before version 1.13 of the extension.",
           f"Δ {_VIEW}.generic_plan_calls / Δt", visible=False),
    figure("custom", "custom/s", 8, lambda row: row.grown.per_s("custom_plan_calls"), count,
           "Executions of prepared statements with a plan for their parameters, per second; - before version 1.13 of "
           "the extension.", f"Δ {_VIEW}.custom_plan_calls / Δt", visible=False),
    figure("total", "total s", 8, lambda row: _total_ms(row) / 1000.0, count,
           "Seconds of execution since the entry was created.", f"{_VIEW}.total_exec_time", visible=False,
           measure="s"),
    figure("total-calls", "calls", 7, attrgetter("counters.calls"), count,
           "Executions since the entry was created.", f"{_VIEW}.calls", visible=False),
    figure("slowest", "max ms", 7, lambda row: row.counters.max_exec_us / 1000.0, ms,
           "The slowest execution since the entry was created.", f"{_VIEW}.max_exec_time", visible=False),
    word("user", "user", 10, lambda row: one_line(row.counters.usename or "", 200),
         "Role that ran it.", f"{_VIEW}.userid", visible=False),
    word("database", "database", 10, lambda row: one_line(row.counters.datname or "", 200),
         "Database in which it ran.", f"{_VIEW}.dbid"),
    word("level", "level", 6, lambda row: "top" if row.counters.toplevel else "nested",
         "top, or nested: run inside a function (pg_stat_statements.track = all).", f"{_VIEW}.toplevel", visible=False),
    word("query-id", "query id", 20, lambda row: str(row.counters.queryid),
         "Hash of the statement without its constants; the same as in pg_stat_activity.",
         f"{_VIEW}.queryid", visible=False),
    word("query", "query", 20, _query, "Its text, constants replaced.", f"{_VIEW}.query", elastic=True,
         share=0.6),
)  # fmt: skip


def _rows(interval: Interval) -> Sequence[StatementRate] | Unavailable:
    sample = interval.now(sections.statement_counters)
    if sample is not None and not sample.statements and sample.hidden:
        return Unavailable(Reason.NO_PERMISSION, _hidden(sample, interval))
    # Statements without recent work compare alike in most orders: the most expensive of all time come first.
    return sorted(statement_rates(interval), key=_total_ms, reverse=True)


def _searched(row: Any) -> Sequence[str]:
    counters = row.counters
    return (
        row.text.query if row.text is not None else "",
        counters.usename or "",
        counters.datname or "",
        str(counters.queryid),
    )


def _details(session: Session, row: Any, cells: int, glyphs: Glyphs) -> list[Line]:
    lines: list[Line] = []
    for label, text in _facts(session, row):
        lines += labelled_lines(label, text, cells, label_cells=_LABEL)
    text = row.text
    lines += [(), _query_head(row), *wrapped(text.query if text is not None and text.query else UNKNOWN, cells)]
    lines += [(), (("counted", "title"), ("  per second, since the entry was created", "dim"))]
    for name in _COUNTERS:
        total = getattr(row.counters, name)
        rate = row.grown.per_s(name)
        counts = UNKNOWN.rjust(8) if total is None else f"{count(rate).rjust(8)}  {total:>16,}".replace(",", " ")
        lines += labelled_lines(name, counts, cells, label_cells=_LABEL + 3)
    return lines


_COUNTERS: Final = (
    "calls", "exec_us", "plans", "plan_us", "rows",
    "shared_blks_hit", "shared_blks_read", "shared_blks_dirtied", "shared_blks_written",
    "local_blks_read", "local_blks_written", "temp_blks_read", "temp_blks_written",
    "blk_read_us", "blk_write_us", "temp_blk_us",
    "wal_records", "wal_fpi", "wal_bytes", "wal_buffers_full", "jit_functions", "jit_us",
    "generic_plan_calls", "custom_plan_calls",
)  # fmt: skip


def _query_head(row: StatementRate) -> Line:
    text = row.text
    if text is None:
        return (("query", "title"), ("  not fetched yet", "dim"))
    fetched, total = len(text.query), text.characters
    part = f"  the first {count(fetched)} of {count(total)} characters" if total > fetched else ""
    return (("query", "title"), (part, "dim"))


def _facts(session: Session, row: StatementRate) -> list[tuple[str, str]]:
    counters = row.counters
    level = "top level" if counters.toplevel else "inside a function"
    return [
        ("query id", str(counters.queryid)),
        ("run by", f"{counters.usename or UNKNOWN} in {counters.datname or UNKNOWN}, {level}"),
        ("now", f"{with_ms(row.ms_per_s)}/s, {count(row.calls_per_s)} calls/s, {with_ms(row.mean_ms)} each"),
        ("ever", f"{with_ms(counters.min_exec_us / 1000)} … {with_ms(counters.max_exec_us / 1000)}, "
                 f"{with_ms(_total_ms(row) / counters.calls if counters.calls else None)} mean"),
        ("plans", _plans(counters)),
        ("first seen", _first_seen(session, counters.stats_since_ms)),
    ]  # fmt: skip


def _plans(counters: StatementCounters) -> str:
    generic, custom = counters.generic_plan_calls, counters.custom_plan_calls
    if generic is None or custom is None:
        return f"{UNKNOWN} (counted from pg_stat_statements 1.13 on, PostgreSQL 19)"
    return f"{count(generic)} executions with a generic plan, {count(custom)} with a custom one"


def _first_seen(session: Session, since_ms: int | None) -> str:
    if since_ms is None:
        return f"{UNKNOWN} (known from pg_stat_statements 1.11 on, PostgreSQL 17)"
    activity = None if session.interval is None else session.interval.now(sections.activity)
    ago = "" if activity is None else f", {lasting(max(activity.now_ms - since_ms, 0) / 1000.0)} ago"
    return f"{wall_clock(since_ms)}{ago}"


def _summary(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    frame, interval = session.now, session.interval
    if frame is None or interval is None or height < 1:
        return []
    totals = sections.statements(frame)
    if isinstance(totals, Unavailable):
        return []
    sample = interval.now(sections.statement_counters)
    phrases = [*_of_all(interval, totals), *([] if sample is None else _of_sample(sample))]
    lines = [summed(phrases, width, glyphs)]
    notes = _notes(session, interval)
    return [*lines, *(summed([Phrase(note)], width, glyphs) for note in notes)][:height]


def _of_all(interval: Interval, totals: StatementTotals) -> list[Phrase]:
    load, evicted = STATEMENT_LOAD(interval), STATEMENT_EVICTIONS(interval)
    most = setting_of(interval, "pg_stat_statements.max")
    room = "" if most is None else f"/{count(most)}"
    activity = interval.now(sections.activity)
    since_s = None
    if activity is not None and totals.stats_reset_ms is not None:
        since_s = max(activity.now_ms - totals.stats_reset_ms, 0) / 1000.0
    return [
        Phrase(labelled("statements", count(QPS(interval)), "strong", "/s")),
        Phrase(labelled("busy", count(load), alarm(load, None), " sessions"), 1),
        Phrase(labelled("entries", f"{count(totals.entries)}{room}"), 2),
        Phrase(labelled("evictions", count(float(totals.dealloc)), alarm(evicted, STATEMENT_EVICTIONS.critical)), 3),
        Phrase(labelled("since reset", lasting(since_s)), 5),
    ]


def _of_sample(sample: StatementSample) -> list[Phrase]:
    counted = ((sample.left_out, " executed but not listed", 4), (sample.own, " of pgtop-tune hidden", 6))
    return [Phrase(labelled("", str(figure), PLAIN, text), rank) for figure, text, rank in counted if figure]


def _notes(session: Session, interval: Interval) -> list[Line]:
    """Return the reasons why figures are missing."""
    sample = interval.now(sections.statement_counters)
    texts = sections.statement_texts(interval.newest)
    notes: list[Line] = []
    if sample is not None and sample.hidden:
        notes.append(((_hidden(sample, interval), "warning"),))
    if isinstance(texts, Unavailable) and sample is not None:
        notes.append((("texts: ", "label"), *absence(texts)))
    off = [f"{missing} ({name} is off)" for name, missing in _SWITCHES if is_on(interval, name) is False]
    if off:
        notes.append(((f"not counted: {', '.join(off)}", "dim"),))
    return notes


def _hidden(sample: StatementSample, interval: Interval) -> str:
    server = sections.server(interval.newest)
    user = UNKNOWN if isinstance(server, Unavailable) else one_line(server.user, 100)
    subject = (
        "1 statement of another user is" if sample.hidden == 1 else f"{sample.hidden} statements of other users are"
    )
    return f"{subject} hidden: {grant('pg_read_all_stats', user)} shows {'it' if sample.hidden == 1 else 'them'}"


_SWITCHES: Final = (("track_io_timing", "I/O time"), ("pg_stat_statements.track_planning", "planning"))
"""Parameter, and what is not counted while it is off."""


# The statement to plan: pg_stat_statements has it with placeholders, a session that runs it with its constants.

_GENERIC_SINCE: Final = 160_000
_CUT_AT: Final = 500
"""Characters that a frame keeps of the text of a session's statement."""
_PLACEHOLDER: Final = re.compile(r"\$\d")


def _to_plan(session: Session, row: StatementRate) -> StatementToPlan | str:
    text, counters = row.text, row.counters
    if counters.datname is None:
        return "the statement's database is gone"
    role = counters.usename or ""
    frame = session.now
    server = None if frame is None else sections.server(frame)
    version = 0 if server is None or isinstance(server, Unavailable) else server.version_num
    query = "" if text is None else text.query
    if version < _GENERIC_SINCE and _PLACEHOLDER.search(query):
        query = _sampled(session, counters.queryid, version)
        if not query:
            return "EXPLAIN of placeholders needs PostgreSQL 16, and no session runs this statement with constants now"
    elif text is None or not query or text.characters > len(query):
        return "the full text of this statement is not known"
    return StatementToPlan(query, counters.datname, role, _sampled(session, counters.queryid, version))


def _sampled(session: Session, queryid: int, version: int) -> str:
    """Return the whole text of a session that runs it, with constants or at least plannable; "" for none."""
    frame = session.now
    activity = None if frame is None else sections.activity(frame)
    if activity is None or isinstance(activity, Unavailable):
        return ""
    texts = (backend.query or "" for backend in activity.backends if backend.query_id == queryid)
    whole_texts = (text for text in texts if len(text) < _CUT_AT)
    text = min(whole_texts, key=lambda seen_text: _PLACEHOLDER.search(seen_text) is not None, default="")
    return "" if version < _GENERIC_SINCE and _PLACEHOLDER.search(text) else text


TABLE: Final = PageTable(
    id="statements",
    title="statements",
    columns=_COLUMNS,
    rows=section_rows(sections.statement_counters, _rows),
    key_of=attrgetter("counters.id"),
    sort="ms-per-s",
    searched=_searched,
    details=_details,
    called=lambda row: one_line(_query(row), _CALLED),
    copied=lambda row: row.text.query if row.text is not None else str(row.counters.queryid),
    empty="no statement has ended yet",
    about="A row per normalized statement of pg_stat_statements.",
    statement_of=_to_plan,
    quiet=lambda row: row.grown.sum("calls", "plans") == 0,
    hides_quiet=True,
    total=statement_sum,
)

PAGE: Final = Page(
    key="5",
    id="statements",
    title="statements",
    tables=(TABLE,),
    summary=_summary,
    summary_rows=lambda width, height: 1 if height < 30 else 2,
)
