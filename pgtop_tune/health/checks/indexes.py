"""Indexes that are broken, superfluous or missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pgtop_tune.base.secret import MASK
from pgtop_tune.base.sql_quoting import Sql, composed, identifier, joined, literal, quoted, unmistakable
from pgtop_tune.base.units import MB, about, count, duration
from pgtop_tune.health.catalogue_conditions import Condition, conditions
from pgtop_tune.health.check import Check, Confidence, Evidence, Finding, Fix, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import with_lock_timeout, words
from pgtop_tune.health.judge import statistics_age_s
from pgtop_tune.health.questions import FOREIGN_KEYS, INDEXES, RELATIONS, BareForeignKey, IndexState
from pgtop_tune.health.rules import NOTHING_TO_UNDO, in_database, too_young

_GROUP: Final = "indexes"
_DAY_S: Final = 86_400.0
_LEFT_OVER: Final = re.compile(r"_cc(new|old)\d*$")
"""Manual, REINDEX, "Rebuilding Indexes Concurrently"."""


def _invalid(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    for database, index in facts.have(INDEXES):
        if not index.valid:
            yield Finding(
                severity=Severity.HIGH,
                says=f"index {_named(database, index)} of {index.table_name} is invalid: no query uses it, every "
                "change "
                "maintains it",
                evidence=(Evidence(f"{index.schema}.{index.name}: indisvalid false", "pg_index.indisvalid"),),
                fix=_mended(database, index),
                subject=_named(database, index),
            )


_PARTITIONED: Final = Condition(
    kind="partitioned index",
    one="index of a partitioned table is invalid",
    many="indexes of partitioned tables are invalid",
    so="at least one partition has no part of it, and its queries read that partition whole",
    source="pg_index.indisvalid",
    advice="CREATE INDEX CONCURRENTLY on each partition without it, then ALTER INDEX … ATTACH PARTITION; the last one "
    "makes it valid. DROP INDEX if it is not needed.",
    named=lambda row: f"{'.'.join(row.name)} of {row.part}",
)
_OF_PARTITIONED: Final = conditions(RELATIONS, _PARTITIONED)


def _invalid_ones(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    yield from _invalid(facts, limits)
    yield from _OF_PARTITIONED(facts, limits)


def _mended(database: str, index: IndexState) -> Fix:
    if _LEFT_OVER.search(index.name):
        # No query uses it, and making it again fails as REINDEX did.
        return in_database(
            database,
            _dropping(index),
            NOTHING_TO_UNDO,
            "a leftover of REINDEX CONCURRENTLY; the index itself has another name",
        )
    mend = composed("REINDEX INDEX CONCURRENTLY {index};", index=_identifier(index))
    if index.is_unique or index.computes:
        reasons = ("duplicates", index.is_unique), ("rows on which its expression or condition fails", index.computes)
        why = " and the ".join(reason for reason, may_be in reasons if may_be)
        return words(
            f"In database {quoted(database)}: remove the {why} from {index.table_name}, then {mend} With them it "
            f"fails and leaves one more invalid index. If the index is not needed:  {_dropping(index)}",
            _made_again(index),
        )
    return in_database(database, mend, remark="drop it if it is not needed")


def _duplicate(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    for database, index in facts.have(INDEXES):
        if index.same_as is not None and index.bytes >= limits["bytes"]:
            yield Finding(
                severity=Severity.WARNING,
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


def _unused(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    counted_s = statistics_age_s(facts)
    if counted_s is None:
        yield Unknown("the start of the server's counters is unknown")
    elif (young := too_young(counted_s)) is not None:
        yield young
    enough = counted_s is not None and counted_s >= limits["days"] * _DAY_S
    for database, index in facts.have(INDEXES):
        if index.unused and index.same_as is None and index.bytes >= limits["bytes"]:
            yield Finding(
                severity=Severity.WARNING if enough else Severity.INFO,
                says=f"index {_named(database, index)} ({about(index.bytes)}) of {index.table_name} was never used",
                evidence=(
                    Evidence(
                        f"{index.scans} scans" + ("" if counted_s is None else f" in {duration(counted_s)} at least"),
                        "pg_stat_all_indexes.idx_scan, stats_reset of pg_stat_database",
                    ),
                ),
                fix=_drop(database, index, "check the standbys as well: each has its own counters"),
                confidence=Confidence.MEDIUM if enough else Confidence.LOW,
                subject=_named(database, index),
            )


def _foreign_keys(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    given: set[tuple[str, str, str]] = set()
    for database, key in facts.have(FOREIGN_KEYS):
        if key.tuples >= limits["rows"]:
            columns = ", ".join(key.columns)
            name = next((name for name in key.free_names if (database, key.schema, name) not in given), "")
            given.add((database, key.schema, name))
            yield Finding(
                severity=Severity.WARNING,
                says=f"{database}: {key.schema}.{key.table_name} {key.name}: no index on {columns}, so a delete in "
                f"{key.referenced_schema}.{key.referenced_table} reads {count(key.tuples)} rows to find none",
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
        "blocks writes during its creation: a partitioned table has no CONCURRENTLY" if key.partitioned else "",
    )


def _drop(database: str, index: IndexState, remark: str = "") -> Fix:
    return in_database(
        database,
        _dropping(index),
        _made_again(index),
        remark,
    )


def _dropping(index: IndexState) -> str:
    return composed("DROP INDEX CONCURRENTLY {index};", index=_identifier(index))


def _made_again(index: IndexState) -> str:
    """What makes it as it was, in its tablespace; "" when it is gone by now."""
    if index.definition is None:
        return ""
    if MASK in index.definition:
        shown = composed("SELECT pg_get_indexdef({name}::regclass);", name=literal(_identifier(index)))
        return f"-- its definition may hold a secret and is not shown: before dropping it, note {shown}"
    made = f"{unmistakable(_concurrently(index.definition))};"
    if index.tablespace is None:
        return made
    place = composed("SET default_tablespace = {place};", place=literal(index.tablespace))
    return f"{place}\n{made}\nRESET default_tablespace;"


def _concurrently(definition: str) -> str:
    """pg_get_indexdef() tells a statement that locks out writes."""
    return re.sub(r"\A(CREATE (?:UNIQUE )?INDEX) ", r"\1 CONCURRENTLY ", definition)


def _identifier(index: IndexState) -> Sql:
    return identifier(index.schema, index.name)


def _named(database: str, index: IndexState) -> str:
    return f"{database}: {index.schema}.{index.name}"


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
        severity=Severity.WARNING,
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
        severity=Severity.WARNING,
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
        why="Deleting a referenced row searches for its references, in the whole table without an index.",
        severity=Severity.WARNING,
        page="ddl-constraints.html#DDL-CONSTRAINTS-FK",
        needs=(FOREIGN_KEYS,),
        look=_foreign_keys,
        thresholds=(Threshold("rows", 10_000, "", "smaller referencing tables are left out"),),
    ),
)
