"""Security basics: authentication, encryption, superusers, and rights of PUBLIC."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

from pgtop_tune.base.safe_text import is_plain
from pgtop_tune.base.sql_quoting import composed, identifier, literal, quoted
from pgtop_tune.base.units import duration
from pgtop_tune.health import needs
from pgtop_tune.health.access_rules import MappedLogin, is_loopback, mapped_logins, needs_no_proof, reachable_rules
from pgtop_tune.health.check import (
    Check,
    CheckFinding,
    Evidence,
    Findings,
    Fix,
    Language,
    Limits,
    Severity,
    Threshold,
)
from pgtop_tune.health.facts import CheckFacts, Missing
from pgtop_tune.health.fixes import by_hand, set_parameter
from pgtop_tune.health.questions import (
    DATABASE_STATE,
    ENCRYPTION,
    EXPIRING,
    HBA,
    IDENT,
    PASSWORDS,
    SUPERUSERS,
    HbaRule,
)
from pgtop_tune.health.rules import also_scoped, as_shown, first_few, hidden, in_database, value_finding
from pgtop_tune.metrics.server import client_backends

_GROUP: Final = "security"
_LOCAL: Final = "local"
_SAYS_ITSELF: Final = frozenset({"ident"})
_IN_THE_CLEAR: Final = frozenset({"password", "ldap", "pam", "bsd", "radius"})
_ENCRYPTED: Final = frozenset({"hostssl", "hostgssenc"})
_EVERYWHERE: Final = frozenset({"all", "0.0.0.0/0", "::/0"})
_EVERY_ADDRESS: Final = frozenset({"*", "0.0.0.0", "::"})
_CLOSED_SINCE: Final = 15
_MD5_DEPRECATED_SINCE: Final = 18
_MD5_WARNED_AT_LOGIN_SINCE: Final = 19
_EXPIRATION_WARNING: Final = "password_expiration_warning_threshold"
_SHOWN: Final = 10


def _reachable(facts: CheckFacts) -> bool:
    """Return whether the server listens on any address but those of loopback."""
    addresses = [part.strip() for part in needs.parameters(facts).text("listen_addresses").split(",")]
    return any(address and not is_loopback(address, None) for address in addresses)


def _rules(facts: CheckFacts, limits: Limits) -> Findings:
    reachable = _reachable(facts)
    for rule in reachable_rules(facts):
        far = rule.type != _LOCAL and not is_loopback(rule.address, rule.netmask)
        judged = _judged(rule, far)
        if judged is None:
            continue
        severity, says = judged
        if far and not reachable:
            severity = min(severity, Severity.WARNING, key=lambda grade: grade.rank)
        yield CheckFinding(
            severity=severity,
            says=f"{rule.place} ({_shown(rule)}): {says}",
            evidence=(
                Evidence(f"{rule.place}: {_shown(rule)}", "pg_hba_file_rules.auth_method, address"),
                as_shown(facts, "listen_addresses"),
            ),
            fix=_closed(rule),
            subject=rule.place,
        )

    for login in mapped_logins(facts):
        if not is_loopback(login.rule.address, login.rule.netmask):
            severity = Severity.CRITICAL if login.superusers and reachable else Severity.HIGH
            yield mapped_finding(login, severity if login.superusers or reachable else Severity.WARNING)


def mapped_finding(login: MappedLogin, severity: Severity) -> CheckFinding:
    """Return the finding that a map lets in too many."""
    rule, line = login.rule, login.line
    do = "List the accounts" if login.anybody else f"Write {login.whole_pattern}"
    return CheckFinding(
        severity=severity if login.anybody else Severity.WARNING,
        says=f"{line.place}: {login.says}",
        evidence=(
            Evidence(f"{line.map_name} {line.sys_name} {line.role_name}", IDENT.source),
            Evidence(f"{rule.place}: {_shown(rule)} map={rule.map}", "pg_hba_file_rules.options"),
        ),
        fix=by_hand(
            f"{do} in {line.place}, then SELECT pg_reload_conf();", "Restore the line, then SELECT pg_reload_conf();"
        ),
        subject=login.subject,
    )


def _closed(rule: HbaRule) -> Fix:
    line, reload = rule.place, "SELECT pg_reload_conf();"
    if rule.method in _IN_THE_CLEAR:
        # The other methods keep no password in the server that scram-sha-256 could use.
        return by_hand(f"Change {line} to hostssl, then {reload}", f"Change it back to {rule.type}, then {reload}")
    return by_hand(
        f"Replace {rule.method} in {line} with scram-sha-256, then {reload}", f"Restore {rule.method}, then {reload}"
    )


def _judged(rule: HbaRule, far: bool) -> tuple[Severity, str] | None:
    if rule.is_ldap_in_clear:
        return Severity.HIGH, "the server sends the password to its LDAP server in clear text"
    if not far:
        return None
    if needs_no_proof(rule):
        addresses = "that reaches the port" if _network(rule) in _EVERYWHERE else f"at {_network(rule)}"
        users = "any user" if "all" in rule.users else f"the users {', '.join(rule.users)}"
        if rule.client_certificate:
            return Severity.HIGH, f"every client {addresses} with any certificate of ssl_ca_file may log in as {users}"
        return Severity.CRITICAL, f"every client {addresses} may log in as {users}"
    if rule.method in _SAYS_ITSELF:
        return Severity.HIGH, "the server trusts the client's machine to name its user"
    if rule.method in _IN_THE_CLEAR and rule.type not in _ENCRYPTED:
        return Severity.HIGH, "the password crosses the network in clear text"
    return None


def _shown(rule: HbaRule) -> str:
    address = f" {_network(rule)}" if rule.address else ""
    return f"{rule.type} {','.join(rule.databases)} {','.join(rule.users)}{address} {rule.method}"


def _network(rule: HbaRule) -> str:
    """Return the address with its mask as bits; a name as it is. Foreign text."""
    if not rule.netmask:
        return rule.address or ""
    try:
        mask = ipaddress.ip_address(rule.netmask)
    except ValueError:
        return f"{rule.address} {rule.netmask}"
    return f"{rule.address}/{int(mask).bit_count()}"


def _md5(facts: CheckFacts, limits: Limits) -> Findings:
    row = needs.parameters(facts).row("password_encryption")
    if row.setting != "scram-sha-256":
        says = "new passwords are stored in a form usable for login"
        yield value_finding(facts, row, says, set_parameter(row, "scram-sha-256"))
    names = [role.name for _, role in facts.have(PASSWORDS)]
    end = _future_of_md5(facts)
    for name in names[:_SHOWN]:
        yield CheckFinding(
            says=f"the password of role {name} is stored as MD5{end}" + _one_of_many(names),
            evidence=(Evidence(f"{name}: md5", "pg_authid.rolpassword"),),
            fix=_new_password(name),
            subject=name,
        )


def _future_of_md5(facts: CheckFacts) -> str:
    """Return the end of the sentence, by major. Source: md5_password_warnings, documentation of 18 and 19."""
    major = needs.major(facts)
    if major < _MD5_DEPRECATED_SINCE:
        return ""
    try:
        warns = major >= _MD5_WARNED_AT_LOGIN_SINCE and needs.parameters(facts).on("md5_password_warnings")
    except Missing:
        warns = False
    at_login = "; each login with it causes a warning" if warns else ""
    return f", which a later major will remove{at_login}"


def _new_password(role: str) -> Fix:
    remark = "with password_encryption scram-sha-256; its clients must support SCRAM"
    if not is_plain(role):
        # psql reads no U&"…" in the arguments of its own commands.
        return by_hand(f"ALTER ROLE {quoted(role)} PASSWORD with a new password, {remark}")
    return Fix(
        do=composed("\\password {role}", role=identifier(role)),
        undo="-- repeat with the former password",
        language=Language.SQL,
        remark=f"in psql, {remark}",
    )


def _one_of_many(names: Sequence[object]) -> str:
    return f" (one of {len(names)})" if len(names) > _SHOWN else ""


def _expiring(facts: CheckFacts, limits: Limits) -> Findings:
    parameters, within_s = needs.parameters(facts), limits["within"]
    if parameters.find(_EXPIRATION_WARNING) is not None:
        within_s = max(within_s, parameters.number(_EXPIRATION_WARNING))
    remaining = [(role, role.remaining_s) for _, role in facts.have(EXPIRING)]
    ends = [(role, left_s) for role, left_s in remaining if left_s is None or left_s < within_s]
    for role, left_s in ends[:_SHOWN]:
        if left_s is None:
            says = "has expired"
        else:
            says = f"expires in {duration(left_s)}" if left_s >= 0 else f"expired {duration(-left_s)} ago"
        yield CheckFinding(
            severity=Severity.INFO if left_s is None or left_s < -within_s else Severity.WARNING,
            says=f"the password of role {role.name} {says}{_one_of_many(ends)}",
            evidence=(Evidence(f"{role.name}: valid until {role.valid_until}", EXPIRING.source),),
            fix=by_hand(
                f"Set a new password and a later end: \\password {quoted(role.name)} in psql, then ALTER ROLE "
                f"{quoted(role.name)} VALID UNTIL; or NOLOGIN for an unused role.",
                composed(
                    "ALTER ROLE {role} VALID UNTIL {until};",
                    role=identifier(role.name),
                    until=literal(role.valid_until),
                ),
            ),
            subject=role.name,
        )


def _superusers(facts: CheckFacts, limits: Limits) -> Findings:
    yield from hidden(facts)
    names = {role.name for _, role in facts.have(SUPERUSERS)}
    if len(names) > limits["roles"]:
        yield CheckFinding(
            says=f"{len(names)} superusers may log in: {', '.join(sorted(names)[:_SHOWN])}",
            evidence=(Evidence(f"{len(names)} roles", "pg_roles.rolsuper, rolcanlogin"),),
            fix=by_hand(
                "ALTER ROLE … NOSUPERUSER, with GRANT pg_monitor (17 and later: pg_maintain) where that is enough.",
                "ALTER ROLE … SUPERUSER",
            ),
            subject="roles",
        )
    far = {
        backend.usename
        for backend in client_backends(facts.have(needs.ACTIVITY))
        if backend.usename in names
        and backend.client
        and not is_loopback(None if backend.client == _LOCAL else backend.client, None)
    }
    for name in sorted(user for user in far if user is not None)[:_SHOWN]:
        yield CheckFinding(
            says=f"superuser {name} is connected from another machine",
            evidence=(Evidence(f"{name}: client_addr is not this machine's", "pg_stat_activity.client_addr"),),
            fix=by_hand("Give the application a role that owns its tables and nothing else."),
            subject=name,
        )


def _encryption(facts: CheckFacts, limits: Limits) -> Findings:
    yield from hidden(facts)
    parameters = needs.parameters(facts)
    for _, counts in facts.have(ENCRYPTION):
        if counts.plain:
            yield CheckFinding(
                says=f"{counts.plain} of {counts.remote} sessions from other machines are not encrypted",
                evidence=(
                    Evidence(f"{counts.plain} plain", "pg_stat_ssl.ssl, pg_stat_gssapi.encrypted"),
                    as_shown(facts, "ssl"),
                ),
                fix=by_hand("Change their lines of pg_hba.conf to hostssl, and set sslmode=verify-full on clients."),
                subject="sessions",
            )
    if not parameters.on("ssl") and _reachable(facts):
        yield CheckFinding(
            says=f"ssl is off, and the server listens on {parameters.text('listen_addresses')}",
            evidence=(as_shown(facts, "ssl", "listen_addresses"),),
            fix=by_hand(
                f"{_certificates(parameters)}, then ALTER SYSTEM SET ssl = on; SELECT pg_reload_conf(); without them "
                "the server does not start again.",
                "ALTER SYSTEM RESET ssl; SELECT pg_reload_conf();",
            ),
            subject="ssl",
        )


def _certificates(parameters: needs.Parameters) -> str:
    by_host = parameters.visible("ssl_sni")
    if by_host is not None and by_host.setting == "on":
        return "ssl_sni is on: list a certificate and its key for each host name in the file of hosts_file"
    return "Put server.crt and server.key into the data directory (ssl_cert_file, ssl_key_file)"


def _open_schemas(facts: CheckFacts, limits: Limits) -> Findings:
    made_so = needs.major(facts) < _CLOSED_SINCE
    as_made: list[str] = []
    for database, state in facts.have(DATABASE_STATE):
        for schema in state.open_schemas:
            if made_so and schema == "public":
                as_made.append(database)
                continue
            grant, revoke = (
                composed(f"{change} PUBLIC;", schema=identifier(schema))
                for change in ("GRANT CREATE ON SCHEMA {schema} TO", "REVOKE CREATE ON SCHEMA {schema} FROM")
            )
            yield CheckFinding(
                says=f"{database}: {schema} is open: all roles may create objects there, which other roles may then "
                "call by "
                "mistake",
                evidence=(Evidence(f"{schema}: CREATE to PUBLIC", "pg_namespace.nspacl"),),
                fix=in_database(database, revoke, grant),
                subject=f"{database}: {schema}",
            )
    if as_made:
        databases = first_few(as_made, _SHOWN)
        yield CheckFinding(
            severity=Severity.INFO,
            says=f"all roles may create objects in schema public of {databases}, the default before {_CLOSED_SINCE}",
            evidence=(Evidence(f"CREATE to PUBLIC in {len(as_made)} databases", "pg_namespace.nspacl"),),
            fix=Fix(
                "REVOKE CREATE ON SCHEMA public FROM PUBLIC;",
                "GRANT CREATE ON SCHEMA public TO PUBLIC;",
                remark="in each of these databases, and in template1 for future ones",
            ),
            subject="public",
        )


def _listening(facts: CheckFacts, limits: Limits) -> Findings:
    row = needs.parameters(facts).row("listen_addresses")
    if _EVERY_ADDRESS & {part.strip() for part in row.setting.split(",")}:
        yield CheckFinding(
            severity=Severity.INFO,
            says=f"listen_addresses is {row.setting}: the server listens on every network of the machine",
            evidence=(as_shown(facts, "listen_addresses", "port"),),
            fix=by_hand("List the addresses its clients use, or block other networks with a firewall."),
        )


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="SEC-01",
        group=_GROUP,
        title="pg_hba.conf",
        why="A line that trusts addresses exposes the data to every client at such an address.",
        severity=Severity.CRITICAL,
        page="auth-pg-hba-conf.html",
        needs=(needs.PARAMETERS, HBA),
        asks=(IDENT,),
        look=_rules,
    ),
    Check(
        id="SEC-02",
        group=_GROUP,
        title="MD5 passwords",
        why="An MD5 password read from a backup is enough to log in; SCRAM stores no usable secret.",
        page="auth-password.html",
        needs=(needs.SERVER, needs.PARAMETERS, PASSWORDS),
        look=also_scoped(_md5, "password_encryption"),
    ),
    Check(
        id="SEC-03",
        group=_GROUP,
        title="superusers",
        why="A superuser's session can read every file and run every program the server's account can.",
        page="role-attributes.html",
        needs=(SUPERUSERS, needs.ACTIVITY),
        look=_superusers,
        thresholds=(Threshold("roles", 3, "", "more that may log in are a warning"),),
    ),
    Check(
        id="SEC-04",
        group=_GROUP,
        title="encryption",
        why="Without encryption every host on the path can read the data, and with most methods the credentials. "
        "SEC-11 checks the certificate of ssl_cert_file; those of hosts_file (19) are not examined.",
        page="ssl-tcp.html",
        needs=(needs.PARAMETERS, ENCRYPTION),
        look=_encryption,
    ),
    Check(
        id="SEC-05",
        group=_GROUP,
        title="schemas open to all",
        why="A role that may create a function in a schema of the search path can make other roles run it with their "
        "rights.",
        page="ddl-schemas.html#DDL-SCHEMAS-PATTERNS",
        needs=(needs.SERVER, DATABASE_STATE),
        look=_open_schemas,
    ),
    Check(
        id="SEC-06",
        group=_GROUP,
        title="listen_addresses",
        why="An address without a listener cannot be attacked.",
        severity=Severity.INFO,
        page="runtime-config-connection.html#GUC-LISTEN-ADDRESSES",
        needs=(needs.PARAMETERS,),
        look=_listening,
    ),
    Check(
        id="SEC-07",
        group=_GROUP,
        title="passwords that expire",
        why="A role cannot log in with an expired password: an application fails at its next connection.",
        page="sql-createrole.html",
        needs=(needs.PARAMETERS, EXPIRING),
        look=_expiring,
        thresholds=(
            Threshold(
                "within",
                7 * 86_400,
                "s",
                "a password that expires within this time is a warning; at least "
                "password_expiration_warning_threshold (19)",
            ),
        ),
    ),
)
