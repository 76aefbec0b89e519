r"""\sleep inside a transaction is latency to pgbench, wherever it stands and with a rate as well: each version here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pgtop_tune.bench.locate import Pgbench, probe
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.model.bench import LoadSpec, ScriptChoice
from tests.bench.conftest import Watch
from tests.bench.test_runner import over
from tests.support.servers import NotAvailable, Servers

SLEEP_US = 40_000


SCRIPTS = ("\\sleep 40 ms\nSELECT 1;\n", "BEGIN;\n\\sleep 40 ms\nEND;\n", "SELECT 1;\n\\sleep 40 ms\n")


async def check(load: Watch, file: Path, script: str, rate: float | None) -> None:
    file.write_text(script)
    await load.runner.start(
        LoadSpec(clients=1, threads=1, transactions=10, rate_per_s=rate, scripts=(ScriptChoice(str(file)),))
    )
    await load.until(over)
    report = load.runner.report
    assert report is not None
    assert (report.processed, sum(second.logged for second in load.latencies)) == (10, 10)
    assert (report.latency_average_ms or 0.0) * 1000.0 >= SLEEP_US
    assert sum(second.sum_us for second in load.latencies) >= 10 * SLEEP_US


@pytest.mark.parametrize("rate", [None, 20.0])
@pytest.mark.parametrize("script", SCRIPTS)
async def test_a_sleep_is_part_of_the_logged_and_of_the_reported_latency(
    tables: LoadEndpoint,
    watch: Callable[..., Watch],
    pgbench: Pgbench,
    tmp_path_factory: pytest.TempPathFactory,
    script: str,
    rate: float | None,
) -> None:
    await check(watch(tables, pgbench), tmp_path_factory.mktemp("script") / "sleeps.sql", script, rate)


@pytest.mark.long
async def test_the_newest_pgbench_counts_it_too(
    tables: LoadEndpoint, watch: Callable[..., Watch], servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    try:
        newest = probe(servers.binaries(19).bin_dir / "pgbench")
    except NotAvailable as problem:
        pytest.skip(f"no pgbench 19: {problem}")
    file = tmp_path_factory.mktemp("script") / "sleeps.sql"
    for script in SCRIPTS:
        await check(watch(tables, newest), file, script, 20.0)
