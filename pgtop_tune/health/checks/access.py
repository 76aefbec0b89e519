"""Rights that every role has because PUBLIC has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.sql_quoting import Sql, composed, identifier, joined, unmistakable
from pgtop_tune.base.units import duration
from pgtop_tune.health import needs
from pgtop_tune.health.access_rules import is_loopback, mapped_logins, may_be_first_for, needs_no_proof, reachable_rules
from pgtop_tune.health.bounds import BadValue, bounded
from pgtop_tune.health.check import (
    Check,
    CheckFinding,
    Evidence,
    Findings,
    Fix,
    Limits,
    Severity,
    Threshold,
    Unknown,
    about_several,
)
from pgtop_tune.health.checks.security import mapped_finding
from pgtop_tune.health.conditions import ConditionKind, conditions
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand
from pgtop_tune.health.needs import Parameters
from pgtop_tune.health.questions import (
    CERTIFICATE,
    HBA,
    IDENT,
    OBJECTS,
    PASSWORDLESS,
    POWERS,
    PUBLIC,
    CatalogueCondition,
    HbaRule,
    RolePower,
)
from pgtop_tune.health.rules import first_few
from pgtop_tune.health.server_files import ends_at
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import Parameter

_RIGHTS: Final = (
    "SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "MAINTAIN", "CREATE", "USAGE",
)  # fmt: skip
_HIDDEN: Final = "hidden mapping"
_KINDS: Final = ("TABLES", "SCHEMAS", "LARGE OBJECTS")


def _rights_in(rights: str) -> Sql:
    """Return the rights in a list of words."""
    return joined(", ", (Sql(right) for right in _RIGHTS if right in rights.split(", ")))


def _rights(row: CatalogueCondition) -> tuple[Sql, Sql]:
    return Sql(""), _rights_in(row.detail)


def _defaults(row: CatalogueCondition) -> tuple[Sql, Sql]:
    rights, _, objects = row.detail.partition(" ON ")
    schema = composed("IN SCHEMA {schema} ", schema=identifier(row.part)) if row.part else Sql("")
    of = Sql(next(kind for kind in _KINDS if kind == objects))
    return schema, composed("{rights} ON {of}", rights=_rights_in(rights), of=of)


_WRITES: Final = ConditionKind(
    kind="public writes",
    one="table may be changed by every role",
    several="tables may be changed by every role",
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
    several="tables may be read by every role",
    so="each login that reaches the schema sees their rows",
    severity=Severity.INFO,
)
_BY_DEFAULT: Final = ConditionKind(
    kind="public by default",
    one="default of a role opens new objects to every role",
    several="defaults of roles open new objects to every role",
    so="also those that hold secrets",
    source="pg_default_acl.defaclacl",
    do="ALTER DEFAULT PRIVILEGES FOR ROLE {name} {part}REVOKE {detail} FROM PUBLIC;",
    undo="ALTER DEFAULT PRIVILEGES FOR ROLE {name} {part}GRANT {detail} TO PUBLIC;",
    parts=_defaults,
    locks=False,
    remark="for new objects; those there are keep their rights",
    named=lambda row: f"{row.name[0]}{f' in {row.part}' if row.part else ''}: {row.detail}",
)
_CREATES: Final = ConditionKind(
    kind="public creates schemas",
    one="every role may make schemas",
    several="",
    so="and install trusted extensions",
    source="pg_database.datacl",
    do="REVOKE CREATE ON DATABASE {name} FROM PUBLIC;",
    undo="GRANT CREATE ON DATABASE {name} TO PUBLIC;",
    locks=False,
    remark="after granting it to the roles that need it",
)
_MAPPING: Final = ConditionKind(
    kind="public mapping",
    one="foreign server has a password for every role",
    several="foreign servers have a password for every role",
    so="each role that may use the server logs in there with it",
    source="pg_user_mappings.umuser, umoptions",
    advice="CREATE USER MAPPING for each role that needs one, then DROP USER MAPPING FOR PUBLIC.",
)

_OF_CATALOGUE: Final = conditions(PUBLIC, _WRITES, _READS, _BY_DEFAULT, _CREATES, _MAPPING)


def _open_to_all(facts: CheckFacts, limits: Limits) -> Findings:
    yield from _OF_CATALOGUE(facts, limits)
    hidden = {database: row.n_all for database, row in facts.have(PUBLIC) if row.kind == _HIDDEN}
    for database, number in hidden.items():
        yield Unknown(f"{database}: {number} mapped to PUBLIC: only the owners of foreign servers see the options")


_GROUP: Final = "security"
_SHOWN: Final = 10
_DAY_S: Final = 86_400
_WEAK: Final = frozenset({"ALL", "COMPLEMENTOFALL", "NULL", "eNULL", "aNULL", "EXP", "EXPORT", "LOW", "RC4", "DES"})
"""Words of OpenSSL's lists of ciphers."""


