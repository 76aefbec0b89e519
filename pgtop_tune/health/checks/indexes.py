"""Indexes that are broken, superfluous or missing."""

from __future__ import annotations

import re
from typing import Final

from pgtop_tune.base.secret import MASK
from pgtop_tune.base.sql_quoting import Sql, composed, identifier, joined, literal, quoted, unmistakable
from pgtop_tune.base.units import MB, about, count, duration
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
from pgtop_tune.health.conditions import ConditionKind, conditions
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand, with_lock_timeout
from pgtop_tune.health.judge import statistics_age_s
from pgtop_tune.health.questions import (
    FOREIGN_KEYS,
    INDEXES,
    KEYS,
    RELATIONS,
    SEQUENCES,
    BareForeignKey,
    IndexState,
    KeyState,
    SequenceState,
)
from pgtop_tune.health.rules import NOTHING_TO_UNDO, first_few, in_database, too_young

_GROUP: Final = "indexes"
_DAY_S: Final = 86_400.0
_LEFT_OVER: Final = re.compile(r"_cc(new|old)\d*$")
"""Manual, REINDEX, "Rebuilding Indexes Concurrently"."""


def _invalid(facts: CheckFacts, limits: Limits) -> Findings:
    for database, index in facts.have(INDEXES):
        if not index.valid:
            yield CheckFinding(
                severity=Severity.HIGH,
                says=f"index {_named(database, index)} of {index.table_name} is invalid: no query uses it, but "
                "every change "
                "maintains it",
                evidence=(Evidence(f"{index.schema}.{index.name}: indisvalid false", "pg_index.indisvalid"),),
                fix=_mended_index(database, index),
                subject=_named(database, index),
            )


_PARTITIONED: Final = ConditionKind(
    kind="partitioned index",
    one="index of a partitioned table is invalid",
    several="indexes of partitioned tables are invalid",
    so="at least one partition lacks the index, and queries read that partition whole",
    source="pg_index.indisvalid",
    advice="CREATE INDEX CONCURRENTLY on each partition without it, then ALTER INDEX … ATTACH PARTITION; the last one "
    "makes it valid. DROP INDEX if it is not needed.",
    named=lambda row: f"{'.'.join(row.name)} of {row.part}",
)
_OF_PARTITIONED: Final = conditions(RELATIONS, _PARTITIONED)


def _invalid_ones(facts: CheckFacts, limits: Limits) -> Findings:
    yield from _invalid(facts, limits)
    yield from _OF_PARTITIONED(facts, limits)


def _mended_index(database: str, index: IndexState) -> Fix:
    if _LEFT_OVER.search(index.name):
        # No query uses it, and building it again fails as REINDEX did.
        return in_database(
            database,
            _drop_statement(index),
            NOTHING_TO_UNDO,
            "leftover of REINDEX CONCURRENTLY; the original index has another name",
        )
    mend = composed("REINDEX INDEX CONCURRENTLY {index};", index=_identifier(index))
    if index.is_unique or index.computes:
        reasons = ("duplicates", index.is_unique), ("rows on which its expression or condition fails", index.computes)
        obstacles = " and the ".join(reason for reason, may_be in reasons if may_be)
        return by_hand(
            f"In database {quoted(database)}: remove the {obstacles} from {index.table_name}, then {mend} Otherwise "
            f"it fails and leaves one more invalid index. If the index is not needed:  {_drop_statement(index)}",
            _create_again(index),
        )
    return in_database(database, mend, remark="or drop the index if it is not needed")


def _duplicate(facts: CheckFacts, limits: Limits) -> Findings:
    for database, index in facts.have(INDEXES):
        if index.same_as is not None and index.bytes >= limits["bytes"]:
            yield CheckFinding(
                says=f"index {_named(database, index)} ({about(index.bytes)}) duplicates {index.same_as}",
                evidence=(
                    Evidence(
                        f"same columns, operator classes, order and condition as {index.same_as}",
                        "pg_index.indkey, indclass, indoption, indpred",
                    ),
                ),
                fix=_drop(database, index),
                subject=_named(database, index),
            )


