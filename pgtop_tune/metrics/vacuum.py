"""How near each table is to autovacuum, and to wraparound: the server's own rules; and rates of tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.growth import Grown, grown_rows
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.relations import DatabaseFacts, IndexCounters, RelationSample, TableCounters

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


def _percent(value: float | None, whole: float | None) -> float | None:
    if value is None or whole is None:
        return None
    return 100.0 * value / max(whole, 1.0)


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
        known = []
        for source in (self._options, self._parameters):
            try:
                known.append(float(source[name]))
            except (KeyError, ValueError):
                continue
        return min(known, default=None)

    def enabled(self) -> bool | None:
        if "autovacuum" not in self._parameters:
            return None
        wanted = self._options.get("autovacuum_enabled", "on").lower()
        return self._parameters["autovacuum"] == "on" and wanted not in _OFF

    def threshold(self, what: str, tuples: float) -> float | None:
        adds, scales = self.number(ADDS.format(what=what)), self.number(SCALES.format(what=what))
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
    found = []
    for database in sample.databases:
        xids = age(sample.next_xid, database.frozen_xid)
        multixacts = multixact_age(sample.next_multixact, database.min_multixact)
        freeze = _nearer(_percent(xids, most_xids), _percent(multixacts, most_multixacts))
        stop = _nearer(_percent(xids, STOPS_AT), _percent(multixacts, STOPS_AT))
        found.append(
            DatabaseAge(
                database=database, xid_age=xids, multixact_age=multixacts, freeze_percent=freeze, stop_percent=stop
            )
        )
    return found


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
    return [_sized(interval, each, each.row.pages) for each in grown]


def index_rates(interval: Interval) -> list[GrownRelation[IndexCounters]]:
    """Indexes of the frame, with what they counted since the look before."""
    grown = grown_rows(
        interval, sections.relations, lambda sample: sample.indexes, lambda index: index.oid, _same, INDEX_COUNTERS
    )
    return [_sized(interval, each, each.row.pages) for each in grown]


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
