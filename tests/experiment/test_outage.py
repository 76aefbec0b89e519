"""A load goes through an outage of a real server: what its clients saw, and which acknowledged commits are missing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable

import psycopg

from pgtop_tune.bench.datasets.pgbench_tables import initialise
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.wiring import LiveSession, endpoint_of, following_endpoint
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.experiment.load_run import BeforeEachRun, Cancelled, LoadRun, RunCell
from pgtop_tune.experiment.path import LoadTarget
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.outage import OutageResult
from pgtop_tune.model.run_result import RunResult
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.runtime.run_frames import FrameKeeper
from tests.experiment.test_load_run import PROFILES
from tests.support import commit_observer
from tests.support.servers import conninfo

LOAD = LoadSpec("tpcb-like", clients=2, threads=1, duration_s=60, rate_per_s=100.0, through_outage=True)


class OutageBench:
    """A session that follows its servers, and one run through an outage."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.conninfo = resolve(text)
        self.session = LiveSession(self.conninfo, LiveOptions(interval_s=0.5))
        self.keeper = FrameKeeper()
        self.session.engine.attach(self.keeper)
        self.told: list[str] = []
        self.run = LoadRun(
            self.session.load, self.keeper, self.session.open_following_session, self.told.append, one_server=False
        )

    async def start(self, spec: LoadSpec = LOAD) -> asyncio.Task[RunResult]:
        """The run under way, with clients that committed."""
        assert await self.keeper.until(lambda now: not isinstance(sections.server(now.newest), Unavailable), 60)
        cell = RunCell(LoadTarget("all", following_endpoint(self.conninfo)), PROFILES.get(spec.profile), spec)
        measuring = asyncio.create_task(self.run.measure(cell, BeforeEachRun()))
        await self.until(lambda: measuring.done() or len(self.progress()) >= 3)
        assert not measuring.done(), measuring.result().message
        return measuring

    def progress(self) -> list[float]:
        frames = [frame.bench for frame in self.keeper.frames if not isinstance(frame.bench, Unavailable)]
        return [line.tps for bench in frames for line in bench.progress]

    async def until(self, condition: Callable[[], object], timeout_s: float = 60.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.02)

    async def until_replaced(self, outages: int = 1) -> None:
        """All clients work again after so many outages."""

        def are_back() -> bool:
            run = self.session.load.outage_run
            return run is not None and len(run.facts.outages) == outages and run.span_is_closed

        await self.until(are_back)

    async def stop(self, measuring: asyncio.Task[RunResult]) -> tuple[RunResult, OutageResult]:
        """The result, of a run that is stopped: nobody waits for its time."""
        measuring.cancel()
        try:
            result = await measuring
        except Cancelled as cancelled:
            result = cancelled.partial
        assert result.outage is not None
        return result, result.outage


@contextlib.asynccontextmanager
async def bench_on(text: str, first: Throwaway) -> AsyncIterator[OutageBench]:
    await initialise(endpoint_of(resolve(conninfo(first))), 1, find_pgbench())
    bench = OutageBench(text)
    running = asyncio.create_task(bench.session.engine.run())
    try:
        yield bench
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def kill(server: Throwaway) -> None:
    """kill -9 of the postmaster."""
    os.kill(server.postmaster_pid, signal.SIGKILL)


def our_tables(server: Throwaway) -> list[str]:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        rows = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname = 'pgtop_tune_outage'").fetchall()
    return [name for (name,) in rows]


class Observer:
    """`commit_observer` in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, text: str) -> Observer:
        process = await asyncio.create_subprocess_exec(
            sys.executable, commit_observer.__file__, text, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        return cls(process)

    async def outage(self) -> tuple[float, float]:
        """First error and first commit after it."""
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            error, commit = (await self._process.stdout.readline()).split()
        return float(error), float(commit)

    async def end(self) -> None:
        self._process.kill()
        await self._process.wait()


async def test_clients_go_through_a_crash_and_nothing_acknowledged_is_missing(
    make_server: Callable[..., Throwaway],
) -> None:
    server = make_server(18, fsync="on")
    async with bench_on(conninfo(server), server) as bench:
        measuring = await bench.start()
        kill(server)
        await asyncio.to_thread(server.restart)
        await bench.until_replaced()
        result, outage = await bench.stop(measuring)
    [row] = outage.outages
    assert (row.span.lost_clients, row.failed_transactions) == (4, 4)
    assert row.span.attempts > 1
    assert row.span.replaced_ms is not None
    assert row.down_s is not None
    assert 0.0 < row.down_s < 60.0
    assert row.recovered_ms is None
    assert "before the error can be compared with" in row.recovery
    assert [change.kind for change in outage.changes] == ["restarted"]
    commits = outage.commits
    assert not commits.problem
    assert (commits.missing, commits.unknown_clients, commits.left_behind) == (0, 0, "")
    assert commits.acknowledged > 0
    assert our_tables(server) == []
    assert not {"SERVER-AWAY", "RUN-FAILED", "OTHER-SERVER"} & {doubt.id for doubt in result.doubts}
    assert "OUTAGE" in {doubt.id for doubt in result.doubts}
    assert len(result.groups) == 2