def _unused(facts: CheckFacts, limits: Limits) -> Findings:
    counted_s = statistics_age_s(facts)
    if counted_s is None:
        yield Unknown("the start of the server's counters is unknown")
    elif (young := too_young(counted_s)) is not None:
        yield young
    enough = counted_s is not None and counted_s >= limits["days"] * _DAY_S
    for database, index in facts.have(INDEXES):
        if index.unused and index.same_as is None and index.bytes >= limits["bytes"]:
            yield CheckFinding(
                severity=Severity.WARNING if enough else Severity.INFO,
                says=f"index {_named(database, index)} ({about(index.bytes)}) of {index.table_name} was never used",
                evidence=(
                    Evidence(
                        f"{index.scans} scans" + ("" if counted_s is None else f" in {duration(counted_s)} at least"),
                        "pg_stat_all_indexes.idx_scan, stats_reset of pg_stat_database",
                    ),
                ),
                fix=_drop(database, index, "check the standbys as well: each has its own counters"),
                confidence=CheckConfidence.MEDIUM if enough else CheckConfidence.LOW,
                subject=_named(database, index),
            )


def _foreign_keys(facts: CheckFacts, limits: Limits) -> Findings:
    used_names: set[tuple[str, str, str]] = set()
    for database, key in facts.have(FOREIGN_KEYS):
        if key.tuples >= limits["rows"]:
            columns = ", ".join(key.columns)
            name = next((name for name in key.free_names if (database, key.schema, name) not in used_names), "")
            used_names.add((database, key.schema, name))
            yield CheckFinding(
                says=f"{database}: {key.schema}.{key.table_name} {key.name}: no index on {columns}, so a delete in "
                f"{key.referenced_schema}.{key.referenced_table} reads {count(key.tuples)} rows",
                evidence=(Evidence(f"foreign key {key.name} ({columns})", "pg_constraint.conkey, pg_index.indkey"),),
                fix=_index_for(database, key, name) if name else None,
                subject=f"{database}: {key.schema}.{key.table_name} {key.name}",
            )


def _index_for(database: str, key: BareForeignKey, name: str) -> Fix:
    concurrently = "" if key.partitioned else "CONCURRENTLY "
    make = composed(
        f"CREATE INDEX {concurrently}{{name}} ON {{table}} ({{columns}});",
        name=identifier(name),
        table=identifier(key.schema, key.table_name),
        columns=joined(", ", map(identifier, key.columns)),
    )
    drop = composed(f"DROP INDEX {concurrently}{{index}};", index=identifier(key.schema, name))
    return in_database(
        database,
        with_lock_timeout(make) if key.partitioned else make,
        with_lock_timeout(drop) if key.partitioned else drop,
        "blocks writes until it ends: partitioned tables do not support CONCURRENTLY" if key.partitioned else "",
    )


def _drop(database: str, index: IndexState, remark: str = "") -> Fix:
    return in_database(
        database,
        _drop_statement(index),
        _create_again(index),
        remark,
    )


def _drop_statement(index: IndexState) -> str:
    return composed("DROP INDEX CONCURRENTLY {index};", index=_identifier(index))


def _create_again(index: IndexState) -> str:
    """Return the statements that create the index as it was, in its tablespace; "" when it is gone by now."""
    if index.definition is None:
        return ""
    if MASK in index.definition:
        query = composed("SELECT pg_get_indexdef({name}::regclass);", name=literal(_identifier(index)))
        return f"-- its definition may hold a secret and is not shown: before dropping it, save the result of {query}"
    create = f"{unmistakable(_concurrently(index.definition))};"
    if index.tablespace is None:
        return create
    set_tablespace = composed("SET default_tablespace = {place};", place=literal(index.tablespace))
    return f"{set_tablespace}\n{create}\nRESET default_tablespace;"


def _concurrently(definition: str) -> str:
    """Return CREATE INDEX CONCURRENTLY: the statement of pg_get_indexdef() locks out writes."""
    return re.sub(r"\A(CREATE (?:UNIQUE )?INDEX) ", r"\1 CONCURRENTLY ", definition)


def _identifier(index: IndexState) -> Sql:
    return identifier(index.schema, index.name)


def _named(database: str, index: IndexState) -> str:
    return f"{database}: {index.schema}.{index.name}"


