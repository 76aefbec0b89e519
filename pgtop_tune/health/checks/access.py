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
    so="each login with access to the schema can change or delete all their rows",
    source="pg_class.relacl",
    do="REVOKE {detail} ON TABLE {name} FROM PUBLIC;",
    undo="GRANT {detail} ON TABLE {name} TO PUBLIC;",
    parts=_rights,
    remark="first grant them to the roles that need them; only the grantor of a right can revoke it",
)
_READS: Final = replace(
    _WRITES,
    kind="public reads",
    one="table may be read by every role",
    several="tables may be read by every role",
    so="each login with access to the schema can read their rows",
    severity=Severity.INFO,
)
_BY_DEFAULT: Final = ConditionKind(
    kind="public by default",
    one="default privilege opens new objects to every role",
    several="default privileges open new objects to every role",
    so="including objects that hold secrets",
    source="pg_default_acl.defaclacl",
    do="ALTER DEFAULT PRIVILEGES FOR ROLE {name} {part}REVOKE {detail} FROM PUBLIC;",
    undo="ALTER DEFAULT PRIVILEGES FOR ROLE {name} {part}GRANT {detail} TO PUBLIC;",
    parts=_defaults,
    locks=False,
    remark="for new objects; existing objects keep their rights",
    named=lambda row: f"{row.name[0]}{f' in {row.part}' if row.part else ''}: {row.detail}",
)
_CREATES: Final = ConditionKind(
    kind="public creates schemas",
    one="every role may create schemas",
    several="",
    so="every role may also install trusted extensions",
    source="pg_database.datacl",
    do="REVOKE CREATE ON DATABASE {name} FROM PUBLIC;",
    undo="GRANT CREATE ON DATABASE {name} TO PUBLIC;",
    locks=False,
    remark="first grant it to the roles that need it",
)
_MAPPING: Final = ConditionKind(
    kind="public mapping",
    one="foreign server has a password for every role",
    several="foreign servers have a password for every role",
    so="each role with USAGE on the server logs in there with that password",
    source="pg_user_mappings.umuser, umoptions",
    advice="CREATE USER MAPPING for each role that needs one, then DROP USER MAPPING FOR PUBLIC.",
)

_OF_CATALOGUE: Final = conditions(PUBLIC, _WRITES, _READS, _BY_DEFAULT, _CREATES, _MAPPING)


def _open_to_all(facts: CheckFacts, limits: Limits) -> Findings:
    yield from _OF_CATALOGUE(facts, limits)
    hidden = {database: row.n_all for database, row in facts.have(PUBLIC) if row.kind == _HIDDEN}
    for database, number in hidden.items():
        yield Unknown(f"{database}: {number} mapped to PUBLIC: only owners of the foreign servers see the options")


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
        "TLS versions with broken encryption are allowed",
        texts=("", "TLSv1", "TLSv1.1"),
    ),
    BadValue(
        "ssl_max_protocol_version",
        "",
        "only TLS versions with broken encryption are allowed",
        texts=("TLSv1", "TLSv1.1"),
    ),
    BadValue(
        "ssl_ciphers",
        "HIGH:MEDIUM:+3DES:!aNULL",
        "ciphers that are broken or do not encrypt are allowed",
        judged=_allows_weak_ciphers,
    ),
)


def _certificate(facts: CheckFacts, limits: Limits) -> Findings:
    for _, certificate in facts.have(CERTIFICATE):
        if certificate.pem is None:
            yield Unknown(f"{certificate.file} not found")
            continue
        try:
            end = ends_at(certificate.pem)
        except ValueError as problem:
            yield Unknown(f"{certificate.file}: {problem}")
            continue
        left_s = end.timestamp() - certificate.now_ms / 1000
        if left_s >= limits["days"] * _DAY_S:
            continue
        ends = f"expires in {duration(left_s)}" if left_s > 0 else f"expired {duration(-left_s)} ago"
        yield CheckFinding(
            severity=Severity.HIGH if left_s <= limits["high"] * _DAY_S else Severity.WARNING,
            says=f"the server's certificate {ends}: clients that verify it refuse an expired one",
            evidence=(
                Evidence(f"{certificate.file}: valid until {end.astimezone(UTC):%Y-%m-%d %H:%M} UTC", "notAfter"),
            ),
            fix=by_hand("Replace that file with a new certificate, then SELECT pg_reload_conf();"),
            subject="certificate",
        )


