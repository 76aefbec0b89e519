"""Connections against their limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from pgtop_tune.base.sql_quoting import Sql, composed, identifier, literal
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, Evidence, Finding, Fix, Limits, Severity, Threshold, Unknown, about_several
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import words
from pgtop_tune.health.further_rows import ConnectionLimit
from pgtop_tune.health.questions import CONNECTION_LIMITS
from pgtop_tune.health.rules import advice_facts, advised, hidden, on_standby, setting
from pgtop_tune.metrics.pooler import server_shares
from pgtop_tune.metrics.server import client_backends
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.pooler import PGBOUNCER

_GROUP: Final = "connections"
_RESERVED: Final = ("superuser_reserved_connections", "reserved_connections")
_FEW: Final = 100
_ROOM: Final = 1.25
_INVALID: Final = "invalid"
_SHOWN: Final = 3
_MENDED: Final = 20


def _open_to_all(known: needs.Parameters) -> int:
    """Connections for those who are neither superusers nor of pg_use_reserved_connections."""
    reserved = sum(known.whole(name) for name in _RESERVED if known.find(name) is not None)
    return known.whole("max_connections") - reserved


def _used(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    yield from hidden(facts)
    known = needs.parameters(facts)
    activity = facts.have(needs.ACTIVITY)
    sessions, most = len(client_backends(activity)) + activity.own_backends, _open_to_all(known)
    share = 100 * sessions / max(most, 1)
    if share >= limits["percent"]:
        yield Finding(
            severity=Severity.HIGH if share >= limits["high"] else Severity.WARNING,
            says=f"{sessions} of {most} connections are in use ({share:.0f} %)",
            evidence=(
                Evidence(f"{sessions} client backends", "pg_stat_activity.backend_type"),
                setting(facts, "max_connections", "superuser_reserved_connections"),
            ),
            fix=words(
                "Put a pooler between clients and server, or end idle sessions; more max_connections cost memory and "
                "a restart."
            ),
        )


def _many(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    advised, known = advice_facts(facts), needs.parameters(facts)
    if advised is None or advised.cores is None:
        yield Unknown("the server's number of processors is unknown")
        return
    most, sensible = known.whole("max_connections"), max(_FEW, int(limits["per_core"] * advised.cores))
    if most > sensible:
        yield Finding(
            severity=Severity.WARNING,
            says=f"max_connections {most} on {advised.cores} processors: that many active sessions slow each other "
            "down",
            evidence=(
                setting(facts, "max_connections"),
                Evidence(f"{advised.cores} processors", "/proc/stat, cpu.max"),
            ),
            fix=_fewer(facts, sensible),
        )


def _fewer(facts: CheckFacts, sensible: int) -> Fix:
    """As few as sensible, where that leaves room for the sessions there are."""
    activity = needs.ACTIVITY.of(facts)
    used = 0 if isinstance(activity, Unavailable) else len(client_backends(activity))
    if on_standby(facts):
        return words(f"Set max_connections to {sensible} on the primary first: a standby with fewer does not start.")
    if used * _ROOM > sensible:
        return words(
            f"Put a pooler between clients and server first: {used} sessions are connected now, and {sensible} "
            "connections would be too few for them."
        )
    return advised(facts, "max_connections")


def _pools(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    known = needs.parameters(facts)
    found, total = [], 0
    for pooler in facts.have(needs.POOLERS).poolers:
        if isinstance(pooler.console, Unavailable):
            yield Unknown(f"{pooler.name}: {pooler.console}")
            continue
        shares = server_shares(pooler.console)
        if any(share.most is None for share in shares):
            yield Unknown(f"{pooler.name} does not show the size of all its pools")
        total += sum(share.most or 0 for share in shares)
        found.append(pooler.name)
    most = _open_to_all(known)
    if total > most:
        yield Finding(
            severity=Severity.CRITICAL,
            says=f"the pools of {', '.join(found)} may open {total} connections, the server has {most}",
            evidence=(
                Evidence(f"{total} server connections", "SHOW DATABASES, SHOW POOLS, SHOW CONFIG"),
                setting(facts, "max_connections", "superuser_reserved_connections"),
            ),
            fix=words("Make the pools smaller (default_pool_size, max_db_connections) until their sum fits."),
        )


def _prepared(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    for pooler in facts.have(needs.POOLERS).poolers:
        if isinstance(pooler.console, Unavailable):
            yield Unknown(f"{pooler.name}: {pooler.console}")
            continue
        settings = pooler.console.settings
        if (
            pooler.console.kind == PGBOUNCER
            and settings.pool_mode != "session"
            and not settings.max_prepared_statements
        ):
            yield Finding(
                severity=Severity.WARNING,
                says=f"{pooler.name} pools by {settings.pool_mode} and does not support prepared statements: "
                "drivers that "
                "prepare (and pgbench -M prepared) fail behind it",
                evidence=(Evidence(f"max_prepared_statements {settings.max_prepared_statements or 0}", "SHOW CONFIG"),),
                fix=words(
                    "Set max_prepared_statements in pgbouncer.ini (1.21 and later), or use -M simple or extended."
                ),
                subject=pooler.name,
            )


def _limited(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    of_all = [row for _, row in facts.have(CONNECTION_LIMITS)]
    rows = [row for row in of_all if row.kind != _INVALID]
    if left := [row for row in of_all if row.kind == _INVALID]:
        yield about_several(left, lambda row: row.name, lambda some, _: _half_dropped(some))
    if any(row.most for row in rows):
        yield from hidden(facts)
    clients = client_backends(facts.have(needs.ACTIVITY))
    used = Counter(("database", each.datname) for each in clients) + Counter(("role", each.usename) for each in clients)
    closed: dict[str, list[ConnectionLimit]] = {}
    for row in rows:
        number = used[row.kind, row.name]
        if row.most == 0:
            closed.setdefault(row.kind, []).append(row)
        elif 100 * number >= limits["percent"] * row.most:
            yield Finding(
                severity=Severity.WARNING,
                says=f"{row.kind} {row.name} has {number} of at most {row.most} connections"
                + (": the next one is refused" if number >= row.most else ""),
                evidence=(
                    Evidence(f"CONNECTION LIMIT {row.most}, {number} client backends", CONNECTION_LIMITS.source),
                ),
                fix=_unlimited((row,)),
                subject=f"{row.kind} {row.name}",
            )
    for shut in closed.values():
        yield about_several(shut, lambda row: f"{row.kind} {row.name}", lambda some, _: _closed(some))


def _half_dropped(rows: Sequence[ConnectionLimit]) -> Finding:
    shown = ", ".join(row.name for row in rows[:_SHOWN]) + (" …" if len(rows) > _SHOWN else "")
    return Finding(
        severity=Severity.WARNING,
        says=f"{len(rows)} {'database is' if len(rows) == 1 else 'databases are'} half dropped ({shown}): no "
        "session gets in, and the files stay",
        evidence=(Evidence(f"datconnlimit -2: {shown}", CONNECTION_LIMITS.source),),
        fix=words("DROP DATABASE again; an interrupted one left it so, and nothing else can be done with it."),
        subject="half dropped",
    )


def _closed(rows: Sequence[ConnectionLimit]) -> Finding:
    kind = rows[0].kind
    shown = ", ".join(row.name for row in rows[:_SHOWN]) + (" …" if len(rows) > _SHOWN else "")
    verb = "has" if len(rows) == 1 else "have"
    plural = "" if len(rows) == 1 else "s"
    return Finding(
        severity=Severity.WARNING,
        says=f"{len(rows)} {kind}{plural} {verb} CONNECTION LIMIT 0 ({shown}): each login is refused but superusers'",
        evidence=(Evidence(f"CONNECTION LIMIT 0: {shown}", CONNECTION_LIMITS.source),),
        fix=_unlimited(rows[:_MENDED]),
        subject=f"{kind}s",
    )


def _unlimited(rows: Sequence[ConnectionLimit]) -> Fix:
    do: list[Sql] = []
    undo: list[Sql] = []
    for row in rows:
        for statements, most in ((do, -1), (undo, row.most)):
            statements.append(
                composed(
                    "ALTER {kind} {name} CONNECTION LIMIT {most};",
                    kind=Sql(row.kind.upper()),
                    name=identifier(row.name),
                    most=literal(most),
                )
            )
    return Fix("\n".join(do), "\n".join(undo), remark="or a number with room for its pools")


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="CON-01",
        group=_GROUP,
        title="connections in use",
        why="When all are in use the server refuses every new client, including the operator.",
        severity=Severity.HIGH,
        page="runtime-config-connection.html#GUC-MAX-CONNECTIONS",
        needs=(needs.PARAMETERS, needs.ACTIVITY),
        look=_used,
        thresholds=(
            Threshold("percent", 70, "%", "a warning from this value"),
            Threshold("high", 85, "%", "a high finding from this value"),
        ),
    ),
    Check(
        id="CON-02",
        group=_GROUP,
        title="max_connections and processors",
        why="More active sessions than the processors can run only wait for each other; a pooler queues them better.",
        severity=Severity.WARNING,
        page="runtime-config-connection.html#GUC-MAX-CONNECTIONS",
        needs=(needs.SERVER, needs.PARAMETERS, needs.HOST),
        look=_many,
        thresholds=(Threshold("per_core", 10, "", "more per processor, and more than 100, is a warning"),),
    ),
    Check(
        id="CON-03",
        group=_GROUP,
        title="sum of the pools",
        why="When all pools are full the server refuses the pooler, and its clients get errors instead of waiting.",
        severity=Severity.CRITICAL,
        page="runtime-config-connection.html#GUC-MAX-CONNECTIONS",
        needs=(needs.PARAMETERS, needs.POOLERS),
        look=_pools,
    ),
    Check(
        id="CON-04",
        group=_GROUP,
        title="prepared statements through a pooler",
        why="A statement prepared on one server connection does not exist on the next one from the pooler.",
        severity=Severity.WARNING,
        page="sql-prepare.html",
        needs=(needs.POOLERS,),
        look=_prepared,
    ),
    Check(
        id="CON-07",
        group=_GROUP,
        title="connection limits of databases and roles",
        why="The server refuses an application at a limit of its role while max_connections leaves room for many.",
        severity=Severity.WARNING,
        page="sql-alterrole.html",
        needs=(needs.ACTIVITY, CONNECTION_LIMITS),
        look=_limited,
        thresholds=(Threshold("percent", 90, "%", "of such a limit in use is a warning"),),
    ),
)
