"""Real pgbench against a real server: what the samples bring, and how a run ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.secret import Secret
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics.load import QUANTILES
from pgtop_tune.metrics.percentiles import WORST_RELATIVE_ERROR, estimates, merge
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchRun, LoadSpec, RunState
from tests.bench.conftest import Logs, Watch, endpoint_of
from tests.support.processes import alive, eventually
from tests.support.servers import conninfo

PER_CENTS = tuple(quantile.per_cent for quantile in QUANTILES)

Make = Callable[..., Watch]


def over(run: BenchRun) -> bool:
    return run.state not in (RunState.STARTING, RunState.RUNNING)


async def test_before_the_first_run_there_is_no_load(tables: LoadEndpoint, tmp_path: Path) -> None:
    assert PgbenchRunner(tables, base=tmp_path).sample(1.0) == Unavailable(Reason.NO_LOAD)


async def test_a_whole_run(tables: LoadEndpoint, pgbench: Pgbench, watch: Make) -> None:
    load = watch(tables, pgbench)
    spec = LoadSpec(clients=4, threads=2, duration_s=3)
    shown = await load.runner.preview(spec)
    await load.runner.start(spec)
    assert load.look().command == shown
    run = await load.until(over)
    assert (run.state, run.exit_status, run.message) == (RunState.FINISHED, 0, "")
    assert [round(line.elapsed_s) for line in load.progress][:2] == [1, 2]
    assert all(line.tps > 0 and line.latency_ms > 0 for line in load.progress)
    report = load.runner.report
    assert report is not None
    assert report.processed == sum(second.logged for second in load.latencies)
    assert report.latency_average_ms == pytest.approx(
        sum(second.sum_us for second in load.latencies) / report.processed / 1000, rel=0.02
    )
    assert len({second.second for second in load.latencies}) == len(load.latencies) >= 3
    assert load.runner.log_statistics.punches
    assert run.pid is not None
    assert not alive(run.pid)


async def test_percentiles_agree_with_numpy_on_the_same_log(tables: LoadEndpoint, watch: Make, logs: Logs) -> None:
    load = watch(tables)
    await load.runner.start(LoadSpec(clients=4, threads=2, duration_s=2))
    await load.until(over)
    latencies = logs.latencies_us()
    assert len(latencies) > 500
    true = np.percentile(latencies, PER_CENTS)
    merged = merge(load.latencies)
    assert merged.logged == len(latencies)
    assert estimates(merged.buckets, PER_CENTS, merged.max_us) == pytest.approx(true, rel=WORST_RELATIVE_ERROR)


async def test_a_sampled_log_has_about_its_share(
    tables: LoadEndpoint, watch: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtop_tune.bench.profiles.LOGGED_PER_S", 10_000.0)
    monkeypatch.setattr("pgtop_tune.bench.profiles._CORES", 1024)
    load = watch(tables)
    await load.runner.start(LoadSpec("select-only", clients=2, duration_s=2))
    run = await load.until(over)
    report = load.runner.report
    assert report is not None
    assert report.processed is not None
    assert run.sampling_rate == 0.1
    logged = sum(second.logged for second in load.latencies)
    assert logged == pytest.approx(run.sampling_rate * report.processed, rel=0.25)


async def test_stopped_by_the_operator_it_still_reports(tables: LoadEndpoint, pgbench: Pgbench, watch: Make) -> None:
    load = watch(tables, pgbench)
    await load.runner.start(LoadSpec(clients=2, rate_per_s=100))
    run = await load.until(lambda run: len(load.progress) >= 2)
    assert run.state is RunState.RUNNING
    await load.runner.stop()
    run = load.look()
    assert (run.state, run.exit_status) == (RunState.STOPPED, 0)
    assert load.runner.report is not None
    assert load.runner.report.processed == sum(second.logged for second in load.latencies)
    assert run.pid is not None
    assert not alive(run.pid)
    assert load.runner.sample(1.0) != Unavailable(Reason.NO_LOAD)


async def test_a_run_by_transactions_that_is_stopped_has_no_report_and_keeps_what_was_measured(
    tables: LoadEndpoint, watch: Make
) -> None:
    load = watch(tables)
    await load.runner.start(LoadSpec(clients=2, threads=1, transactions=1_000_000, rate_per_s=100))
    await load.until(lambda run: len(load.progress) >= 2)
    await load.runner.stop()
    run = load.look()
    assert (run.state, run.transactions, run.duration_s) == (RunState.STOPPED, 1_000_000, None)
    assert load.runner.report is None
    assert sum(second.logged for second in load.latencies) > 0
    assert run.pid is not None
    assert not alive(run.pid)


async def test_stopped_while_every_client_waits_for_a_lock(
    tables: LoadEndpoint, server: Throwaway, watch: Make
) -> None:
    load = watch(tables)
    text = f"{conninfo(server)} dbname='{tables.dbname}'"
    async with await psycopg.AsyncConnection.connect(text) as blocker:
        await blocker.execute("LOCK TABLE pgbench_branches IN ACCESS EXCLUSIVE MODE")
        # The count of branches at its start waits as well, so this is pgbench hanging before it has begun.
        await load.runner.start(LoadSpec(clients=2, rate_per_s=100))
        await load.runner.stop()
        run = load.look()
        assert run.state is RunState.STOPPED
        assert run.pid is not None
        assert not alive(run.pid)
        await blocker.rollback()


async def test_stopped_in_the_middle_of_a_blocked_transaction(
    tables: LoadEndpoint, server: Throwaway, watch: Make
) -> None:
    load = watch(tables)
    await load.runner.start(LoadSpec(clients=2, rate_per_s=100))
    await load.until(lambda run: load.progress)
    text = f"{conninfo(server)} dbname='{tables.dbname}'"
    async with await psycopg.AsyncConnection.connect(text) as blocker:
        await blocker.execute("LOCK TABLE pgbench_branches IN ACCESS EXCLUSIVE MODE")
        async with asyncio.timeout(60):
            while await (await blocker.execute("SELECT FROM pg_locks WHERE NOT granted")).fetchone() is None:
                await asyncio.sleep(0.05)
        await load.runner.stop()
        run = load.look()
        assert run.state is RunState.STOPPED
        assert run.exit_status is not None
        assert run.exit_status < 0
        assert run.pid is not None
        assert not alive(run.pid)
        await blocker.rollback()


async def test_one_load_at_a_time_and_the_next_has_the_next_number(tables: LoadEndpoint, watch: Make) -> None:
    load = watch(tables)
    spec = LoadSpec("simple-update", clients=1, rate_per_s=100)
    await load.runner.start(spec)
    with pytest.raises(LoadProblem, match="already running"):
        await load.runner.start(spec)
    await load.runner.stop()
    first = load.look()
    await load.runner.start(spec)
    second = load.look()
    assert (first.run, second.run) == (1, 2)
    assert first.command != second.command
    await load.runner.stop()


@pytest.mark.parametrize(
    ("change", "spec", "words", "hint"),
    [
        ({"dbname": "template1"}, LoadSpec(), "pgbench_branches", "pgbench -i"),
        ({"user": "nobody here"}, LoadSpec(), 'role "nobody here" does not exist', "another role"),
        ({"dbname": "a=b"}, LoadSpec(), 'database "a=b" does not exist', "createdb"),
        ({"port": 1}, LoadSpec(), "No such file or directory", "not running"),
        ({}, LoadSpec(clients=400), "too many clients", "max_connections"),
    ],
)
async def test_a_failure_has_pgbenchs_own_words_and_our_hint(
    tables: LoadEndpoint,
    pgbench: Pgbench,
    watch: Make,
    change: dict[str, object],
    spec: LoadSpec,
    words: str,
    hint: str,
) -> None:
    load = watch(replace(tables, **change), pgbench)  # type: ignore[arg-type]
    await load.runner.start(spec)
    run = await load.until(over)
    assert (run.state, run.exit_status) == (RunState.FAILED, 1)
    assert words in run.message
    assert hint in run.message.rpartition("hint: ")[2]
    assert words in load.runner.output[1]
    assert load.runner.report is None


async def test_the_server_goes_away_in_the_middle(fresh_server: Throwaway, tables: LoadEndpoint, watch: Make) -> None:
    load = watch(endpoint_of(fresh_server))
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int)")
        connection.execute("CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int)")
        connection.execute("INSERT INTO pgbench_branches VALUES (1, 0)")
    await load.runner.start(LoadSpec("select-only", clients=2, rate_per_s=100))
    await load.until(lambda run: load.progress)
    fresh_server.stop("immediate")
    run = await load.until(over)
    assert (run.state, run.exit_status) == (RunState.FAILED, 2)
    assert "the server ended the sessions" in run.message
    assert load.runner.report is not None


async def test_no_pgbench_or_no_such_profile_is_told_before_anything_is_started(
    tables: LoadEndpoint, tmp_path: Path
) -> None:
    runner = PgbenchRunner(tables, pgbench=tmp_path / "none", base=tmp_path)
    for call in (runner.preview, runner.start):
        with pytest.raises(LoadProblem, match="no pgbench at"):
            await call(LoadSpec())
        with pytest.raises(LoadProblem, match="no load profile named"):
            await call(LoadSpec("tpcc"))
    assert [profile.name for profile in await runner.profiles()][:3] == ["tpcb-like", "select-only", "simple-update"]
    await runner.stop()


async def test_the_password_reaches_the_server_and_nobody_else(
    fresh_server: Throwaway, watch: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "wrong")
    password = "se:cr\\et"
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("CREATE ROLE locked LOGIN SUPERUSER PASSWORD {}").format(password))
        connection.execute("CREATE TABLE pgbench_branches AS SELECT 1 AS bid")
        connection.execute("CREATE TABLE pgbench_accounts AS SELECT 1 AS aid, 0 AS abalance")
        rules = Path(str(fresh_server.data_dir)) / "pg_hba.conf"
        rules.write_text("local all locked scram-sha-256\nlocal all all trust\n")
        connection.execute("SELECT pg_reload_conf()")

    def asked() -> bool:
        try:
            psycopg.connect(conninfo(fresh_server).replace(f"user={fresh_server.user}", "user=locked")).close()
        except psycopg.OperationalError:
            return True
        return False

    assert eventually(asked)
    load = watch(replace(endpoint_of(fresh_server), user="locked", password=Secret(password)))
    await load.runner.start(LoadSpec("select-only", clients=1, rate_per_s=100))
    run = await load.until(lambda run: load.progress)
    process = Path(f"/proc/{run.pid}")
    assert password.encode() not in process.joinpath("cmdline").read_bytes()
    environment = process.joinpath("environ").read_bytes()
    assert password.encode() not in environment
    assert f"PGPASSFILE={tmp_path}".encode() in environment
    (passfile,) = tmp_path.glob("*/passfile")
    assert os.stat(passfile).st_mode & 0o777 == 0o600
    assert password not in run.command
    await load.runner.stop()
