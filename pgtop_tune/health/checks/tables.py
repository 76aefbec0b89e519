"""Tables: dead rows, unused space, missing and outdated statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.base.sql_quoting import composed, identifier
from pgtop_tune.base.units import MB, about, count, percent, share_of
from pgtop_tune.health.check import Check, Confidence, Evidence, Finding, Fix, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import with_lock_timeout
from pgtop_tune.health.questions import BLOAT, TABLES, BloatEstimate, TableState
from pgtop_tune.health.rules import in_database, now_ms

_GROUP: Final = "tables"


def _dead(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    for database, table in facts.have(TABLES):
        share = 100 * table.dead / max(table.dead + table.live, 1)
        if table.dead >= limits["rows"] and share >= limits["percent"]:
            yield Finding(
                severity=Severity.HIGH if share >= limits["high"] else Severity.WARNING,
                says=f"{_named(database, table)}: {count(table.dead)} dead rows, {percent(share)} % of all",
                evidence=(
                    Evidence(f"{table.dead} dead, {table.live} live", "pg_stat_all_tables.n_dead_tup, n_live_tup"),
                ),
                fix=_on_table(database, table, "VACUUM (ANALYZE, VERBOSE) {table};"),
                subject=_named(database, table),
            )


def _never(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    for database, table in facts.have(TABLES):
        if table.never_analyzed and table.live >= limits["rows"]:
            yield Finding(
                severity=Severity.WARNING,
                says=f"{_named(database, table)}: {count(table.live)} rows and no statistics; its plans are guesses",
                evidence=(
                    Evidence(
                        f"{table.live} live rows, reltuples -1", "pg_stat_all_tables.n_live_tup, pg_class.reltuples"
                    ),
                    Evidence(f"{table.n_never_analyzed} such tables in {database}", "pg_class.reltuples"),
                ),
                fix=_on_table(database, table, "ANALYZE {table};"),
                subject=_named(database, table),
            )


def _old(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    for database, table in facts.have(TABLES):
        rows = max(table.live, table.tuples)
        share = 100 * table.modified / max(rows, 1)
        young = table.last_analyze_ms is not None and now_ms(facts) - table.last_analyze_ms < limits["age"] * 1000
        if not table.never_analyzed and not young and table.modified >= limits["rows"] and share >= limits["percent"]:
            yield Finding(
                severity=Severity.WARNING,
                says=f"{_named(database, table)}: {count(table.modified)} changes since the last ANALYZE, "
                f"{share_of(share, f'its {count(rows)} rows')}",
                evidence=(Evidence(f"{table.modified} changes", "pg_stat_all_tables.n_mod_since_analyze"),),
                fix=_on_table(database, table, "ANALYZE {table};"),
                subject=_named(database, table),
            )


def _bloat(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    hidden: dict[str, int] = {}
    for database, row in facts.have(BLOAT):
        if row.n_hidden:
            hidden[database] = row.n_hidden
        if row.needed_bytes is None:
            continue
        unused = row.bytes - row.needed_bytes
        share = 100 * unused / max(row.bytes, 1)
        if unused >= limits["bytes"] and share >= limits["percent"]:
            yield Finding(
                severity=Severity.HIGH if unused >= limits["high"] else Severity.WARNING,
                says=f"{row.kind} {database}: {row.schema}.{row.name}: about {about(unused)} of {about(row.bytes)} are "
                "unused",
                evidence=(
                    Evidence(
                        f"{row.bytes} bytes, rows need about {row.needed_bytes}",
                        "pg_class.relpages, reltuples; pg_stats.avg_width, null_frac",
                    ),
                ),
                fix=_smaller(database, row),
                confidence=Confidence.MEDIUM if row.kind == "table" else Confidence.LOW,
                subject=f"{database}: {row.schema}.{row.name}",
            )
    for database, number in hidden.items():
        yield Unknown(
            f"{database}: {number} tables and indexes have no statistics, or none this role may see (ANALYZE)"
        )


def _smaller(database: str, row: BloatEstimate) -> Fix:
    name = identifier(row.schema, row.name)
    if row.kind == "index" and row.excludes:
        return in_database(
            database,
            with_lock_timeout(composed("REINDEX INDEX {name};", name=name)),
            remark="blocks writes during its creation: the index of an exclusion constraint has no CONCURRENTLY",
        )
    if row.kind == "index":
        return in_database(database, composed("REINDEX INDEX CONCURRENTLY {name};", name=name))
    return in_database(
        database,
        with_lock_timeout(composed("VACUUM (FULL, ANALYZE, VERBOSE) {name};", name=name)),
        remark="locks the table until it is rewritten; pg_repack and pg_squeeze do not",
    )


def _named(database: str, table: TableState) -> str:
    return f"{database}: {table.schema}.{table.name}"


def _on_table(database: str, table: TableState, template: str) -> Fix:
    return in_database(database, composed(template, table=identifier(table.schema, table.name)))


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="TAB-01",
        group=_GROUP,
        title="dead rows",
        why="Every scan reads the dead rows as well, and the table grows until they are removed.",
        severity=Severity.HIGH,
        page="routine-vacuuming.html#VACUUM-FOR-SPACE-RECOVERY",
        needs=(TABLES,),
        look=_dead,
        thresholds=(
            Threshold("percent", 20, "%", "a warning from this value"),
            Threshold("high", 40, "%", "a high finding from this value"),
            Threshold("rows", 10_000, "", "fewer dead rows are left out"),
        ),
        counts=True,
    ),
    Check(
        id="TAB-02",
        group=_GROUP,
        title="bloat",
        why="Unused space is read from disk and kept in memory like data.",
        severity=Severity.HIGH,
        page="routine-vacuuming.html#VACUUM-FOR-SPACE-RECOVERY",
        needs=(BLOAT,),
        look=_bloat,
        thresholds=(
            Threshold("percent", 50, "%", "less is space for updates"),
            Threshold("bytes", 100 * MB, "bytes", "a warning from this value"),
            Threshold("high", 10_240 * MB, "bytes", "a high finding from this value"),
        ),
    ),
    Check(
        id="TAB-03",
        group=_GROUP,
        title="tables without statistics",
        why="Without statistics the planner guesses, and a wrong guess can be a thousand times slower.",
        severity=Severity.WARNING,
        page="routine-vacuuming.html#VACUUM-FOR-STATISTICS",
        needs=(TABLES,),
        look=_never,
        thresholds=(Threshold("rows", 1_000, "", "smaller tables are left out"),),
    ),
    Check(
        id="TAB-04",
        group=_GROUP,
        title="old statistics",
        why="Outdated statistics make plans for outdated data.",
        severity=Severity.WARNING,
        page="routine-vacuuming.html#VACUUM-FOR-STATISTICS",
        needs=(TABLES,),
        look=_old,
        thresholds=(
            Threshold("percent", 50, "%", "of the rows changed"),
            Threshold("rows", 10_000, "", "fewer changes are left out"),
            Threshold("age", 150, "s", "younger statistics are left out: autovacuum comes once a minute by default"),
        ),
        counts=True,
    ),
)
