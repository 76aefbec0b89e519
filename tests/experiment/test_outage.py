"""A load goes through an outage of a real server: what its clients saw, and which acknowledged commits are missing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO

import psycopg
import pytest
from msgspec.structs import replace
from psycopg.sql import SQL, Identifier

from pgtop_tune.bench.datasets.pgbench_tables import initialise
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.outage_run import OutageRun
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.wiring import LiveSession, endpoint_of, following_endpoint
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.experiment.commit_table import CommitTable
from pgtop_tune.experiment.load_run import BeforeEachRun, Cancelled, LoadRun, RunCell
from pgtop_tune.experiment.path import LoadTarget
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchSample, LoadSpec, RunState, ScriptChoice
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.outage import OutageResult, OutageSpan
from pgtop_tune.model.run_result import RunResult
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.runtime.run_frames import FrameKeeper
from tests.experiment.test_load_run import PROFILES
from tests.support import commit_observer
from tests.support.poolers import PgBouncer, reserved_port
from tests.support.servers import Servers, conninfo
from tests.support.standby import standby_of

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
            run = self.session.load._run
            return isinstance(run, OutageRun) and len(run.facts.outages) == outages and run.span_is_closed

        await self.until(are_back)

    def outages(self) -> tuple[OutageSpan, ...]:
        """The outages as the newest frame has them."""
        frames = self.keeper.frames
        bench = frames[-1].bench if frames else None
        return bench.run.outages if isinstance(bench, BenchSample) else ()

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


def pair_of(make_server: Callable[..., Throwaway], servers: Servers) -> tuple[Throwaway, Throwaway, str]:
    """A primary, its standby, and a connection string that leads to the one that takes writes."""
    primary = make_server(18)
    standby = standby_of(primary, make_server, "pair", servers.binaries(18))
    text = (
        f"host={primary.socket_dir},{standby.socket_dir} port={primary.port},{standby.port} user={primary.user} "
        "dbname=postgres target_session_attrs=read-write"
    )
    return primary, standby, text


async def until_replayed(primary: Throwaway, standby: Throwaway) -> None:
    with psycopg.connect(conninfo(primary), autocommit=True) as connection:
        written = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
    with psycopg.connect(conninfo(standby), autocommit=True) as connection:
        async with asyncio.timeout(60):
            while connection.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", written).fetchone() != (True,):
                await asyncio.sleep(0.02)


async def promote(primary: Throwaway, standby: Throwaway) -> None:
    """End the primary as a crash would, and promote its standby."""
    await asyncio.to_thread(primary._end, "immediate")
    with psycopg.connect(conninfo(standby), autocommit=True) as connection:
        connection.execute("SELECT pg_promote()")


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
    assert result.latencies is not None
    assert (result.latency_average_ms, result.latency_stddev_ms) == (result.latencies.mean_ms, None)
    assert len(result.groups) == 2


@pytest.mark.long
async def test_clients_go_through_the_crash_of_a_pooler(make_server: Callable[..., Throwaway]) -> None:
    server, port = make_server(18), reserved_port()
    with PgBouncer(server, port=port) as pooler:
        async with bench_on(pooler.conninfo(), server) as bench:
            measuring = await bench.start(replace(LOAD, protocol="simple"))
            pooler.stop()
            with PgBouncer(server, port=port):
                await bench.until_replaced()
                result, outage = await bench.stop(measuring)
    [row] = outage.outages
    assert row.down_s is not None
    assert not outage.commits.problem
    assert (outage.commits.missing, outage.commits.left_behind) == (0, "")
    assert "RUN-FAILED" not in {doubt.id for doubt in result.doubts}


async def test_a_script_that_breaks_is_no_outage(make_server: Callable[..., Throwaway], tmp_path: Path) -> None:
    server, script = make_server(18), tmp_path / "broken.sql"
    script.write_text("SELECT n FROM breaks")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE TABLE breaks AS SELECT 1 AS n")
    async with bench_on(conninfo(server), server) as bench:
        measuring = await bench.start(replace(LOAD, scripts=(ScriptChoice(str(script)),)))
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            connection.execute("DROP TABLE breaks")
        result = await measuring
    assert result.state is RunState.FAILED
    assert 'relation "breaks" does not exist' in result.message
    assert result.outage is not None
    assert result.outage.outages == ()
    assert our_tables(server) == []


async def test_attempts_that_never_connected_leave_no_client_unknown(
    make_server: Callable[..., Throwaway], monkeypatch: pytest.MonkeyPatch
) -> None:
    # No server answers the count.
    monkeypatch.setattr("pgtop_tune.experiment.load_run._LOOK_DEADLINE_S", 0.5)
    server = make_server(18)
    async with bench_on(conninfo(server), server) as bench:
        measuring = await bench.start()
        await asyncio.to_thread(server._end, "immediate")
        await bench.until(lambda: any(span.problem for span in bench.outages()))
        await bench.stop(measuring)
        clients = bench.session.load.outage_clients
    assert clients is not None
    assert [(lines.group, lines.unknown) for lines in clients.acknowledged] == [(1, ""), (1, "")]


@pytest.mark.long
async def test_clients_follow_a_promotion(make_server: Callable[..., Throwaway], servers: Servers) -> None:
    primary, standby, text = pair_of(make_server, servers)
    async with bench_on(text, primary) as bench:
        await until_replayed(primary, standby)
        measuring = await bench.start()
        await promote(primary, standby)
        await bench.until_replaced()
        result, outage = await bench.stop(measuring)
    [row] = outage.outages
    assert row.down_s is not None
    [change] = outage.changes
    assert change.kind == "another server of the cluster"
    assert change.after.startswith(f"{standby.socket_dir}:")
    assert not outage.commits.problem
    assert outage.commits.missing is not None
    assert our_tables(standby) == []
    assert f"{primary.socket_dir},{standby.socket_dir}" in result.command


@pytest.mark.long
async def test_an_old_primary_that_comes_back_is_told_beside_the_commits_that_it_lacks(
    make_server: Callable[..., Throwaway], servers: Servers
) -> None:
    primary, standby, text = pair_of(make_server, servers)
    async with bench_on(text, primary) as bench:
        await until_replayed(primary, standby)
        measuring = await bench.start()
        await promote(primary, standby)
        await bench.until_replaced()
        followed = f"{standby.socket_dir}:{standby.port}"
        assert await bench.keeper.until(lambda now: endpoint_in(now.newest) == followed, 60)
        # It is the first of the hosts: who connects anew reaches it.
        await asyncio.to_thread(primary._start)
        _, outage = await bench.stop(measuring)
    assert outage.commits.missing
    assert outage.commits.counted_on == f"{primary.socket_dir}:{primary.port}"
    assert outage.commits.elsewhere == followed


def endpoint_in(frame: Frame) -> str:
    server = sections.server(frame)
    return "" if isinstance(server, Unavailable) else server.endpoint


@pytest.mark.long
async def test_a_server_that_restarts_twice_has_two_outages(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(18)
    async with bench_on(conninfo(server), server) as bench:
        measuring = await bench.start()
        for outages in (1, 2):
            await asyncio.to_thread(server.restart)
            await bench.until_replaced(outages)
        _, outage = await bench.stop(measuring)
    first, second = outage.outages
    assert first.span.first_commit_ms is not None
    assert first.span.first_commit_ms < second.span.first_error_ms
    assert all(row.down_s is not None and row.span.lost_clients == 4 for row in outage.outages)
    assert outage.commits.missing == 0
    assert len({(client.group, client.client) for client in outage.commits.clients}) == len(outage.commits.clients)


class HeldLogs:
    """The log files of the counting clients, held open, so that they can be read after the run."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._files: dict[Path, BinaryIO] = {}

    async def hold(self) -> None:
        while True:
            for path in self._base.glob("*/transactions.*"):
                if path not in self._files:
                    with contextlib.suppress(FileNotFoundError):
                        self._files[path] = path.open("rb")
            await asyncio.sleep(0.01)

    def lines(self) -> dict[Path, list[int]]:
        """The client of each line, by file."""
        texts = {path: file.read().decode() for path, file in self._files.items()}
        for file in self._files.values():
            file.close()
        return {path: [int(line.split()[0]) for line in text.splitlines()] for path, text in texts.items() if text}


