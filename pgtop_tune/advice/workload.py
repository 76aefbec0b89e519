"""What a server is used for, as far as its own counters since their last reset say so. Pure.

Source: pg_stat_database, all databases added up. The kinds are those that calculators ask for; where one ends and the
next begins is our own rule.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from pgtop_tune import units
from pgtop_tune.advice.facts import Workload
from pgtop_tune.model.postgres import DatabaseCounters

LEAST_TRANSACTIONS: Final = 10_000
"""Fewer say nothing: monitoring alone makes some."""
_MANY_ROWS: Final = 10_000
"""Rows read in a transaction, on average: reports, not orders."""
_FEW_WRITES: Final = 0.05


class SeenWorkload(Struct, frozen=True):
    """What the counters say.

    Attributes:
        workload: The nearest kind.
        because: The numbers it stands on, one clause.
    """

    workload: Workload
    because: str


def workload_seen(counters: DatabaseCounters) -> SeenWorkload | None:
    """The kind of load there was since the reset; None where there was next to none.

    Rows read are `tup_returned`: those of sequential scans count, which are most of what a report reads. The share of
    writes is rows written of rows written and rows fetched by an index or written.
    """
    transactions = counters.xact_commit + counters.xact_rollback - counters.own_transactions
    if transactions < LEAST_TRANSACTIONS:
        return None
    written = counters.tup_inserted + counters.tup_updated + counters.tup_deleted
    share = written / max(written + counters.tup_fetched, 1)
    rows = counters.tup_returned / transactions
    reports, writes = rows >= _MANY_ROWS, share >= _FEW_WRITES
    kinds = {
        (True, True): Workload.MIXED,
        (True, False): Workload.WAREHOUSE,
        (False, True): Workload.OLTP,
        (False, False): Workload.WEB,
    }
    because = f"{units.number(rows, 3)} rows read in a transaction, {share:.0%} of the rows it touches written"
    return SeenWorkload(kinds[reports, writes], because)
