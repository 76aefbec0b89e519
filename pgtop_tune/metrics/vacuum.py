"""How near each table is to autovacuum, and to wraparound: the server's own rules; and rates of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from msgspec import Struct

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
    """Transactions (or multixacts) since that id was given out; None for none and for ids that never age.

    Args:
        next_id: The next one to be given out, 32 bits.
        id: 32 bits.
        first: Lowest id that ages: 3 for transactions, 1 for multixacts.
    """
    if id is None or id < first:
        return None
    distance = (next_id - id) & _XID_MASK
    return 0 if distance >= _HALF else distance


def multixact_age(next_id: int, id: int | None) -> int | None:
    """`age` of a multixact."""
    return age(next_id, id, first=1)


class TableVacuum(Struct, frozen=True):
    """A table as autovacuum sees it.

    Attributes:
        table: The table.
        dead_threshold: Dead rows from which on it is vacuumed.
        insert_threshold: Inserted rows from which on it is vacuumed; None when that is switched off.
        analyze_threshold: Changed rows from which on it is analyzed.
        xid_age, multixact_age: Of its oldest unfrozen row; None where it has none.
        freeze_percent: The nearer of both to the age at which it is vacuumed whatever happens.
        enabled: Whether autovacuum takes it before that; None when the parameters are not known.
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
        """Per cent of the dead rows it takes."""
        return _percent(self.table.n_dead_tup, self.dead_threshold)

    @property
    def insert_percent(self) -> float | None:
        """Per cent of the inserted rows it takes."""
        return _percent(self.table.n_ins_since_vacuum, self.insert_threshold)

    @property
    def analyze_percent(self) -> float | None:
        """Per cent of the changed rows it takes."""
        return _percent(self.table.n_mod_since_analyze, self.analyze_threshold)


def _percent(value: float | None, total: float | None) -> float | None:
    if value is None or total is None:
        return None
    return 100.0 * value / max(total, 1.0)


class _Settings:
    """Numbers by name: the table's own options before the server's parameters."""

    def __init__(self, parameters: Mapping[str, str], options: Mapping[str, str]) -> None:
        self._parameters = parameters
        self._options = options

    def number(self, name: str) -> float | None:
        for source in (self._options, self._parameters):
            try:
                return float(source[name])
            except (KeyError, ValueError):
                continue
        return None

    def smaller(self, name: str) -> float | None:
        """A table can only ask to be frozen earlier than the server's parameter says."""
        numbers = []
        for source in (self._options, self._parameters):
            try:
                numbers.append(float(source[name]))
            except (KeyError, ValueError):
                continue
        return min(numbers, default=None)

    def enabled(self) -> bool | None:
        if "autovacuum" not in self._parameters:
            return None
        option = self._options.get("autovacuum_enabled", "on").lower()
        return self._parameters["autovacuum"] == "on" and option not in _OFF

    def threshold(self, action: str, tuples: float) -> float | None:
        adds, scales = self.number(ADDS.format(what=action)), self.number(SCALES.format(what=action))
        return None if adds is None or scales is None else adds + scales * tuples


def parameters_of(interval: Interval) -> dict[str, str]:
    """pg_settings.setting by name; empty when the parameters are not known."""
    sample = interval.now(sections.parameters)
    return {} if sample is None else {parameter.name: parameter.setting for parameter in sample.parameters}


