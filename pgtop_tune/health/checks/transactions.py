"""Transactions that stay open: idle and long ones, prepared ones, and holders of dead rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pgtop_tune.base.sql_quoting import composed, literal
from pgtop_tune.base.units import count, duration
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, Evidence, Finding, Fix, Language, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import words
from pgtop_tune.health.rules import advised_or, also_scoped, hidden, in_database, setting
from pgtop_tune.metrics.connections import IN_TRANSACTION
from pgtop_tune.metrics.server import client_backends
from pgtop_tune.metrics.vacuum import PREPARED, SLOT, SLOT_CATALOG, STANDBY, HorizonHolder, holders
from pgtop_tune.model.postgres import Backend
from pgtop_tune.model.replication import PreparedTransaction

_GROUP: Final = "transactions"
_SHOWN: Final = 5
_NO_WAY_BACK: Final = "-- the transaction is rolled back; its client must start over"


def _terminate(pid: int) -> Fix:
    return Fix(
        do=composed("SELECT pg_terminate_backend({pid});", pid=literal(pid)),
        undo=_NO_WAY_BACK,
        language=Language.SQL,
        remark="look at the session first: pids are reused",
    )


def _timeout(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    known = needs.parameters(facts)
    if known.number("idle_in_transaction_session_timeout") == 0:
        yield Finding(
            severity=Severity.INFO,
            says="idle_in_transaction_session_timeout is 0: a client that hangs in a transaction holds locks and "
            "dead rows "
            "forever",
            evidence=(setting(facts, "idle_in_transaction_session_timeout"),),
            fix=advised_or(facts, "idle_in_transaction_session_timeout", "5min"),
        )


def _idle(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    yield from hidden(facts)
    activity = facts.have(needs.ACTIVITY)
    waiting = [
        (backend, (activity.now_ms - backend.state_change_ms) / 1000)
        for backend in client_backends(activity)
        if (backend.state or "").startswith(IN_TRANSACTION) and backend.state_change_ms is not None
    ]
    found = sorted((each for each in waiting if each[1] >= limits["seconds"]), key=lambda each: -each[1])
    for backend, idle_s in found[:_SHOWN]:
        yield Finding(
            severity=Severity.HIGH if idle_s >= limits["high"] else Severity.WARNING,
            says=f"{_session(backend)} has been idle in a transaction for {duration(idle_s)}",
            evidence=(
                Evidence(f"pid {backend.pid}: {backend.state} for {idle_s:.0f} s", "pg_stat_activity.state_change"),
            ),
            fix=_terminate(backend.pid),
            subject=f"{backend.usename}@{backend.datname}",
        )
    if len(found) > _SHOWN:
        yield Finding(
            Severity.WARNING,
            f"{len(found) - _SHOWN} more sessions have been idle in a transaction that long",
            (Evidence(f"{len(found)} sessions", "pg_stat_activity.state"),),
        )


def _session(backend: Backend) -> str:
    application = f" ({backend.application_name})" if backend.application_name else ""
    return f"session {backend.pid} of {backend.usename}@{backend.datname}{application}"


def _long(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    yield from hidden(facts)
    activity = facts.have(needs.ACTIVITY)
    open_s = [
        (backend, (activity.now_ms - backend.xact_start_ms) / 1000)
        for backend in client_backends(activity)
        if backend.xact_start_ms is not None and not (backend.state or "").startswith(IN_TRANSACTION)
    ]
    for backend, since_s in sorted(open_s, key=lambda each: -each[1])[:_SHOWN]:
        if since_s >= limits["seconds"]:
            yield Finding(
                severity=Severity.WARNING,
                says=f"{_session(backend)} has been in one transaction for {duration(since_s)}",
                evidence=(Evidence(f"pid {backend.pid}: {since_s:.0f} s", "pg_stat_activity.xact_start"),),
                fix=_terminate(backend.pid),
                subject=f"{backend.usename}@{backend.datname}",
            )


def _horizon(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    yield from hidden(facts)
    oldest = next(iter(holders(facts.interval)), None)
    if oldest is None or oldest.age < limits["transactions"]:
        return
    yield Finding(
        severity=Severity.HIGH if oldest.age >= limits["high"] else Severity.WARNING,
        says=f"{oldest.kind} {oldest.name} {oldest.owner}".rstrip()
        + f" keeps dead rows of the last {count(oldest.age)} transactions from being removed",
        evidence=(Evidence(f"{oldest.age} transactions since its oldest", _SOURCES.get(oldest.kind, _OF_SESSIONS)),),
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
    databases = {each.gid: each.database for each in prepared}
    if holder.kind == PREPARED and holder.name in databases:
        return _rollback(holder.name, databases[holder.name])
    if holder.kind in (SLOT, SLOT_CATALOG):
        return words("Restore its consumer, or drop the slot if the consumer will not return.")
    if holder.kind == STANDBY:
        return words("End the long query on the standby, or switch hot_standby_feedback off there.")
    return _terminate(int(holder.name)) if holder.name.isdigit() else words("End its holder.")


def _rollback(gid: str, database: str) -> Fix:
    return in_database(
        database,
        composed("ROLLBACK PREPARED {gid};", gid=literal(gid)),
        "-- irreversible: ask the transaction manager first whether it should be committed",
        "COMMIT PREPARED instead if it should take effect",
    )


def _prepared(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    sample = facts.have(needs.HORIZON)
    for prepared in sample.prepared:
        since_s = (sample.now_ms - prepared.prepared_ms) / 1000
        if since_s >= limits["seconds"]:
            yield Finding(
                severity=Severity.HIGH if since_s >= limits["high"] else Severity.WARNING,
                says=f"transaction {prepared.gid} of {prepared.owner}@{prepared.database} has been prepared for "
                f"{duration(since_s)}: it keeps its locks across restarts",
                evidence=(Evidence(f"{prepared.gid}: {since_s:.0f} s", "pg_prepared_xacts.prepared"),),
                fix=_rollback(prepared.gid, prepared.database),
                subject=prepared.gid,
            )


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="TXN-01",
        group=_GROUP,
        title="limit for idle transactions",
        why="One client that hangs between BEGIN and COMMIT can stop a whole system within days.",
        severity=Severity.INFO,
        page="runtime-config-client.html#GUC-IDLE-IN-TRANSACTION-SESSION-TIMEOUT",
        needs=(needs.PARAMETERS,),
        look=also_scoped(_timeout, "idle_in_transaction_session_timeout"),
    ),
    Check(
        id="TXN-02",
        group=_GROUP,
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
        group=_GROUP,
        title="long transactions",
        why="Dead rows visible to a long transaction stay in all tables of its database, and tables grow.",
        severity=Severity.WARNING,
        page="routine-vacuuming.html#VACUUM-FOR-SPACE-RECOVERY",
        needs=(needs.ACTIVITY,),
        look=_long,
        thresholds=(Threshold("seconds", 3600, "s", "a warning from this value"),),
    ),
    Check(
        id="TXN-04",
        group=_GROUP,
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
        group=_GROUP,
        title="prepared transactions",
        why="A prepared transaction that its manager forgot keeps locks and dead rows until an operator ends it.",
        severity=Severity.HIGH,
        page="view-pg-prepared-xacts.html",
        needs=(needs.HORIZON,),
        look=_prepared,
        thresholds=(
            Threshold("seconds", 300, "s", "a warning from this value"),
            Threshold("high", 3600, "s", "a high finding from this value"),
        ),
    ),
)
