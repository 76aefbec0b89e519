"""Vacuum: distance of each table from autovacuum and wraparound by the server's own rules, rates of tables, and the
holders of dead rows, which hold back vacuum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from msgspec import Struct

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.growth import Grown, grown_rows
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.backend_action import BackendKey
from pgtop_tune.model.postgres import Backend
from pgtop_tune.model.relations import DatabaseFacts, IndexCounters, RelationSample, TableCounters
from pgtop_tune.model.replication import OpenTransaction

R = TypeVar("R", TableCounters, IndexCounters)

_XID_MASK: Final = 0xFFFF_FFFF
_HALF: Final = 1 << 31
_FIRST_NORMAL: Final = 3
_OFF: Final = frozenset({"off", "false", "no", "0"})

ADDS: Final = "autovacuum_{what}_threshold"
SCALES: Final = "autovacuum_{what}_scale_factor"


def age(next_id: int, id: int | None, first: int = _FIRST_NORMAL) -> int | None:
    """Return the number of transactions (or multixacts) since an id was assigned; None for no id and permanent ids.

    Args:
        next_id: The next id to be assigned, 32 bits.
        id: The id, 32 bits.
        first: Lowest id that ages: 3 for transactions, 1 for multixacts.
    """
    if id is None or id < first:
        return None
    distance = (next_id - id) & _XID_MASK
    return 0 if distance >= _HALF else distance


def multixact_age(next_id: int, id: int | None) -> int | None:
    """Return the `age` of a multixact."""
    return age(next_id, id, first=1)


class TableVacuum(Struct, frozen=True):
    """A table with its thresholds for autovacuum.

    Attributes:
        table: The table.
        dead_threshold: Dead rows from which on autovacuum vacuums the table.
        insert_threshold: Inserted rows from which on autovacuum vacuums the table; None when that is switched off.
        analyze_threshold: Changed rows from which on autovacuum analyzes the table.
        xid_age, multixact_age: Age of its oldest unfrozen row; None where all rows are frozen.
        freeze_percent: The higher of both ages in per cent of the age at which a vacuum is forced.
        enabled: Whether autovacuum processes it before that age; None when the parameters are not known.
    """

    table: TableCounters
    dead_threshold: float | None
    insert_threshold: float | None
    analyze_threshold: float | None
    xid_age: int | None
    multixact_age: int | None
    freeze_percent: float | None
    enabled: bool | None

    @property
    def dead_percent(self) -> float | None:
        """Dead rows in per cent of the threshold."""
        return _percent(self.table.n_dead_tup, self.dead_threshold)

    @property
    def insert_percent(self) -> float | None:
        """Inserted rows in per cent of the threshold."""
        return _percent(self.table.n_ins_since_vacuum, self.insert_threshold)

    @property
    def analyze_percent(self) -> float | None:
        """Changed rows in per cent of the threshold."""
        return _percent(self.table.n_mod_since_analyze, self.analyze_threshold)


def _percent(value: float | None, total: float | None) -> float | None:
    if value is None or total is None:
        return None
    return 100.0 * value / max(total, 1.0)


class _Settings:
    """Settings of autovacuum for a table: the options of the table override the parameters of the server."""

    def __init__(self, parameters: Mapping[str, str], options: Mapping[str, str]) -> None:
        self._parameters = parameters
        self._options = options

    def _numbers(self, name: str) -> Iterator[float]:
        for source in (self._options, self._parameters):
            with suppress(KeyError, ValueError):
                yield float(source[name])

    def number(self, name: str) -> float | None:
        return next(self._numbers(name), None)

    def smaller(self, name: str) -> float | None:
        """Return the smaller value: an option can only lower the age at which a table is frozen."""
        return min(self._numbers(name), default=None)

    def enabled(self) -> bool | None:
        if "autovacuum" not in self._parameters:
            return None
        option = self._options.get("autovacuum_enabled", "on").lower()
        return self._parameters["autovacuum"] == "on" and option not in _OFF

    def threshold(self, action: str, tuples: float) -> float | None:
        adds, scales = self.number(ADDS.format(what=action)), self.number(SCALES.format(what=action))
        return None if adds is None or scales is None else adds + scales * tuples


def parameters_of(interval: Interval) -> dict[str, str]:
    """Return pg_settings.setting by name; empty when the parameters are not known."""
    sample = interval.now(sections.parameters)
    return {} if sample is None else {parameter.name: parameter.setting for parameter in sample.parameters}


def table_vacuums(interval: Interval) -> list[TableVacuum]:
    """Return every table of the frame with its thresholds; empty without the section.

    Source: relation_needs_vacanalyze() of autovacuum.c; reloptions before parameters; in 18
    autovacuum_vacuum_max_threshold, and insertions weighed by the share of pages that are not frozen.
    """
    sample = interval.now(sections.relations)
    if sample is None:
        return []
    parameters = parameters_of(interval)
    return [_vacuum(sample, table, parameters) for table in sample.tables]


def _vacuum(sample: RelationSample, table: TableCounters, parameters: Mapping[str, str]) -> TableVacuum:
    options = dict(option.split("=", 1) for option in table.options if "=" in option)
    settings = _Settings(parameters, options)
    tuples = float(max(table.tuples, 0))
    dead = settings.threshold("vacuum", tuples)
    most = settings.number("autovacuum_vacuum_max_threshold")
    if dead is not None and most is not None and most >= 0:
        dead = min(dead, most)
    xids, multixacts = age(sample.next_xid, table.frozen_xid), multixact_age(sample.next_multixact, table.min_multixact)
    return TableVacuum(
        table=table,
        dead_threshold=dead,
        insert_threshold=_insert_threshold(settings, table, tuples),
        analyze_threshold=settings.threshold("analyze", tuples),
        xid_age=xids,
        multixact_age=multixacts,
        freeze_percent=_highest(
            _percent(xids, settings.smaller("autovacuum_freeze_max_age")),
            _percent(multixacts, settings.smaller("autovacuum_multixact_freeze_max_age")),
        ),
        enabled=settings.enabled(),
    )


def _insert_threshold(settings: _Settings, table: TableCounters, tuples: float) -> float | None:
    adds = settings.number("autovacuum_vacuum_insert_threshold")
    scales = settings.number("autovacuum_vacuum_insert_scale_factor")
    if adds is None or scales is None or adds < 0:
        return None
    unfrozen = 1.0
    if table.frozen_pages is not None and table.pages > 0:
        unfrozen = 1.0 - min(table.frozen_pages, table.pages) / table.pages
    return adds + scales * tuples * unfrozen


def _highest(*percents: float | None) -> float | None:
    return max((percent for percent in percents if percent is not None), default=None)


class DatabaseAge(Struct, frozen=True):
    """A database on its way to wraparound.

    Attributes:
        database: The database.
        xid_age: age(datfrozenxid).
        multixact_age: mxid_age(datminmxid).
        freeze_percent: The higher of both in per cent of autovacuum_freeze_max_age and its counterpart for multixacts:
            from 100 on, autovacuum freezes tables of that age.
        stop_percent: The higher of both in per cent of the age at which the server refuses writing transactions.
    """

    database: DatabaseFacts
    xid_age: int | None
    multixact_age: int | None
    freeze_percent: float | None
    stop_percent: float | None


STOPS_AT: Final = (1 << 31) - 3_000_000
"""Age at which the server refuses writing transactions: SetTransactionIdLimit() of varsup.c."""


def database_ages(interval: Interval) -> list[DatabaseAge]:
    """Return the ages of every database; empty without the section."""
    sample = interval.now(sections.database_limits)
    if sample is None:
        return []
    settings = _Settings(parameters_of(interval), {})
    most_xids = settings.number("autovacuum_freeze_max_age")
    most_multixacts = settings.number("autovacuum_multixact_freeze_max_age")
    ages = []
    for database in sample.databases:
        xids = age(sample.next_xid, database.frozen_xid)
        multixacts = multixact_age(sample.next_multixact, database.min_multixact)
        freeze = _highest(_percent(xids, most_xids), _percent(multixacts, most_multixacts))
        stop = _highest(_percent(xids, STOPS_AT), _percent(multixacts, STOPS_AT))
        ages.append(
            DatabaseAge(
                database=database, xid_age=xids, multixact_age=multixacts, freeze_percent=freeze, stop_percent=stop
            )
        )
    return ages


# Rates of tables and indexes between two readings.

TABLE_COUNTERS: Final = (
    "seq_scan",
    "seq_tup_read",
    "idx_scan",
    "idx_tup_fetch",
    "n_tup_ins",
    "n_tup_upd",
    "n_tup_del",
    "n_tup_hot_upd",
    "newpage_upd",
    "blks_read",
    "blks_hit",
)
INDEX_COUNTERS: Final = ("idx_scan", "idx_tup_read", "idx_tup_fetch", "blks_read", "blks_hit")


def _no_reset(row: Any) -> None:
    """Return None as the time of the last reset: tables have none, and a counter that went backwards shows a reset."""


class GrownRelation(Grown[R], frozen=True):
    """A table or an index with the growth of its counters.

    Attributes:
        size_bytes: Size at the last vacuum or analyze; None where the block size is not known.
    """

    size_bytes: int | None


def table_rates(interval: Interval) -> list[GrownRelation[TableCounters]]:
    """Return the tables of the frame with their growth since the reading before (15 s and more)."""
    grown = grown_rows(
        interval, sections.relations, lambda sample: sample.tables, lambda table: table.oid, _no_reset, TABLE_COUNTERS
    )
    return [_sized(interval, table, table.row.pages) for table in grown]


def index_rates(interval: Interval) -> list[GrownRelation[IndexCounters]]:
    """Return the indexes of the frame with their growth since the reading before."""
    grown = grown_rows(
        interval, sections.relations, lambda sample: sample.indexes, lambda index: index.oid, _no_reset, INDEX_COUNTERS
    )
    return [_sized(interval, index, index.row.pages) for index in grown]


def _sized(interval: Interval, grown: Grown[R], pages: int) -> GrownRelation[R]:
    server = sections.server(interval.newest)
    size_bytes = None if isinstance(server, Unavailable) else pages * server.block_bytes
    return GrownRelation(grown.row, grown.seconds, grown.by, size_bytes)


def hot_percent(table: TableCounters) -> float | None:
    """Return the share of heap-only (HOT) updates in all updates so far."""
    return 100.0 * table.n_tup_hot_upd / table.n_tup_upd if table.n_tup_upd else None


def dead_percent(table: TableCounters) -> float | None:
    """Return the share of dead rows in all rows."""
    rows = table.n_live_tup + table.n_dead_tup
    return 100.0 * table.n_dead_tup / rows if rows else None


# Holders of dead rows: sessions, prepared transactions, standbys and slots that hold back vacuum.

SESSION: Final = "session"
IDLE: Final = "idle in transaction"
STANDBY: Final = "standby feedback"
PREPARED: Final = "prepared"
SLOT: Final = "slot"
SLOT_CATALOG: Final = "slot, catalogs only"
_NAME_CELLS: Final = 40


class HorizonHolder(Struct, frozen=True):
    """A session, prepared transaction or slot that holds back vacuum.

    Attributes:
        id: Stable while the holder exists.
        kind: One of the constants above, or the backend type of a process that is not a client backend.
        name: Pid, gid or slot.
        owner: User and database; "" where neither is known.
        age: Transactions begun since the oldest one that it may still see.
        since_s: Age of its transaction in seconds; None for slots.
        backend: pid and backend_start_ms of a visible session; None for others.
        activity: Its query, state, or plugin. Foreign text.
    """

    id: str
    kind: str
    name: str
    owner: str
    age: int
    since_s: float | None
    backend: BackendKey | None
    activity: str

    @property
    def title(self) -> str:
        """Return "session 904, idle in transaction", "prepared transaction 'tx-1'", "slot standby2, catalogs only"."""
        name = one_line(self.name, _NAME_CELLS)
        if self.kind == PREPARED:
            return f"prepared transaction '{name}'"
        kind, _, more = (f"{SESSION}, {IDLE}" if self.kind == IDLE else self.kind).partition(", ")
        return f"{kind} {name}" + (f", {more}" if more else "")


def holders(interval: Interval) -> list[HorizonHolder]:
    """Return all holders of the xmin horizon, by age, then by the age of their transaction, oldest first.

    Transactions of a database hold back its tables; standbys, slots and prepared transactions those of every database.
    All of them hold back shared catalogs.

    Source: backend_xid, backend_xmin of pg_stat_activity; pg_prepared_xacts; xmin, catalog_xmin of
    pg_replication_slots. A plain VACUUM holds back no tables and is left out.
    """
    horizon_holders = [*_transactions(interval), *_slots(interval)]
    return sorted(horizon_holders, key=lambda holder: (-holder.age, -(holder.since_s or 0.0)))


def _transactions(interval: Interval) -> Iterator[HorizonHolder]:
    sample = interval.now(sections.horizon)
    if sample is None:
        return
    activity = interval.now(sections.activity)
    backends = {} if activity is None else {backend.pid: backend for backend in activity.backends}
    for transaction in sample.open:
        oldest = _oldest(sample.next_xid, transaction)
        if oldest is None or transaction.is_vacuum:
            continue
        since_ms = transaction.xact_start_ms
        yield HorizonHolder(
            id=f"backend:{transaction.pid}",
            kind=_kind(transaction),
            name=str(transaction.pid),
            owner=_owner(transaction.usename, transaction.datname),
            age=oldest,
            since_s=None if since_ms is None else max(sample.now_ms - since_ms, 0) / 1000.0,
            backend=key_of(backends.get(transaction.pid)),
            activity=_query(backends.get(transaction.pid), transaction),
        )
    for prepared in sample.prepared:
        yield HorizonHolder(
            id=f"prepared:{prepared.gid}",
            kind=PREPARED,
            name=prepared.gid,
            owner=_owner(prepared.owner, prepared.database),
            age=age(sample.next_xid, prepared.xid) or 0,
            since_s=max(sample.now_ms - prepared.prepared_ms, 0) / 1000.0,
            backend=None,
            activity="",
        )


def key_of(backend: Backend | None) -> BackendKey | None:
    """Return the identity of a session; None without the session."""
    return None if backend is None else (backend.pid, backend.backend_start_ms)


def _oldest(next_xid: int, transaction: OpenTransaction) -> int | None:
    ages = [age(next_xid, transaction.xid), age(next_xid, transaction.xmin)]
    return max((known_age for known_age in ages if known_age is not None), default=None)


def _kind(transaction: OpenTransaction) -> str:
    if transaction.backend_type == "walsender":
        return STANDBY
    if transaction.state is not None and transaction.state.startswith(IDLE):
        return IDLE
    return SESSION if transaction.backend_type in ("client backend", None) else transaction.backend_type


def _owner(user: str | None, database: str | None) -> str:
    return "@".join(part for part in (user, database) if part)


def _query(backend: Backend | None, transaction: OpenTransaction) -> str:
    return (backend.query if backend is not None else None) or transaction.state or ""


def _slots(interval: Interval) -> Iterator[HorizonHolder]:
    sample = interval.now(sections.slots)
    if sample is None:
        return
    for slot in sample.slots:
        for kind, xmin in ((SLOT, slot.xmin), (SLOT_CATALOG, slot.catalog_xmin)):
            oldest = age(sample.next_xid, xmin)
            if oldest is not None:
                yield HorizonHolder(
                    id=f"{kind}:{slot.slot_name}",
                    kind=kind,
                    name=slot.slot_name,
                    owner=slot.database or "",
                    age=oldest,
                    since_s=None,
                    backend=None,
                    activity=slot.plugin or "",
                )
