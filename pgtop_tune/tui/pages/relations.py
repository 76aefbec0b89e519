"""Page 8: tables, indexes, vacuum, commands in progress, wraparound."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.units import UNKNOWN, age, count, ms, percent, size, with_ms
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.progress import CommandProgress, progress_rows
from pgtop_tune.metrics.vacuum import (
    TableVacuum,
    database_ages,
    dead_percent,
    hot_percent,
    index_rates,
    table_rates,
    table_vacuums,
)
from pgtop_tune.model.postgres import Backend
from pgtop_tune.model.relations import FIRST_USER_OID, TableCounters, TempFiles
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.pages.page import (
    Page,
    PageColumn,
    PageTable,
    figure,
    foreign,
    growth_of,
    of_backend,
    section_rows,
    session_key,
    whole,
    word,
)
from pgtop_tune.tui.widgets.lines import PLAIN, UNICODE, Glyphs, Line, bar
from pgtop_tune.tui.widgets.phrase import Phrase, alarm, labelled, lasting, summed

# Temporary files that exist now, and the sessions that made them.


class Maker(Struct, frozen=True):
    """A process with temporary files.

    Attributes:
        files: What it made.
        backend: Its session; None where it was not seen.
    """

    files: TempFiles
    backend: Backend | None


def makers(interval: Interval) -> list[Maker]:
    """Return processes with temporary files; empty without the section."""
    sample, activity = interval.now(sections.temp_files), interval.now(sections.activity)
    backends = {} if activity is None else {backend.pid: backend for backend in activity.backends}
    return [] if sample is None else [Maker(files, backends.get(files.pid)) for files in sample.processes]


_COLUMNS: Final = (
    figure("pid", "PID", 7, lambda row: row.files.pid, whole,
           "Process that created the files.", "pg_ls_tmpdir().name"),
    figure("files", "files", 7, lambda row: row.files.files, count, "Temporary files that exist now.",
           "pg_ls_tmpdir()"),
    figure("bytes", "size", 8, lambda row: row.files.bytes, size, "Size of the files.", "pg_ls_tmpdir().size"),
    word("user", "user", 10, of_backend("usename"), "Role of the session.", "pg_stat_activity.usename"),
    word("database", "db", 10, of_backend("datname"), "Database of the session.", "pg_stat_activity.datname"),
    word("query", "query", 20, of_backend("query"), "Statement of the session, or the last one if it is not active.",
         "pg_stat_activity.query", elastic=True),
)  # fmt: skip

TEMP_FILES: Final = PageTable(
    id="temp-files",
    title="temp files",
    columns=_COLUMNS,
    rows=section_rows(sections.temp_files, makers),
    key_of=lambda row: row.files.pid,
    backend_of=session_key,
    copied=of_backend("query"),
    sort="bytes",
    empty="no temporary files now",
    about="A row per session that sorts or hashes beyond work_mem at this moment; its files are gone with its "
    "statement.",
)


_BAR: Final = 8
_NAME: Final = 44
"""Cells of a relation's name where there is room."""
_FULL: Final = 100.0
_OVERDUE: Final = 200.0
_DEAD: Final = 20.0
_WORTH_PAGES: Final = 128
"""Pages of a table whose dead rows matter; that of a small catalogue never does."""
"""Twice the threshold: autovacuum should have come and has not."""


def _of_row(name: str) -> Callable[[Any], Any]:
    return attrgetter(f"row.{name}")


def _table_name(table: TableCounters) -> str:
    return f"{table.name} (toast)" if table.kind == "toast" else table.name


def _per_s(id: str, title: str, name: str, description: str, view: str = "pg_stat_all_tables", width: int = 7,
           visible: bool = True) -> PageColumn:  # fmt: skip
    return figure(
        id, title, width, growth_of(name), count, f"{description} per second.", f"Δ {view}.{name} / Δt", visible=visible
    )


