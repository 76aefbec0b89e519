"""Rates of tables and indexes between two looks at them."""

from __future__ import annotations

from typing import Any, Final

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.growth import Grown, grown_rows
from pgtop_tune.model.relations import IndexCounters, TableCounters

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


def table_rates(interval: Interval) -> list[Grown[TableCounters]]:
    """Tables of the frame, with what they counted since the look before (15 s and more)."""
    return grown_rows(
        interval, sections.relations, lambda sample: sample.tables, lambda table: table.oid, _same, TABLE_COUNTERS
    )


def index_rates(interval: Interval) -> list[Grown[IndexCounters]]:
    """Indexes of the frame, with what they counted since the look before."""
    return grown_rows(
        interval, sections.relations, lambda sample: sample.indexes, lambda index: index.oid, _same, INDEX_COUNTERS
    )


def hot_percent(table: TableCounters) -> float | None:
    """Updates that needed no new index entries, of all so far."""
    return 100.0 * table.n_tup_hot_upd / table.n_tup_upd if table.n_tup_upd else None


def dead_percent(table: TableCounters) -> float | None:
    """Dead rows of all."""
    rows = table.n_live_tup + table.n_dead_tup
    return 100.0 * table.n_dead_tup / rows if rows else None
