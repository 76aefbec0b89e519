"""Numbers that run out: sequences, and keys of int2 and int4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.base.sql_quoting import Sql, composed, identifier, literal, quoted, unmistakable
from pgtop_tune.health.check import Check, Confidence, Evidence, Finding, Fix, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import with_lock_timeout, words
from pgtop_tune.health.questions import KEYS, SEQUENCES, KeyState, SequenceState
from pgtop_tune.health.rules import in_database

_GROUP: Final = "keys"
_SHOWN: Final = 5
_SMALLEST: Final = 2**15 - 1
_AGAIN: Final = ", and then gives the same numbers again"
_WIDER: Final = "-- the column may stay: bigint holds the former values as well"
_REWRITES: Final = "rewrites the table and its indexes under a lock; plan it, together with the referring columns"


def _sequences(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    hidden: dict[str, int] = {}
    left_out: dict[str, int] = {}
    for database, sequence in facts.have(SEQUENCES):
        if sequence.n_hidden:
            hidden[database] = sequence.n_hidden
        if sequence.n_left_out:
            left_out[database] = sequence.n_left_out
        if sequence.used is None:
            continue
        share = 100 * sequence.used / sequence.highest
        if share >= limits["percent"]:
            yield Finding(
                severity=_severity(sequence, share >= limits["critical"]),
                says=f"sequence {database}: {sequence.schema}.{sequence.name} is at {share:.0f} % of "
                f"{_range(sequence)}{_AGAIN if sequence.cycles else ''}",
                evidence=(Evidence(f"{sequence.used} of {sequence.highest}", "pg_sequences.last_value, max_value"),),
                fix=_widen(database, sequence),
                subject=f"{database}: {sequence.schema}.{sequence.name}",
            )
    for database, number in hidden.items():
        yield Unknown(f"{database}: {number} sequences are closed to this role (GRANT pg_read_all_data)")
    for database, number in left_out.items():
        yield Unknown(f"{database}: {number} sequences of the smallest tables were not read: each takes a lock")


def _severity(sequence: SequenceState, critical: bool) -> Severity:
    """Numbers that come again stop only those inserts that meet a row of the same."""
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
    """Words where ALTER COLUMN TYPE fails; None where it runs."""
    name = f"{column.table_name}.{column.column_name}"
    if column.type_is_kept_by == "parent":
        return words(
            f"In database {quoted(database)}: {name} is inherited. ALTER TABLE of its topmost parent changes the type "
            "in all tables below, unless it is a partition key."
        )
    if column.type_is_kept_by == "domain":
        return words(
            f"In database {quoted(database)}: {name} is of a domain. CREATE DOMAIN … AS bigint with the rules of that "
            "one, then ALTER TABLE … ALTER COLUMN … TYPE to it, which rewrites the table."
        )
    if column.type_is_kept_by is not None:
        return words(
            f"In database {quoted(database)}: {name} is part of the partition key, whose type no statement changes. "
            "Move the rows to a new table with a bigint."
        )
    if not column.used_by:
        return None
    shown = ", ".join(map(unmistakable, column.used_by[:_SHOWN])) + (" …" if len(column.used_by) > _SHOWN else "")
    return words(
        f"In database {quoted(database)}: the type of {name} cannot change while {shown} depends on it. Drop it, then "
        f"{' '.join(do.splitlines())} and recreate it."
    )


def _to(table: Sql, column: Sql, type_: str) -> str:
    return composed(f"ALTER TABLE {{table}} ALTER COLUMN {{column}} TYPE {type_};", table=table, column=column)


def _keys(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    hidden: dict[str, int] = {}
    for database, key in facts.have(KEYS):
        if key.n_hidden:
            hidden[database] = key.n_hidden
        if key.used is None:
            continue
        share = 100 * key.used / key.highest
        if share >= limits["percent"]:
            yield Finding(
                severity=Severity.CRITICAL if share >= limits["critical"] else Severity.WARNING,
                says=f"key {database}: {key.schema}.{key.table_name}.{key.column_name} is at {share:.0f} % of its type",
                evidence=(Evidence(f"{key.used} of {key.highest}", "pg_stats.histogram_bounds, most_common_vals"),),
                fix=_widen_key(database, key),
                confidence=Confidence.MEDIUM,
                subject=f"{database}: {key.schema}.{key.table_name}.{key.column_name}",
            )

    for database, number in hidden.items():
        yield Unknown(f"{database}: statistics of {number} keys are closed to this role (GRANT pg_read_all_data)")


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
        id="KEY-01",
        group=_GROUP,
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
        group=_GROUP,
        title="exhausted keys",
        why="A four-byte key ends at 2,147,483,647, and widening it rewrites the table.",
        severity=Severity.CRITICAL,
        page="datatype-numeric.html#DATATYPE-INT",
        needs=(KEYS,),
        look=_keys,
        thresholds=_LIMITS,
    ),
)