def table_vacuums(interval: Interval) -> list[TableVacuum]:
    """Every table of the frame against its thresholds; empty without the section.

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
        freeze_percent=_nearer(
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


def _nearer(*percents: float | None) -> float | None:
    return max((percent for percent in percents if percent is not None), default=None)


class DatabaseAge(Struct, frozen=True):
    """A database on its way to wraparound.

    Attributes:
        database: The database.
        xid_age: age(datfrozenxid).
        multixact_age: mxid_age(datminmxid).
        freeze_percent: The nearer of both to autovacuum_freeze_max_age and its twin for multixacts: from 100 on every
            table that is that old is vacuumed to freeze it.
        stop_percent: Of the way to the age at which the server takes no more writing transactions.
    """

    database: DatabaseFacts
    xid_age: int | None
    multixact_age: int | None
    freeze_percent: float | None
    stop_percent: float | None


STOPS_AT: Final = (1 << 31) - 3_000_000
"""SetTransactionIdLimit() of varsup.c: three million before the ids meet."""


def database_ages(interval: Interval) -> list[DatabaseAge]:
    """Every database against autovacuum_freeze_max_age; empty without the section."""
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
        freeze = _nearer(_percent(xids, most_xids), _percent(multixacts, most_multixacts))
        stop = _nearer(_percent(xids, STOPS_AT), _percent(multixacts, STOPS_AT))
        ages.append(
            DatabaseAge(
                database=database, xid_age=xids, multixact_age=multixacts, freeze_percent=freeze, stop_percent=stop
            )
        )
    return ages


# Rates of tables and indexes between two looks at them.

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


def _same(row: Any) -> None:
    """Counters of a table carry no moment of their reset: one that went backwards is how it shows."""


class GrownRelation(Grown[R], frozen=True):
    """A table or an index, and by how much its counters grew.

    Attributes:
        size_bytes: As of the last vacuum or analyze; None where the size of a block is not known.
    """

    size_bytes: int | None


def table_rates(interval: Interval) -> list[GrownRelation[TableCounters]]:
    """Tables of the frame, with what they counted since the look before (15 s and more)."""
    grown = grown_rows(
        interval, sections.relations, lambda sample: sample.tables, lambda table: table.oid, _same, TABLE_COUNTERS
    )
    return [_sized(interval, table, table.row.pages) for table in grown]


def index_rates(interval: Interval) -> list[GrownRelation[IndexCounters]]:
    """Indexes of the frame, with what they counted since the look before."""
    grown = grown_rows(
        interval, sections.relations, lambda sample: sample.indexes, lambda index: index.oid, _same, INDEX_COUNTERS
    )
    return [_sized(interval, index, index.row.pages) for index in grown]


def _sized(interval: Interval, grown: Grown[R], pages: int) -> GrownRelation[R]:
    server = sections.server(interval.newest)
    size_bytes = None if isinstance(server, Unavailable) else pages * server.block_bytes
    return GrownRelation(grown.row, grown.seconds, grown.by, size_bytes)


def hot_percent(table: TableCounters) -> float | None:
    """Updates that needed no new index entries, of all so far."""
    return 100.0 * table.n_tup_hot_upd / table.n_tup_upd if table.n_tup_upd else None


def dead_percent(table: TableCounters) -> float | None:
    """Dead rows of all."""
    rows = table.n_live_tup + table.n_dead_tup
    return 100.0 * table.n_dead_tup / rows if rows else None


SESSION: Final = "session"
IDLE: Final = "idle in transaction"
STANDBY: Final = "standby feedback"
PREPARED: Final = "prepared"
SLOT: Final = "slot"
SLOT_CATALOG: Final = "slot, catalogs only"


class HorizonHolder(Struct, frozen=True):
    """One thing that holds back vacuum.

    Attributes:
        id: Stable while it exists.
        kind: One of the words above, or the type of a process that is not a client's.
        name: Pid, gid or slot.
        who: User and database; "" without.
        age: Transactions begun since the oldest one that it may still look at.
        since_s: How long its transaction has been open; None for slots.
        backend: pid and backend_start_ms of a session that was seen; None for others.
        what: Its query, state, or plugin. Foreign text.
    """

    id: str
    kind: str
    name: str
    who: str
    age: int
    since_s: float | None
    backend: BackendKey | None
    what: str


def holders(interval: Interval) -> list[HorizonHolder]:
    """Everything that pins the horizon, largest age first, of one age who is open longest; empty when nothing does.

    A database's tables are held back by transactions of that database and by standbys, slots and prepared
    transactions (of any); shared catalogs by those of all databases.

    Source: backend_xid, backend_xmin of pg_stat_activity; pg_prepared_xacts; xmin, catalog_xmin of
    pg_replication_slots. A plain VACUUM holds back nobody and is left out.
    """
    horizon_holders = [*_transactions(interval), *_slots(interval)]
    return sorted(horizon_holders, key=lambda holder: (-holder.age, -(holder.since_s or 0.0)))


def _transactions(interval: Interval) -> Iterator[HorizonHolder]:
    sample = interval.now(sections.horizon)
    if sample is None:
        return
    activity = interval.now(sections.activity)
    backends = {} if activity is None else {backend.pid: backend for backend in activity.backends}
    for open in sample.open:
        oldest = _oldest(sample.next_xid, open)
        if oldest is None or open.is_vacuum:
            continue
        since_ms = open.xact_start_ms
        yield HorizonHolder(
            id=f"backend:{open.pid}",
            kind=_kind(open),
            name=str(open.pid),
            who=_who(open.usename, open.datname),
            age=oldest,
            since_s=None if since_ms is None else max(sample.now_ms - since_ms, 0) / 1000.0,
            backend=key_of(backends.get(open.pid)),
            what=_query(backends.get(open.pid), open),
        )
    for prepared in sample.prepared:
        yield HorizonHolder(
            id=f"prepared:{prepared.gid}",
            kind=PREPARED,
            name=prepared.gid,
            who=_who(prepared.owner, prepared.database),
            age=age(sample.next_xid, prepared.xid) or 0,
            since_s=max(sample.now_ms - prepared.prepared_ms, 0) / 1000.0,
            backend=None,
            what="",
        )


def key_of(backend: Backend | None) -> BackendKey | None:
    """What a session is known by; None for one that was not seen."""
    return None if backend is None else (backend.pid, backend.backend_start_ms)


def _oldest(next_xid: int, open: OpenTransaction) -> int | None:
    ages = [age(next_xid, open.xid), age(next_xid, open.xmin)]
    return max((age_of_id for age_of_id in ages if age_of_id is not None), default=None)


def _kind(open: OpenTransaction) -> str:
    if open.backend_type == "walsender":
        return STANDBY
    if open.state is not None and open.state.startswith(IDLE):
        return IDLE
    return SESSION if open.backend_type in ("client backend", None) else open.backend_type


def _who(user: str | None, database: str | None) -> str:
    return "@".join(part for part in (user, database) if part)


def _query(backend: Backend | None, open: OpenTransaction) -> str:
    return (backend.query if backend is not None else None) or open.state or ""


def _slots(interval: Interval) -> Iterator[HorizonHolder]:
    sample = interval.now(sections.slots)
    if sample is None:
        return
    for slot in sample.slots:
        for kind, xmin in ((SLOT, slot.xmin), (SLOT_CATALOG, slot.catalog_xmin)):
            oldest = age(sample.next_xid, xmin)
            if oldest is not None:
                database = slot.database or ""
                yield HorizonHolder(
                    id=f"{kind}:{slot.slot_name}",
                    kind=kind,
                    name=slot.slot_name,
                    who=database,
                    age=oldest,
                    since_s=None,
                    backend=None,
                    what=slot.plugin or "",
                )
