"""When autovacuum begins, and how often: limits of the server."""

from __future__ import annotations

from typing import Final

from pgtop_tune.health import needs
from pgtop_tune.health.bounds import Bound, bounded, thresholds
from pgtop_tune.health.check import Check, Severity
from pgtop_tune.health.needs import Parameters
from pgtop_tune.model.postgres import Parameter

_GROUP: Final = "vacuum"
_MANY: Final = 10_000
_NOT_FROZEN: Final = "tables that only grow are not frozen until wraparound forces it, all at once"
_FAILSAFE: Final = ("vacuum_failsafe_age", "vacuum_multixact_failsafe_age")
_FULL_READS: Final = {
    "vacuum_freeze_table_age": "autovacuum_freeze_max_age",
    "vacuum_multixact_freeze_table_age": "autovacuum_multixact_freeze_max_age",
}
"""Age from which VACUUM reads whole tables → age at which autovacuum is forced to."""


def _is_beyond(known: Parameters, row: Parameter) -> bool:
    """A default is not: it is as good as any, however early autovacuum freezes."""
    return row.setting != row.boot_val and known.number(row.name) > known.number(_FULL_READS[row.name])


def _at_each_row(known: Parameters, row: Parameter) -> bool:
    return known.number(row.name) == 0 == known.number(row.name.replace("threshold", "scale_factor"))


_STARTS: Final = (
    Bound(
        name="autovacuum_naptime",
        above=300,
        unit="s",
        better="1min",
        says="small busy tables are full of dead rows before autovacuum looks at them",
    ),
    Bound(
        name="autovacuum_max_workers",
        below=2,
        better="3",
        special=(),
        says="while one large table is vacuumed, no other one is",
    ),
    Bound(
        name="autovacuum_max_workers",
        other="autovacuum_worker_slots",
        better="3",
        special=(),
        says="no more workers start than autovacuum_worker_slots allows",
    ),
    *(
        Bound(name=name, above=limit, better=better, says=says)
        for name, limit, better, says in (
            ("autovacuum_vacuum_scale_factor", 0.2, "0.2", "that share of a large table is dead before it is vacuumed"),
            ("autovacuum_analyze_scale_factor", 0.2, "0.1", "that share of a large table changes before ANALYZE"),
            ("autovacuum_vacuum_threshold", _MANY, "50", "smaller tables are never vacuumed"),
            ("autovacuum_analyze_threshold", _MANY, "50", "smaller tables are never analyzed"),
            ("autovacuum_vacuum_insert_scale_factor", 1, "0.2", _NOT_FROZEN),
            ("autovacuum_vacuum_insert_threshold", 1_000_000, "1000", _NOT_FROZEN),
        )
    ),
    *(
        Bound(
            name=name,
            judged=_at_each_row,
            better="50",
            says="its scale factor is 0 as well, so each round works on all tables with a changed row",
        )
        for name in ("autovacuum_vacuum_threshold", "autovacuum_analyze_threshold")
    ),
    *(
        Bound(name=name, above=1_000_000_000, better=better, says=says, limit=f"{name}_high")
        for name, better, says in (
            ("autovacuum_freeze_max_age", "200000000", "freezing begins with half of all transaction ids used"),
            (
                "autovacuum_multixact_freeze_max_age",
                "400000000",
                "freezing begins with half of all multixacts used",
            ),
        )
    ),
    *(
        Bound(
            name=name,
            below=100_000_000,
            better=better,
            limit=f"{name}_low",
            says="all tables are read again and again to freeze rows, at unplanned hours",
        )
        for name, better in (
            ("autovacuum_freeze_max_age", "200000000"),
            ("autovacuum_multixact_freeze_max_age", "400000000"),
        )
    ),
    *(
        Bound(
            name=name,
            below=1_000_000_000,
            better="1600000000",
            special=(),
            says="vacuum drops its cost limits, and leaves indexes out, long before there is danger",
        )
        for name in _FAILSAFE
    ),
    *(
        Bound(
            name=name,
            above=2_000_000_000,
            better="1600000000",
            limit=f"{name}_high",
            says="vacuum hurries when too few ids are left for it to end in time",
        )
        for name in _FAILSAFE
    ),
    Bound(
        name="autovacuum_vacuum_insert_threshold",
        words=("-1",),
        better="1000",
        says=_NOT_FROZEN,
    ),
    *(
        Bound(
            name=name,
            below=10_000_000,
            better="150000000",
            special=(),
            says="VACUUM reads whole tables again and again, also where nothing has changed",
        )
        for name in _FULL_READS
    ),
    *(
        Bound(
            name=name,
            judged=_is_beyond,
            better="150000000",
            severity=Severity.INFO,
            says=f"VACUUM takes 95 % of {forced} for it, and freezes shortly before it is forced to",
        )
        for name, forced in _FULL_READS.items()
    ),
    Bound(
        name="vacuum_freeze_min_age",
        above=200_000_000,
        better="50000000",
        says="vacuum leaves nearly all rows unfrozen for the one that wraparound forces",
    ),
    Bound(
        name="autovacuum_vacuum_cost_delay",
        words=("0",),
        better="2ms",
        severity=Severity.INFO,
        says="autovacuum reads and writes without a pause, whatever the load",
    ),
    Bound(
        name="vacuum_cost_delay",
        above=0,
        unit="s",
        better="0",
        severity=Severity.INFO,
        says="VACUUM and ANALYZE of sessions sleep, which is meant for autovacuum",
    ),
)

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="VAC-07",
        group=_GROUP,
        title="limits of autovacuum",
        why="With limits for small tables and rare changes, large tables grow for weeks before autovacuum begins.",
        severity=Severity.WARNING,
        page="runtime-config-autovacuum.html",
        needs=(needs.PARAMETERS,),
        look=bounded(_STARTS),
        thresholds=thresholds(_STARTS),
    ),
)
