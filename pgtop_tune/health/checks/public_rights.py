"""Rights that every role has because PUBLIC has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.sql_quoting import Sql, composed, identifier, joined
from pgtop_tune.health.catalogue_conditions import Condition, conditions
from pgtop_tune.health.check import Check, Finding, Limits, Severity, Unknown
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.further_rows import CatalogueCondition
from pgtop_tune.health.questions import PUBLIC

_RIGHTS: Final = (
    "SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "MAINTAIN", "CREATE", "USAGE",
)  # fmt: skip
_HIDDEN: Final = "hidden mapping"
_KINDS: Final = ("TABLES", "SCHEMAS", "LARGE OBJECTS")


def _known(words: str) -> Sql:
    """The words of a list that are rights."""
    return joined(", ", (Sql(right) for right in _RIGHTS if right in words.split(", ")))


def _rights(row: CatalogueCondition) -> tuple[Sql, Sql]:
    return Sql(""), _known(row.detail)


def _defaults(row: CatalogueCondition) -> tuple[Sql, Sql]:
    rights, _, objects = row.detail.partition(" ON ")
    schema = composed("IN SCHEMA {schema} ", schema=identifier(row.part)) if row.part else Sql("")
    of = Sql(next(each for each in _KINDS if each == objects))
    return schema, composed("{rights} ON {of}", rights=_known(rights), of=of)


_WRITES: Final = Condition(
    kind="public writes",
    one="table may be changed by every role",
    many="tables may be changed by every role",
    so="each login that reaches the schema changes their rows, or deletes them all",
    source="pg_class.relacl",
    do="REVOKE {detail} ON TABLE {name} FROM PUBLIC;",
    undo="GRANT {detail} ON TABLE {name} TO PUBLIC;",
    parts=_rights,
    remark="after granting them to the roles that need them; only the role that granted a right revokes it",
)
_READS: Final = replace(
    _WRITES,
    kind="public reads",
    one="table may be read by every role",
    many="tables may be read by every role",
    so="each login that reaches the schema sees their rows",
    severity=Severity.INFO,
)
_BY_DEFAULT: Final = Condition(
    kind="public by default",
    one="default of a role opens new objects to every role",
    many="defaults of roles open new objects to every role",
    so="also those that hold secrets",
    source="pg_default_acl.defaclacl",
    do="ALTER DEFAULT PRIVILEGES FOR ROLE {name} {part}REVOKE {detail} FROM PUBLIC;",
    undo="ALTER DEFAULT PRIVILEGES FOR ROLE {name} {part}GRANT {detail} TO PUBLIC;",
    parts=_defaults,
    locks=False,
    remark="for new objects; those there are keep their rights",
    named=lambda row: f"{row.name[0]}{f' in {row.part}' if row.part else ''}: {row.detail}",
)
_CREATES: Final = Condition(
    kind="public creates schemas",
    one="every role may make schemas",
    many="",
    so="and install trusted extensions",
    source="pg_database.datacl",
    do="REVOKE CREATE ON DATABASE {name} FROM PUBLIC;",
    undo="GRANT CREATE ON DATABASE {name} TO PUBLIC;",
    locks=False,
    remark="after granting it to the roles that need it",
)
_MAPPING: Final = Condition(
    kind="public mapping",
    one="foreign server has a password for every role",
    many="foreign servers have a password for every role",
    so="each role that may use the server logs in there with it",
    source="pg_user_mappings.umuser, umoptions",
    advice="CREATE USER MAPPING for each role that needs one, then DROP USER MAPPING FOR PUBLIC.",
)

_OF_CATALOGUE: Final = conditions(PUBLIC, _WRITES, _READS, _BY_DEFAULT, _CREATES, _MAPPING)


def _open_to_all(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    yield from _OF_CATALOGUE(facts, limits)
    hidden: dict[str, int] = {}
    for database, row in facts.have(PUBLIC):
        if row.kind == _HIDDEN:
            hidden[database] = row.n_all
    for database, number in hidden.items():
        yield Unknown(f"{database}: {number} mapped to PUBLIC: only the owners of foreign servers see the options")


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="SEC-17",
        group="security",
        title="rights of every role",
        why="A right that PUBLIC has belongs to each login that is made in years to come.",
        severity=Severity.WARNING,
        page="ddl-priv.html",
        needs=(PUBLIC,),
        look=_open_to_all,
    ),
)