_TABLE_COLUMNS: Final = (
    word("table", "table", 28, foreign(lambda row: _table_name(row.row)),
         "Schema and name; (toast) is the table of its long values.", "pg_stat_all_tables.schemaname, relname",
         most=_NAME),
    figure("pages", "size~", 7, lambda row: row.size_bytes, size,
           "Size of the table alone, as of the last vacuum or analyze.",
           "pg_class.relpages · block_size"),
    figure("live", "rows", 7, _of_row("n_live_tup"), count, "Live rows, estimated.", "pg_stat_all_tables.n_live_tup"),
    figure("dead", "dead", 7, _of_row("n_dead_tup"), count, "Dead rows, estimated.", "pg_stat_all_tables.n_dead_tup"),
    replace(
        figure("dead-share", "dead%", 5, lambda row: dead_percent(row.row), percent,
               "Share of dead rows. Red from 20 % on, in tables of a megabyte or more.",
               "n_dead_tup / (n_live_tup + n_dead_tup)"),
        style=lambda row: alarm(dead_percent(row.row), _DEAD if row.row.pages >= _WORTH_PAGES else None),
    ),
    _per_s("seq", "seq/s", "seq_scan", "Sequential scans"),
    _per_s("seq-rows", "seqrow/s", "seq_tup_read", "Rows read by sequential scans", width=8),
    _per_s("idx", "idx/s", "idx_scan", "Index scans"),
    _per_s("idx-rows", "idxrow/s", "idx_tup_fetch", "Rows fetched by index scans", width=8, visible=False),
    _per_s("ins", "ins/s", "n_tup_ins", "Rows inserted"),
    _per_s("upd", "upd/s", "n_tup_upd", "Rows updated"),
    _per_s("del", "del/s", "n_tup_del", "Rows deleted"),
    figure("hot", "HOT%", 5, lambda row: hot_percent(row.row), percent,
           "Share of updates without new index entries (HOT), since the reset.", "n_tup_hot_upd / n_tup_upd"),
    figure("hit", "hit%", 5, lambda row: row.share("blks_hit", "blks_read"), percent,
           "Blocks of the table found in shared buffers.",
           "Δ heap_blks_hit / Δ (heap_blks_hit + heap_blks_read) of pg_statio_all_tables"),
    figure("read", "reads/s", 7, growth_of("blks_read"), count,
           "Blocks of the table read per second.", "Δ pg_statio_all_tables.heap_blks_read / Δt"),
    _per_s("newpage", "newpg/s", "newpage_upd", "Updates that went to another page (16+)", visible=False),
    figure("all-seq", "seq", 7, _of_row("seq_scan"), count, "Sequential scans since the reset.",
           "pg_stat_all_tables.seq_scan", visible=False),
    figure("all-idx", "idx", 7, _of_row("idx_scan"), count, "Index scans since the reset.",
           "pg_stat_all_tables.idx_scan", visible=False),
)  # fmt: skip

_INDEX_COLUMNS: Final = (
    word("index", "index", 32, foreign(_of_row("name")), "Schema and name.", "pg_stat_all_indexes.indexrelname",
         most=_NAME),
    figure("pages", "size~", 7, lambda row: row.size_bytes, size,
           "Size as of the last vacuum or analyze.", "pg_class.relpages · block_size"),
    word("kind", "kind", 8,
        lambda row: "invalid" if not row.row.is_valid else "unique" if row.row.is_constraint else "plain",
        "unique: enforces a constraint, even without scans; "
        "invalid: a CREATE INDEX CONCURRENTLY that failed, or is in progress.", "pg_index.indisunique, indisvalid"),
    _per_s("scans", "scans/s", "idx_scan", "Scans", "pg_stat_all_indexes"),
    figure("all", "scans", 8, _of_row("idx_scan"), count,
           "Scans since the reset; an index with 0 scans only costs.", "pg_stat_all_indexes.idx_scan"),
    _per_s("read", "ents/s", "idx_tup_read", "Entries returned by scans", "pg_stat_all_indexes"),
    _per_s("fetched", "rows/s", "idx_tup_fetch", "Rows fetched by simple index scans", "pg_stat_all_indexes"),
    figure("hit", "hit%", 5, lambda row: row.share("blks_hit", "blks_read"), percent,
           "Blocks of the index found in shared buffers.",
           "Δ idx_blks_hit / Δ (idx_blks_hit + idx_blks_read) of pg_statio_all_indexes"),
    figure("reads", "reads/s", 7, growth_of("blks_read"), count,
           "Blocks of the index read per second.", "Δ pg_statio_all_indexes.idx_blks_read / Δt"),
    word("table", "table", 24, foreign(_of_row("table")), "Table of the index.", "pg_stat_all_indexes.relname",
         most=_NAME),
)  # fmt: skip


