"""Metrics of the server: throughput, WAL, checkpoints, buffers, sessions; values and changes of its parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import PUBLISHED_S, Interval, Metric, outer_pair, pair_rate, share
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import (
    Activity,
    Backend,
    CheckpointCounters,
    DatabaseCounters,
    Parameter,
    ParameterSample,
    StatementTotals,
    WalCounters,
)

# Parameters of the server, as numbers and switches.


def setting(interval: Interval, name: str) -> str | None:
    """Return pg_settings.setting, in the server's unit; None when the parameter is not known."""
    sample = interval.now(sections.parameters)
    if sample is None:
        return None
    return next((parameter.setting for parameter in sample.parameters if parameter.name == name), None)


def number(interval: Interval, name: str) -> float | None:
    """Return a numeric parameter in the server's unit; None when it is not known, or no number."""
    value = setting(interval, name)
    try:
        return None if value is None else float(value)
    except ValueError:
        return None


def is_on(interval: Interval, name: str) -> bool | None:
    """Return whether a switch is on; None when the parameter is not known."""
    value = setting(interval, name)
    return None if value is None else value == "on"


def _database_pair(interval: Interval) -> tuple[DatabaseCounters, DatabaseCounters] | None:
    pair = interval.pair(sections.database, PUBLISHED_S)
    if pair is None or pair[0].stats_reset_ms != pair[1].stats_reset_ms or pair[1].databases < pair[0].databases:
        return None
    return pair


OF_WORKER: Final = 2
"""Transactions in which a parallel worker connects and takes over parameters (InitPostgres, ParallelWorkerMain)."""


def committed(counters: DatabaseCounters) -> int:
    """Return the transactions that sessions committed, this tool's included.

    The server counts one for the start of a session (InitPostgres), too, and those of parallel workers, which it counts
    from 18 on.
    """
    return counters.xact_commit - (counters.sessions or 0) - OF_WORKER * (counters.parallel_workers or 0)


def ended_transactions(counters: DatabaseCounters) -> int:
    """Return the transactions of sessions that ended, see `committed`."""
    return committed(counters) + counters.xact_rollback


def _tps(interval: Interval) -> float | None:
    return None if interval.whole.once(why_uncounted) else _counted_tps(interval)


def _counted_tps(interval: Interval) -> float | None:
    pair = _database_pair(interval)
    own_rate = pair_rate(pair, lambda counters: counters.own_transactions)
    tps = _without_ours(pair_rate(pair, ended_transactions), own_rate)
    if tps is None or pair is None or pair[1].sessions is not None:
        return tps
    # A recording of an older version has the starts of sessions in another section.
    return max(tps - (_connects(interval) or 0.0), 0.0)


_SEEN_S: Final = 10.0
_FEWEST: Final = 30
_ENDED: Final = 10
_FAR: Final = 10.0
_MORE: Final = 3.0
_MANY_OF_WORKERS: Final = 0.1
_SHORTEST_MS: Final = 20
"""Times of `activity` are rounded to 10 ms, and its rows are read within some ms."""


def why_uncounted(interval: Interval) -> str:
    """Return why the server's count of transactions is not that of its sessions; "" where it is, as far as is known.

    Transactions that touch no table are missing: a session keeps its counts back until it has some of a relation to
    report (pgstat_report_stat). Of the transactions that run, at most X · t have begun within the last t seconds
    (Little's law): ten times as many contradict X, where samples saw that transactions end, or three times as many
    that ended. Those of parallel workers are too many, and to 17 nobody counts workers: by the same law as many begin as
    samples see of an age.
    """
    looks = interval.recent(sections.activity, _SEEN_S)
    tps = _counted_tps(interval.over(_SEEN_S))
    if tps is None or not looks:
        return ""
    database = interval.now(sections.database)
    if database is not None and database.parallel_workers is None:
        workers = interval.each(_workers_run, looks)
        if OF_WORKER * _fewest_begun(workers, len(looks)) >= _MANY_OF_WORKERS * tps > 0.0:
            return "the server counts parallel workers as transactions (to 17)"
    transactions_run = interval.each(_transactions_run, looks)
    begun = _fewest_begun(transactions_run, len(looks))
    needed = _MORE * tps * _SEEN_S
    # Each row of a sample shows the end of one at most: on a server that counts there are too few rows to look further.
    if begun <= _FAR * tps and sum(len(look.backends) for look in looks) < needed:
        return ""
    idle_since = interval.each(_idle_since, looks)
    # Those that ended last may be reported late.
    ended = sum(
        len(
            {pid for pid, _ in transactions_run[at + 1].keys() - transactions_run[at].keys()}
            | {pid for pid, since_ms in idle_since[at].items() if since_ms > looks[at + 1].now_ms}
        )
        for at in range(1, len(looks) - 1)
    )
    if ended >= _ENDED and (begun > _FAR * tps or ended >= needed):
        return "the server does not count transactions without tables"
    return ""


