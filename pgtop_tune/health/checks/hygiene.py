"""Conditions that make a benchmark measure something other than intended."""

from __future__ import annotations

from collections import Counter
from typing import Final

from pgtop_tune.health import needs
from pgtop_tune.health.check import (
    Check,
    CheckConfidence,
    CheckFinding,
    Evidence,
    Findings,
    Limits,
    Severity,
    Threshold,
)
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand
from pgtop_tune.health.questions import DATABASE_STATE
from pgtop_tune.health.rules import hidden
from pgtop_tune.metrics.connections import WORKING
from pgtop_tune.metrics.server import client_backends

_GROUP: Final = "benchmark"
_PGBENCH: Final = "pgbench"


def _clients(facts: CheckFacts) -> Counter[str]:
    """Return the number of pgbench's sessions by database."""
    backends = client_backends(facts.have(needs.ACTIVITY))
    return Counter(
        backend.datname or "" for backend in backends if (backend.application_name or "").startswith(_PGBENCH)
    )


def _scale(facts: CheckFacts, limits: Limits) -> Findings:
    yield from hidden(facts)
    running = _clients(facts)
    for database, state in facts.have(DATABASE_STATE):
        if state.pgbench_scale is None:
            continue
        clients = max(running[database], int(limits["clients"]))
        if state.pgbench_scale < clients:
            yield CheckFinding(
                says=f"{database}: pgbench's scale is {state.pgbench_scale} for {clients} clients: they wait for each "
                "other's rows of pgbench_branches",
                evidence=(
                    Evidence(f"{state.pgbench_scale} branches", "pg_class.reltuples of pgbench_branches"),
                    Evidence(f"{running[database]} sessions of pgbench", "pg_stat_activity.application_name"),
                ),
                fix=by_hand(f"Initialise with --scale of {clients} or more, or use fewer clients."),
                confidence=CheckConfidence.HIGH,
                subject=database,
            )


def _unlogged(facts: CheckFacts, limits: Limits) -> Findings:
    for database, state in facts.have(DATABASE_STATE):
        if state.pgbench_unlogged:
            yield CheckFinding(
                says=f"{database}: pgbench's tables are unlogged: the benchmark writes hardly any WAL",
                evidence=(Evidence("relpersistence u", "pg_class.relpersistence of pgbench_accounts"),),
                fix=by_hand(
                    "ALTER TABLE … SET LOGGED for the tables of pgbench, or initialise without --unlogged-tables.",
                    "ALTER TABLE … SET UNLOGGED",
                ),
                subject=database,
            )


def _competing(facts: CheckFacts, limits: Limits) -> Findings:
    yield from hidden(facts)
    measured = sum(_clients(facts).values()) > 0
    severity = Severity.WARNING if measured else Severity.INFO
    working = [
        backend
        for backend in client_backends(facts.have(needs.ACTIVITY))
        if backend.state in WORKING and not (backend.application_name or "").startswith(_PGBENCH)
    ]
    if measured and len(working) > limits["sessions"]:
        yield CheckFinding(
            severity=severity,
            says=f"active sessions besides pgbench's: {len(working)}; the result includes their load",
            evidence=(Evidence(f"{len(working)} active sessions", "pg_stat_activity.state, application_name"),),
            fix=by_hand("Measure without them, or document them as part of the load."),
            subject="sessions",
        )
    for command in facts.have(needs.PROGRESS).commands:
        of_relation = f" of {command.relation}" if command.relation else ""
        yield CheckFinding(
            severity=severity,
            says=f"{command.command}{of_relation} is running: a measurement now includes it",
            evidence=(Evidence(f"pid {command.pid}: {command.phase or command.command}", "pg_stat_progress_*"),),
            fix=by_hand("Wait until it ends, or measure long enough to include it in every run."),
            subject=command.command,
        )


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="BEN-01",
        group=_GROUP,
        title="pgbench scale and clients",
        why="Every transaction of pgbench updates one row of pgbench_branches; fewer rows than clients measure locks.",
        page="pgbench.html",
        needs=(needs.ACTIVITY, DATABASE_STATE),
        look=_scale,
        thresholds=(Threshold("clients", 0, "", "planned, while pgbench is not running yet"),),
    ),
    Check(
        id="BEN-02",
        group=_GROUP,
        title="unlogged tables of pgbench",
        why="Unlogged tables are lost in a crash and never wait for WAL; production does.",
        page="pgbench.html",
        needs=(DATABASE_STATE,),
        look=_unlogged,
    ),
    Check(
        id="BEN-03",
        group=_GROUP,
        title="competing load",
        why="A concurrent program changes this result, but not the next one.",
        page="pgbench.html",
        needs=(needs.ACTIVITY, needs.PROGRESS),
        look=_competing,
        thresholds=(Threshold("sessions", 2, "", "other active sessions are tolerated"),),
    ),
)