class VacuumRow(Struct, frozen=True):
    """A table's vacuum at a moment of the server's clock."""

    vacuum: TableVacuum
    now_ms: int


def _since(*names: str) -> Callable[[Any], float | None]:
    """Return the function that gives the seconds since the later of two moments of a table."""

    def seconds(row: VacuumRow) -> float | None:
        moments = [moment for name in names if (moment := getattr(row.vacuum.table, name)) is not None]
        return max(row.now_ms - max(moments), 0) / 1000.0 if moments else None

    return seconds


def _vacuum_rows(interval: Interval) -> list[VacuumRow]:
    sample = interval.now(sections.relations)
    return [] if sample is None else [VacuumRow(vacuum, sample.now_ms) for vacuum in table_vacuums(interval)]


_ON_OFF: Final = {True: "on", False: "off", None: ""}


_VACUUM_COLUMNS: Final = (
    word("table", "table", 28, foreign(lambda row: _table_name(row.vacuum.table)),
         "Schema and name.", "pg_stat_all_tables.schemaname, relname", most=_NAME),
    figure("dead", "dead", 7, attrgetter("vacuum.table.n_dead_tup"), count,
           "Dead rows, estimated.", "pg_stat_all_tables.n_dead_tup"),
    figure("dead-share", "due dead%", 9, attrgetter("vacuum.dead_percent"), percent,
           "Dead rows in per cent of autovacuum's threshold.",
           "n_dead_tup / (autovacuum_vacuum_threshold + autovacuum_vacuum_scale_factor · reltuples)",
           critical=_OVERDUE),
    figure("insert-share", "due ins%", 8, attrgetter("vacuum.insert_percent"), percent,
           "Inserted rows in per cent of autovacuum's threshold.",
           "n_ins_since_vacuum / (autovacuum_vacuum_insert_threshold + …_scale_factor · reltuples · not frozen (18+))",
           critical=_OVERDUE),
    figure("analyze-share", "due anlz%", 9, attrgetter("vacuum.analyze_percent"), percent,
           "Changed rows in per cent of autoanalyze's threshold.",
           "n_mod_since_analyze / (autovacuum_analyze_threshold + autovacuum_analyze_scale_factor · reltuples)",
           critical=_OVERDUE),
    word("autovacuum", "auto", 4, lambda row: _ON_OFF[row.vacuum.enabled], "Whether autovacuum is on for this table.",
         "autovacuum, and autovacuum_enabled of the table"),
    figure("vacuum", "vacuumed", 8, _since("last_vacuum_ms", "last_autovacuum_ms"), age,
           "Time since its last vacuum, manual or automatic.",
           "now − greatest(last_vacuum, last_autovacuum) of pg_stat_all_tables"),
    figure("autovacuum-ago", "autovac", 8, _since("last_autovacuum_ms"), age,
           "Time since its last autovacuum.", "now − pg_stat_all_tables.last_autovacuum", visible=False),
    figure("analyze", "analyzed", 8, _since("last_analyze_ms", "last_autoanalyze_ms"), age,
           "Time since its last analyze, manual or automatic.",
           "now − greatest(last_analyze, last_autoanalyze) of pg_stat_all_tables"),
    figure("vacuums", "vacs", 6,
           lambda row: row.vacuum.table.vacuum_count + row.vacuum.table.autovacuum_count, count,
           "Number of vacuums.", "vacuum_count + autovacuum_count of pg_stat_all_tables"),
    figure("vacuum-ms", "vac ms", 7, attrgetter("vacuum.table.vacuum_ms"), ms,
           "Time spent on vacuums of the table (18+).",
           "total_vacuum_time + total_autovacuum_time of pg_stat_all_tables"),
    figure("xid-age", "xid age", 8, attrgetter("vacuum.xid_age"), count,
           "Transactions since its oldest row that is not frozen.", "age(pg_class.relfrozenxid)"),
    figure("mxid-age", "mxid age", 8, attrgetter("vacuum.multixact_age"), count,
           "Multixacts since its oldest.", "mxid_age(pg_class.relminmxid)"),
    figure("freeze", "freeze%", 7, attrgetter("vacuum.freeze_percent"), percent,
           "Higher of both ages, in per cent of the limit for a forced vacuum.",
           "age / autovacuum_freeze_max_age, autovacuum_multixact_freeze_max_age", critical=_FULL),
    figure("score", "score", 6, attrgetter("vacuum.table.autovacuum_score"), count,
           "Urgency: autovacuum processes the highest first; from 1 on a threshold is exceeded (19+). Tables with "
           "autovacuum_enabled=off have one, too.",
           "pg_stat_autovacuum_scores.score"),
)  # fmt: skip


