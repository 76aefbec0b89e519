"""Autovacuum: whether it runs, and how near wraparound is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from pgtop_tune.base.sql_quoting import Sql, composed, identifier, quoted
from pgtop_tune.base.units import MB, about, count, percent, share_of
from pgtop_tune.health import needs
from pgtop_tune.health.check import (
    Check,
    CheckConfidence,
    CheckFinding,
    Evidence,
    Findings,
    Fix,
    Limits,
    Severity,
    Threshold,
    Unknown,
)
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand, set_parameter, with_lock_timeout
from pgtop_tune.health.questions import BLOAT, TABLES, BloatEstimate, TableState
from pgtop_tune.health.rules import advice_facts, advised, advised_or, as_shown, in_database, now_ms, value_finding
from pgtop_tune.metrics.vacuum import age, multixact_age
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.relations import DatabaseFacts, DatabaseLimits

_GROUP: Final = "vacuum"
_SHOWN: Final = 10
_DEFAULT_WORKERS: Final = 3
_DEFAULT_COST_LIMIT: Final = 200
_NEARLY: Final = 0.9


def _switches(facts: CheckFacts, limits: Limits) -> Findings:
    parameters = needs.parameters(facts)
    consequence = {
        "autovacuum": "tables grow, statistics become stale, and wraparound eventually stops the server",
        "track_counts": "autovacuum does not know which tables changed and vacuums none of them",
    }
    for name, says in consequence.items():
        if not parameters.on(name):
            row, fix = parameters.row(name), advised_or(facts, name, "on")
            yield value_finding(facts, row, says, fix, severity=Severity.CRITICAL)


class _IdKind(Struct, frozen=True):
    """Kind of ids that wrap around: transactions or multixacts.

    Attributes:
        noun: Name of the ids in the plural.
        column: Column of pg_database with the oldest id.
        age: Returns the age of a database.
        of_table: Returns the age of a table.
    """

    noun: str
    column: str
    age: Callable[[DatabaseLimits, DatabaseFacts], int | None]
    of_table: Callable[[TableState], int | None]


_XIDS: Final = _IdKind(
    "transactions", "datfrozenxid", lambda all, row: age(all.next_xid, row.frozen_xid), lambda table: table.xid_age
)
_MULTIXACTS: Final = _IdKind(
    "multixacts",
    "datminmxid",
    lambda all, row: multixact_age(all.next_multixact, row.min_multixact),
    lambda table: table.multixact_age,
)
_END: Final = 2**31
_WARNS_WITH: Final = ((19, 100_000_000), (0, 40_000_000))
"""First major, and the number of ids left below which the server warns for each new one.

