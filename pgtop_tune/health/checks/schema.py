"""Tables, constraints, functions and collations of each database, as its owners made them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.sql_quoting import Sql, composed, identifier, literal, quoted, unmistakable
from pgtop_tune.changes.statements import typed
from pgtop_tune.health import needs
from pgtop_tune.health.check import (
    Check,
    CheckConfidence,
    CheckFinding,
    Evidence,
    Findings,
    Limits,
    Severity,
    Threshold,
)
from pgtop_tune.health.conditions import ConditionKind, of_kinds
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand, preloading
from pgtop_tune.health.questions import OBJECTS, RELATIONS, CatalogueCondition
from pgtop_tune.health.rules import as_shown, first_few, in_database, on_standby

_TABLES: Final = "tables"
_REWRITES: Final = "rewrites the tables under a lock, and writes them into the WAL"
_REINDEXES: Final = "rebuilds every index; schedule it"
_PRELOADED: Final = frozenset(
    ("citus", "orioledb", "pg_cron", "pg_failover_slots", "pg_net", "pg_qualstats", "pg_squeeze", "pg_stat_kcache",
     "pg_stat_monitor", "pg_stat_statements", "pg_wait_sampling", "pgactive", "pgaudit", "pglogical", "powa",
     "timescaledb")
)  # fmt: skip
"""Extensions that work only when the server has loaded their library at its start. Source: their manuals."""


def _option(row: CatalogueCondition) -> tuple[Sql, Sql]:
    return Sql(row.part), literal(row.detail)


def _index_names(row: CatalogueCondition) -> tuple[Sql, Sql]:
    if not row.detail:
        name = literal(identifier(*row.name))
        return identifier(row.part), composed(
            "-- its table was locked: before dropping it, save SELECT pg_get_indexdef({name}::regclass)", name=name
        )
    return identifier(row.part), Sql(unmistakable(row.detail).replace("CREATE INDEX ", "CREATE INDEX CONCURRENTLY ", 1))


def _routine(row: CatalogueCondition) -> tuple[Sql, Sql]:
    return Sql(unmistakable(row.part)), identifier(row.name[0])


def _state(row: CatalogueCondition) -> tuple[Sql, Sql]:
    word = row.detail.rpartition(" ")[2]
    return identifier(row.part), Sql(word if word in ("ALWAYS", "REPLICA", "NOTHING", "DEFAULT") else "")


def _part(row: CatalogueCondition) -> str:
    return f"{'.'.join(row.name)} {row.part}"


NO_KEY: Final = ConditionKind(
    kind="no primary key",
    one="table has no primary key",
    several="tables have no primary key",
    so="replication and clients cannot identify a row",
    source="pg_index.indisprimary",
    advice="ALTER TABLE … ADD PRIMARY KEY; with an existing unique index of columns that are NOT NULL: USING INDEX.",
    severity=Severity.INFO,
)
UNLOGGED: Final = ConditionKind(
    kind="unlogged",
    one="table is unlogged",
    several="tables are unlogged",
    so="a crash empties such a table, and standbys and base backups lack its rows",
    source="pg_class.relpersistence",
    do="ALTER TABLE {name} SET LOGGED;",
    undo="ALTER TABLE {name} SET UNLOGGED;",
    remark=_REWRITES,
)
PARENT: Final = ConditionKind(
    kind="parent never analyzed",
    one="partitioned table was never analyzed",
    several="partitioned tables were never analyzed",
    so="autovacuum analyzes only partitions, so the planner guesses for the whole table",
    source="pg_class.reltuples",
    do="ANALYZE {name};",
    locks=False,
    remark="repeat it from time to time, as autovacuum does not",
)
NOT_VALID: Final = ConditionKind(
    kind="not validated",
    one="constraint was never validated",
    several="constraints were never validated",
    so="older rows may violate the constraint",
    source="pg_constraint.convalidated",
    do="ALTER TABLE {name} VALIDATE CONSTRAINT {part};",
    remark="reads the table, and blocks neither reads nor writes; fails on rows that violate it",
    named=_part,
)
KEY_OFF: Final = ConditionKind(
    kind="foreign key off",
    one="trigger of a foreign key is disabled",
    several="triggers of foreign keys are disabled",
    so="references to missing rows are not rejected",
    source="pg_trigger.tgenabled",
    do="ALTER TABLE {name} ENABLE TRIGGER {part};",
    undo="ALTER TABLE {name} DISABLE TRIGGER {part};",
    remark="as a superuser; check the references written meanwhile",
    severity=Severity.HIGH,
    named=lambda row: f"{'.'.join(row.name)} {row.detail}",
)
TRIGGER_OFF: Final = ConditionKind(
    kind="trigger off",
    one="trigger is disabled",
    several="triggers are disabled",
    so="rows change without the audit records, copies or values that triggers write",
    source="pg_trigger.tgenabled",
    do="ALTER TABLE {name} ENABLE TRIGGER {part};",
    undo="ALTER TABLE {name} DISABLE TRIGGER {part};",
    remark="rows written meanwhile lack its effects",
    named=_part,
)
RULE_OFF: Final = ConditionKind(
    kind="rule off",
    one="rule is disabled",
    several="rules are disabled",
    so="statements that the rule was meant to change or forbid run as written",
    source="pg_rewrite.ev_enabled",
    do="ALTER TABLE {name} ENABLE RULE {part};",
    undo="ALTER TABLE {name} DISABLE RULE {part};",
    named=_part,
)
IDENTITY: Final = ConditionKind(
    kind="no replica identity",
    one="published table has no replica identity",
    several="published tables have no replica identity",
    so="each UPDATE and DELETE on such a table fails",
    source="pg_publication_rel, pg_publication.puballtables, pg_class.relreplident",
    do="ALTER TABLE {name} REPLICA IDENTITY FULL;",
    undo="ALTER TABLE {name} REPLICA IDENTITY {detail};",
    parts=_state,
    remark="a primary key is better: FULL writes all columns into the WAL",
    severity=Severity.HIGH,
)
RARELY: Final = ConditionKind(
    kind="rarely vacuumed",
    one="table has its own limit that keeps autovacuum away",
    several="tables have their own limits that keep autovacuum away",
    so="dead rows, old statistics and old transaction ids accumulate there",
    source="pg_class.reloptions",
    do="ALTER TABLE {name} RESET ({part});",
    undo="ALTER TABLE {name} SET ({part} = {detail});",
    parts=_option,
    named=lambda row: f"{'.'.join(row.name)} {row.part}={row.detail}",
)
PREFIX: Final = ConditionKind(
    kind="prefix of an index",
    one="index is a prefix of another one",
    several="indexes are prefixes of others",
    so="the longer index serves the same queries, and each change writes both",
    source="pg_index.indkey, indclass, indoption",
    do="DROP INDEX CONCURRENTLY {name};",
    undo="{detail};",
    parts=_index_names,
    locks=False,
    remark="if the longer index is not much larger",
    severity=Severity.INFO,
    named=lambda row: f"{'.'.join(row.name)} begins {row.part}",
)
_DEFINER: Final = ConditionKind(
    kind="security definer",
    one="SECURITY DEFINER function has no search_path",
    several="SECURITY DEFINER functions have no search_path",
    so="functions from the caller's search_path run with the owner's rights",
    source="pg_proc.prosecdef, proconfig",
    do="ALTER ROUTINE {part} SET search_path = {detail}, pg_temp;",
    undo="ALTER ROUTINE {part} RESET search_path;",
    parts=_routine,
    locks=False,
    remark="with all schemas that the function needs, and pg_temp as the last one",
    named=lambda row: row.part,
)
_SUPERUSERS: Final = replace(
    _DEFINER,
    kind="superuser's definer",
    one="SECURITY DEFINER function of a superuser has no search_path",
    several="SECURITY DEFINER functions of superusers have no search_path",
    so="functions from the caller's search_path run with superuser rights",
    severity=Severity.HIGH,
)
_OF_CALLERS: Final = ConditionKind(
    kind="definer of callers",
    one="SECURITY DEFINER function of a superuser searches pg_temp first",
    several="SECURITY DEFINER functions of superusers search pg_temp first",
    so="temporary tables of the caller replace the intended ones",
    source="pg_proc.prosecdef, proconfig",
    advice="ALTER ROUTINE … SET search_path with pg_temp as the last schema.",
    severity=Severity.HIGH,
    named=lambda row: row.part,
)
_WITHOUT_TEMP: Final = replace(
    _DEFINER,
    kind="definer without pg_temp",
    one="search_path of a SECURITY DEFINER function of a superuser lacks pg_temp",
    several="SECURITY DEFINER functions of superusers have a search_path without pg_temp",
    so="pg_temp is then searched first, and a caller's temporary table can replace the intended one",
    do="ALTER ROUTINE {part} SET search_path = {detail}, pg_temp;",
    undo="ALTER ROUTINE {part} SET search_path = {detail};",
    parts=lambda row: (Sql(unmistakable(row.part)), typed("search_path", row.detail)),
    remark="if the function names tables without their schema",
    severity=Severity.INFO,
)
_EVENT_OFF: Final = ConditionKind(
    kind="event trigger off",
    one="event trigger is disabled",
    several="event triggers are disabled",
    so="schema changes are no longer recorded or forbidden",
    source="pg_event_trigger.evtenabled",
    do="ALTER EVENT TRIGGER {name} ENABLE;",
    undo="ALTER EVENT TRIGGER {name} DISABLE;",
    locks=False,
    severity=Severity.INFO,
    named=lambda row: f"{row.name[0]} on {row.part}",
)
_EVENT: Final = ConditionKind(
    kind="event trigger",
    one="event trigger runs a function whose owner is no superuser",
    several="event triggers run functions whose owners are no superusers",
    so="the function's owner can run anything as the next superuser who changes a schema",
    source="pg_event_trigger.evtfoid, pg_proc.proowner",
    do="ALTER EVENT TRIGGER {name} DISABLE;",
    undo="ALTER EVENT TRIGGER {name} ENABLE {detail};",
    parts=_state,
    locks=False,
    remark="or give the function to a superuser, after reading it",
    severity=Severity.HIGH,
    named=lambda row: f"{row.name[0]} runs {row.part}",
)
_COLLATION: Final = ConditionKind(
    kind="collation",
    one="collation version differs from that of its indexes",
    several="collation versions differ from those of their indexes",
    so="indexes on text may miss rows and admit duplicates",
    source="pg_collation.collversion, pg_collation_actual_version()",
    do="ALTER COLLATION {name} REFRESH VERSION;",
    locks=False,
    remark="after REINDEX of each index that uses it",
    severity=Severity.HIGH,
    named=lambda row: f"{'.'.join(row.name)} {row.part}, now {row.detail}",
)
_OF_DATABASE: Final = ConditionKind(
    kind="database collation",
    one="the database was created with another version of its collation",
    several="",
    so="indexes on text may miss rows and admit duplicates",
    source="pg_database.datcollversion, pg_database_collation_actual_version()",
    do="REINDEX DATABASE {name};\nALTER DATABASE {name} REFRESH COLLATION VERSION;",
    locks=False,
    remark=_REINDEXES,
    severity=Severity.HIGH,
    named=lambda row: f"{row.part}, now {row.detail}",
)


_NO_ENCODING: Final = ConditionKind(
    kind="no encoding",
    one="the database has the encoding SQL_ASCII",
    several="",
    so="the server stores the bytes of each client unchecked, and other clients may misread them",
    source="pg_database.encoding",
    advice="Dump it, convert the dump, and restore it into CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0.",
    severity=Severity.INFO,
)


def _extensions(facts: CheckFacts) -> Iterator[tuple[str, CatalogueCondition]]:
    for database, row in facts.have(OBJECTS):
        if row.kind == "extension":
            yield database, row


def _outdated(facts: CheckFacts, limits: Limits) -> Findings:
    for database, row in _extensions(facts):
        (name,), now, available = row.name, row.part, row.detail
        if not available:
            yield CheckFinding(
                says=f"{database}: the files of extension {name} are missing: dumps with it cannot be restored",
                evidence=(Evidence(f"{name} {now}, no control file", "pg_extension, pg_available_extensions()"),),
                subject=f"{database}: {name}",
            )
        elif now != available:
            yield CheckFinding(
                severity=Severity.INFO,
                says=f"{database}: extension {name} is at {now}, but {available} is installed",
                evidence=(Evidence(f"{name} {now}", "pg_extension.extversion, pg_available_extensions()"),),
                fix=in_database(
                    database,
                    composed("ALTER EXTENSION {name} UPDATE;", name=identifier(name)),
                    "-- a downgrade takes DROP EXTENSION and CREATE EXTENSION … VERSION",
                ),
                subject=f"{database}: {name}",
            )


def _not_loaded(facts: CheckFacts, limits: Limits) -> Findings:
    if not any(row.name[0] in _PRELOADED for _, row in _extensions(facts)):
        return
    library = needs.parameters(facts).row("shared_preload_libraries")
    loaded = {entry.strip().strip('"').rpartition("/")[2].removesuffix(".so") for entry in library.setting.split(",")}
    databases: dict[str, list[str]] = {}
    for database, row in _extensions(facts):
        if row.name[0] in _PRELOADED - loaded:
            databases.setdefault(row.name[0], []).append(database)
    for name, where in databases.items():
        yield CheckFinding(
            says=f"extension {name} is in {first_few(where, 3)}, but the server has "
            "not loaded its library: its functions fail",
            evidence=(as_shown(facts, "shared_preload_libraries"), Evidence(name, "pg_extension.extname")),
            fix=preloading(library, name, " on the primary" if on_standby(facts) else ""),
            subject=name,
        )


_LARGE_OBJECTS: Final = "large objects"


def _number(row: CatalogueCondition) -> tuple[Sql, Sql]:
    return Sql(""), literal(row.part)


def _column(row: CatalogueCondition) -> tuple[Sql, Sql]:
    return identifier(row.part), Sql("")


_DEFAULT: Final = ConditionKind(
    kind="default partition",
    one="default partition holds rows",
    several="default partitions hold rows",
    so="creating a partition reads all of them under a lock, and fails if some belong to it",
    source="pg_partitioned_table.partdefid, pg_class.reltuples",
    advice="Detach the default partition, create partitions for its values, insert its rows into the partitioned "
    "table, and attach it again empty.",
    severity=Severity.INFO,
    named=lambda row: f"{'.'.join(row.name)} of {row.part}",
)
_NO_POLICY: Final = ConditionKind(
    kind="no policy",
    one="table has row security and no policy",
    several="tables have row security and no policy",
    so="all roles except the owner see no rows, and cannot insert any",
    source="pg_class.relrowsecurity, pg_policy.polrelid",
    advice="CREATE POLICY for the roles that need its rows; ALTER TABLE … DISABLE ROW LEVEL SECURITY if each role "
    "with rights on it may see all rows.",
    severity=Severity.INFO,
)
_POLICY_OFF: Final = ConditionKind(
    kind="row security off",
    one="table has policies or FORCE ROW LEVEL SECURITY, and its row security is off",
    several="tables have policies or FORCE ROW LEVEL SECURITY, and their row security is off",
    so="the policies hide nothing: each role with rights on it sees and changes all rows",
    source="pg_class.relrowsecurity, relforcerowsecurity, pg_policy.polrelid",
    advice="ALTER TABLE … ENABLE ROW LEVEL SECURITY, after checking which roles the policies allow; DROP POLICY "
    "and ALTER TABLE … NO FORCE ROW LEVEL SECURITY if no rows need to be hidden.",
)
_MANY_INDEXES: Final = ConditionKind(
    kind="many indexes",
    one="table has 15 or more single-column indexes",
    several="tables have 15 or more single-column indexes",
    so="each insert writes all of them, and so does each update of an indexed column",
    source="pg_index.indnatts",
    advice="Drop those that IDX-03 finds, and replace others with one index on columns that queries use together.",
    severity=Severity.INFO,
)
_FILLFACTOR: Final = ConditionKind(
    kind="fillfactor",
    one="relation has a fillfactor below 50",
    several="relations have a fillfactor below 50",
    so="the same rows take several times the disk space, memory and reads",
    source="pg_class.reloptions",
    do="ALTER TABLE {name} RESET (fillfactor);",
    undo="ALTER TABLE {name} SET (fillfactor = {detail});",
    parts=_number,
    remark="for new pages; VACUUM FULL or REINDEX CONCURRENTLY rewrites the old ones",
    severity=Severity.INFO,
    named=lambda row: f"{'.'.join(row.name)} fillfactor={row.part}",
)
_NO_STATISTICS: Final = ConditionKind(
    kind="no statistics",
    one="column has SET STATISTICS 0",
    several="columns have SET STATISTICS 0",
    so="the planner guesses how many rows match a condition",
    source="pg_attribute.attstattarget",
    do="ALTER TABLE {name} ALTER COLUMN {part} SET STATISTICS -1;",
    undo="ALTER TABLE {name} ALTER COLUMN {part} SET STATISTICS 0;",
    parts=_column,
    remark="then ANALYZE",
    severity=Severity.INFO,
    named=lambda row: f"{'.'.join(row.name)}.{row.part}",
)


def _large_objects(facts: CheckFacts, limits: Limits) -> Findings:
    for database, row in facts.have(RELATIONS):
        if row.kind == _LARGE_OBJECTS and row.n_all >= limits["objects"]:
            yield CheckFinding(
                severity=Severity.INFO,
                says=f"{database}: about {row.n_all} large objects: none is deleted with its row, and "
                "pg_dump and pg_upgrade process each one separately",
                evidence=(Evidence(f"about {row.n_all}", "pg_largeobject_metadata: pg_class.reltuples, n_live_tup"),),
                fix=by_hand(
                    f"vacuumlo --dry-run {quoted(database)} counts those that no row refers to; without --dry-run "
                    "it deletes them. Keep new ones in columns of type bytea."
                ),
                confidence=CheckConfidence.MEDIUM,
                subject=database,
            )


CHECKS: Final[tuple[Check, ...]] = (
    of_kinds(
        "TAB-05", "tables without primary key",
        "Duplicates enter unnoticed, and logical replication cannot tell which row has changed.",
        "ddl-constraints.html#DDL-CONSTRAINTS-PRIMARY-KEYS", RELATIONS, NO_KEY, group=_TABLES,
    ),
    of_kinds(
        "TAB-06", "unlogged tables",
        "A crash empties unlogged tables, and no base backup contains their rows.",
        "sql-createtable.html#SQL-CREATETABLE-UNLOGGED", RELATIONS, UNLOGGED, group=_TABLES,
    ),
    of_kinds(
        "TAB-07", "partitioned tables without statistics",
        "Autovacuum never analyzes a partitioned table as a whole.",
        "routine-vacuuming.html#VACUUM-FOR-STATISTICS", RELATIONS, PARENT, group=_TABLES,
    ),
    of_kinds(
        "TAB-08", "constraints and triggers not in force",
        "The planner, dumps and people trust constraints; a dump of rows that violate one cannot be restored.",
        "sql-altertable.html", RELATIONS, KEY_OFF, NOT_VALID, TRIGGER_OFF, RULE_OFF, group=_TABLES,
    ),
    of_kinds(
        "VAC-08", "autovacuum limits of single tables",
        "A limit that was set for one load stays with the table forever.",
        "sql-createtable.html#RELOPTION-AUTOVACUUM-VACUUM-SCALE-FACTOR", RELATIONS, RARELY, group="vacuum",
    ),
    of_kinds(
        "IDX-05", "indexes that are prefixes of others",
        "An index on (a) serves no query that an index on (a, b) cannot serve.",
        "indexes-multicolumn.html", RELATIONS, PREFIX, group="indexes",
    ),
    of_kinds(
        "REP-06", "published tables",
        "Publishing a table without replica identity stops the application that updates it.",
        "logical-replication-publication.html", RELATIONS, IDENTITY, group="replication",
    ),
    of_kinds(
        "SEC-08", "SECURITY DEFINER functions",
        "Without its own search_path, such a function uses objects that its caller chooses.",
        "sql-createfunction.html#SQL-CREATEFUNCTION-SECURITY", OBJECTS, _DEFINER, _SUPERUSERS, _OF_CALLERS,
        _WITHOUT_TEMP, group="security",
    ),
    of_kinds(
        "SEC-09", "event triggers",
        "An event trigger runs with the rights of the role that changes a schema, superusers included.",
        "event-triggers.html", OBJECTS, _EVENT, _EVENT_OFF, group="security",
    ),
    of_kinds(
        "COL-01", "collations and encodings",
        "A new C library or ICU sorts differently, and old indexes are then in the wrong order.",
        "collation.html#COLLATION-MANAGING", OBJECTS, _COLLATION, _OF_DATABASE, _NO_ENCODING,
        group="collations and extensions",
    ),
    Check(
        id="EXT-01", group="collations and extensions", title="extension versions",
        why="After an upgrade of the server, extensions keep their old functions until they are updated.",
        page="sql-alterextension.html", needs=(OBJECTS,), look=_outdated,
    ),
    Check(
        id="EXT-02", group="collations and extensions", title="extensions without their library",
        why="Such an extension exists, but each of its functions fails.",
        page="runtime-config-client.html#GUC-SHARED-PRELOAD-LIBRARIES",
        needs=(needs.SERVER, needs.PARAMETERS, OBJECTS), look=_not_loaded,
    ),
    of_kinds(
        "TAB-09", "default partitions",
        "A default partition silently fills up when the next partition is not created in time.",
        "ddl-partitioning.html#DDL-PARTITIONING-DECLARATIVE", RELATIONS, _DEFAULT, group=_TABLES,
    ),
    of_kinds(
        "TAB-10", "storage and statistics of single tables",
        "A setting that was tried on one table stays with it forever.",
        "sql-createtable.html#RELOPTION-FILLFACTOR", RELATIONS, _FILLFACTOR, _NO_STATISTICS, group=_TABLES,
    ),
    Check(
        id="TAB-11", group=_TABLES, title="large objects",
        why="Large objects that no row refers to fill the disk, and slow down each dump and upgrade.",
        severity=Severity.INFO, page="largeobjects.html", needs=(RELATIONS,), look=_large_objects,
        thresholds=(Threshold("objects", 1000, "", "or more are a finding; the query finds no fewer"),),
    ),
    of_kinds(
        "IDX-06", "many indexes on one table",
        "Each index slows down writes, and can prevent HOT updates.",
        "indexes-multicolumn.html", RELATIONS, _MANY_INDEXES, group="indexes",
    ),
    of_kinds(
        "SEC-16", "row security and its policies",
        "One without the other silently hides all rows, or none.",
        "ddl-rowsecurity.html", RELATIONS, _NO_POLICY, _POLICY_OFF, group="security",
    ),
)  # fmt: skip