def _bar(row: CommandProgress) -> str:
    if row.percent is None:
        return ""
    return bar(row.percent / _FULL, _BAR, UNICODE).rstrip().ljust(_BAR, UNICODE.speck)


def _amount(value: int | None, unit: str) -> str:
    return size(value) if unit == "bytes" else count(value)


def _done(row: CommandProgress) -> str:
    progress = row.row
    if progress.done is None:
        return ""
    total = "" if progress.total is None else f"/{_amount(progress.total, progress.unit)}"
    unit = "" if progress.unit == "bytes" else f" {progress.unit}"
    return f"{_amount(progress.done, progress.unit)}{total}{unit}"


def _speed(row: CommandProgress) -> str:
    return "" if row.per_s is None else (size if row.row.unit == "bytes" else count)(row.per_s)


def _steps(row: CommandProgress) -> str:
    progress = row.row
    if not progress.steps_done and progress.steps_total is None:
        return ""
    total = "" if progress.steps_total is None else f"/{count(progress.steps_total)}"
    return f"{count(progress.steps_done)}{total} {progress.steps_unit}"


_BY_HAND: Final = "manual"
_NORMAL: Final = "normal"


def _more(row: CommandProgress) -> str:
    progress = row.row
    by, mode = progress.started_by, progress.mode
    facts = (
        (row.workers, f"{row.workers} parallel worker{'s' if row.workers > 1 else ''}"),
        (row.decoding, "decoding worker"),
        (by not in ("", _BY_HAND), by.replace("_", ", ")),
        (mode not in ("", _NORMAL), mode),
        (progress.tuples, f"{count(progress.tuples)} {'dead' if progress.command == 'VACUUM' else 'rows'}"),
        (progress.memory_bytes, f"memory {size(progress.memory_bytes)}/{size(progress.memory_limit_bytes)}"),
        (progress.passes, f"{progress.passes} index passes"),
        (progress.delay_ms, f"slept {with_ms(progress.delay_ms)}"),
    )
    return ", ".join(text for value, text in facts if value)


