"""Page 6: I/O by backend type and object, WAL and checkpoints, SLRU caches, databases, the archiver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import UNKNOWN, byte_rate, count, ms, percent, size
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Metric
from pgtop_tune.metrics.checkpoints import CHECKPOINT_TRIGGER, SINCE_CHECKPOINT
from pgtop_tune.metrics.growth import growth, readings
from pgtop_tune.metrics.io import (
    ARCHIVE_BACKLOG,
    BACKEND_FSYNCS,
    SINCE_ARCHIVED,
    WAL_DIRECTORY,
    WAL_DIRECTORY_GROWTH,
    WAL_DISK_UNTIL_FULL,
    IoShare,
    database_rates,
    io_rates,
    readers_and_writers,
    slru_rates,
)
from pgtop_tune.metrics.server import CACHE_HIT, FULL_PAGES, WAL_BYTES, WAL_SINCE_REDO, full_pages, is_on, setting
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.wal import coming_checkpoint, device_phrases, full_page_share
from pgtop_tune.tui.pages.page import Page, PageColumn, PageTable, figure, growth_of, section_rows, word
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line
from pgtop_tune.tui.widgets.phrase import Phrase, alarm, labelled, lasting, summed

# Tables of facts about WAL, checkpoints and the archiver: a name, a value, its growth per second.


class WalFact(Struct, frozen=True):
    """A row: what it is called, its value and growth as text.

    Attributes:
        sorted_by: The value as a number; None where it has none.
        unit: Unit of the value, as in the catalogue.
        per_s: Growth per second as a number.
    """

    id: str
    title: str
    value: str
    definition: str
    source: str
    sorted_by: float | None = None
    rate: str = ""
    unit: str = ""
    per_s: float | None = None


Reach = Callable[[Frame], Any]
Make = Callable[[Interval], WalFact]
Unit = Callable[[float | None], str]


def _counter(
    title: str, section: Reach, field: str, definition: str, source: str, unit: Unit = count
) -> Make:  # fmt: skip
    """Return what makes the row of a counter of a section: its value since the reset and its growth."""

    def make(interval: Interval) -> WalFact:
        value, rate = _value(interval, section, field), _growth_per_s(interval, section, field)
        return WalFact(
            field, title, unit(value), definition, source, sorted_by=value, rate=unit(rate), per_s=rate,
            unit="bytes" if unit is size else "",
        )  # fmt: skip

    return make


def _value(interval: Interval, section: Reach, field: str) -> Any:
    reading = interval.now(section)
    return None if reading is None else getattr(reading, field)


def _growth_per_s(interval: Interval, section: Reach, field: str) -> float | None:
    recent = readings(interval, section)
    if len(recent) < 2 or recent[0].stats_reset_ms != recent[-1].stats_reset_ms:
        return None
    grown = growth(recent[-1], recent[0], (field,))
    return None if not grown else sum(grown.values()) / (recent[0].at_s - recent[-1].at_s)


def _gauge(title: str, section: Reach, field: str, definition: str, source: str) -> Make:
    def make(interval: Interval) -> WalFact:
        value = _value(interval, section, field)
        return WalFact(field, title, count(value), definition, source, sorted_by=value)

    return make


def _mean(title: str, times: str, operations: str, definition: str, source: str) -> Make:
    """Return what makes the row of milliseconds per operation of WalCounters; unknown while it is not measured."""

    def make(interval: Interval) -> WalFact:
        time_us, done = (_growth_per_s(interval, sections.wal, field) for field in (times, operations))
        value = time_us / done / 1000.0 if time_us and done else None
        return WalFact(times, title, ms(value), definition, source, sorted_by=value, unit="ms")

    return make


def _of_metric(metric: Metric, value: float | None, text: str) -> WalFact:
    return WalFact(metric.id, metric.title, text, metric.definition, metric.source, sorted_by=value, unit=metric.unit)


def _metric(metric: Metric, unit: Unit) -> Make:
    def make(interval: Interval) -> WalFact:
        value = metric(interval)
        return _of_metric(metric, value, unit(value))

    return make


def _words(title: str, field: str, definition: str, source: str) -> Make:
    def make(interval: Interval) -> WalFact:
        text = one_line(_value(interval, sections.archiver, field) or "", 200) or UNKNOWN
        return WalFact(field, title, text, definition, source)

    return make


def _last_failure(interval: Interval) -> WalFact:
    archiver, activity = interval.now(sections.archiver), interval.now(sections.activity)
    since_s = None
    if archiver is not None and archiver.last_failed_ms is not None:
        now_ms = interval.newest.taken_at_ms if activity is None else activity.now_ms
        since_s = max(now_ms - archiver.last_failed_ms, 0) / 1000.0
    return WalFact(
        "last_failed_ms", "last failure", lasting(since_s), "Time since archiving last failed.",
        "now − pg_stat_archiver.last_failed_time", sorted_by=since_s, unit="s",
    )  # fmt: skip


def _full_pages(interval: Interval) -> WalFact:
    pages = full_pages(interval)
    if pages is None:
        return _of_metric(FULL_PAGES, None, UNKNOWN)
    mark = "" if not pages.estimated else "<= " if pages.compressed else "~"
    return _of_metric(FULL_PAGES, pages.percent, f"{mark}{percent(pages.percent)} %")


_WAL_VIEW: Final = "pg_stat_wal"
_CHECKPOINTER: Final = "pg_stat_bgwriter to 16, pg_stat_checkpointer from 17 on"
_BGWRITER: Final = "pg_stat_bgwriter"
_IO_WAL: Final = "pg_stat_wal to 17; pg_stat_io, object wal, context normal, from 18 on"

_WAL_FACTS: Final[tuple[Make, ...]] = (
    _metric(WAL_BYTES, byte_rate),
    _counter("WAL records", sections.wal, "wal_records", "WAL records generated.", f"{_WAL_VIEW}.wal_records"),
    _counter("full-page images", sections.wal, "wal_fpi", "Whole pages in WAL: the first change of a page after a checkpoint.", f"{_WAL_VIEW}.wal_fpi"),
    _counter("full-page bytes", sections.wal, "wal_fpi_bytes", "Bytes of full-page images, after compression; from 19 on.", f"{_WAL_VIEW}.wal_fpi_bytes", size),
    _full_pages,
    _counter("WAL bytes", sections.wal, "wal_bytes", "Bytes of WAL generated.", f"{_WAL_VIEW}.wal_bytes", size),
    _counter("buffers full", sections.wal, "wal_buffers_full", "Times WAL had to be written because wal_buffers was full.", f"{_WAL_VIEW}.wal_buffers_full"),
    _counter("WAL writes", sections.wal, "wal_writes", "Writes of WAL to disk.", f"wal_write of {_IO_WAL}"),
    _mean("ms per write", "wal_write_us", "wal_writes", "Milliseconds per write; - while track_wal_io_timing is off.", f"Δ time / Δ writes of {_IO_WAL}"),
    _counter("WAL syncs", sections.wal, "wal_syncs", "Flushes of WAL.", f"wal_sync of {_IO_WAL}"),
    _mean("ms per sync", "wal_sync_us", "wal_syncs", "Milliseconds per flush; - while track_wal_io_timing is off.", f"Δ time / Δ syncs of {_IO_WAL}"),
    _metric(WAL_SINCE_REDO, size),
    _metric(CHECKPOINT_TRIGGER, size),
    _metric(SINCE_CHECKPOINT, lasting),
    _counter("timed", sections.checkpoints, "timed", "Checkpoints begun because checkpoint_timeout had elapsed.", _CHECKPOINTER),
    _counter("requested", sections.checkpoints, "requested", "Checkpoints begun because of WAL, a command or a shutdown.", _CHECKPOINTER),
    _counter("done", sections.checkpoints, "done", "Checkpoints finished, skipped ones not counted.", "pg_stat_checkpointer.num_done, from 18 on"),
    _counter("ckpt write ms", sections.checkpoints, "write_ms", "Time checkpoints spent writing.", _CHECKPOINTER),
    _counter("ckpt sync ms", sections.checkpoints, "sync_ms", "Time checkpoints spent syncing files.", _CHECKPOINTER),
    _counter("ckpt buffers", sections.checkpoints, "buffers_checkpoint", "Buffers written by checkpoints.", _CHECKPOINTER),
    _counter("ckpt slru pages", sections.checkpoints, "slru_written", "Pages of SLRU caches written by checkpoints.", "pg_stat_checkpointer.slru_written, from 18 on"),
    _counter("bgwriter buffers", sections.checkpoints, "buffers_clean", "Buffers written by the background writer.", f"{_BGWRITER}.buffers_clean"),
    _counter("bgwriter halts", sections.checkpoints, "maxwritten_clean", "Times the background writer stopped at bgwriter_lru_maxpages.", f"{_BGWRITER}.maxwritten_clean"),
    _counter("backend buffers", sections.checkpoints, "buffers_backend", "Buffers that backends had to write themselves.", f"{_BGWRITER}.buffers_backend to 16, pg_stat_io from 17 on"),
    _counter("backend fsyncs", sections.checkpoints, "backend_fsyncs", "Files that backends had to sync themselves; should stay 0.", f"{_BGWRITER}.buffers_backend_fsync to 16, pg_stat_io from 17 on"),
    _counter("buffers allocated", sections.checkpoints, "buffers_alloc", "Buffers allocated for other pages.", f"{_BGWRITER}.buffers_alloc"),
    _metric(WAL_DIRECTORY, size),
    _metric(WAL_DIRECTORY_GROWTH, byte_rate),
    _metric(WAL_DISK_UNTIL_FULL, lasting),
    _gauge("segments", sections.wal_files, "segments", "Segments in the WAL directory.", "pg_ls_waldir()"),
    _gauge("segments ready", sections.wal_files, "recycled", "Segments created or recycled for future WAL.", "pg_ls_waldir(), names behind pg_walfile_name(pg_current_wal_insert_lsn())"),
)  # fmt: skip

_ARCHIVER_FACTS: Final[tuple[Make, ...]] = (
    _counter("archived", sections.archiver, "archived_count", "WAL files archived.", "pg_stat_archiver.archived_count"),
    _counter("failed", sections.archiver, "failed_count", "Attempts that failed.", "pg_stat_archiver.failed_count"),
    _metric(ARCHIVE_BACKLOG, count),
    _metric(SINCE_ARCHIVED, lasting),
    _words("last archived file", "last_archived_wal", "The last file archived.", "pg_stat_archiver.last_archived_wal"),
    _last_failure,
    _words("last failed file", "last_failed_wal", "The last file that could not be archived.", "pg_stat_archiver.last_failed_wal"),
)  # fmt: skip


def _wal_or_checkpoints(frame: Frame) -> Any:
    checkpoints = sections.checkpoints(frame)
    return sections.wal(frame) if isinstance(checkpoints, Unavailable) else checkpoints


def _archiver_facts(interval: Interval) -> Sequence[WalFact] | Unavailable:
    archiver = interval.now(sections.archiver)
    if archiver is not None and setting(interval, "archive_mode") == "off" and not archiver.archived_count:
        return Unavailable(Reason.SWITCHED_OFF, "archive_mode is off: WAL is not archived")
    return [make(interval) for make in _ARCHIVER_FACTS]


def _fact_value(row: WalFact) -> float | str | None:
    return row.sorted_by if row.sorted_by is not None or row.value == UNKNOWN else row.value


def _columns(value_cells: int) -> tuple[PageColumn, ...]:
    return (
        PageColumn(id="name", title="name", width=18, text=attrgetter("title"), definition="Name of the counter.", source="see `from`", value=attrgetter("title"), largest_first=False),
        PageColumn(id="value", title="value", width=value_cells, text=attrgetter("value"), definition="Now, or since the last reset of the statistics.", source="see `from`", value=attrgetter("sorted_by"), align="right", style=lambda row: "dim" if row.value in (UNKNOWN, "0") else "", raw=_fact_value),
        PageColumn(id="rate", title="per s", width=8, text=attrgetter("rate"), definition="Growth per second, over 10 s.", source="Δ value / Δt", align="right", raw=attrgetter("per_s")),
        word("unit", "unit", 6, attrgetter("unit"), "Unit of the value, and of its growth per second.", "this program", visible=False),
        PageColumn(id="source", title="from", width=24, text=attrgetter("source"), definition="View and column.", source="this program", visible=False, raw=attrgetter("source")),
        PageColumn(id="meaning", title="meaning", width=30, text=attrgetter("definition"), definition="Meaning of the counter.", source="this program", elastic=True, prose=True, raw=attrgetter("definition")),
    )  # fmt: skip


WAL: Final = PageTable(
    id="wal",
    title="WAL and checkpoints",
    columns=_columns(12),
    rows=section_rows(_wal_or_checkpoints, lambda interval: [make(interval) for make in _WAL_FACTS]),
    key_of=attrgetter("id"),
)
ARCHIVER: Final = PageTable(
    id="archiver",
    title="archiver",
    columns=_columns(24),
    rows=section_rows(sections.archiver, _archiver_facts),
    key_of=attrgetter("id"),
)


_NAMED: Final = 3
"""Readers and writers named in the summary."""


def _each(part: str, operations: str) -> Callable[[Any], float | None]:
    """Return milliseconds per operation; unknown while the time stands still, because nobody measures it."""

    def value(row: Any) -> float | None:
        time_us: float | None = row.each(part, operations)
        return time_us / 1000.0 if time_us else None

    return value


def _total(name: str) -> Callable[[Any], float | None]:
    def value(row: Any) -> float | None:
        total: float | None = getattr(row.row, name)
        return total

    return value


def _name(name: str) -> Callable[[Any], str]:
    def text(row: Any) -> str:
        return one_line(getattr(row.row, name) or "", 200)

    return text


def _io(
    id: str, title: str, name: str, description: str, unit: Callable[[float | None], str], width: int = 7
) -> PageColumn:
    return figure(id, title, width, growth_of(name), unit, f"{description} per second.", f"Δ pg_stat_io.{name} / Δt")


_IO_COLUMNS: Final = (
    word("backend-type", "backend type", 19, _name("backend_type"), "Kind of process.", "pg_stat_io.backend_type"),
    word("object", "object", 13, _name("object"), "relation, temp relation, wal (from 18 on).", "pg_stat_io.object"),
    word("context", "context", 9, _name("context"),
         "normal, or one of the ring buffers: vacuum, bulkread, bulkwrite; init: new WAL segments.",
         "pg_stat_io.context"),
    figure("bytes", "B/s", 7, growth_of("read_bytes", "write_bytes", "extend_bytes"), size,
           "Bytes read, written and added to relations per second.",
           "Δ pg_stat_io.(read_bytes + write_bytes + extend_bytes) / Δt; 16 and 17: operations · op_bytes"),
    _io("read-bytes", "readB/s", "read_bytes", "Bytes read (16 and 17: reads · op_bytes)", size),
    _io("write-bytes", "wrtB/s", "write_bytes", "Bytes written (16 and 17: writes · op_bytes)", size),
    _io("fsyncs", "fsync/s", "fsyncs", "Files synced; for relations the checkpointer's work", count),
    _io("reads", "reads/s", "reads", "Read operations", count),
    figure("read-ms", "ms/read", 7, _each("read_us", "reads"), ms,
           "Milliseconds per read; - while track_io_timing is off.", "Δ pg_stat_io.read_time / Δ reads"),
    _io("writes", "wrts/s", "writes", "Write operations", count),
    figure("write-ms", "ms/wrt", 7, _each("write_us", "writes"), ms,
           "Milliseconds per write; - while track_io_timing (for WAL track_wal_io_timing) is off.",
           "Δ pg_stat_io.write_time / Δ writes"),
    figure("fsync-ms", "ms/fsync", 8, _each("fsync_us", "fsyncs"), ms,
           "Milliseconds per sync; - while timing is off.", "Δ pg_stat_io.fsync_time / Δ fsyncs"),
    _io("extends", "ext/s", "extends", "Extensions of relations", count),
    _io("extend-bytes", "extB/s", "extend_bytes", "Bytes by which relations were extended", size),
    _io("hits", "hits/s", "hits", "Blocks found in shared buffers", count),
    _io("evictions", "evict/s", "evictions", "Blocks evicted from a buffer", count),
    _io("reuses", "reuse/s", "reuses", "Buffers of a ring used again", count),
    _io("writebacks", "wback/s", "writebacks", "Blocks the kernel was asked to write back", count),
)  # fmt: skip

_SLRU_COLUMNS: Final = (
    word("name", "cache", 18, _name("name"),
         "Cache of transaction states, subtransactions, multixacts, notifications; PostgreSQL 17 renamed the caches.",
         "pg_stat_slru.name"),
    figure("hit-share", "hit%", 5, lambda row: row.share("blks_hit", "blks_read"), percent,
           "Pages found in the cache.", "Δ blks_hit / Δ (blks_hit + blks_read) of pg_stat_slru"),
    *(figure(id, title, 8, growth_of(name), count, f"{description} per second.", f"Δ pg_stat_slru.{name} / Δt")
      for id, title, name, description in (
          ("hits", "hits/s", "blks_hit", "Pages found in the cache"),
          ("reads", "reads/s", "blks_read", "Pages read from disk"),
          ("written", "writes/s", "blks_written", "Pages written"),
          ("zeroed", "zeroed/s", "blks_zeroed", "Pages initialized"),
          ("exists", "exists/s", "blks_exists", "Checks whether a page exists"),
          ("flushes", "flush/s", "flushes", "Flushes of dirty pages"),
          ("truncates", "trunc/s", "truncates", "Truncations"),
      )),
    figure("all-read", "read", 7, _total("blks_read"), count, "Pages read since the reset.", "pg_stat_slru.blks_read"),
    figure("all-written", "written", 7, _total("blks_written"), count,
           "Pages written since the reset.", "pg_stat_slru.blks_written"),
)  # fmt: skip


def _database(id: str, title: str, name: str, description: str, width: int = 7, unit: Callable[[float | None], str] = count,
              visible: bool = True) -> PageColumn:  # fmt: skip
    return figure(
        id,
        title,
        width,
        growth_of(name),
        unit,
        f"{description} per second.",
        f"Δ pg_stat_database.{name} / Δt",
        visible=visible,
    )


def _ever(
    id: str, title: str, name: str, description: str, width: int = 7, critical: float | None = None
) -> PageColumn:
    return figure(
        id,
        title,
        width,
        _total(name),
        count,
        f"{description} since the reset.",
        f"pg_stat_database.{name}",
        critical=critical,
    )


def _busy(name: str) -> Callable[[Any], float | None]:
    """Return the function that gives mean sessions: microseconds per second."""

    def value(row: Any) -> float | None:
        busy_us = row.per_s(name)
        return None if busy_us is None else busy_us / 1e6

    return value


_DATABASE_COLUMNS: Final = (
    word("datname", "database", 16, lambda row: _name("datname")(row) or "(shared objects)",
         "Name of the database.", "pg_stat_database.datname"),
    figure("numbackends", "conns", 5, _total("numbackends"), count,
           "Sessions connected, without this tool's.", "pg_stat_database.numbackends"),
    figure("xacts", "xact/s", 7, growth_of("xact_commit", "xact_rollback"), count,
           "Transactions that ended per second, without this tool's.",
           "Δ (xact_commit + xact_rollback − sessions − 2 · parallel_workers_launched, 18+) of pg_stat_database − our own, / Δt"),
    _database("rollbacks", "rollb/s", "xact_rollback", "Transactions rolled back"),
    figure("hit", "hit%", 5, lambda row: row.share("blks_hit", "blks_read"), percent,
           "Blocks found in shared buffers.", "Δ blks_hit / Δ (blks_hit + blks_read) of pg_stat_database"),
    _database("read", "reads/s", "blks_read", "Blocks read"),
    figure("active", "active", 6, _busy("active_us"), count,
           "Mean number of sessions running a statement; counted when the statement ends.",
           "Δ pg_stat_database.active_time / Δt"),
    figure("idle-in-xact", "idle tx", 7, _busy("idle_in_transaction_us"), count,
           "Mean number of sessions idle in a transaction; counted when the idle time ends.",
           "Δ pg_stat_database.idle_in_transaction_time / Δt"),
    _database("returned", "retd/s", "tup_returned", "Rows read by scans"),
    _database("fetched", "fetch/s", "tup_fetched", "Rows fetched by index scans"),
    _database("inserted", "ins/s", "tup_inserted", "Rows inserted"),
    _database("updated", "upd/s", "tup_updated", "Rows updated"),
    _database("deleted", "del/s", "tup_deleted", "Rows deleted"),
    _database("temp", "tempB/s", "temp_bytes", "Bytes written to temporary files (counted when a file is closed)",
              unit=size),
    _database("sessions", "new/s", "sessions", "Sessions opened"),
    _ever("deadlocks", "deadlk", "deadlocks", "Deadlocks", 6),
    _ever("conflicts", "confl", "conflicts", "Queries cancelled by recovery (standby)", 5),
    _ever("checksums", "cksum", "checksum_failures", "Pages with a wrong checksum; - while checksums are off", 5, 1.0),
    _ever("abandoned", "aband", "sessions_abandoned", "Sessions whose client disconnected", 5),
    _ever("fatal", "fatal", "sessions_fatal", "Sessions ended by fatal errors", 5),
    _ever("killed", "killed", "sessions_killed", "Sessions terminated by an operator", 6),
    _ever("temp-files", "temp f", "temp_files", "Temporary files", 6),
)  # fmt: skip


def _summary(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    interval = session.interval
    if interval is None or height < 1:
        return []
    lines = [
        summed([*_of_wal(interval), *device_phrases(interval)], width, glyphs),
        summed(_of_io(interval), width, glyphs),
    ]
    return lines[:height]


def _of_wal(interval: Interval) -> list[Phrase]:
    rate = WAL_BYTES(interval)
    phrases = [
        Phrase(labelled("WAL", byte_rate(rate), "strong" if rate is not None else "dim")),
        full_page_share(interval, 3),
        Phrase(coming_checkpoint(interval), 1),
    ]
    directory, until = WAL_DIRECTORY(interval), WAL_DISK_UNTIL_FULL(interval)
    if directory is not None:
        phrases.append(Phrase(labelled("WAL directory", size(directory)), 4))
    if until is not None:
        phrases.append(
            Phrase(labelled("WAL disk full in", lasting(until), "critical" if until < 3600 else "warning"), 2)
        )
    return [*phrases, Phrase(_archiving(interval), 5)]


def _archiving(interval: Interval) -> Line:
    archiver, mode = interval.now(sections.archiver), setting(interval, "archive_mode")
    if archiver is None or mode == "off":
        return labelled("archiving", "off" if mode == "off" else UNKNOWN, "dim")
    backlog = ARCHIVE_BACKLOG(interval)
    text = "" if backlog is None else f", {count(backlog)} segments behind"
    style = "warning" if archiver.failed_count else alarm(backlog, ARCHIVE_BACKLOG.critical)
    return labelled("archived", f"{archiver.archived_count} failed {archiver.failed_count}{text}", style)


def _of_io(interval: Interval) -> list[Phrase]:
    fsyncs = BACKEND_FSYNCS(interval)
    phrases = [
        Phrase(labelled("buffer hit", percent(CACHE_HIT(interval)), PLAIN, " %"), 3),
        Phrase(labelled("data fsyncs by backends", count(fsyncs), alarm(fsyncs, BACKEND_FSYNCS.critical), "/s"), 2),
    ]
    shares = readers_and_writers(interval)
    if shares is not None:
        readers, writers = shares
        phrases = [
            Phrase(_named("read by", readers), 1, _named("read by", readers[:1])),
            Phrase(_named("written by", writers), 0, _named("written by", writers[:1])),
            *phrases,
        ]
    if is_on(interval, "track_io_timing") is False:
        phrases.append(Phrase((("track_io_timing is off: no times", "dim"),), 4))
    return phrases


def _named(label: str, shares: Sequence[IoShare]) -> Line:
    first = ", ".join(f"{share.backend_type} {byte_rate(share.bytes_per_s)}" for share in shares[:_NAMED])
    return labelled(label, first or "nobody", PLAIN if first else "dim")


IO: Final = PageTable(
    id="io",
    title="pg_stat_io",
    columns=_IO_COLUMNS,
    rows=section_rows(sections.io, io_rates),
    key_of=attrgetter("row.id"),
    sort="bytes",
    called=lambda row: " ".join(_name(part)(row) for part in ("backend_type", "object", "context")),
    empty="no reads or writes yet",
    quiet=lambda row: not row.sum("reads", "writes", "extends", "fsyncs", "hits"),
    hides_quiet=True,
)
SLRU: Final = PageTable(
    id="slru",
    title="slru",
    columns=_SLRU_COLUMNS,
    rows=section_rows(sections.slru, slru_rates),
    key_of=attrgetter("row.name"),
    sort="reads",
)
DATABASES: Final = PageTable(
    id="databases",
    title="databases",
    columns=_DATABASE_COLUMNS,
    rows=section_rows(sections.databases, database_rates),
    key_of=attrgetter("row.datid"),
    sort="xacts",
)

_NUMBERS: Final = (
    WAL_BYTES, FULL_PAGES, WAL_DIRECTORY, WAL_DISK_UNTIL_FULL, ARCHIVE_BACKLOG, CACHE_HIT, BACKEND_FSYNCS,
)  # fmt: skip

PAGE: Final = Page(
    key="6",
    id="io",
    title="io/wal",
    tables=(IO, WAL, SLRU, DATABASES, ARCHIVER),
    summary=_summary,
    summary_rows=lambda width, height: 2 if height >= 20 else 1,
    numbers=_NUMBERS,
)
