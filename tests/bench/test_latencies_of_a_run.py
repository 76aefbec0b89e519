"""Percentiles of real runs, against numpy and scipy on the whole log of the same run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg
import pytest
from scipy.stats import binom, scoreatpercentile

from pgtop_tune.bench.locate import probe
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics.load import QUANTILES
from pgtop_tune.metrics.percentiles import (
    WORST_RELATIVE_ERROR,
    ascending,
    estimates,
    merge,
    merge_scripts,
    percentiles,
)
from pgtop_tune.metrics.run_validity import CONFIDENCE, percentile_range
from pgtop_tune.model.bench import BenchRun, LoadSpec, RunState, ScriptChoice
from tests.bench.conftest import Logs, Watch
from tests.support.latencies import bucket_counts
from tests.support.servers import NotAvailable, Servers, conninfo

PER_CENTS = tuple(quantile.per_cent for quantile in QUANTILES)

Make = Callable[..., Watch]
READ = "\\set aid random(1, 100000)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n"
WRITE = "UPDATE pgbench_branches SET bbalance = bbalance + 1;\n"
DIVIDES = "\\set n random(0, 2)\nSELECT pg_sleep(0.002), 1 / :n;\n"
REPEATABLE = "BEGIN ISOLATION LEVEL REPEATABLE READ;\nUPDATE pgbench_branches SET bbalance = 1;\nEND;\n"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the log, read by us."""

    result: str
    script: int
    lag: int | None


def over(run: BenchRun) -> bool:
    return run.state not in (RunState.STARTING, RunState.RUNNING)


async def whole_log(load: Watch, spec: LoadSpec, logs: Logs) -> tuple[BenchRun, list[Line]]:
    """Runs it to its end."""
    await load.runner.start(spec)
    run = await load.until(over, 60.0)
    assert run.state is RunState.FINISHED, run.message
    lines = []
    for line in logs.lines():
        _, _, result, script, _, _, *more = line.split()
        lines.append(Line(result, int(script), int(more[0]) if more else None))
    return run, lines


def latencies(lines: list[Line], script: int | None = None) -> list[int]:
    return [int(line.result) for line in lines if line.result.isdigit() and script in (None, line.script)]