def _allows_weak_ciphers(parameters: Parameters, row: Parameter) -> bool:
    return parameters.on("ssl") and bool(_WEAK & set(re.split("[:, ]", row.setting)))


_TLS: Final = (
    BadValue(
        "ssl_min_protocol_version",
        "TLSv1.2",
        "versions of TLS are let in whose encryption is broken",
        texts=("", "TLSv1", "TLSv1.1"),
    ),
    BadValue(
        "ssl_max_protocol_version",
        "",
        "only versions of TLS are let in whose encryption is broken",
        texts=("TLSv1", "TLSv1.1"),
    ),
    BadValue(
        "ssl_ciphers",
        "HIGH:MEDIUM:+3DES:!aNULL",
        "ciphers are let in that are broken, or that do not encrypt",
        judged=_allows_weak_ciphers,
    ),
)


def _certificate(facts: CheckFacts, limits: Limits) -> Findings:
    for _, certificate in facts.have(CERTIFICATE):
        if certificate.pem is None:
            yield Unknown(f"{certificate.file} is not there")
            continue
        try:
            end = ends_at(certificate.pem)
        except ValueError as problem:
            yield Unknown(f"{certificate.file}: {problem}")
            continue
        left_s = end.timestamp() - certificate.now_ms / 1000
        if left_s >= limits["days"] * _DAY_S:
            continue
        ends = f"ends in {duration(left_s)}" if left_s > 0 else f"ended {duration(-left_s)} ago"
        yield CheckFinding(
            severity=Severity.HIGH if left_s <= limits["high"] * _DAY_S else Severity.WARNING,
            says=f"the server's certificate {ends}: then clients that verify it refuse to connect",
            evidence=(
                Evidence(f"{certificate.file}: valid until {end.astimezone(UTC):%Y-%m-%d %H:%M} UTC", "notAfter"),
            ),
            fix=by_hand("Put a new certificate into that file, then SELECT pg_reload_conf();"),
            subject="certificate",
        )


_POWERS: Final = {
    "row security": (Severity.WARNING, "row security does not hold for"),
    "files read": (Severity.WARNING, "files of the server, its passwords among them, are open to"),
    "server account": (
        Severity.HIGH,
        "the account that runs the server, and so every right of a superuser, is open to",
    ),
    "parameter": (
        Severity.HIGH,
        "what runs as the server's account, and so every right of a superuser, is up to",
    ),
    "any role": (
        Severity.WARNING,
        "membership in each role but superusers, in pg_execute_server_program too, is open to",
    ),
    "roles": (Severity.INFO, "new roles, and the rights of those they made, are up to"),
    "replication": (Severity.INFO, "a copy of all databases, while no standby streams with it, is open to"),
}
"""Kind of `RolePower` → severity, and what it means for the roles behind it."""
_ATTRIBUTES: Final = {
    "row security": "BYPASSRLS",
    "any role": "CREATEROLE",
    "roles": "CREATEROLE",
    "replication": "REPLICATION",
}
"""Kind of `RolePower` → the attribute that it is."""


def _grantee(row: CatalogueCondition) -> tuple[Sql, Sql]:
    return Sql(unmistakable(row.part)), identifier(row.detail) if row.detail else Sql("PUBLIC")


_HASHES: Final = ConditionKind(
    kind="password hashes",
    one="right to read the hashes of passwords is with a role that is no superuser",
    several="rights to read the hashes of passwords are with roles that are no superusers",
    so="an MD5 hash logs in by itself, and weak passwords can be guessed at leisure",
    source="pg_class.relacl of pg_authid, pg_shadow",
    do="REVOKE SELECT ON TABLE {name} FROM {detail};",
    undo="GRANT SELECT ON TABLE {name} TO {detail};",
    parts=_grantee,
    locks=False,
    remark="a pooler needs only a SECURITY DEFINER function that returns the hash of one role",
    named=lambda row: f"{row.name[1]} to {row.detail or 'PUBLIC'}",
)
_FILES: Final = ConditionKind(
    kind="file functions",
    one="function for the server's files is open to a role that is no superuser",
    several="functions for the server's files are open to roles that are no superusers",
    so="they read or write in the data directory, past all rights on tables",
    source="pg_proc.proacl",
    do="REVOKE EXECUTE ON FUNCTION {part} FROM {detail};",
    undo="GRANT EXECUTE ON FUNCTION {part} TO {detail};",
    parts=_grantee,
    locks=False,
    severity=Severity.HIGH,
    named=lambda row: f"{row.part} to {row.detail or 'PUBLIC'}",
)
_OF_DATABASES: Final = conditions(OBJECTS, _HASHES, _FILES)