_KEYS: Final = "keys"
_SHOWN_USERS: Final = 5
_SMALLEST: Final = 2**15 - 1
_AGAIN: Final = ", and then repeats its numbers"
_WIDER: Final = "-- the column may stay bigint, which holds the former values as well"
_REWRITES: Final = "rewrites the table and its indexes under a lock; plan it, together with the referencing columns"


def _sequences(facts: CheckFacts, limits: Limits) -> Findings:
    sequences = facts.have(SEQUENCES)
    hidden = {database: sequence.n_hidden for database, sequence in sequences if sequence.n_hidden}
    left_out = {database: sequence.n_left_out for database, sequence in sequences if sequence.n_left_out}
    for database, sequence in sequences:
        if sequence.used is None:
            continue
        share = 100 * sequence.used / sequence.highest
        if share >= limits["percent"]:
            yield CheckFinding(
                severity=_severity(sequence, share >= limits["critical"]),
                says=f"sequence {database}: {sequence.schema}.{sequence.name} is at {share:.0f} % of "
                f"{_range(sequence)}{_AGAIN if sequence.cycles else ''}",
                evidence=(Evidence(f"{sequence.used} of {sequence.highest}", "pg_sequences.last_value, max_value"),),
                fix=_widen(database, sequence),
                subject=f"{database}: {sequence.schema}.{sequence.name}",
            )
    for database, number in hidden.items():
        yield Unknown(f"{database}: {number} sequences cannot be read by this role (GRANT pg_read_all_data)")
    for database, number in left_out.items():
        yield Unknown(f"{database}: {number} sequences of the smallest tables were not read: each takes a lock")


def _severity(sequence: SequenceState, critical: bool) -> Severity:
    """Return the severity; a cycling sequence fails only inserts that meet a row with the same number."""
    if not critical:
        return Severity.WARNING
    return Severity.HIGH if sequence.cycles else Severity.CRITICAL


def _range(sequence: SequenceState) -> str:
    if sequence.column_name is None:
        return "its range"
    return f"the range of {sequence.table_name}.{sequence.column_name}"


def _widen(database: str, sequence: SequenceState) -> Fix:
    name = identifier(sequence.schema, sequence.name)
    end, number = ("MAXVALUE", sequence.highest) if sequence.least is None else ("MINVALUE", sequence.least)
    widen = composed("ALTER SEQUENCE {sequence} AS bigint NO {end};", sequence=name, end=Sql(end))
    narrow = composed("ALTER SEQUENCE {sequence} {end} {number};", sequence=name, end=Sql(end), number=literal(number))
    if sequence.table_name is None or sequence.table_schema is None or sequence.column_name is None:
        return in_database(database, with_lock_timeout(widen), with_lock_timeout(narrow))
    table, column = identifier(sequence.table_schema, sequence.table_name), identifier(sequence.column_name)
    do = with_lock_timeout(f"{_to(table, column, 'bigint')}\n{widen}")
    return _kept_type(database, sequence, do) or in_database(
        database, do, with_lock_timeout(f"{narrow}\n{_WIDER}"), _REWRITES
    )


def _kept_type(database: str, column: SequenceState | KeyState, do: str) -> Fix | None:
    """Return the manual fix where ALTER COLUMN TYPE fails; None where it runs."""
    name = f"{column.table_name}.{column.column_name}"
    if column.type_is_kept_by == "parent":
        return by_hand(
            f"In database {quoted(database)}: {name} is inherited. ALTER TABLE of its topmost parent changes the type "
            "in all child tables, unless the column is a partition key."
        )
    if column.type_is_kept_by == "domain":
        return by_hand(
            f"In database {quoted(database)}: {name} has a domain as its type. CREATE DOMAIN … AS bigint with the same "
            "constraints, then ALTER TABLE … ALTER COLUMN … TYPE to it, which rewrites the table."
        )
    if column.type_is_kept_by is not None:
        return by_hand(
            f"In database {quoted(database)}: {name} is part of the partition key, whose type cannot change. "
            "Move the rows to a new table with a bigint column."
        )
    if not column.used_by:
        return None
    users = first_few(map(unmistakable, column.used_by), _SHOWN_USERS)
    return by_hand(
        f"In database {quoted(database)}: the type of {name} cannot change because of: {users}. Drop these first, then "
        f"{' '.join(do.splitlines())} and recreate them."
    )