@pytest.fixture
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of scripts; not in tmp_path, where a run leaves nothing behind."""
    directory = tmp_path_factory.mktemp("scripts")
    texts = {"read.sql": READ, "write.sql": WRITE, "repeatable.sql": REPEATABLE, "divides.sql": DIVIDES}
    for name, text in texts.items():
        directory.joinpath(name).write_text(text)
    return directory


async def test_threads_scripts_lag_and_counts_agree_with_the_whole_log(
    tables: LoadEndpoint, watch: Make, logs: Logs, scripts: Path
) -> None:
    choices = (ScriptChoice(str(scripts / "read.sql"), 3), ScriptChoice(str(scripts / "write.sql"), 1))
    load = watch(tables)
    spec = LoadSpec(clients=6, threads=3, duration_s=3, rate_per_s=1500, latency_limit_ms=20, scripts=choices)
    run, lines = await whole_log(load, spec, logs)
    assert (run.open_loop, run.scripts, run.latency_limit_ms) == (True, ("read.sql", "write.sql"), 20)
    merged = merge(load.latencies)
    every = latencies(lines)
    assert merged.logged == len(every) > 500
    assert (merged.sum_us, merged.max_us) == (sum(every), max(every))
    found = estimates(merged.buckets, PER_CENTS, merged.max_us)
    assert found == pytest.approx(np.percentile(every, PER_CENTS), rel=WORST_RELATIVE_ERROR)
    assert found == pytest.approx(scoreatpercentile(every, PER_CENTS), rel=WORST_RELATIVE_ERROR)
    by_script = merge_scripts(load.latencies)
    assert sorted(by_script) == [0, 1]
    for script, part in by_script.items():
        own = latencies(lines, script)
        assert (part.logged, part.sum_us, part.max_us) == (len(own), sum(own), max(own))
        assert estimates(part.buckets, PER_CENTS, part.max_us) == pytest.approx(
            np.percentile(own, PER_CENTS), rel=WORST_RELATIVE_ERROR
        )
    lags = [line.lag or 0 for line in lines if line.result.isdigit()]
    assert sum(second.lag_sum_us or 0 for second in load.latencies) == sum(lags)
    assert max(second.lag_max_us or 0 for second in load.latencies) == max(lags)
    assert all(int(line.result) >= (line.lag or 0) for line in lines if line.result.isdigit())
    assert sum(second.skipped for second in load.latencies) == sum(line.result == "skipped" for line in lines)
    report = load.runner.report
    assert report is not None
    assert report.processed == len(every)
    # Three digits are what pgbench prints.
    assert report.latency_average_ms == pytest.approx(np.mean(every) / 1000, abs=0.000501)


@pytest.mark.parametrize("rate_per_s", [None, 300.0])
async def test_errors_that_a_load_continues_after_count_as_failed_and_nothing_else(
    servers: Servers, tables: LoadEndpoint, watch: Make, logs: Logs, scripts: Path, rate_per_s: float | None
) -> None:
    try:
        newest = probe(servers.binaries(19).bin_dir / "pgbench")
    except NotAvailable as problem:
        pytest.skip(f"no pgbench 19: {problem}")
    choices = tuple(ScriptChoice(str(scripts / name)) for name in ("divides.sql", "repeatable.sql"))
    load = watch(tables, newest)
    spec = LoadSpec(
        clients=4, threads=2, duration_s=3, rate_per_s=rate_per_s, continue_on_error=True, per_statement=True,
        scripts=choices,
    )  # fmt: skip
    run, lines = await whole_log(load, spec, logs)
    assert run.continue_on_error
    every = latencies(lines)
    failed = Counter(line.result for line in lines if not line.result.isdigit())
    assert failed["other"] > 50
    merged = merge(load.latencies)
    assert (merged.logged, merged.sum_us, merged.max_us) == (len(every), sum(every), max(every))
    assert sum(second.failed for second in load.latencies) == failed.total()
    assert sum(second.serialization_failures for second in load.latencies) == failed["serialization"]
    report = load.runner.report
    assert report is not None
    assert (report.processed, report.failed) == (len(every), failed.total())
    assert report.serialization_failures == failed["serialization"]
    assert report.latency_average_ms == pytest.approx(np.mean(every) / 1000, abs=0.000501)
    assert sum(statement.failures or 0 for script in report.scripts for statement in script.statements) >= (
        failed["other"] - 4
    )
    # The last line of the progress may come before the end, and each has whole transactions only.
    assert 0 < sum(line.failed for line in load.progress) <= failed.total()


async def test_a_fast_load_that_is_looked_at_once_is_the_whole_log(
    tables: LoadEndpoint, watch: Make, logs: Logs
) -> None:
    load = watch(tables)
    await load.runner.start(LoadSpec("select-only", clients=4, threads=2, duration_s=2))
    async with asyncio.timeout(30.0):
        await load.runner.ended()
    run, report = load.look(), load.runner.report
    every = logs.latencies_us()
    merged = merge(load.latencies)
    assert run.sampling_rate == 1.0
    assert report is not None
    assert (merged.logged, merged.max_us) == (report.processed, max(every))
    assert merged.logged == len(every)
    # A quick machine writes more than READ_LINES a second: what was only counted is an estimate, and marked.
    exact = not merged.counted
    assert merged.sum_us == pytest.approx(sum(every), rel=0 if exact else 0.1)
    for q in (50.0, 95.0, 99.0):
        true = np.percentile(every, q)
        read = true >= merged.counted_below_us
        # Below, some microseconds are as much as the estimate of what was only counted can be off.
        off = {"rel": WORST_RELATIVE_ERROR} if read else {"rel": 0.25, "abs": 15.0}
        assert percentiles(merged.buckets, (q,), merged.max_us) == pytest.approx([true], **off)


async def test_a_tenth_of_a_real_log_is_as_far_off_as_said(tables: LoadEndpoint, watch: Make, logs: Logs) -> None:
    """pgbench draws a random number per line; so do we, on the whole log, 200 times."""
    load = watch(tables)
    _, lines = await whole_log(load, LoadSpec(clients=4, threads=2, duration_s=2), logs)
    every = np.array(latencies(lines))
    draw = np.random.default_rng(4)
    for q in (50.0, 95.0, 99.0):
        true, inside = np.percentile(every, q), 0
        for _ in range(200):
            part = every[draw.random(every.size) < 0.1].tolist()
            low, high = percentile_range(ascending(bucket_counts(part)), q, 0.1)
            inside += (low is None or low <= true) and (high is None or true <= high)
        assert inside >= binom.ppf(0.0001, 200, CONFIDENCE), q


async def stalled(load: Watch, spec: LoadSpec, server: Throwaway, least: int) -> int:
    """Transactions slower than half a second, at least so many, of a run that a lock stopped for a good second."""

    def slow() -> int:
        edge = next(iter(bucket_counts([500_000])))
        return sum(count for index, count in merge(load.latencies).buckets if index > edge)

    await load.runner.start(spec)
    await load.until(lambda run: load.progress)
    text = f"{conninfo(server)} dbname='{load.runner.endpoint.dbname}'"
    async with await psycopg.AsyncConnection.connect(text) as blocker:
        await blocker.execute("LOCK TABLE pgbench_branches IN ACCESS EXCLUSIVE MODE")
        # The stall itself, not a wait for something.
        await asyncio.sleep(1.2)
    await load.until(lambda run: slow() >= least)
    await load.runner.stop()
    load.look()
    return slow()


async def test_a_stall_shows_in_all_that_should_have_begun_in_it_with_a_rate_and_once_per_client_without(
    tables: LoadEndpoint, server: Throwaway, watch: Make
) -> None:
    closed, scheduled = watch(tables), watch(tables)
    # Once per client, and twice more each time that a busy machine stops for half a second.
    assert await stalled(closed, LoadSpec("tpcb-like", clients=2, threads=1), server, 1) < 20
    assert not closed.look().open_loop
    assert all(second.lag_sum_us is None for second in closed.latencies)
    await stalled(scheduled, LoadSpec("tpcb-like", 2, 1, rate_per_s=100), server, 20)
    assert scheduled.look().open_loop
    assert max(second.lag_max_us or 0 for second in scheduled.latencies) > 500_000


async def test_connecting_is_no_part_of_the_latency_of_a_closed_loop(tables: LoadEndpoint, watch: Make) -> None:
    load = watch(tables)
    await load.runner.start(LoadSpec("select-only", 1, 1, 2, connect_per_transaction=True))
    run = await load.until(over)
    report = load.runner.report
    assert report is not None
    assert run.connect_per_transaction
    assert report.average_connection_ms is not None
    assert report.tps is not None
    # The time of a transaction is one over the throughput of the only client.
    latency_ms = 1000.0 / report.tps - report.average_connection_ms
    assert report.latency_average_ms == pytest.approx(latency_ms, rel=0.25)


async def test_failures_and_tries_of_a_real_run(tables: LoadEndpoint, watch: Make, scripts: Path) -> None:
    script = scripts / "repeatable.sql"
    load = watch(tables)
    spec = LoadSpec(clients=4, threads=2, transactions=50, scripts=(ScriptChoice(str(script)),), per_statement=True)
    await load.runner.start(spec)
    run = await load.until(over, 60.0)
    report = load.runner.report
    assert (run.state, run.transactions) == (RunState.FINISHED, 50)
    assert report is not None
    assert report.asked == 200
    failed = sum(second.serialization_failures for second in load.latencies)
    assert failed == report.serialization_failures
    assert failed == sum(second.failed for second in load.latencies) > 0
    assert sum(second.logged for second in load.latencies) == report.processed == 200 - failed
    assert sum(statement.failures or 0 for statement in report.statements) == failed