_PROGRESS_COLUMNS: Final = (
    figure("pid", "PID", 7, lambda row: row.row.pid, whole,
           "Process that runs the command.", "pg_stat_progress_*.pid"),
    word("command", "command", 13, foreign(lambda row: row.row.command), "Command in progress.",
         "pg_stat_progress_*, command",
         most=16),
    figure("percent", "%", 4, lambda row: row.percent, percent, "Progress of the phase.", "done / total"),
    figure("left", "left", 7, lambda row: row.remaining_s, age, "Time until the phase is done at the current rate.",
           "(total − done) / rate"),
    PageColumn("bar", "", _BAR, lambda row: _bar(row) or "-", "Progress of the phase.", "done / total",
               style=lambda row: "series-1" if row.percent is not None else "dim"),
    word("relation", "relation", 16, foreign(lambda row: row.row.relation),
         "Table, and index; a number in another database.", "pg_stat_progress_*.relid, index_relid", most=32),
    word("phase", "phase", 17, foreign(lambda row: row.row.phase), "Current phase.", "pg_stat_progress_*.phase",
         most=36),
    word("done", "done", 20, _done, "Work of the phase, done and total; - if the server does not count it.",
         "heap_blks_scanned, blocks_done, tuples_done, bytes_processed, backup_streamed, …",
         raw=lambda row: row.row.done),
    figure("total", "of", 7, lambda row: row.row.total, count, "Total work of the phase.", "heap_blks_total, …",
           visible=False),
    word("unit", "unit", 8, lambda row: row.row.unit, "Unit of done, of and per s.", "pg_stat_progress_*",
         visible=False),
    PageColumn("rate", "per s", 7, lambda row: _speed(row) or "-", "Work done per second, mean of the last 10 s.",
               "Δ done / Δt", value=lambda row: row.per_s, align="right"),
    word("steps", "around it", 24, _steps, "The coarser count: heap blocks of a vacuum, partitions, tablespaces.",
         "heap_blks_scanned, partitions_done, child_tables_done, tablespaces_streamed",
         raw=lambda row: row.row.steps_done),
    word("database", "db", 10, foreign(lambda row: row.row.datname), "Database.", "pg_stat_progress_*.datname",
         visible=False),
    word("more", "more", 24, foreign(_more),
         "Parallel workers; from 19 on the decoding worker of REPACK (CONCURRENTLY), autovacuum and its reason, "
         "aggressive or failsafe vacuum, kind of backup; rows, memory for dead ones, index passes, sleep for the cost "
         "limit.", "pg_stat_activity.leader_pid; started_by, mode, backup_type, tuples_done, dead_tuple_bytes, "
         "index_vacuum_count, delay_time of pg_stat_progress_*", most=44),
)  # fmt: skip

_AGE_COLUMNS: Final = (
    word("database", "database", 24, foreign(lambda row: row.database.name), "Name.", "pg_database.datname"),
    figure("xid-age", "xid age", 9, lambda row: row.xid_age, count,
           "Transactions since the oldest row of the database that is not frozen.", "age(datfrozenxid)"),
    figure("mxid-age", "mxid age", 9, lambda row: row.multixact_age, count,
           "Multixacts since the oldest.", "mxid_age(datminmxid)"),
    figure("freeze", "freeze%", 8, lambda row: row.freeze_percent, percent,
           "Age in per cent of the limit for a forced freeze of its oldest tables.",
           "age / autovacuum_freeze_max_age, autovacuum_multixact_freeze_max_age", critical=120.0),
    figure("stop", "stop%", 6, lambda row: row.stop_percent, percent,
           "Age in per cent of the limit at which the server refuses writing transactions.", "age / (2^31 − 3,000,000)",
           critical=50.0),
    word("open", "connections", 11, lambda row: "" if row.database.allows_connections else "refused",
         "refused: the database accepts no connections; allow them to freeze it, or leave it to autovacuum.",
         "pg_database.datallowconn"),
)  # fmt: skip