_POWERS: Final = {
    "row security": (Severity.WARNING, "row security does not apply to"),
    "files read": (Severity.WARNING, "files of the server, including stored passwords, can be read by"),
    "server account": (
        Severity.HIGH,
        "the server's account, and with it every superuser right, is available to",
    ),
    "parameter": (
        Severity.HIGH,
        "commands run by the server's account, and with them every superuser right, are controlled by",
    ),
    "any role": (
        Severity.WARNING,
        "membership in every role except superusers, including pg_execute_server_program, is available to",
    ),
    "roles": (Severity.INFO, "new roles, and the rights of roles they created, are controlled by"),
    "replication": (Severity.INFO, "a copy of all databases (no standby streams with the role now) can be taken by"),
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
    one="grant lets a role that is no superuser read password hashes",
    several="grants let roles that are no superusers read password hashes",
    so="an MD5 hash is enough to log in, and weak passwords can be guessed offline",
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
    one="grant lets a role that is no superuser call a server file function",
    several="grants let roles that are no superusers call server file functions",
    so="these functions read or write the data directory, whatever the rights on tables",
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
                + (f"; members: {', '.join(row.logins)}" if row.logins else ""),
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
        f"{rule.place} lets anyone log in as {'these roles' if len(names) > 1 else 'this role'}"
        if rule is not None
        else "login works only where pg_hba.conf requires no password"
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
        subject="roles" if rule is not None else "roles that no rule allows to log in",
    )


def _md5_lines(facts: CheckFacts, limits: Limits) -> Findings:
    rules = [rule for rule in reachable_rules(facts) if rule.method == "md5"]
    if rules:
        yield CheckFinding(
            severity=Severity.INFO,
            says=f"{_lines(rules)} {'uses' if len(rules) == 1 else 'use'} md5: passwords stored as MD5 work too",
            evidence=(Evidence(_listed(rules), "pg_hba_file_rules.auth_method"),),
            fix=by_hand(
                "Replace md5 with scram-sha-256 once SEC-02 finds no role, then SELECT pg_reload_conf();",
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
            says=f"{_lines(rules)} {'trusts' if len(rules) == 1 else 'trust'} this machine: any of its accounts and "
            f"programs may log in as {whom}",
            evidence=(Evidence(_listed(rules), "pg_hba_file_rules.auth_method, address"),),
            fix=by_hand(
                "Replace trust with peer in local lines, with scram-sha-256 in others, then SELECT pg_reload_conf();",
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
        title="rights of PUBLIC",
        why="Every login, including each one created later, has the rights of PUBLIC.",
        page="ddl-priv.html",
        needs=(PUBLIC,),
        look=_open_to_all,
    ),
    Check(
        id="SEC-10",
        group=_GROUP,
        title="TLS versions",
        why="An attacker on the network can choose the oldest version that both sides support.",
        page="runtime-config-connection.html#GUC-SSL-MIN-PROTOCOL-VERSION",
        needs=(needs.PARAMETERS,),
        look=bounded(_TLS),
    ),
    Check(
        id="SEC-11",
        group=_GROUP,
        title="the server's certificate",
        why="When it expires, all clients that verify it are locked out at once.",
        severity=Severity.HIGH,
        page="ssl-tcp.html",
        needs=(CERTIFICATE,),
        look=_certificate,
        thresholds=(
            Threshold("days", 30, "d", "a warning with this many days left"),
            Threshold("high", 7, "d", "a high finding with this many days left"),
        ),
    ),
    Check(
        id="SEC-12",
        group=_GROUP,
        title="rights that bypass others",
        why="A role that can run programs or write files as the server is a superuser that no list shows.",
        severity=Severity.HIGH,
        page="predefined-roles.html",
        needs=(POWERS, OBJECTS),
        look=_rights_around,
    ),
    Check(
        id="SEC-13",
        group=_GROUP,
        title="logins without a password",
        why="Only pg_hba.conf keeps anyone from logging in as such a role.",
        page="auth-password.html",
        needs=(PASSWORDLESS, HBA),
        look=_passwordless,
    ),
    Check(
        id="SEC-14",
        group=_GROUP,
        title="md5 in pg_hba.conf",
        why="PostgreSQL is about to drop MD5, and a stolen MD5 hash is enough to log in.",
        severity=Severity.INFO,
        page="auth-password.html",
        needs=(HBA,),
        look=_md5_lines,
    ),
    Check(
        id="SEC-15",
        group=_GROUP,
        title="trust on the server's machine",
        why="One compromised program on the machine is enough to own all data.",
        page="auth-trust.html",
        needs=(needs.PARAMETERS, HBA),
        asks=(IDENT,),
        look=_trust_on_machine,
    ),
)