def _idle_since(activity: Activity) -> dict[int, int]:
    """Return the start of the last statement of sessions that are in no transaction, by pid."""
    return {row.pid: row.query_start_ms or 0 for row in client_backends(activity) if row.state == "idle"}


def _fewest_begun(ages_seen: Sequence[Mapping[tuple[int, int], int]], looks: int) -> float:
    """Return how many per second begin at least, by the ages in ms of those that samples saw; 0 for too few samples."""
    ages_s = sorted(age_ms / 1000.0 for ages in ages_seen for age_ms in ages.values())
    return max((n / (ages_s[n - 1] * looks) for n in range(_FEWEST, len(ages_s) + 1)), default=0.0)


def _workers_run(activity: Activity) -> dict[tuple[int, int], int]:
    """Return the ages in ms of parallel workers, by pid and start."""
    begun = [
        (row.pid, row.backend_start_ms)
        for row in activity.backends
        if row.backend_type == "parallel worker" and row.backend_start_ms
    ]
    return {(pid, start_ms): max(activity.now_ms - start_ms, 0) + _SHORTEST_MS for pid, start_ms in begun}


def _transactions_run(activity: Activity) -> dict[tuple[int, int], int]:
    """Return the ages in ms of the transactions in which client backends run a statement, by pid and start."""
    begun = [
        (row.pid, row.xact_start_ms) for row in client_backends(activity) if row.state == "active" and row.xact_start_ms
    ]
    read_ms = max(activity.now_ms, *(start_ms for _, start_ms in begun)) if begun else 0
    return {(pid, start_ms): read_ms - start_ms + _SHORTEST_MS for pid, start_ms in begun}


def _without_ours(total_rate: float | None, own_rate: float | None) -> float | None:
    # Backends report their counters up to a second late, so ours can exceed the total.
    return None if total_rate is None or own_rate is None else max(total_rate - own_rate, 0.0)


def _rollbacks(interval: Interval) -> float | None:
    return pair_rate(_database_pair(interval), lambda counters: counters.xact_rollback)


def _connects(interval: Interval) -> float | None:
    pair = interval.pair(sections.databases, PUBLISHED_S)
    if pair is None:
        return None
    sessions_before = {row.datid: row.sessions for row in pair[0].databases}
    grown = [row.sessions - sessions_before[row.datid] for row in pair[1].databases if row.datid in sessions_before]
    seconds = pair[1].at_s - pair[0].at_s
    return None if any(count < 0 for count in grown) else sum(grown) / seconds


def same_entries(older: StatementTotals, newer: StatementTotals) -> bool:
    """Return whether sums of pg_stat_statements can be compared: not after a reset, nor after evictions of entries.

    Evicted entries take their calls and their time with them.
    """
    return older.stats_reset_ms == newer.stats_reset_ms and older.dealloc == newer.dealloc


def _qps(interval: Interval) -> float | None:
    pair = interval.pair(sections.statements)
    if pair is None or not same_entries(*pair):
        return None
    return _without_ours(pair_rate(pair, lambda sums: sums.calls), pair_rate(pair, lambda sums: sums.own_calls))