@pytest.mark.long
async def test_missing_commits_are_those_that_the_log_has_and_the_table_lacks(
    make_server: Callable[..., Throwaway], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The files are not given back to the disk while they are read, and the table stays for the test.
    monkeypatch.setattr("pgtop_tune.bench.transaction_log._find_fallocate", lambda: lambda *words: 0)

    async def no_drop(table: CommitTable, sql_session: object) -> str:
        return ""

    monkeypatch.setattr(CommitTable, "_drop", no_drop)
    server = make_server(18, fsync="on", synchronous_commit="off", wal_writer_delay="10s")
    async with bench_on(conninfo(server), server) as bench:
        load = bench.session.load
        load._base, load._next_directory = tmp_path, tmp_path / "first"
        logs = HeldLogs(tmp_path)
        holding = asyncio.create_task(logs.hold())
        # Nobody else may write the WAL of the counted commits.
        spec = replace(LOAD, profile="select-only", rate_per_s=20.0)
        measuring = await bench.start(spec)
        kill(server)
        await asyncio.to_thread(server.restart)
        await bench.until_replaced()
        _, outage = await bench.stop(measuring)
        holding.cancel()
    commits = outage.commits
    assert not commits.problem
    assert not commits.unknown_clients
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        [(table,)] = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'pgtop_tune_outage'::regnamespace"
        ).fetchall()
        query = SQL("SELECT group_number, client, n FROM pgtop_tune_outage.{}").format(Identifier(table))
        rows = set(connection.execute(query).fetchall())
    missing = acknowledged = 0
    counted = [sorted(lines) for lines in logs.lines().values()]
    for group in sorted({client.group for client in commits.clients}):
        clients = [client for client in commits.clients if client.group == group]
        expected = sorted(client.client for client in clients for _ in range(client.acknowledged))
        assert expected in counted
        for client in clients:
            acknowledged += client.acknowledged
            missing += sum((group, client.client, n) not in rows for n in range(1, client.acknowledged + 1))
    assert (commits.missing, commits.acknowledged) == (missing, acknowledged)
    assert missing > 0


