"""The latency budget of real loads: it adds up to what pgbench itself reports at the end.

The budget is taken over the whole run: on a machine that others use as well, no ten seconds of it are the mean of all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pgtop_tune.bench.initialise import initialise
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.cli.live_options import LiveOptions
from pgtop_tune.cli.wiring import LiveSession, endpoint_of
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics.budget import OTHER, QUEUE, LatencyBudget, latency_budget
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import RunState
from pgtop_tune.model.load import LoadSpec
from pgtop_tune.postgres.conninfo import resolve
from pgtop_tune.session.session import Session
from tests.support.servers import conninfo

RUN_S = 12


async def budget_of(target: str, spec: LoadSpec) -> tuple[LatencyBudget, float]:
    """The budget of a whole run just before its end, and the mean latency of its final report."""
    live = LiveSession(resolve(target), LiveOptions(interval_s=0.5))
    session = Session()
    found: LatencyBudget | None = None
    try:
        async with asyncio.timeout(RUN_S + 30):
            await live.load.start(spec)
            async for step in live.source.steps():
                session.apply(step)
                assert session.interval is not None
                bench = session.interval.newest.bench
                if isinstance(bench, Unavailable):
                    continue
                if bench.run.state is RunState.RUNNING:
                    found = latency_budget(session.interval, float(RUN_S)) or found
                elif bench.run.state is not RunState.STARTING:
                    assert bench.run.state is RunState.FINISHED, bench.run.message
                    break
        report = live.load.report
    finally:
        await live.source.aclose()
    assert found is not None
    assert report is not None
    assert report.latency_average_ms is not None
    return found, report.latency_average_ms


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