def _cache_hit(interval: Interval) -> float | None:
    pair = _database_pair(interval)
    if pair is None:
        return None
    hits, reads = pair[1].blks_hit - pair[0].blks_hit, pair[1].blks_read - pair[0].blks_read
    return None if hits < 0 or reads < 0 else share(hits, hits + reads)


def _temp_bytes(interval: Interval) -> float | None:
    return pair_rate(_database_pair(interval), lambda counters: counters.temp_bytes)


def _wal_pair(interval: Interval) -> tuple[WalCounters, WalCounters] | None:
    pair = interval.pair(sections.wal, PUBLISHED_S)
    return None if pair is None or pair[0].stats_reset_ms != pair[1].stats_reset_ms else pair


def _wal_rate(interval: Interval) -> float | None:
    return pair_rate(interval.pair(sections.wal), lambda wal: wal.lsn_bytes)


class FullPages(Struct, frozen=True):
    """Share of full-page images in the WAL.

    Attributes:
        percent: Share of the bytes of WAL.
        estimated: Whether the server counts images and not their bytes: images × block size, at most 100. The estimate
            is rather high, because free space within a page is not written.
        compressed: Whether the estimate is only an upper bound, because wal_compression makes images smaller.
    """

    percent: float
    estimated: bool
    compressed: bool


_LEAST_WAL_BYTES: Final = 1 << 18
"""WAL of ten seconds from which on the share of its images tells something."""


def full_pages(interval: Interval) -> FullPages | None:
    """Return the share of full-page images in the bytes of WAL over the last 10 s; None with next to no WAL."""
    pair, server = outer_pair(interval.recent(sections.wal, 10.0, least=2)), sections.server(interval.newest)
    if pair is None:
        return None
    older, newer = pair
    estimated = newer.wal_fpi_bytes is None or older.wal_fpi_bytes is None
    if newer.wal_fpi_bytes is not None and older.wal_fpi_bytes is not None:
        image_bytes = newer.wal_fpi_bytes - older.wal_fpi_bytes
    elif isinstance(server, Unavailable):
        return None
    else:
        image_bytes = (newer.wal_fpi - older.wal_fpi) * server.block_bytes
    percent = share(image_bytes, newer.wal_bytes - older.wal_bytes)
    if percent is None or image_bytes < 0 or newer.wal_bytes - older.wal_bytes < _LEAST_WAL_BYTES:
        return None
    compressed = estimated and setting(interval, "wal_compression") not in (None, "off")
    return FullPages(min(percent, 100.0), estimated, compressed)


def _full_page_percent(interval: Interval) -> float | None:
    images = full_pages(interval)
    return None if images is None else images.percent


def _wal_buffers_full(interval: Interval) -> float | None:
    return pair_rate(_wal_pair(interval), lambda wal: wal.wal_buffers_full)


def _wal_since_redo(interval: Interval) -> float | None:
    wal, checkpoints = interval.now(sections.wal), interval.now(sections.checkpoints)
    if wal is None or checkpoints is None or wal.lsn_bytes is None or checkpoints.redo_lsn_bytes is None:
        return None
    return float(max(wal.lsn_bytes - checkpoints.redo_lsn_bytes, 0))


WRITERS_WINDOW_S: Final = 60.0


def buffer_writers(interval: Interval) -> tuple[float, float, float] | None:
    """Return the shares of checkpointer, background writer and backends in the dirty buffers written in the last minute.

    Source: buffers_checkpoint, buffers_clean, buffers_backend of pg_stat_bgwriter (to 16); from 17 on
    pg_stat_checkpointer.buffers_written, pg_stat_bgwriter.buffers_clean, and writes of client backends in pg_stat_io.
    """
    pair = outer_pair(interval.recent(sections.checkpoints, WRITERS_WINDOW_S, least=2))
    if pair is None:
        return None
    older, newer = pair
    if newer.buffers_backend is None or older.buffers_backend is None:
        return None
    written = (
        newer.buffers_checkpoint - older.buffers_checkpoint,
        newer.buffers_clean - older.buffers_clean,
        newer.buffers_backend - older.buffers_backend,
    )
    total = sum(written)
    if min(written) < 0 or total == 0:
        return None
    checkpointer, background, backends = (100.0 * part / total for part in written)
    return checkpointer, background, backends