REPEATS = int(os.environ.get("PGTOP_TUNE_OUTAGES", "2"))
"""Outages of each kind; the issue asks for 20."""
CLOSE_S = 0.1


@pytest.mark.long
@pytest.mark.timeout(120 + 60 * REPEATS)
@pytest.mark.parametrize("number", range(REPEATS))
@pytest.mark.parametrize("kind", ["kill", "promote"])
async def test_times_are_those_of_a_client_that_commits_beside_the_load(
    make_server: Callable[..., Throwaway], servers: Servers, kind: str, number: int
) -> None:
    if kind == "promote":
        primary, standby, text = pair_of(make_server, servers)
    else:
        primary = standby = make_server(18, fsync="on")
        text = conninfo(primary)
    async with bench_on(text, primary) as bench:
        if kind == "promote":
            await until_replayed(primary, standby)
        measuring = await bench.start()
        observer = await Observer.start(text)
        if kind == "promote":
            await promote(primary, standby)
        else:
            kill(primary)
            await asyncio.to_thread(primary.restart)
        error_s, commit_s = await observer.outage()
        await observer.end()
        await bench.until_replaced()
        _, outage = await bench.stop(measuring)
    [row] = outage.outages
    assert row.span.first_commit_ms is not None
    apart = (row.span.first_error_ms / 1000.0 - error_s, row.span.first_commit_ms / 1000.0 - commit_s)
    print(f"{kind} {number}: down {row.down_s:.3f} s; error {apart[0]:+.3f} s, commit {apart[1]:+.3f} s apart")
    print(f"  missing {outage.commits.missing} of {outage.commits.acknowledged}, {row.span.attempts} attempts")
    if kind == "kill":
        assert outage.commits.missing == 0
    if os.getloadavg()[0] < (os.cpu_count() or 1):
        # On a busy machine each of the two waits for a CPU.
        assert max(map(abs, apart)) <= CLOSE_S
