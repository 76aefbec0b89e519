"""Runs on real servers: what surrounds a run is found in its frames and named on its result."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.bench.datasets.pgbench_tables import initialise
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.profiles import load_profiles
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.wiring import LiveSession, endpoint_of
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.experiment.load_run import BeforeEachRun, Cancelled, LoadRun, RunCell
from pgtop_tune.experiment.path import LoadTarget
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import LoadSpec, RunState
from pgtop_tune.model.run_result import RunResult
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.runtime.run_frames import FrameKeeper
from tests.support.servers import Servers, conninfo
from tests.support.standby import standby_of

PROFILES = load_profiles()
SHORT = LoadSpec("select-only", clients=2, duration_s=2, protocol="prepared", rate_per_s=200.0)


class Bench:
    """Runs in a session on one server, with what was told."""

    def __init__(self, text: str, pgbench: Path | None = None) -> None:
        self.conninfo = resolve(text)
        self.session = LiveSession(self.conninfo, LiveOptions(interval_s=0.2, pgbench=pgbench))
        self.keeper = FrameKeeper()
        self.session.engine.attach(self.keeper)
        self.told: list[str] = []
        self.run = LoadRun(self.session.load, self.keeper, self.session.open_sql_session, self.told.append)

    def cell(self, spec: LoadSpec, target: LoadTarget | None = None) -> RunCell:
        return RunCell(target or LoadTarget("direct", endpoint_of(self.conninfo)), PROFILES.get(spec.profile), spec)

    async def is_watched(self) -> None:
        assert await self.keeper.until(
            lambda interval: not isinstance(sections.server(interval.newest), Unavailable), 60
        )

    async def measure(
        self,
        spec: LoadSpec = SHORT,
        before: BeforeEachRun = BeforeEachRun(),  # noqa: B008
        target: LoadTarget | None = None,
    ) -> RunResult:
        await self.is_watched()
        return await self.run.measure(self.cell(spec, target), before)


@contextlib.asynccontextmanager
async def bench_on(text: str, pgbench: Path | None = None) -> AsyncIterator[Bench]:
    bench = Bench(text, pgbench)
    await initialise(endpoint_of(bench.conninfo), 1, find_pgbench())
    running = asyncio.create_task(bench.session.engine.run())
    try:
        yield bench
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@contextlib.asynccontextmanager
async def busy_session(text: str) -> AsyncIterator[None]:
    """Somebody else's statement under way."""
    with psycopg.connect(f"{text} application_name=shop", autocommit=True) as other:
        sleeping = asyncio.create_task(asyncio.to_thread(other.execute, "SELECT pg_sleep(60)"))
        try:
            yield
        finally:
            other.cancel()
            with contextlib.suppress(psycopg.errors.QueryCanceled):
                await sleeping


def progress_s(bench: Bench) -> float:
    """Seconds of its run that pgbench has told of."""
    samples = [frame.bench for frame in bench.keeper.frames if not isinstance(frame.bench, Unavailable)]
    return max((line.elapsed_s for sample in samples for line in sample.progress), default=0.0)


def ids(result: RunResult) -> set[str]:
    return {doubt.id for doubt in result.doubts}


@pytest.mark.long
@pytest.mark.parametrize("major", [14, 15, 16, 17])
async def test_older_servers_are_measured_and_judged(server_for_major: Callable[[int], Throwaway], major: int) -> None:
    """14 and 17 count checkpoints in different views; 18 is what the other tests have."""
    server = server_for_major(major)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE DATABASE load_run")
    async with bench_on(conninfo(server, "load_run")) as bench:
        result = await bench.measure(
            replace(SHORT, profile="tpcb-like", duration_s=2, rate_per_s=None), BeforeEachRun(("checkpoint",))
        )
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("DROP DATABASE load_run WITH (FORCE)")
    assert result.state is RunState.FINISHED
    assert result.valid
    assert {"NOT-DURABLE", "NO-CHECKPOINT", "SHORT-RUN", "CLOSED-LOOP", "SCALE-BELOW-CLIENTS"} <= ids(result)
    # The machine may be busy with other things; the server is not.
    assert ids(result) <= {
        "NOT-DURABLE", "NO-CHECKPOINT", "SHORT-RUN", "CLOSED-LOOP", "SCALE-BELOW-CLIENTS", "CPU-CONTENTION",
        "CLIENT-BOUND", "STEAL", "SWAP", "AUTOVACUUM",
    }  # fmt: skip
    assert result.server_version.startswith(str(major))
    assert result.server["settings"]["fsync"] == "off"


