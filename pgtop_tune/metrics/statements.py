"""Statements: calls, time, reads, writes, WAL and JIT compilation of each over the last seconds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Metric, outer_pair
from pgtop_tune.metrics.growth import Grown, growth, readings
from pgtop_tune.metrics.server import is_on, number, same_entries
from pgtop_tune.metrics.waits import LONG_WINDOW_S
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import StatementTotals
from pgtop_tune.model.statements import OWN_MARK, StatementCounters, StatementSample, StatementText

_NOT_COUNTED: Final = {
    "id", "queryid", "usename", "datname", "toplevel", "min_exec_us", "max_exec_us", "stats_since_ms",
}  # fmt: skip
COUNTED: Final = tuple(name for name in StatementCounters.__struct_fields__ if name not in _NOT_COUNTED)
"""Fields of StatementCounters that only grow."""

_PLANNING: Final = "pg_stat_statements.track_planning"


class StatementRate(Struct, frozen=True):
    """An entry of pg_stat_statements with its rates over the last seconds.

    Attributes:
        grown: Growth of its counters; `by` is None until it was read twice.
        text: Its text; None where it is not known (yet).
        all_ms_per_s: Milliseconds per second of all top-level statements together.
        block_bytes: Size of a block.
        planning: Whether planning is counted.
        io_timing: Whether the time of reads and writes is counted.
    """

    grown: Grown[StatementCounters]
    text: StatementText | None
    all_ms_per_s: float | None
    block_bytes: int | None
    planning: bool
    io_timing: bool

    @property
    def counters(self) -> StatementCounters:
        """Return the newest reading of its counters."""
        return self.grown.row

    @property
    def calls_per_s(self) -> float | None:
        """Executions that ended, per second."""
        return self.grown.per_s("calls")

    @property
    def ms_per_s(self) -> float | None:
        """Milliseconds of execution per second; 1,000 of them keep one session busy."""
        return _thousandth(self.grown.per_s("exec_us"))

    @property
    def mean_ms(self) -> float | None:
        """Milliseconds per execution."""
        return _thousandth(self.grown.each("exec_us", "calls"))

    @property
    def share(self) -> float | None:
        """Per cent of the execution time of all top-level statements."""
        ms_per_s = self.ms_per_s
        if ms_per_s is None or not self.all_ms_per_s:
            return None
        return min(100.0 * ms_per_s / self.all_ms_per_s, 100.0)

    @property
    def rows_per_call(self) -> float | None:
        """Rows returned or affected per execution."""
        return self.grown.each("rows", "calls")

    @property
    def hit_share(self) -> float | None:
        """Per cent of the shared blocks found in shared buffers."""
        return self.grown.share("shared_blks_hit", "shared_blks_read")

    @property
    def planning_ms_per_s(self) -> float | None:
        """Milliseconds of planning per second; None while planning is not counted."""
        return _thousandth(self.grown.per_s("plan_us")) if self.planning else None

    @property
    def jit_ms_per_s(self) -> float | None:
        """Milliseconds of compiling per second."""
        return _thousandth(self.grown.per_s("jit_us"))

    @property
    def io_ms_per_s(self) -> float | None:
        """Milliseconds per second of waiting for reads and writes; None while they are not timed."""
        timed = self.grown.per_s("blk_read_us", "blk_write_us", "temp_blk_us")
        return _thousandth(timed) if self.io_timing else None

    @property
    def wal_bytes_per_s(self) -> float | None:
        """Bytes of WAL per second."""
        return self.grown.per_s("wal_bytes")

    def bytes_per_s(self, *blocks: str) -> float | None:
        """Blocks of these counters per second, in bytes."""
        blocks_per_s = self.grown.per_s(*blocks)
        return None if blocks_per_s is None or self.block_bytes is None else blocks_per_s * self.block_bytes


def _thousandth(value: float | None) -> float | None:
    return None if value is None else value / 1000.0


def statement_rates(interval: Interval) -> list[StatementRate]:
    """Return every entry of the newest sample with its growth over the last `growth.ROWS_WINDOW_S`, in the sample's order.

    Source: sum of Δ of pg_stat_statements between readings that are at most a few seconds apart. Entries of this tool's
    own statements are left out.
    """
    looks = readings(interval, sections.statement_counters)
    if not looks:
        return []
    sample = interval.now(sections.statement_texts)
    texts = {} if sample is None else {text.queryid: text for text in sample.texts}
    query_of = query_texts(interval, (row.queryid for row in looks[0].statements))
    server = sections.server(interval.newest)
    block_bytes = None if isinstance(server, Unavailable) else server.block_bytes
    total_ms_per_s = all_ms_per_s(interval)
    planning, io_timing = is_on(interval, _PLANNING), is_on(interval, "track_io_timing")
    return [
        StatementRate(
            grown=grown,
            text=texts.get(grown.row.queryid),
            all_ms_per_s=total_ms_per_s,
            block_bytes=block_bytes,
            planning=planning is not False,
            io_timing=io_timing is not False,
        )
        for grown in _grown(looks)
        if OWN_MARK not in query_of.get(grown.row.queryid, "")
    ]


def statement_sum(rows: Sequence[StatementRate]) -> StatementRate | None:
    """Return the top-level statements among some as one, without a text; None without any.

    Nested statements are part of those that call them. Rates are per second of the longest window.
    """
    summed = [row for row in rows if row.counters.toplevel]
    if not summed:
        return None
    first, seconds = summed[0], max(row.grown.seconds for row in summed)
    growths = [row.grown.by for row in summed if row.grown.by is not None]
    by = {name: sum(growth.get(name, 0) for growth in growths) for name in growths[0]} if growths else None
    counters = [row.counters for row in summed]
    totals = {name: sum(getattr(counter, name) or 0 for counter in counters) for name in COUNTED}
    counted = {name: total for name, total in totals.items() if getattr(first.counters, name) is not None}
    slowest_us = max(counter.max_exec_us for counter in counters)
    row = replace(first.counters, id="", usename=None, datname=None, max_exec_us=slowest_us, **counted)
    return replace(first, grown=Grown(row, seconds, by), text=None)


def query_texts(interval: Interval, ids: Iterable[Hashable]) -> dict[Hashable, str]:
    """Return texts of query ids: as pg_stat_statements keeps them, else of a session that was seen running one."""
    missing = {key for key in ids if key is not None}
    texts: dict[Hashable, str] = {}
    kept = interval.now(sections.statement_texts)
    for text in () if kept is None else kept.texts:
        if text.queryid in missing and text.query:
            texts[text.queryid] = text.query
            missing.discard(text.queryid)
    for activity in interval.recent(sections.activity, LONG_WINDOW_S) if missing else ():
        for backend in activity.backends:
            if backend.query_id in missing and backend.query:
                texts[backend.query_id] = backend.query
                missing.discard(backend.query_id)
        if not missing:
            break
    return texts


def unknown_text(queryid: int) -> str:
    """Return the words in place of a text that has not been read, or that the server has lost."""
    return f"text not known yet (query id {queryid})"


def _grown(looks: Sequence[StatementSample]) -> list[Grown[StatementCounters]]:
    sums: dict[str, dict[str, int]] = {}
    seconds: dict[str, float] = {}
    newest = looks[0]
    for newer, older in pairwise(looks):
        if newer.before_s != older.at_s:
            break
        lasted = newer.at_s - older.at_s
        before = {row.id: row for row in (*older.statements, *newer.before)}
        now = {row.id: row for row in newer.statements}
        for row in newest.statements:
            if row.id in now:
                grown = _growth(before.get(row.id), now[row.id], newer)
                if grown is None:
                    continue
                total = sums.setdefault(row.id, grown)
                if total is not grown:
                    for name, value in grown.items():
                        total[name] = total.get(name, 0) + value
            elif newer.left_out:
                continue
            seconds[row.id] = seconds.get(row.id, 0.0) + lasted
    return [Grown(row, seconds.get(row.id, 0.0), sums.get(row.id)) for row in newest.statements]


def _growth(
    older: StatementCounters | None, newer: StatementCounters, sample: StatementSample
) -> dict[str, int] | None:
    if older is None:
        return None if newer.id in sample.unknown_before else growth(None, newer, COUNTED)
    return growth(older, newer, COUNTED) if older.stats_since_ms == newer.stats_since_ms else None


def _totals(interval: Interval) -> tuple[StatementTotals, StatementTotals] | None:
    return outer_pair(readings(interval, sections.statements))


def all_ms_per_s(interval: Interval) -> float | None:
    """Return the milliseconds of execution per second of all top-level statements."""
    pair = _totals(interval)
    if pair is None or not same_entries(*pair) or pair[1].total_exec_ms < pair[0].total_exec_ms:
        return None
    return (pair[1].total_exec_ms - pair[0].total_exec_ms) / (pair[1].at_s - pair[0].at_s)


def _load(interval: Interval) -> float | None:
    return _thousandth(all_ms_per_s(interval))


def _thrown_out(interval: Interval) -> float | None:
    pair = _totals(interval)
    if pair is None or pair[1].dealloc < pair[0].dealloc:
        return None
    return (pair[1].dealloc - pair[0].dealloc) / (pair[1].at_s - pair[0].at_s)


def _filled(interval: Interval) -> float | None:
    totals, most = interval.now(sections.statements), number(interval, "pg_stat_statements.max")
    return None if totals is None or not most else 100.0 * totals.entries / most


STATEMENT_LOAD = Metric(
    "server.statement_load", "load", "sessions",
    "Sessions kept busy by finished statements: seconds of execution per second; mean of 10 s. Unknown while entries are evicted, because their time is lost.",
    "Δ total_exec_time of pg_stat_statements (toplevel) / Δt", _load,
)  # fmt: skip
STATEMENT_EVICTIONS = Metric(
    "server.statement_evictions", "evictions", "1/s",
    "Evictions of the least used entries per second because pg_stat_statements.max was reached; evicted entries are missing from all sums.",
    "Δ dealloc of pg_stat_statements_info / Δt", _thrown_out, critical=0.1,
)  # fmt: skip
STATEMENTS_FILLED = Metric(
    "server.statements_filled", "entries", "%", "Entries in use out of pg_stat_statements.max.",
    "count(*) of pg_stat_statements(false), toplevel / pg_stat_statements.max", _filled,
)  # fmt: skip

METRICS: Final = (STATEMENT_LOAD, STATEMENT_EVICTIONS, STATEMENTS_FILLED)