Source: SetTransactionIdLimit() of varsup.c, SetMultiXactIdLimit() of multixact.c.
"""
_INVALID: Final = -2
"""pg_database.datconnlimit of a database that DROP DATABASE did not remove whole."""


def _wraparound(id_kind: _IdKind) -> Callable[[CheckFacts, Limits], Findings]:
    def look(facts: CheckFacts, limits: Limits) -> Findings:
        sample = facts.have(needs.DATABASE_LIMITS)
        closed = {row.name for row in sample.databases if not row.allows_connections}
        invalid = {row.name for row in sample.databases if row.connection_limit == _INVALID}
        warns_below = next(fewest for first, fewest in _WARNS_WITH if needs.major(facts) >= first)
        ages = [(id_kind.age(sample, row) or 0, row.name) for row in sample.databases]
        for database_age, name in sorted(ages, reverse=True)[:_SHOWN]:
            if database_age < limits["age"]:
                break
            table = _oldest(facts, id_kind, name, database_age)
            yield CheckFinding(
                severity=Severity.CRITICAL if database_age >= limits["critical"] else Severity.WARNING,
                says=(
                    f"database {name} is {count(database_age)} {id_kind.noun} old, "
                    f"{100 * database_age / _END:.0f} % of the maximum"
                ),
                evidence=(
                    Evidence(f"{name}: {database_age} {id_kind.noun}", f"pg_database.{id_kind.column}"),
                    *_of_table(id_kind, table),
                    *_warned(id_kind, _END - database_age, warns_below),
                ),
                fix=_drop_invalid(name)
                if name in invalid
                else _freeze_closed(name)
                if name in closed
                else _freeze(name, table),
                subject=name,
            )

    return look


def _oldest(facts: CheckFacts, id_kind: _IdKind, database: str, database_age: int) -> TableState | None:
    """Return the table with the oldest ids of the database; None where that is a catalogue or a TOAST table."""
    tables = TABLES.of(facts)
    if isinstance(tables, Unavailable):
        return None
    of_database = [row for table_database, row in tables if table_database == database]
    oldest = max(of_database, key=lambda row: id_kind.of_table(row) or 0, default=None)
    return oldest if oldest is not None and (id_kind.of_table(oldest) or 0) >= _NEARLY * database_age else None


def _warned(id_kind: _IdKind, n_left: int, warns_below: int) -> tuple[Evidence, ...]:
    if n_left >= warns_below:
        return ()
    says = f"{n_left} {id_kind.noun} left, fewer than {warns_below}: the server warns for each new one"
    return (Evidence(says, "the server's own limit, by its major"),)


def _of_table(id_kind: _IdKind, table: TableState | None) -> tuple[Evidence, ...]:
    if table is None:
        return ()
    says = f"{table.schema}.{table.name}: {id_kind.of_table(table)} {id_kind.noun}"
    return (Evidence(says, "pg_class.relfrozenxid, relminmxid"),)


def _freeze(database: str, table: TableState | None) -> Fix:
    if table is None:
        return in_database(database, "VACUUM (FREEZE, VERBOSE);", remark="reads every unfrozen table")
    name = identifier(table.schema, table.name)
    return in_database(
        database,
        composed("VACUUM (FREEZE, VERBOSE) {table};", table=name),
        remark="the oldest table first; see TXN-04 if that does not help",
    )


def _drop_invalid(database: str) -> Fix:
    """Return the manual fix for a database that accepts neither connections nor ALTER DATABASE."""
    return by_hand(
        f"{quoted(database)} is the leftover of an interrupted DROP DATABASE, and accepts no connections: "
        + composed("DROP DATABASE {database};", database=identifier(database))
    )


def _freeze_closed(database: str) -> Fix:
    """Return the manual fix for a database without connections, such as template0, which autovacuum freezes too."""
    allow = "ALTER DATABASE {database} ALLOW_CONNECTIONS {allow};"
    opened, closed = (composed(allow, database=identifier(database), allow=Sql(word)) for word in ("true", "false"))
    return by_hand(
        f"{quoted(database)} accepts no connections. Autovacuum should have frozen it: find out why it did not "
        f"(VAC-01, TXN-04). Manually: {opened} then in that database VACUUM (FREEZE, VERBOSE); in another one {closed}",
        closed,
    )


def _by_table(facts: CheckFacts, limits: Limits) -> Findings:
    for database, table in facts.have(TABLES):
        rows = max(table.live, table.tuples)
        if not table.autovacuum and rows >= limits["rows"]:
            name = identifier(table.schema, table.name)
            yield CheckFinding(
                says=f"autovacuum is off for {database}: {table.schema}.{table.name} ({count(rows)} rows)",
                evidence=(Evidence(f"{table.schema}.{table.name}: autovacuum_enabled=false", "pg_class.reloptions"),),
                fix=in_database(
                    database,
                    with_lock_timeout(composed("ALTER TABLE {table} RESET (autovacuum_enabled);", table=name)),
                    with_lock_timeout(composed("ALTER TABLE {table} SET (autovacuum_enabled = false);", table=name)),
                ),
                subject=f"{database}: {table.schema}.{table.name}",
            )


def _workers(facts: CheckFacts, limits: Limits) -> Findings:
    machine, parameters = advice_facts(facts), needs.parameters(facts)
    if machine is None or machine.cores is None:
        yield Unknown("the server's number of processors is unknown")
        return
    workers = parameters.whole("autovacuum_max_workers")
    if workers <= _DEFAULT_WORKERS and machine.cores >= limits["cores"]:
        yield CheckFinding(
            severity=Severity.INFO,
            says=f"{workers} autovacuum workers on {machine.cores} processors: large tables can keep all of them busy",
            evidence=(
                as_shown(facts, "autovacuum_max_workers"),
                Evidence(f"{machine.cores} processors", "/proc/stat, cpu.max"),
            ),
            fix=advised(facts, "autovacuum_max_workers"),
            subject="workers",
        )
    if workers > limits["workers"]:
        yield CheckFinding(
            says=f"{workers} autovacuum workers share one cost limit: each worker becomes slower",
            evidence=(as_shown(facts, "autovacuum_max_workers", "autovacuum_vacuum_cost_limit", "vacuum_cost_limit"),),
            fix=by_hand("Raise autovacuum_vacuum_cost_limit with the number of workers, or use fewer."),
            subject="workers",
        )


def _speed(facts: CheckFacts, limits: Limits) -> Findings:
    parameters = needs.parameters(facts)
    limit = parameters.number("autovacuum_vacuum_cost_limit")
    delay_s = parameters.number("autovacuum_vacuum_cost_delay")
    delay_s = parameters.number("vacuum_cost_delay") if delay_s < 0 else delay_s
    limit = parameters.number("vacuum_cost_limit") if limit < 0 else limit
    if delay_s <= 0:
        return
    page = parameters.number("block_size")
    per_s = limit / max(parameters.number("vacuum_cost_page_dirty"), 1) / delay_s * page
    if per_s < limits["bytes_per_second"]:
        yield CheckFinding(
            says=(
                f"autovacuum may dirty {per_s / 2**20:.1f} MB/s at most, all workers together: it falls behind any load"
            ),
            evidence=(
                as_shown(facts, "autovacuum_vacuum_cost_limit", "vacuum_cost_limit", "autovacuum_vacuum_cost_delay"),
                Evidence(f"{per_s:.0f} bytes/s", "cost limit ÷ vacuum_cost_page_dirty ÷ delay × block_size"),
            ),
            fix=set_parameter(parameters.row("autovacuum_vacuum_cost_delay"), "2ms")
            if delay_s > 0.002
            else advised_or(facts, "autovacuum_vacuum_cost_limit", str(_DEFAULT_COST_LIMIT)),
        )


_WRAPAROUND: Final = (
    Threshold("age", 500_000_000, "", "a warning from this value"),
    Threshold("critical", 1_000_000_000, "", "critical from this value"),
)


_TABLES: Final = "tables"


def _dead(facts: CheckFacts, limits: Limits) -> Findings:
    for database, table in facts.have(TABLES):
        share = 100 * table.dead / max(table.dead + table.live, 1)
        if table.dead >= limits["rows"] and share >= limits["percent"]:
            yield CheckFinding(
                severity=Severity.HIGH if share >= limits["high"] else Severity.WARNING,
                says=f"{_named(database, table)}: {count(table.dead)} dead rows, {percent(share)} % of all",
                evidence=(
                    Evidence(f"{table.dead} dead, {table.live} live", "pg_stat_all_tables.n_dead_tup, n_live_tup"),
                ),
                fix=_on_table(database, table, "VACUUM (ANALYZE, VERBOSE) {table};"),
                subject=_named(database, table),
            )


def _never(facts: CheckFacts, limits: Limits) -> Findings:
    for database, table in facts.have(TABLES):
        if table.never_analyzed and table.live >= limits["rows"]:
            yield CheckFinding(
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


def _old(facts: CheckFacts, limits: Limits) -> Findings:
    for database, table in facts.have(TABLES):
        rows = max(table.live, table.tuples)
        share = 100 * table.modified / max(rows, 1)
        young = table.last_analyze_ms is not None and now_ms(facts) - table.last_analyze_ms < limits["age"] * 1000
        if not table.never_analyzed and not young and table.modified >= limits["rows"] and share >= limits["percent"]:
            yield CheckFinding(
                says=f"{_named(database, table)}: {count(table.modified)} changes since the last ANALYZE, "
                f"{share_of(share, f'its {count(rows)} rows')}",
                evidence=(Evidence(f"{table.modified} changes", "pg_stat_all_tables.n_mod_since_analyze"),),
                fix=_on_table(database, table, "ANALYZE {table};"),
                subject=_named(database, table),
            )


def _bloat(facts: CheckFacts, limits: Limits) -> Findings:
    hidden = {database: row.n_hidden for database, row in facts.have(BLOAT) if row.n_hidden}
    for database, row in facts.have(BLOAT):
        if row.needed_bytes is None:
            continue
        unused = row.bytes - row.needed_bytes
        share = 100 * unused / max(row.bytes, 1)
        if unused >= limits["bytes"] and share >= limits["percent"]:
            yield CheckFinding(
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
                confidence=CheckConfidence.MEDIUM if row.kind == "table" else CheckConfidence.LOW,
                subject=f"{database}: {row.schema}.{row.name}",
            )
    for database, number in hidden.items():
        yield Unknown(
            f"{database}: {number} tables and indexes have no statistics, or this role may not see them (ANALYZE)"
        )


def _smaller(database: str, row: BloatEstimate) -> Fix:
    name = identifier(row.schema, row.name)
    if row.kind == "index" and row.excludes:
        return in_database(
            database,
            with_lock_timeout(composed("REINDEX INDEX {name};", name=name)),
            remark="blocks writes until it ends: indexes of exclusion constraints do not support CONCURRENTLY",
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
        id="VAC-01",
        group=_GROUP,
        title="autovacuum",
        why="Without autovacuum tables grow without limit, plans go wrong, and finally the server refuses writes.",
        severity=Severity.CRITICAL,
        page="routine-vacuuming.html#AUTOVACUUM",
        needs=(needs.PARAMETERS,),
        look=_switches,
    ),
    Check(
        id="VAC-02",
        group=_GROUP,
        title="transaction id wraparound",
        why="Three million transactions before wraparound, the server refuses every write.",
        severity=Severity.CRITICAL,
        page="routine-vacuuming.html#VACUUM-FOR-WRAPAROUND",
        needs=(needs.SERVER, needs.DATABASE_LIMITS, TABLES),
        look=_wraparound(_XIDS),
        thresholds=_WRAPAROUND,
    ),
    Check(
        id="VAC-03",
        group=_GROUP,
        title="multixact wraparound",
        why="Rows locked by several transactions use up multixacts, which run out like transaction ids.",
        severity=Severity.CRITICAL,
        page="routine-vacuuming.html#VACUUM-FOR-MULTIXACT-WRAPAROUND",
        needs=(needs.SERVER, needs.DATABASE_LIMITS, TABLES),
        look=_wraparound(_MULTIXACTS),
        thresholds=_WRAPAROUND,
    ),
    Check(
        id="VAC-04",
        group=_GROUP,
        title="tables without autovacuum",
        why="Autovacuum was once turned off for a load; the table has not been vacuumed since.",
        page="sql-createtable.html#SQL-CREATETABLE-STORAGE-PARAMETERS",
        needs=(TABLES,),
        look=_by_table,
        thresholds=(Threshold("rows", 1, "", "tables with fewer rows are left out"),),
    ),
    Check(
        id="VAC-05",
        group=_GROUP,
        title="autovacuum workers",
        why="While all workers vacuum large tables, small busy ones wait for hours.",
        page="routine-vacuuming.html#AUTOVACUUM",
        needs=(needs.PARAMETERS, needs.HOST),
        look=_workers,
        thresholds=(
            Threshold("cores", 16, "", "from this number of processors, three workers are few"),
            Threshold("workers", 10, "", "more workers only divide the cost limit"),
        ),
    ),
    Check(
        id="VAC-06",
        group=_GROUP,
        title="speed of autovacuum",
        why="A cost limit from the days of rotating disks lets dead rows grow faster than vacuum removes them.",
        page="routine-vacuuming.html#AUTOVACUUM",
        needs=(needs.PARAMETERS,),
        look=_speed,
        thresholds=(Threshold("bytes_per_second", 10 * 2**20, "bytes/s", "less than this is slow"),),
    ),
    Check(
        id="TAB-01",
        group=_TABLES,
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
        group=_TABLES,
        title="bloat",
        why="Unused space is read from disk and kept in memory like data.",
        severity=Severity.HIGH,
        page="routine-vacuuming.html#VACUUM-FOR-SPACE-RECOVERY",
        needs=(BLOAT,),
        look=_bloat,
        thresholds=(
            Threshold("percent", 50, "%", "less unused space serves updates"),
            Threshold("bytes", 100 * MB, "bytes", "a warning from this value"),
            Threshold("high", 10_240 * MB, "bytes", "a high finding from this value"),
        ),
    ),
    Check(
        id="TAB-03",
        group=_TABLES,
        title="tables without statistics",
        why="Without statistics the planner guesses, and a wrong guess can be a thousand times slower.",
        page="routine-vacuuming.html#VACUUM-FOR-STATISTICS",
        needs=(TABLES,),
        look=_never,
        thresholds=(Threshold("rows", 1_000, "", "smaller tables are left out"),),
    ),
    Check(
        id="TAB-04",
        group=_TABLES,
        title="old statistics",
        why="Outdated statistics make plans for outdated data.",
        page="routine-vacuuming.html#VACUUM-FOR-STATISTICS",
        needs=(TABLES,),
        look=_old,
        thresholds=(
            Threshold("percent", 50, "%", "of the rows changed"),
            Threshold("rows", 10_000, "", "fewer changes are left out"),
            Threshold("age", 150, "s", "younger statistics are left out: autovacuum runs once a minute by default"),
        ),
        counts=True,
    ),
)