def _summary(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    interval = session.interval
    if interval is None or height < 1:
        return []
    return [summed([*_of_tables(interval), *_of_vacuum(interval), *_of_databases(interval)], width, glyphs)]


def _of_tables(interval: Interval) -> list[Phrase]:
    sample = interval.now(sections.relations)
    if sample is None:
        return []
    listed = sum(1 for table in sample.tables if table.oid >= FIRST_USER_OID)
    phrases = [Phrase(labelled("tables", count(sample.n_tables)))]
    if listed < sample.n_tables:
        phrases.append(Phrase(((f"{count(sample.n_tables - listed)} not listed", "warning"),), 1))
    ago_s = max(interval.newest.elapsed_s - sample.at_s, 0.0)
    return [*phrases, Phrase(labelled("sampled", f"{lasting(ago_s)} ago"), 4)]


def _of_vacuum(interval: Interval) -> list[Phrase]:
    shares = [vacuum.dead_percent for vacuum in table_vacuums(interval)]
    waiting = sum(1 for share in shares if share is not None and share >= _FULL)
    # Without the parameters nobody knows a threshold.
    thresholds_known = interval.now(sections.relations) is not None and (
        not shares or any(share is not None for share in shares)
    )
    running = None if interval.now(sections.progress) is None else len(progress_rows(interval))
    return [
        _counted("commands in progress", running, "strong", 2),
        _counted("past their dead-row threshold", waiting if thresholds_known else None, "warning", 1),
    ]


def _counted(label: str, rows: int | None, style: str, rank: int) -> Phrase:
    return Phrase(labelled(label, UNKNOWN if rows is None else count(rows), style if rows else "dim"), rank)


def _of_databases(interval: Interval) -> list[Phrase]:
    oldest = max(database_ages(interval), key=lambda row: row.freeze_percent or 0.0, default=None)
    if oldest is None:
        return []
    share = oldest.freeze_percent
    style = "critical" if (share or 0) >= 120 else PLAIN
    return [Phrase(labelled("oldest database", f"{percent(share)} % of freeze age", style), 3)]


TABLES: Final = PageTable(
    id="tables",
    title="tables",
    columns=_TABLE_COLUMNS,
    rows=section_rows(sections.relations, table_rates),
    key_of=_of_row("oid"),
    sort="dead",
    empty="this database has no tables",
    quiet=lambda row: not any((row.by or {}).values()),
)
INDEXES: Final = PageTable(
    id="indexes",
    title="indexes",
    columns=_INDEX_COLUMNS,
    rows=section_rows(sections.relations, index_rates),
    key_of=_of_row("oid"),
    sort="scans",
    empty="no table here has an index",
    quiet=lambda row: not any((row.by or {}).values()),
)
VACUUM: Final = PageTable(
    id="vacuum",
    title="vacuum",
    columns=_VACUUM_COLUMNS,
    rows=section_rows(sections.relations, _vacuum_rows),
    key_of=attrgetter("vacuum.table.oid"),
    sort="dead-share",
    empty="this database has no tables",
)
PROGRESS: Final = PageTable(
    id="progress",
    title="progress",
    columns=_PROGRESS_COLUMNS,
    rows=section_rows(sections.progress, progress_rows),
    key_of=lambda row: row.row.pid,
    backend_of=lambda row: row.backend,
    empty="no VACUUM, ANALYZE, CREATE INDEX, CLUSTER, REPACK, COPY or base backup in progress",
    about="A row per such command while it runs, with its phase and how far it is.",
)
WRAPAROUND: Final = PageTable(
    id="wraparound",
    title="wraparound",
    columns=_AGE_COLUMNS,
    rows=section_rows(sections.database_limits, database_ages),
    key_of=lambda row: row.database.oid,
    sort="freeze",
)

PAGE: Final = Page(
    key="8",
    id="tables",
    title="tables",
    tables=(TABLES, INDEXES, VACUUM, PROGRESS, WRAPAROUND, TEMP_FILES),
    summary=_summary,
    summary_rows=lambda width, height: 1,
)