def _rights_around(facts: CheckFacts, limits: Limits) -> Findings:
    yield from _powers(facts, limits)
    yield from _OF_DATABASES(facts, limits)


def _powers(facts: CheckFacts, limits: Limits) -> Findings:
    of_kind: dict[str, list[RolePower]] = {}
    for _, row in facts.have(POWERS):
        of_kind.setdefault(row.kind, []).append(row)
    for rows in of_kind.values():
        yield about_several(rows, lambda row: row.role, _power)


def _power(rows: Sequence[RolePower], unlisted: int) -> CheckFinding:
    kind = rows[0].kind
    severity, says = _POWERS[kind]
    behind = (name for row in rows for name in (row.role or "all roles", *row.logins))
    names = list(dict.fromkeys(behind))
    return CheckFinding(
        severity=severity,
        says=f"{says} {first_few(names, _SHOWN)}",
        evidence=tuple(
            Evidence(
                f"{row.role or 'PUBLIC'}: {row.through or _ATTRIBUTES[row.kind]}"
                + (f"; as its members: {', '.join(row.logins)}" if row.logins else ""),
                POWERS.source,
            )
            for row in rows[:_SHOWN]
        ),
        fix=_without(rows),
        subject=kind,
    )


def _without(rows: Sequence[RolePower]) -> Fix:
    do, undo = [], []
    for row in rows:
        role = identifier(row.role)
        if not row.through:
            attribute = Sql(_ATTRIBUTES[row.kind])
            do.append(composed("ALTER ROLE {role} NO{attribute};", role=role, attribute=attribute))
            undo.append(composed("ALTER ROLE {role} {attribute};", role=role, attribute=attribute))
            continue
        if row.kind == "parameter":
            on = {
                "name": identifier(*row.through.split(".")),
                "role": role if row.role else Sql("PUBLIC"),
                "on": Sql(" WITH GRANT OPTION" if row.with_admin else ""),
            }
            do.append(composed("REVOKE ALTER SYSTEM ON PARAMETER {name} FROM {role};", **on))
            undo.append(composed("GRANT ALTER SYSTEM ON PARAMETER {name} TO {role}{on};", **on))
            continue
        admin = Sql(" WITH ADMIN OPTION" if row.with_admin else "")
        through = identifier(row.through)
        do.append(composed("REVOKE {through} FROM {role};", through=through, role=role))
        undo.append(composed("GRANT {through} TO {role}{admin};", through=through, role=role, admin=admin))
    return Fix("\n".join(do), "\n".join(undo), remark="where a role does not need it")


def _passwordless(facts: CheckFacts, limits: Limits) -> Findings:
    names = [role.name for _, role in facts.have(PASSWORDLESS)]
    rules = reachable_rules(facts)
    lets_in = {name: rule for name in names for rule in _open_rules(rules, name)[:1]}
    for some in (list(lets_in), [name for name in names if name not in lets_in]):
        if some:
            yield about_several(some, str, lambda names, _: _without_password(names, lets_in))


def _open_rules(rules: Sequence[HbaRule], role: str) -> list[HbaRule]:
    """Return the rules that let anybody in under the name of a role."""
    return [
        rule
        for number, rule in enumerate(rules)
        if needs_no_proof(rule) and may_be_first_for(rule, role, rules[:number])
    ]


def _without_password(names: Sequence[str], lets_in: Mapping[str, HbaRule]) -> CheckFinding:
    rule = lets_in.get(names[0])
    consequence = (
        f"{rule.place} lets in anybody under {'these names' if len(names) > 1 else 'this name'}"
        if rule is not None
        else "they get in only where pg_hba.conf asks for no password"
    )
    change = "ALTER ROLE {role} {word};"
    do, undo = (
        "\n".join(composed(change, role=identifier(name), word=Sql(word)) for name in names[:_SHOWN])
        for word in ("NOLOGIN", "LOGIN")
    )
    plural = "roles may log in and have" if len(names) > 1 else "role may log in and has"
    return CheckFinding(
        severity=Severity.WARNING if rule is not None else Severity.INFO,
        says=f"{len(names)} {plural} no password ({first_few(names, 3)}): {consequence}",
        evidence=(Evidence(", ".join(names[:_SHOWN]), PASSWORDLESS.source),),
        fix=Fix(do, undo, remark="or give them a password: \\password in psql"),
        subject="roles" if rule is not None else "roles that nobody is let in as",
    )