def checkpoints_between(older: CheckpointCounters, newer: CheckpointCounters) -> tuple[int, int] | None:
    """Return the checkpoints that began between two readings: (timed, requested); None across a reset."""
    if older.stats_reset_ms != newer.stats_reset_ms or newer.timed < older.timed or newer.requested < older.requested:
        return None
    return newer.timed - older.timed, newer.requested - older.requested


def client_backends(activity: Activity) -> list[Backend]:
    """Return the sessions of clients, without parallel workers and auxiliary processes."""
    return [backend for backend in activity.backends if backend.backend_type == "client backend"]


def states(activity: Activity) -> Counter[str]:
    """Count client backends by state; a hidden state counts as "unknown"."""
    return Counter(backend.state or "unknown" for backend in client_backends(activity))


def _counted(interval: Interval) -> Counter[str] | None:
    activity = interval.now(sections.activity)
    return None if activity is None else interval.kept(states, activity)


class _StateCount:
    """Number of client backends in some states."""

    def __init__(self, states: tuple[str, ...]) -> None:
        self._wanted = states

    def __call__(self, interval: Interval) -> float | None:
        counts = interval.once(_counted)
        return None if counts is None else float(sum(counts[state] for state in self._wanted))


def _sessions(interval: Interval) -> float | None:
    counts = interval.once(_counted)
    return None if counts is None else float(sum(counts.values()))


def _blocked(interval: Interval) -> float | None:
    activity = interval.now(sections.activity)
    if activity is None:
        return None
    # Who blocks is asked a moment later, when a short wait is over.
    return float(sum(bool(row.blocked_by) or row.wait_event_type == "Lock" for row in activity.backends))


