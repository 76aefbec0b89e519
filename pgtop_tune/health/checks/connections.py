"""Connections against their limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from pgtop_tune.base.sql_quoting import Sql, composed, identifier, literal
from pgtop_tune.base.units import count, duration
from pgtop_tune.health import needs
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
    Unknown,
    about_several,
)
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand
from pgtop_tune.health.questions import CONNECTION_LIMITS, ConnectionLimitRow
from pgtop_tune.health.rules import (
    advice_facts,
    advised,
    advised_or,
    also_scoped,
    as_shown,
    first_few,
    hidden,
    in_database,
    on_standby,
    value_finding,
)
from pgtop_tune.metrics.connections import IN_TRANSACTION
from pgtop_tune.metrics.pooler import server_shares
from pgtop_tune.metrics.server import client_backends
from pgtop_tune.metrics.vacuum import PREPARED, SLOT, SLOT_CATALOG, STANDBY, HorizonHolder, holders
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.pooler import PGBOUNCER
from pgtop_tune.model.postgres import Backend
from pgtop_tune.model.replication import PreparedTransaction

_GROUP: Final = "connections"
_RESERVED: Final = ("superuser_reserved_connections", "reserved_connections")
_FEW: Final = 100
_ROOM: Final = 1.25
_INVALID: Final = "invalid"
_SHOWN: Final = 3
_MENDED: Final = 20


def _open_to_all(parameters: needs.Parameters) -> int:
    """Return the connections for roles that are neither superusers nor in pg_use_reserved_connections."""
    reserved = sum(parameters.whole(name) for name in _RESERVED if parameters.find(name) is not None)
    return parameters.whole("max_connections") - reserved


def _used(facts: CheckFacts, limits: Limits) -> Findings:
    yield from hidden(facts)
    parameters = needs.parameters(facts)
    activity = facts.have(needs.ACTIVITY)
    sessions, most = len(client_backends(activity)) + activity.own_backends, _open_to_all(parameters)
    share = 100 * sessions / max(most, 1)
    if share >= limits["percent"]:
        yield CheckFinding(
            severity=Severity.HIGH if share >= limits["high"] else Severity.WARNING,
            says=f"{sessions} of {most} connections are in use ({share:.0f} %)",
            evidence=(
                Evidence(f"{sessions} client backends", "pg_stat_activity.backend_type"),
                as_shown(facts, "max_connections", "superuser_reserved_connections"),
            ),
            fix=by_hand(
                "Put a pooler between clients and server, or end idle sessions; raising max_connections costs "
                "memory and a restart."
            ),
        )


def _many(facts: CheckFacts, limits: Limits) -> Findings:
    advised, parameters = advice_facts(facts), needs.parameters(facts)
    if advised is None or advised.cores is None:
        yield Unknown("the server's number of processors is unknown")
        return
    most, sensible = parameters.whole("max_connections"), max(_FEW, int(limits["per_core"] * advised.cores))
    if most > sensible:
        yield CheckFinding(
            says=f"max_connections {most} on {advised.cores} processors: that many active sessions slow each other "
            "down",
            evidence=(
                as_shown(facts, "max_connections"),
                Evidence(f"{advised.cores} processors", "/proc/stat, cpu.max"),
            ),
            fix=_fewer(facts, sensible),
        )


def _fewer(facts: CheckFacts, sensible: int) -> Fix:
    """Return the fix that lowers max_connections, where that leaves room for the sessions there are."""
    activity = needs.ACTIVITY.of(facts)
    used = 0 if isinstance(activity, Unavailable) else len(client_backends(activity))
    if on_standby(facts):
        return by_hand(f"Set max_connections to {sensible} on the primary first: a standby with fewer does not start.")
    if used * _ROOM > sensible:
        return by_hand(
            f"Put a pooler between clients and server first: {used} sessions are connected now, and {sensible} "
            "connections would be too few for them."
        )
    return advised(facts, "max_connections")


def _pools(facts: CheckFacts, limits: Limits) -> Findings:
    parameters = needs.parameters(facts)
    names, total = [], 0
    for pooler in facts.have(needs.POOLERS).poolers:
        if isinstance(pooler.console, Unavailable):
            yield Unknown(f"{pooler.name}: {pooler.console}")
            continue
        shares = server_shares(pooler.console)
        if any(share.most is None for share in shares):
            yield Unknown(f"{pooler.name} does not report the size of all its pools")
        total += sum(share.most or 0 for share in shares)
        names.append(pooler.name)
    most = _open_to_all(parameters)
    if total > most:
        yield CheckFinding(
            severity=Severity.CRITICAL,
            says=f"the pools of {', '.join(names)} may open {total} connections, the server allows {most}",
            evidence=(
                Evidence(f"{total} server connections", "SHOW DATABASES, SHOW POOLS, SHOW CONFIG"),
                as_shown(facts, "max_connections", "superuser_reserved_connections"),
            ),
            fix=by_hand("Reduce the pools (default_pool_size, max_db_connections) until their sum fits."),
        )


def _prepared(facts: CheckFacts, limits: Limits) -> Findings:
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
            yield CheckFinding(
                says=f"{pooler.name} uses {settings.pool_mode} pooling without support for prepared statements: "
                "drivers that "
                "prepare statements (and pgbench -M prepared) fail",
                evidence=(Evidence(f"max_prepared_statements {settings.max_prepared_statements or 0}", "SHOW CONFIG"),),
                fix=by_hand(
                    "Set max_prepared_statements in pgbouncer.ini (1.21 and later), or use -M simple or extended."
                ),
                subject=pooler.name,
            )


def _limited(facts: CheckFacts, limits: Limits) -> Findings:
    of_all = [row for _, row in facts.have(CONNECTION_LIMITS)]
    rows = [row for row in of_all if row.kind != _INVALID]
    if half_dropped := [row for row in of_all if row.kind == _INVALID]:
        yield about_several(half_dropped, lambda row: row.name, lambda some, _: _half_dropped(some))
    if any(row.most for row in rows):
        yield from hidden(facts)
    clients = client_backends(facts.have(needs.ACTIVITY))
    used = Counter(("database", backend.datname) for backend in clients) + Counter(
        ("role", backend.usename) for backend in clients
    )
    closed: dict[str, list[ConnectionLimitRow]] = {}
    for row in rows:
        number = used[row.kind, row.name]
        if row.most == 0:
            closed.setdefault(row.kind, []).append(row)
        elif 100 * number >= limits["percent"] * row.most:
            yield CheckFinding(
                says=f"{row.kind} {row.name} uses {number} of at most {row.most} connections"
                + (": the next one is refused" if number >= row.most else ""),
                evidence=(
                    Evidence(f"CONNECTION LIMIT {row.most}, {number} client backends", CONNECTION_LIMITS.source),
                ),
                fix=_unlimited((row,)),
                subject=f"{row.kind} {row.name}",
            )
    for shut in closed.values():
        yield about_several(shut, lambda row: f"{row.kind} {row.name}", lambda some, _: _closed(some))


def _half_dropped(rows: Sequence[ConnectionLimitRow]) -> CheckFinding:
    names = first_few((row.name for row in rows), _SHOWN)
    return CheckFinding(
        says=f"{len(rows)} {'database is' if len(rows) == 1 else 'databases are'} half dropped ({names}): no "
        "session can connect, and the files remain",
        evidence=(Evidence(f"datconnlimit -2: {names}", CONNECTION_LIMITS.source),),
        fix=by_hand("Run DROP DATABASE again: an interrupted one left this state, and nothing else ends it."),
        subject="half dropped",
    )


def _closed(rows: Sequence[ConnectionLimitRow]) -> CheckFinding:
    kind = rows[0].kind
    names = first_few((row.name for row in rows), _SHOWN)
    verb = "has" if len(rows) == 1 else "have"
    plural = "" if len(rows) == 1 else "s"
    return CheckFinding(
        says=f"{len(rows)} {kind}{plural} {verb} CONNECTION LIMIT 0 ({names}): only superusers can log in",
        evidence=(Evidence(f"CONNECTION LIMIT 0: {names}", CONNECTION_LIMITS.source),),
        fix=_unlimited(rows[:_MENDED]),
        subject=f"{kind}s",
    )


def _unlimited(rows: Sequence[ConnectionLimitRow]) -> Fix:
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
    return Fix("\n".join(do), "\n".join(undo), remark="or a number large enough for its pools")


_TRANSACTIONS: Final = "transactions"
_SHOWN_SESSIONS: Final = 5
_NO_WAY_BACK: Final = "-- the transaction is rolled back; its client must start over"


def _terminate(pid: int) -> Fix:
    return Fix(
        do=composed("SELECT pg_terminate_backend({pid});", pid=literal(pid)),
        undo=_NO_WAY_BACK,
        language=Language.SQL,
        remark="inspect the session first: pids are reused",
    )


def _timeout(facts: CheckFacts, limits: Limits) -> Findings:
    row = needs.parameters(facts).row("idle_in_transaction_session_timeout")
    if needs.parameters(facts).number(row.name) == 0:
        says = "a client that hangs in a transaction holds locks and dead rows forever"
        fix = advised_or(facts, row.name, "5min")
        yield value_finding(facts, row, says, fix, severity=Severity.INFO, subject="")


def _idle(facts: CheckFacts, limits: Limits) -> Findings:
    yield from hidden(facts)
    activity = facts.have(needs.ACTIVITY)
    waiting = [
        (backend, (activity.now_ms - backend.state_change_ms) / 1000)
        for backend in client_backends(activity)
        if (backend.state or "").startswith(IN_TRANSACTION) and backend.state_change_ms is not None
    ]
    idle = sorted((pair for pair in waiting if pair[1] >= limits["seconds"]), key=lambda pair: -pair[1])
    for backend, idle_s in idle[:_SHOWN_SESSIONS]:
        yield CheckFinding(
            severity=Severity.HIGH if idle_s >= limits["high"] else Severity.WARNING,
            says=f"{_session(backend)} has been idle in a transaction for {duration(idle_s)}",
            evidence=(
                Evidence(f"pid {backend.pid}: {backend.state} for {idle_s:.0f} s", "pg_stat_activity.state_change"),
            ),
            fix=_terminate(backend.pid),
            subject=f"{backend.usename}@{backend.datname}",
        )
    if len(idle) > _SHOWN_SESSIONS:
        yield CheckFinding(
            f"further sessions idle in a transaction that long: {len(idle) - _SHOWN_SESSIONS}",
            (Evidence(f"{len(idle)} sessions", "pg_stat_activity.state"),),
        )


def _session(backend: Backend) -> str:
    application = f" ({backend.application_name})" if backend.application_name else ""
    return f"session {backend.pid} of {backend.usename}@{backend.datname}{application}"


def _long(facts: CheckFacts, limits: Limits) -> Findings:
    yield from hidden(facts)
    activity = facts.have(needs.ACTIVITY)
    open_s = [
        (backend, (activity.now_ms - backend.xact_start_ms) / 1000)
        for backend in client_backends(activity)
        if backend.xact_start_ms is not None and not (backend.state or "").startswith(IN_TRANSACTION)
    ]
    for backend, since_s in sorted(open_s, key=lambda pair: -pair[1])[:_SHOWN_SESSIONS]:
        if since_s >= limits["seconds"]:
            yield CheckFinding(
                says=f"{_session(backend)} has been in one transaction for {duration(since_s)}",
                evidence=(Evidence(f"pid {backend.pid}: {since_s:.0f} s", "pg_stat_activity.xact_start"),),
                fix=_terminate(backend.pid),
                subject=f"{backend.usename}@{backend.datname}",
            )


def _horizon(facts: CheckFacts, limits: Limits) -> Findings:
    yield from hidden(facts)
    oldest = next(iter(holders(facts.interval)), None)
    if oldest is None or oldest.age < limits["transactions"]:
        return
    yield CheckFinding(
        severity=Severity.HIGH if oldest.age >= limits["high"] else Severity.WARNING,
        says=f"{oldest.kind} {oldest.name} {oldest.owner}".rstrip()
        + f" prevents removal of dead rows of the last {count(oldest.age)} transactions",
        evidence=(Evidence(f"the oldest is {oldest.age} transactions old", _SOURCES.get(oldest.kind, _OF_SESSIONS)),),
        fix=_release(oldest, facts.have(needs.HORIZON).prepared),
        subject=oldest.kind,
    )


_OF_SESSIONS: Final = "pg_stat_activity.backend_xmin, backend_xid"
_SOURCES: Final = {
    PREPARED: "pg_prepared_xacts.transaction",
    SLOT: "pg_replication_slots.xmin",
    SLOT_CATALOG: "pg_replication_slots.catalog_xmin",
    STANDBY: "pg_stat_replication.backend_xmin",
}


def _release(holder: HorizonHolder, prepared: Iterable[PreparedTransaction]) -> Fix:
    databases = {transaction.gid: transaction.database for transaction in prepared}
    if holder.kind == PREPARED and holder.name in databases:
        return _rollback(holder.name, databases[holder.name])
    if holder.kind in (SLOT, SLOT_CATALOG):
        return by_hand("Restore its consumer, or drop the slot if the consumer will not return.")
    if holder.kind == STANDBY:
        return by_hand("End the long query on the standby, or switch hot_standby_feedback off there.")
    return _terminate(int(holder.name)) if holder.name.isdigit() else by_hand("End its holder.")


def _rollback(gid: str, database: str) -> Fix:
    return in_database(
        database,
        composed("ROLLBACK PREPARED {gid};", gid=literal(gid)),
        "-- irreversible: ask the transaction manager first whether it should be committed",
        "COMMIT PREPARED instead if it should take effect",
    )


def _prepared_transactions(facts: CheckFacts, limits: Limits) -> Findings:
    sample = facts.have(needs.HORIZON)
    for prepared in sample.prepared:
        since_s = (sample.now_ms - prepared.prepared_ms) / 1000
        if since_s >= limits["seconds"]:
            yield CheckFinding(
                severity=Severity.HIGH if since_s >= limits["high"] else Severity.WARNING,
                says=f"transaction {prepared.gid} of {prepared.owner}@{prepared.database} has been prepared for "
                f"{duration(since_s)}: it keeps its locks across restarts",
                evidence=(Evidence(f"{prepared.gid}: {since_s:.0f} s", "pg_prepared_xacts.prepared"),),
                fix=_rollback(prepared.gid, prepared.database),
                subject=prepared.gid,
            )


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
        page="runtime-config-connection.html#GUC-MAX-CONNECTIONS",
        needs=(needs.SERVER, needs.PARAMETERS, needs.HOST),
        look=_many,
        thresholds=(Threshold("per_core", 10, "", "a warning when there are more per processor, and more than 100"),),
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
        page="sql-prepare.html",
        needs=(needs.POOLERS,),
        look=_prepared,
    ),
    Check(
        id="CON-07",
        group=_GROUP,
        title="connection limits of databases and roles",
        why="The server refuses an application at the limit of its role even while max_connections has room.",
        page="sql-alterrole.html",
        needs=(needs.ACTIVITY, CONNECTION_LIMITS),
        look=_limited,
        thresholds=(Threshold("percent", 90, "%", "a warning from this share of a limit"),),
    ),
    Check(
        id="TXN-01",
        group=_TRANSACTIONS,
        title="limit for idle transactions",
        why="One client that hangs between BEGIN and COMMIT can stop a whole system within days.",
        severity=Severity.INFO,
        page="runtime-config-client.html#GUC-IDLE-IN-TRANSACTION-SESSION-TIMEOUT",
        needs=(needs.PARAMETERS,),
        look=also_scoped(_timeout, "idle_in_transaction_session_timeout"),
    ),
    Check(
        id="TXN-02",
        group=_TRANSACTIONS,
        title="sessions idle in a transaction",
        why="These sessions hold their locks, and keep dead rows that they might see.",
        severity=Severity.HIGH,
        page="monitoring-stats.html#MONITORING-PG-STAT-ACTIVITY-VIEW",
        needs=(needs.ACTIVITY,),
        look=_idle,
        thresholds=(
            Threshold("seconds", 300, "s", "a warning from this value"),
            Threshold("high", 3600, "s", "a high finding from this value"),
        ),
    ),
    Check(
        id="TXN-03",
        group=_TRANSACTIONS,
        title="long transactions",
        why="Dead rows visible to a long transaction stay in all tables of its database, and tables grow.",
        page="routine-vacuuming.html#VACUUM-FOR-SPACE-RECOVERY",
        needs=(needs.ACTIVITY,),
        look=_long,
        thresholds=(Threshold("seconds", 3600, "s", "a warning from this value"),),
    ),
    Check(
        id="TXN-04",
        group=_TRANSACTIONS,
        title="holders of dead rows",
        why="Vacuum keeps all rows that the oldest snapshot may see, whether of a session, a slot, a standby or a "
        "prepared transaction.",
        severity=Severity.HIGH,
        page="routine-vacuuming.html#VACUUM-FOR-WRAPAROUND",
        needs=(needs.HORIZON, needs.SLOTS),
        look=_horizon,
        thresholds=(
            Threshold("transactions", 1_000_000, "", "an older one is a warning"),
            Threshold("high", 50_000_000, "", "a high finding from this value"),
        ),
    ),
    Check(
        id="TXN-05",
        group=_TRANSACTIONS,
        title="prepared transactions",
        why="A prepared transaction that its manager forgot keeps locks and dead rows until an operator ends it.",
        severity=Severity.HIGH,
        page="view-pg-prepared-xacts.html",
        needs=(needs.HORIZON,),
        look=_prepared_transactions,
        thresholds=(
            Threshold("seconds", 300, "s", "a warning from this value"),
            Threshold("high", 3600, "s", "a high finding from this value"),
        ),
    ),
)
