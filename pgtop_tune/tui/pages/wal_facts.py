"""Tables of facts about WAL, checkpoints and the archiver: a name, a value, its growth per second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import UNKNOWN, count, ms, percent, size
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Metric
from pgtop_tune.metrics.checkpoints import CHECKPOINT_TRIGGER, SINCE_CHECKPOINT
from pgtop_tune.metrics.growth import growth, readings
from pgtop_tune.metrics.io import (
    ARCHIVE_BACKLOG,
    SINCE_ARCHIVED,
    WAL_DIRECTORY,
    WAL_DIRECTORY_GROWTH,
    WAL_DISK_UNTIL_FULL,
)
from pgtop_tune.metrics.server import FULL_PAGES, WAL_BYTES, WAL_SINCE_REDO, full_pages, setting
from pgtop_tune.model.absence import NOT_YET, Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.pages.page import PageColumn, PageTable
from pgtop_tune.tui.widgets.phrase import lasting, spaced


class WalFact(Struct, frozen=True):
    """A row: what it is called, its value and growth as text.

    Attributes:
        sorted_by: The value as a number; None where it has none.
    """

    id: str
    title: str
    value: str
    rate: str
    sorted_by: float | None
    definition: str
    source: str


Reach = Callable[[Frame], Any]
Make = Callable[[Interval], WalFact]
Unit = Callable[[float | None], str]


def _bytes(value: float | None) -> str:
    return UNKNOWN if value is None else f"{size(value)}B"


def _bytes_per_s(value: float | None) -> str:
    return UNKNOWN if value is None else f"{size(value)}B/s"


def _counter(
    title: str, section: Reach, field: str, definition: str, source: str, unit: Unit = spaced
) -> Make:  # fmt: skip
    """A counter of a section: its value since the reset and its growth."""

    def make(interval: Interval) -> WalFact:
        now = interval.now(section)
        value = None if now is None else getattr(now, field)
        grown = _grown(interval, section, field)
        return WalFact(
            id=field,
            title=title,
            value=unit(value),
            rate=_unit_rate(unit, grown),
            sorted_by=value,
            definition=definition,
            source=source,
        )

    return make


def _unit_rate(unit: Unit, grown: float | None) -> str:
    return count(grown) if unit is spaced else unit(grown)


def _grown(interval: Interval, section: Reach, field: str) -> float | None:
    recent = readings(interval, section)
    if len(recent) < 2 or recent[0].stats_reset_ms != recent[-1].stats_reset_ms:
        return None
    found = growth(recent[-1], recent[0], (field,))
    return None if not found else sum(found.values()) / (recent[0].at_s - recent[-1].at_s)


def _gauge(title: str, section: Reach, field: str, definition: str, source: str) -> Make:
    def make(interval: Interval) -> WalFact:
        now = interval.now(section)
        value = None if now is None else getattr(now, field)
        return WalFact(
            id=field, title=title, value=spaced(value), rate="", sorted_by=value, definition=definition, source=source
        )

    return make


def _mean(title: str, times: str, operations: str, definition: str, source: str) -> Make:
    """Milliseconds per operation of WalCounters; unknown while nobody measures it."""

    def make(interval: Interval) -> WalFact:
        time, done = _grown(interval, sections.wal, times), _grown(interval, sections.wal, operations)
        value = time / done / 1000.0 if time and done else None
        return WalFact(
            id=times, title=title, value=ms(value), rate="", sorted_by=value, definition=definition, source=source
        )

    return make


def _metric(metric: Metric, unit: Unit) -> Make:
    def make(interval: Interval) -> WalFact:
        value = metric(interval)
        return WalFact(
            id=metric.id,
            title=metric.title,
            value=unit(value),
            rate="",
            sorted_by=value,
            definition=metric.definition,
            source=metric.source,
        )

    return make


def _words(title: str, field: str, definition: str, source: str) -> Make:
    def make(interval: Interval) -> WalFact:
        archiver = interval.now(sections.archiver)
        text = UNKNOWN if archiver is None else one_line(getattr(archiver, field), 200) or UNKNOWN
        return WalFact(id=field, title=title, value=text, rate="", sorted_by=None, definition=definition, source=source)

    return make


def _last_failure(interval: Interval) -> WalFact:
    archiver, activity = interval.now(sections.archiver), interval.now(sections.activity)
    since_s = None
    if archiver is not None and archiver.last_failed_ms is not None:
        now_ms = interval.newest.taken_at_ms if activity is None else activity.now_ms
        since_s = max(now_ms - archiver.last_failed_ms, 0) / 1000.0
    return WalFact(
        id="last_failed_ms", title="last failure", value=lasting(since_s), rate="", sorted_by=since_s,
        definition="Time since archiving last failed.", source="now − pg_stat_archiver.last_failed_time",
    )  # fmt: skip


def _full_pages(interval: Interval) -> WalFact:
    found = full_pages(interval)
    mark = "" if found is None or not found.estimated else "<= " if found.compressed else "~"
    text = UNKNOWN if found is None else f"{mark}{percent(found.percent)} %"
    value = None if found is None else found.percent
    return WalFact(
        id=FULL_PAGES.id,
        title=FULL_PAGES.title,
        value=text,
        rate="",
        sorted_by=value,
        definition=FULL_PAGES.definition,
        source=FULL_PAGES.source,
    )


_WAL_VIEW: Final = "pg_stat_wal"
_CHECKPOINTER: Final = "pg_stat_bgwriter to 16, pg_stat_checkpointer from 17 on"
_BGWRITER: Final = "pg_stat_bgwriter"
_IO_WAL: Final = "pg_stat_wal to 17; pg_stat_io, object wal, context normal, from 18 on"

_WAL_FACTS: Final[tuple[Make, ...]] = (
    _metric(WAL_BYTES, _bytes_per_s),
    _counter("WAL records", sections.wal, "wal_records", "Records made.", f"{_WAL_VIEW}.wal_records"),
    _counter("full-page images", sections.wal, "wal_fpi", "Whole pages in WAL: the first change of a page after a checkpoint.", f"{_WAL_VIEW}.wal_fpi"),
    _counter("full-page bytes", sections.wal, "wal_fpi_bytes", "Bytes of them, compressed ones as they are written; from 19 on.", f"{_WAL_VIEW}.wal_fpi_bytes", _bytes),
    _full_pages,
    _counter("WAL bytes", sections.wal, "wal_bytes", "Bytes made.", f"{_WAL_VIEW}.wal_bytes", _bytes),
    _counter("buffers full", sections.wal, "wal_buffers_full", "Times WAL had to be written because wal_buffers was full.", f"{_WAL_VIEW}.wal_buffers_full"),
    _counter("WAL writes", sections.wal, "wal_writes", "Writes of WAL to disk.", f"wal_write of {_IO_WAL}"),
    _mean("ms per write", "wal_write_us", "wal_writes", "Milliseconds per write; - while track_wal_io_timing is off.", f"Δ time / Δ writes of {_IO_WAL}"),
    _counter("WAL syncs", sections.wal, "wal_syncs", "Flushes of WAL.", f"wal_sync of {_IO_WAL}"),
    _mean("ms per sync", "wal_sync_us", "wal_syncs", "Milliseconds per flush; - while track_wal_io_timing is off.", f"Δ time / Δ syncs of {_IO_WAL}"),
    _metric(WAL_SINCE_REDO, _bytes),
    _metric(CHECKPOINT_TRIGGER, _bytes),
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
    _counter("backend buffers", sections.checkpoints, "buffers_backend", "Buffers backends had to write themselves.", f"{_BGWRITER}.buffers_backend to 16, pg_stat_io from 17 on"),
    _counter("backend fsyncs", sections.checkpoints, "backend_fsyncs", "Files that backends had to sync themselves; should stay 0.", f"{_BGWRITER}.buffers_backend_fsync to 16, pg_stat_io from 17 on"),
    _counter("buffers allocated", sections.checkpoints, "buffers_alloc", "Buffers allocated for other pages.", f"{_BGWRITER}.buffers_alloc"),
    _metric(WAL_DIRECTORY, _bytes),
    _metric(WAL_DIRECTORY_GROWTH, _bytes_per_s),
    _metric(WAL_DISK_UNTIL_FULL, lasting),
    _gauge("segments", sections.wal_files, "segments", "Segments in the WAL directory.", "pg_ls_waldir()"),
    _gauge("segments ready", sections.wal_files, "recycled", "Segments created or recycled for future WAL.", "pg_ls_waldir(), names behind pg_walfile_name(pg_current_wal_insert_lsn())"),
)  # fmt: skip

_ARCHIVER_FACTS: Final[tuple[Make, ...]] = (
    _counter("archived", sections.archiver, "archived_count", "WAL files archived.", "pg_stat_archiver.archived_count"),
    _counter("failed", sections.archiver, "failed_count", "Attempts that failed.", "pg_stat_archiver.failed_count"),
    _metric(ARCHIVE_BACKLOG, spaced),
    _metric(SINCE_ARCHIVED, lasting),
    _words("last archived file", "last_archived_wal", "The last file archived.", "pg_stat_archiver.last_archived_wal"),
    _last_failure,
    _words("last failed file", "last_failed_wal", "The last file that could not be archived.", "pg_stat_archiver.last_failed_wal"),
)  # fmt: skip


def _wal_rows(session: Session) -> Sequence[WalFact] | Unavailable:
    frame, interval = session.now, session.interval
    if frame is None or interval is None:
        return NOT_YET
    found, other = sections.wal(frame), sections.checkpoints(frame)
    if isinstance(found, Unavailable) and isinstance(other, Unavailable):
        return found
    return [make(interval) for make in _WAL_FACTS]


def _archiver_rows(session: Session) -> Sequence[WalFact] | Unavailable:
    frame, interval = session.now, session.interval
    if frame is None or interval is None:
        return NOT_YET
    found = sections.archiver(frame)
    if isinstance(found, Unavailable):
        return found
    if setting(interval, "archive_mode") == "off" and not found.archived_count:
        return Unavailable(Reason.SWITCHED_OFF, "archive_mode is off: WAL is not archived")
    return [make(interval) for make in _ARCHIVER_FACTS]


def _quiet(row: Any) -> str:
    return "dim" if row.value in (UNKNOWN, "0") else ""


def _columns(value_cells: int) -> tuple[PageColumn, ...]:
    return (
        PageColumn(id="name", title="name", width=18, text=attrgetter("title"), definition="Name of the counter.", source="see `from`", value=attrgetter("title"), largest_first=False),
        PageColumn(id="value", title="value", width=value_cells, text=attrgetter("value"), definition="Now, or since the last reset of the statistics.", source="see `from`", value=attrgetter("sorted_by"), align="right", style=_quiet),
        PageColumn(id="rate", title="per s", width=8, text=attrgetter("rate"), definition="Growth per second, over 10 s.", source="Δ value / Δt", align="right"),
        PageColumn(id="source", title="from", width=24, text=attrgetter("source"), definition="View and column.", source="this program", shown=False),
        PageColumn(id="meaning", title="what it is", width=30, text=attrgetter("definition"), definition="Meaning of the number.", source="this program", elastic=True),
    )  # fmt: skip


WAL: Final = PageTable(
    id="wal", title="WAL and checkpoints", columns=_columns(12), rows=_wal_rows, key_of=attrgetter("id")
)
ARCHIVER: Final = PageTable(
    id="archiver", title="archiver", columns=_columns(24), rows=_archiver_rows, key_of=attrgetter("id")
)