TPS = Metric(
    "server.tps", "server", "1/s",
    "Transactions that ended per second: commits and rollbacks in all databases, without those of pgtop-tune and those in which sessions and parallel workers start; over at "
    "least a second, because backends report once a second. Single values therefore vary more than the client's. Unknown while samples show that most transactions touch no table, which the server does not count, or, to 17, that parallel workers are more than a tenth, which it counts.",
    "Δ(xact_commit + xact_rollback − sessions − 2 · parallel_workers_launched) of pg_stat_database − pgtop-tune's own, / Δt", _tps,
)  # fmt: skip
ROLLBACKS = Metric(
    "server.rollbacks", "rollbacks", "1/s", "Transactions rolled back per second.",
    "Δ xact_rollback of pg_stat_database / Δt", _rollbacks,
)  # fmt: skip
CONNECTS = Metric(
    "server.connects", "new sessions", "1/s",
    "Sessions started per second, including those of pgtop-tune. Each starts a process: if there are many, use a pooler.",
    "Δ sessions of pg_stat_database / Δt", _connects,
)  # fmt: skip
QPS = Metric(
    "server.qps", "qps", "1/s",
    "Statements finished per second, as pg_stat_statements counts them (pg_stat_statements.track applies). Unknown while entries are evicted, because their calls are lost.",
    "Δ sum(calls) of pg_stat_statements − pgtop-tune's own, / Δt", _qps,
)  # fmt: skip
CACHE_HIT = Metric(
    "server.cache_hit", "hit", "%",
    "Share of block requests found in shared buffers. Other blocks may still come from the page cache.",
    "Δ blks_hit / Δ(blks_hit + blks_read) of pg_stat_database", _cache_hit,
)  # fmt: skip
TEMP_BYTES = Metric(
    "server.temp_bytes", "temp", "bytes/s", "Bytes written to temporary files per second (counted when a file is closed).",
    "Δ temp_bytes of pg_stat_database / Δt", _temp_bytes,
)  # fmt: skip
WAL_BYTES = Metric(
    "server.wal_bytes", "WAL", "bytes/s", "WAL inserted per second (replayed, on a standby).",
    "Δ pg_current_wal_insert_lsn() / Δt", _wal_rate,
)  # fmt: skip
FULL_PAGES = Metric(
    "server.wal_full_pages", "full pages", "%",
    "Full-page images as a share of WAL bytes over the last 10 s: high after a checkpoint, lower once most pages have been "
    "changed. Before PostgreSQL 19 an estimate (~), at most 100 %: too high where pages have free space. With wal_compression it is an upper bound, shown as \"at most\".",
    "Δ wal_fpi_bytes / Δ wal_bytes of pg_stat_wal; before 19 Δ wal_fpi × block_size / Δ wal_bytes", _full_page_percent,
)  # fmt: skip
WAL_BUFFERS_FULL = Metric(
    "server.wal_buffers_full", "buffers full", "1/s", "Times per second that WAL had to be written because wal_buffers was full.",
    "Δ wal_buffers_full of pg_stat_wal / Δt", _wal_buffers_full, critical=1.0,
)  # fmt: skip
WAL_SINCE_REDO = Metric(
    "server.wal_since_redo", "since redo", "bytes", "WAL since the redo point of the last checkpoint: the amount to replay if the server crashed now.",
    "pg_current_wal_insert_lsn() − redo_lsn of pg_control_checkpoint()", _wal_since_redo,
)  # fmt: skip
SESSIONS = Metric(
    "server.sessions", "sessions", "", "Connected client backends, without those of pgtop-tune.",
    "pg_stat_activity where backend_type = 'client backend'", _sessions,
)  # fmt: skip
ACTIVE = Metric(
    "server.active", "active", "", "Client backends in state active or fastpath function call.",
    "pg_stat_activity.state", _StateCount(("active", "fastpath function call")),
)  # fmt: skip
IDLE_IN_TRANSACTION = Metric(
    "server.idle_in_transaction", "idle in tx", "", "Client backends idle in a transaction, aborted ones included.",
    "pg_stat_activity.state", _StateCount(("idle in transaction", "idle in transaction (aborted)")),
)  # fmt: skip
BLOCKED = Metric(
    "server.blocked", "blocked", "", "Backends that wait for a heavyweight lock of another session.",
    "wait_event_type = 'Lock' of pg_stat_activity, pg_blocking_pids(pid)", _blocked,
)  # fmt: skip

METRICS: Final = (
    TPS, ROLLBACKS, CONNECTS, QPS, CACHE_HIT, TEMP_BYTES, WAL_BYTES, FULL_PAGES, WAL_BUFFERS_FULL, WAL_SINCE_REDO,
    SESSIONS, ACTIVE, IDLE_IN_TRANSACTION, BLOCKED,
)  # fmt: skip


_OF_A_TRANSACTION: Final = frozenset({"transaction_read_only", "transaction_isolation", "transaction_deferrable"})
"""Parameters that only have values of our own transaction."""
_DERIVED: Final = "internal"
"""Context of parameters that cannot be set."""
_SHOWN: Final = 60


def parameter_pairs(before: ParameterSample, now: ParameterSample) -> list[tuple[Parameter, Parameter]]:
    """Return each settable parameter that both readings have, before and now."""
    earlier = {parameter.name: parameter for parameter in before.parameters}
    return [
        (earlier[parameter.name], parameter)
        for parameter in now.parameters
        if parameter.name in earlier and parameter.name not in _OF_A_TRANSACTION and parameter.context != _DERIVED
    ]


def changed_values(before: ParameterSample, now: ParameterSample) -> list[tuple[Parameter, Parameter]]:
    """Return each settable parameter whose value differs between two readings, before and now."""
    return [(old, new) for old, new in parameter_pairs(before, now) if old.shown != new.shown]


def short_value(value: str) -> str:
    """Return the beginning of a long value; "''" for an empty one."""
    return f"{value[: _SHOWN - 1]}…" if len(value) > _SHOWN else value or "''"