def _to(table: Sql, column: Sql, type_: str) -> str:
    return composed(f"ALTER TABLE {{table}} ALTER COLUMN {{column}} TYPE {type_};", table=table, column=column)


def _keys(facts: CheckFacts, limits: Limits) -> Findings:
    hidden = {database: key.n_hidden for database, key in facts.have(KEYS) if key.n_hidden}
    for database, key in facts.have(KEYS):
        if key.used is None:
            continue
        share = 100 * key.used / key.highest
        if share >= limits["percent"]:
            yield CheckFinding(
                severity=Severity.CRITICAL if share >= limits["critical"] else Severity.WARNING,
                says=f"key {database}: {key.schema}.{key.table_name}.{key.column_name} is at {share:.0f} % "
                "of the range of its type",
                evidence=(Evidence(f"{key.used} of {key.highest}", "pg_stats.histogram_bounds, most_common_vals"),),
                fix=_widen_key(database, key),
                confidence=CheckConfidence.MEDIUM,
                subject=f"{database}: {key.schema}.{key.table_name}.{key.column_name}",
            )

    for database, number in hidden.items():
        yield Unknown(f"{database}: statistics of {number} keys cannot be read by this role (GRANT pg_read_all_data)")


def _widen_key(database: str, key: KeyState) -> Fix:
    table, column = identifier(key.schema, key.table_name), identifier(key.column_name)
    former = "smallint" if key.highest == _SMALLEST else "integer"
    wider, narrower = (with_lock_timeout(_to(table, column, type_)) for type_ in ("bigint", former))
    return _kept_type(database, key, wider) or in_database(database, wider, narrower, _REWRITES)


_LIMITS: Final = (
    Threshold("percent", 75, "%", "a warning from this value"),
    Threshold("critical", 90, "%", "critical from this value"),
)


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="IDX-01",
        group=_GROUP,
        title="invalid indexes",
        why="The leftover of a failed CREATE INDEX CONCURRENTLY costs every write and helps no read.",
        severity=Severity.HIGH,
        page="sql-createindex.html#SQL-CREATEINDEX-CONCURRENTLY",
        needs=(INDEXES, RELATIONS),
        look=_invalid_ones,
    ),
    Check(
        id="IDX-02",
        group=_GROUP,
        title="duplicate indexes",
        why="A duplicate index is written twice and kept in memory twice.",
        page="indexes-intro.html",
        needs=(INDEXES,),
        look=_duplicate,
        thresholds=(Threshold("bytes", 0, "bytes", "smaller ones are left out"),),
    ),
    Check(
        id="IDX-03",
        group=_GROUP,
        title="unused indexes",
        why="Every change still writes an unread index, which also prevents HOT updates.",
        page="monitoring-stats.html#MONITORING-PG-STAT-ALL-INDEXES-VIEW",
        needs=(INDEXES,),
        look=_unused,
        thresholds=(
            Threshold("bytes", 10 * MB, "bytes", "smaller ones are left out"),
            Threshold("days", 7, "d", "with younger statistics it is only a hint"),
        ),
        counts=True,
    ),
    Check(
        id="IDX-04",
        group=_GROUP,
        title="foreign keys without an index",
        why="Deleting a referenced row searches for its references; without an index it reads the whole table.",
        page="ddl-constraints.html#DDL-CONSTRAINTS-FK",
        needs=(FOREIGN_KEYS,),
        look=_foreign_keys,
        thresholds=(Threshold("rows", 10_000, "", "smaller referencing tables are left out"),),
    ),
    Check(
        id="KEY-01",
        group=_KEYS,
        title="exhausted sequences",
        why="At the end of a sequence every insert that uses it fails.",
        severity=Severity.CRITICAL,
        page="sql-createsequence.html",
        needs=(SEQUENCES,),
        look=_sequences,
        thresholds=_LIMITS,
    ),
    Check(
        id="KEY-02",
        group=_KEYS,
        title="exhausted keys",
        why="A four-byte key ends at 2,147,483,647, and widening it rewrites the table.",
        severity=Severity.CRITICAL,
        page="datatype-numeric.html#DATATYPE-INT",
        needs=(KEYS,),
        look=_keys,
        thresholds=_LIMITS,
    ),
)
