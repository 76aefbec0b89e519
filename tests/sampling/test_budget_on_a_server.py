"""The latency budget of real loads: it adds up to what pgbench itself reports at the end.

The budget is taken over the whole run: on a machine that others use as well, no ten seconds of it are the mean of all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pgtop_tune.base.units import UNKNOWN, mean
from pgtop_tune.bench.datasets.pgbench_tables import initialise
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.cli.headless import FIELDS
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.wiring import LiveSession, endpoint_of
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.export.rows import STATES
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import WAITS_WINDOW_S, is_active, sessions
from pgtop_tune.metrics.budget import OTHER, LatencyBudget, latency_budget
from pgtop_tune.metrics.waits import ACTIVE_SESSIONS, CLASSES
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import LoadSpec, RunState
from pgtop_tune.model.waits import QUEUE
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.pages import waits
from tests.support.servers import conninfo

RUN_S = 12
events = next(table for table in waits.PAGE.tables if table.id == "waits-events")


def check_agreement(session: Session) -> bool:
    """Dashboard, page 3, the line and the exports say the same of one moment; whether there was something to say."""
    interval = session.interval
    assert interval is not None
    budget, listed = latency_budget(interval), sessions(interval, WAITS_WINDOW_S)
    rows = events.rows(session)
    if budget is None or not listed or isinstance(rows, Unavailable):
        return False
    said = {row.name: row.ms_per_transaction for row in rows if row.ms_per_transaction}
    assert said == pytest.approx({part.label: part.ms for part in budget.parts if part.label != OTHER and part.ms})
    active = sum(row.group.sessions for row in rows if not row.group.beside)
    assert active == pytest.approx(sum(one.mean for one in listed if is_active(one.kind)))
    assert sum(row.share or 0.0 for row in rows) == pytest.approx(100.0 if active else 0.0)
    line = {field.title: field.text(session, interval) for field in FIELDS}
    assert line["active"] == mean(active)
    ours = [row for row in rows if not row.group.beside and row.ms_per_transaction]
    if ours and line["top wait"] != UNKNOWN:
        assert line["top wait"].rpartition(" ")[0] in {row.name for row in ours}
    points = next(one for one in STATES if one.id == "waits.event").read(interval)
    exported = sum(value or 0.0 for labels, value in points if labels[2] == "active")
    assert exported == pytest.approx(ACTIVE_SESSIONS(interval) or 0.0)
    assert exported == pytest.approx(sum(metric(interval) or 0.0 for metric in CLASSES))
    return True


def are_there(session: Session, clients: int) -> bool:
    """Whether pgbench is still connected: its process goes on for a moment after its sessions."""
    interval = session.interval
    activity = None if interval is None else interval.now(sections.activity)
    return activity is not None and sum(each.application_name == "pgbench" for each in activity.backends) == clients


async def budget_of(target: str, spec: LoadSpec) -> tuple[LatencyBudget, float]:
    """The budget of a whole run just before its end, and the mean latency of its final report."""
    live = LiveSession(resolve(target), LiveOptions(interval_s=0.5))
    session = Session()
    found: LatencyBudget | None = None
    looked = 0
    try:
        async with asyncio.timeout(RUN_S + 30):
            await live.load.start(spec)
            async for step in live.source.steps():
                session.apply(step)
                assert session.interval is not None
                bench = session.interval.newest.bench
                if isinstance(bench, Unavailable):
                    continue
                if bench.run.state is RunState.RUNNING and are_there(session, spec.clients):
                    found = latency_budget(session.interval, float(RUN_S)) or found
                    looked += check_agreement(session)
                elif bench.run.state is not RunState.STARTING:
                    assert bench.run.state is RunState.FINISHED, bench.run.message
                    break
        report = live.load.report
    finally:
        await live.source.aclose()
    assert looked > 5
    assert found is not None
    assert report is not None
    assert report.latency_average_ms is not None
    return found, report.latency_average_ms


@pytest.mark.long
@pytest.mark.parametrize("profile", ["tpcb-like", pytest.param("select-only", marks=pytest.mark.long)])
async def test_parts_add_up_to_pgbench_s_own_mean(make_server: Callable[..., Throwaway], profile: str) -> None:
    server = make_server(fsync="on")
    target = conninfo(server)
    await initialise(endpoint_of(resolve(target)), 4, find_pgbench())
    budget, reported_ms = await budget_of(target, LoadSpec(profile=profile, clients=4, duration_s=RUN_S))
    assert budget.measured
    assert sum(part.ms for part in budget.parts) == pytest.approx(reported_ms, rel=0.10)
    assert min(part.ms for part in budget.parts) >= 0.0
    assert len({part.label for part in budget.parts}) == len(budget.parts)
    explained = {part.label: part.ms / budget.total_ms for part in budget.parts}
    assert explained[OTHER] < 0.35
    assert {"CPU", QUEUE} <= explained.keys(), "measured, not only sampled"
    # Little's law over the whole: four clients, in a transaction but for pgbench's own work between two of them.
    assert 2.8 < budget.total_ms / 1000.0 * budget.tps < 4.4
