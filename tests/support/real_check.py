"""What the checks say of a running server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import chosen, thresholds
from pgtop_tune.health.report import Report
from tests.postgres.conftest import place

GROUPS = ("DUR", "ARC", "WAL", "SLOT", "BGW", "CON", "TXN", "VAC", "TAB", "PLAN", "IDX", "KEY", "REP", "LOG", "OBS")
OF_THE_SERVER = (*GROUPS, "SEC", "CFG", "BEN")
DEADLINE_S = 30.0


def checked(
    server: Throwaway, database: str, *limits: str, select: Sequence[str] = OF_THE_SERVER, user: str = "postgres"
) -> Report:
    """What the checks of the server say of it now."""
    checks = chosen(select, ())
    facts = asyncio.run(gather(place(server, database, user), checks))
    return judge(checks, facts, thresholds(limits))


def ids(report: Report) -> set[str]:
    return {check.id for check, _ in report.findings}


def sayings(report: Report) -> str:
    return "\n".join(f"{check.id} {finding.says}" for check, finding in report.findings)


def missing(report: Report, wanted: set[str]) -> str:
    """What was not found, with what was unknown; "" when all was."""
    gone = wanted - ids(report)
    unknown = [f"{check.id}: {why.reason}" for check, why in report.unknowns]
    return f"{sorted(gone)} among {sorted(ids(report))}, unknown {unknown}" if gone else ""