@pytest.mark.long
async def test_others_unlogged_tables_and_logging_are_named(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(log_statement="all", autovacuum="off")
    text = conninfo(server)
    async with bench_on(text) as bench:
        with psycopg.connect(text, autocommit=True) as connection:
            connection.execute("ALTER TABLE pgbench_accounts SET UNLOGGED")
        async with busy_session(text):
            before = BeforeEachRun(("vacuum", "quiet"), quiet_deadline_s=1.0)
            result = await bench.measure(replace(SHORT, duration_s=8), before)
    doubts = {doubt.id: doubt.reason for doubt in result.doubts}
    assert "log_statement = all" in doubts["STATEMENT-LOGGING"]
    assert "pgbench_accounts unlogged" in doubts["UNLOGGED"]
    assert "other active sessions on average (shop)" in doubts["COMPETING-ACTIVITY"]
    assert "1 other active session (shop)" in doubts["HOUSEKEEPING-MISSED"]
    assert any("waiting for quiet: 1 other active session (shop)" in line for line in bench.told)


async def test_our_own_housekeeping_is_no_competitor_and_the_run_begins_quiet(database: str) -> None:
    async with bench_on(database) as bench:
        result = await bench.measure(before=BeforeEachRun(("truncate-history", "vacuum", "checkpoint", "quiet")))
    assert [step.name for step in result.facts.housekeeping][:3] == ["truncate-history", "vacuum", "checkpoint"]
    assert not {"COMPETING-ACTIVITY", "CHECKPOINT-STRADDLED"} & ids(result)
    assert set(result.facts.tables) >= {"pgbench_accounts", "pgbench_history"}


async def test_the_server_s_own_transactions_for_a_new_connection_are_nobody_else_s(database: str) -> None:
    async with bench_on(database) as bench:
        result = await bench.measure(replace(SHORT, connect_per_transaction=True))
    assert (result.processed or 0) > 20
    assert "COMPETING-ACTIVITY" not in ids(result), result.doubts


def history(text: str) -> int:
    with psycopg.connect(text, autocommit=True) as connection:
        row = connection.execute("SELECT count(*) FROM pgbench_history").fetchone()
        assert row is not None
        return int(row[0])


async def test_nothing_is_destroyed_for_a_run_that_cannot_begin(database: str, tmp_path: Path) -> None:
    tidy = BeforeEachRun(("truncate-history", "vacuum"))
    async with bench_on(database, tmp_path / "no-pgbench") as bench:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("INSERT INTO pgbench_history (tid, bid, aid, delta) VALUES (1, 1, 1, 1)")
        without_pgbench = await bench.measure(before=tidy)
        assert (without_pgbench.state, history(database)) == (RunState.FAILED, 1)
    async with bench_on(database) as bench:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("INSERT INTO pgbench_history (tid, bid, aid, delta) VALUES (1, 1, 1, 1)")
        refused = await bench.measure(replace(SHORT, clients=0), tidy)
        assert ("clients must be" in refused.message, history(database)) == (True, 1)
        nowhere = replace(endpoint_of(bench.conninfo), host="127.0.0.1", port=1)
        away = await bench.measure(SHORT, tidy, LoadTarget("nowhere", nowhere, direct=False))
        assert ("Connection refused" in away.message, history(database)) == (True, 1)


async def test_clients_that_will_not_fit_cost_no_history(database: str) -> None:
    async with bench_on(database) as bench:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("INSERT INTO pgbench_history (tid, bid, aid, delta) VALUES (1, 1, 1, 1)")
        refused = await bench.measure(replace(SHORT, clients=500), BeforeEachRun(("truncate-history", "vacuum")))
        assert (refused.state, history(database), refused.facts.housekeeping) == (RunState.FAILED, 1, ())
        assert refused.message.startswith("500 clients will not fit: max_connections is 100")
        # Sessions that may end before it begins.
        doubtful = await bench.measure(
            replace(SHORT, clients=100, threads=1, rate_per_s=None), BeforeEachRun(("truncate-history", "vacuum"))
        )
    assert (doubtful.state, history(database)) == (RunState.FAILED, 1)
    steps = [(step.name, bool(step.problem)) for step in doubtful.facts.housekeeping]
    assert steps == [("truncate-history", True), ("vacuum", False)]
    reasons = {doubt.id: doubt.reason for doubt in doubtful.doubts}
    assert "it was warned of before: 100 clients will not fit: max_connections is 100, " in reasons["RUN-FAILED"]


async def test_a_server_that_is_gone_is_told_at_once_and_quiet_is_not_waited_for(
    make_server: Callable[..., Throwaway],
) -> None:
    server = make_server()
    async with bench_on(conninfo(server)) as bench:
        await bench.is_watched()
        server.stop("immediate")
        result = await bench.run.measure(bench.cell(SHORT), BeforeEachRun(("truncate-history", "vacuum", "quiet")))
        assert result.state is RunState.FAILED
        assert "nothing is listening on this socket" in result.message
        elsewhere = LoadTarget("elsewhere", endpoint_of(bench.conninfo), direct=False)
        assert (
            await bench.run.measure(bench.cell(SHORT, elsewhere), BeforeEachRun(("quiet",)))
        ).state is RunState.FAILED
        assert not any("waiting for quiet" in line for line in bench.told)


async def test_a_series_says_that_the_server_was_restarted_and_does_not_go_on_on_another(
    make_server: Callable[..., Throwaway], tmp_path: Path, servers: Servers
) -> None:
    primary = make_server()
    standby = standby_of(primary, make_server, "load_run", servers.binaries(18))
    place = tmp_path / "place"
    place.symlink_to(str(primary.socket_dir))
    assert primary.port == standby.port
    async with bench_on(conninfo(primary).replace(str(primary.socket_dir), str(place))) as bench:
        first = await bench.measure()
        await asyncio.to_thread(primary.restart)
        second, third = await bench.measure(), await bench.measure()
        assert ["SERVER-RESTARTED" in ids(run) for run in (first, second, third)] == [False, True, True]
        with psycopg.connect(conninfo(standby), autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")
        primary.stop("immediate")
        place.unlink()
        place.symlink_to(str(standby.socket_dir))
        after = await bench.measure()
    assert (after.state, after.tps) == (RunState.FAILED, None)
    assert "a different server than in the first run answers" in after.message


async def test_a_rate_missed_because_the_last_seconds_did_nothing_is_a_backlog_and_not_0_ms(database: str) -> None:
    async with bench_on(database) as bench:
        spec = replace(SHORT, duration_s=4, rate_per_s=50.0)
        measuring = asyncio.create_task(bench.measure(spec))
        try:
            assert await bench.keeper.until(lambda _: progress_s(bench) >= 1, 60)
            with psycopg.connect(database) as other:
                other.execute("LOCK TABLE pgbench_accounts")
                # Its four seconds are over, and every client still waits.
                assert await bench.keeper.until(lambda _: progress_s(bench) >= 4, 60)
        finally:
            result = await measuring
    doubt = {doubt.id: doubt for doubt in result.doubts}["RATE-MISSED"]
    assert "the backlog grows" in doubt.reason
    assert dict(doubt.numbers)["lag_ms"] >= 1000.0


async def test_one_after_the_other_each_has_its_own_frames(database: str) -> None:
    async with bench_on(database) as bench:
        first = await bench.measure(before=BeforeEachRun(warm_up_s=1))
        second = await bench.measure(replace(SHORT, clients=1, transactions=30, duration_s=None))
    assert "warming up for 1 s" in bench.told
    assert (first.processed or 0) > 0
    assert len(first.progress) in (1, 2)
    assert second.processed == 30
    assert second.started_ms > first.ended_ms - 1000
    assert first.latencies is not None
    assert second.latencies is not None
    assert first.latencies.logged != second.latencies.logged


async def test_cancelled_while_it_prepares_nothing_was_begun(database: str) -> None:
    async with bench_on(database) as bench, busy_session(database):
        measuring = asyncio.create_task(bench.measure(before=BeforeEachRun(("quiet",))))
        async with asyncio.timeout(60):
            while not any("waiting for quiet" in line for line in bench.told):
                await asyncio.sleep(0.05)
        measuring.cancel()
        with pytest.raises(asyncio.CancelledError) as ended:
            await measuring
        assert not isinstance(ended.value, Cancelled)
        assert bench.session.load.report is None