def _md5_lines(facts: CheckFacts, limits: Limits) -> Findings:
    rules = [rule for rule in reachable_rules(facts) if rule.method == "md5"]
    if rules:
        yield CheckFinding(
            severity=Severity.INFO,
            says=f"{_lines(rules)} {'asks' if len(rules) == 1 else 'ask'} for md5: passwords kept as MD5 get in too",
            evidence=(Evidence(_listed(rules), "pg_hba_file_rules.auth_method"),),
            fix=by_hand(
                "Replace md5 by scram-sha-256 once SEC-02 finds no role, then SELECT pg_reload_conf();",
                "Restore md5, and SELECT pg_reload_conf();",
            ),
            subject="md5",
        )


def _trust_on_machine(facts: CheckFacts, limits: Limits) -> Findings:
    rules = [
        rule
        for rule in reachable_rules(facts)
        if needs_no_proof(rule)
        and is_loopback(rule.address, rule.netmask)
        and not (rule.type == "local" and _is_of_one_account(facts))
    ]
    users = list(dict.fromkeys(user for rule in rules for user in rule.users))
    whom = "any role, superusers included" if "all" in users else f"{', '.join(users[:_SHOWN])}"
    if rules:
        yield CheckFinding(
            severity=Severity.WARNING,
            says=f"{_lines(rules)} {'trusts' if len(rules) == 1 else 'trust'} this machine: each of its accounts and "
            f"programs may log in as {whom}",
            evidence=(Evidence(_listed(rules), "pg_hba_file_rules.auth_method, address"),),
            fix=by_hand(
                "Replace trust by peer in local lines, by scram-sha-256 in others, then SELECT pg_reload_conf();",
                "Restore trust, and SELECT pg_reload_conf();",
            ),
            subject="trust",
        )
    for login in mapped_logins(facts):
        if is_loopback(login.rule.address, login.rule.netmask):
            yield mapped_finding(login, Severity.HIGH if login.superusers else Severity.WARNING)


def _is_of_one_account(facts: CheckFacts) -> bool:
    """Return whether only the server's account, which owns the data, and root reach its sockets."""
    parameters = needs.PARAMETERS.of(facts)
    row = None if isinstance(parameters, Unavailable) else Parameters(parameters).visible("unix_socket_permissions")
    return row is not None and not int(row.setting, 8) & 0o022


def _lines(rules: list[HbaRule]) -> str:
    return rules[0].place if len(rules) == 1 else f"{len(rules)} lines of pg_hba.conf"


def _listed(rules: list[HbaRule]) -> str:
    """Return what lines are for; the sentence has the place of a single one."""
    rule_texts = (
        f"{rule.place + ': ' if len(rules) > 1 else ''}{rule.type} {rule.address or ''}".rstrip() for rule in rules
    )
    return first_few(rule_texts, _SHOWN, "; ")


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
    Check(
        id="SEC-10",
        group=_GROUP,
        title="versions of TLS",
        why="An attacker on the network chooses the oldest version that both sides know.",
        severity=Severity.WARNING,
        page="runtime-config-connection.html#GUC-SSL-MIN-PROTOCOL-VERSION",
        needs=(needs.PARAMETERS,),
        look=bounded(_TLS),
    ),
    Check(
        id="SEC-11",
        group=_GROUP,
        title="the server's certificate",
        why="On the day it ends, every client that verifies it is locked out at once.",
        severity=Severity.HIGH,
        page="ssl-tcp.html",
        needs=(CERTIFICATE,),
        look=_certificate,
        thresholds=(
            Threshold("days", 30, "d", "or fewer left are a warning"),
            Threshold("high", 7, "d", "or fewer left are a high finding"),
        ),
    ),
    Check(
        id="SEC-12",
        group=_GROUP,
        title="rights around the rights",
        why="A role that runs programs or writes files as the server is a superuser that no list of superusers shows.",
        severity=Severity.HIGH,
        page="predefined-roles.html",
        needs=(POWERS, OBJECTS),
        look=_rights_around,
    ),
    Check(
        id="SEC-13",
        group=_GROUP,
        title="logins without a password",
        why="Only the lines of pg_hba.conf stand between such a role and anybody.",
        severity=Severity.WARNING,
        page="auth-password.html",
        needs=(PASSWORDLESS, HBA),
        look=_passwordless,
    ),
    Check(
        id="SEC-14",
        group=_GROUP,
        title="md5 in pg_hba.conf",
        why="The server is about to drop MD5, and a stolen MD5 password logs in by itself.",
        severity=Severity.INFO,
        page="auth-password.html",
        needs=(HBA,),
        look=_md5_lines,
    ),
    Check(
        id="SEC-15",
        group=_GROUP,
        title="trust on the server's machine",
        why="One program of the machine that is taken over owns all data at once.",
        severity=Severity.WARNING,
        page="auth-trust.html",
        needs=(needs.PARAMETERS, HBA),
        asks=(IDENT,),
        look=_trust_on_machine,
    ),
)
