"""Tables as they were laid out: partitions, policies, indexes, storage and statistics of their own, large objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.base.sql_quoting import Sql, identifier, literal, quoted
from pgtop_tune.health.catalogue_conditions import Condition, of_kinds
from pgtop_tune.health.check import Check, Confidence, Evidence, Finding, Limits, Severity, Threshold
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import words
from pgtop_tune.health.further_rows import CatalogueCondition
from pgtop_tune.health.questions import RELATIONS

_TABLES: Final = "tables"
_LARGE_OBJECTS: Final = "large objects"


def _number(row: CatalogueCondition) -> tuple[Sql, Sql]:
    return Sql(""), literal(row.part)


def _column(row: CatalogueCondition) -> tuple[Sql, Sql]:
    return identifier(row.part), Sql("")


_DEFAULT: Final = Condition(
    kind="default partition",
    one="default partition holds rows",
    many="default partitions hold rows",
    so="a new partition reads all of them under a lock, and is refused where they belong to it",
    source="pg_partitioned_table.partdefid, pg_class.reltuples",
    advice="Detach the default partition, make partitions for its values, insert its rows into the partitioned table, "
    "and attach it again empty.",
    severity=Severity.INFO,
    named=lambda row: f"{'.'.join(row.name)} of {row.part}",
)
_NO_POLICY: Final = Condition(
    kind="no policy",
    one="table has row security and no policy",
    many="tables have row security and no policy",
    so="all roles but the owner see no rows, and insert none",
    source="pg_class.relrowsecurity, pg_policy.polrelid",
    advice="CREATE POLICY for the roles that need its rows; ALTER TABLE … DISABLE ROW LEVEL SECURITY where each role "
    "with rights on it may see all.",
    severity=Severity.INFO,
)
_POLICY_OFF: Final = Condition(
    kind="row security off",
    one="table has policies or FORCE ROW LEVEL SECURITY, and its row security is off",
    many="tables have policies or FORCE ROW LEVEL SECURITY, and their row security is off",
    so="the policies hide nothing: each role with rights on it sees and changes all rows",
    source="pg_class.relrowsecurity, relforcerowsecurity, pg_policy.polrelid",
    advice="ALTER TABLE … ENABLE ROW LEVEL SECURITY, after a look at which roles the policies let through; DROP POLICY "
    "and ALTER TABLE … NO FORCE ROW LEVEL SECURITY where no rows are to be hidden.",
)
_MANY_INDEXES: Final = Condition(
    kind="many indexes",
    one="table has 15 or more indexes of one column",
    many="tables have 15 or more indexes of one column",
    so="each new row writes into all of them, and each update of an indexed column as well",
    source="pg_index.indnatts",
    advice="Drop those that IDX-03 finds, and replace others by one index of columns that queries ask for together.",
    severity=Severity.INFO,
)
_FILLFACTOR: Final = Condition(
    kind="fillfactor",
    one="relation is filled to less than half",
    many="relations are filled to less than half",
    so="the same rows take a multiple of the disk, the memory and the reading",
    source="pg_class.reloptions",
    do="ALTER TABLE {name} RESET (fillfactor);",
    undo="ALTER TABLE {name} SET (fillfactor = {detail});",
    parts=_number,
    remark="for new pages; VACUUM FULL or REINDEX CONCURRENTLY writes the old ones anew",
    severity=Severity.INFO,
    named=lambda row: f"{'.'.join(row.name)} fillfactor={row.part}",
)
_NO_STATISTICS: Final = Condition(
    kind="no statistics",
    one="column has SET STATISTICS 0",
    many="columns have SET STATISTICS 0",
    so="the planner guesses how many rows a condition leaves",
    source="pg_attribute.attstattarget",
    do="ALTER TABLE {name} ALTER COLUMN {part} SET STATISTICS -1;",
    undo="ALTER TABLE {name} ALTER COLUMN {part} SET STATISTICS 0;",
    parts=_column,
    remark="then ANALYZE",
    severity=Severity.INFO,
    named=lambda row: f"{'.'.join(row.name)}.{row.part}",
)


def _large_objects(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    for database, row in facts.have(RELATIONS):
        if row.kind == _LARGE_OBJECTS and row.n_all >= limits["objects"]:
            yield Finding(
                severity=Severity.INFO,
                says=f"{database}: about {row.n_all} large objects: none is deleted with the row that names it, and "
                "pg_dump and pg_upgrade handle each by itself",
                evidence=(Evidence(f"about {row.n_all}", "pg_largeobject_metadata: pg_class.reltuples, n_live_tup"),),
                fix=words(
                    f"vacuumlo --dry-run {quoted(database)} counts those that no row names, without it they are "
                    "deleted; keep new ones in columns of type bytea."
                ),
                confidence=Confidence.MEDIUM,
                subject=database,
            )


CHECKS: Final[tuple[Check, ...]] = (
    of_kinds(
        "TAB-09", "default partitions",
        "A default partition fills without a word when nobody makes the next partition in time.",
        "ddl-partitioning.html#DDL-PARTITIONING-DECLARATIVE", RELATIONS, _DEFAULT, group=_TABLES,
    ),
    of_kinds(
        "TAB-10", "storage and statistics of single tables",
        "A setting that was tried on one table stays with it for ever.",
        "sql-createtable.html#RELOPTION-FILLFACTOR", RELATIONS, _FILLFACTOR, _NO_STATISTICS, group=_TABLES,
    ),
    Check(
        id="TAB-11", group=_TABLES, title="large objects",
        why="Large objects that no row names any more fill the disk, and slow down each dump and upgrade.",
        severity=Severity.INFO, page="largeobjects.html", needs=(RELATIONS,), look=_large_objects,
        thresholds=(Threshold("objects", 1000, "", "or more are a finding; the query looks for no fewer"),),
    ),
    of_kinds(
        "IDX-06", "many indexes of one table",
        "Each index makes writing slower, and keeps updates from staying within their page.",
        "indexes-multicolumn.html", RELATIONS, _MANY_INDEXES, group="indexes",
    ),
    of_kinds(
        "SEC-16", "row security and its policies",
        "One without the other hides all rows or none, and no error tells why.",
        "ddl-rowsecurity.html", RELATIONS, _NO_POLICY, _POLICY_OFF, group="security",
    ),
)  # fmt: skip
