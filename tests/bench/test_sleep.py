r"""\sleep is latency to pgbench, wherever a script has it and however it is written: each version here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.locate import Pgbench, probe
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.profiles import load_profiles
from pgtop_tune.experiment.slo.rate_runs import check_no_sleep
from pgtop_tune.model.bench import LoadSpec, ScriptChoice
from tests.bench.conftest import Watch
from tests.bench.test_runner import over
from tests.support.servers import NotAvailable, Servers

SLEEP_US = 40_000
TRANSACTIONS = 4

SCRIPTS = {
    "first": "\\sleep 40 ms\nSELECT 1;\n",
    "in a block": "BEGIN;\n\\sleep 40 ms\nEND;\n",
    "last": "SELECT 1;\n\\sleep 40 ms\n",
    "alone": "\\sleep 40000 us",
    "behind SQL": "SELECT 1 \\sleep 40 ms\nSELECT 2;\n",
    "upper case with a variable": "\\set x 40\n\\SLEEP :x ms\nSELECT 1;\n",
    "in a branch": "\\if :client_id = 0\n\\sleep 40 ms\n\\endif\nSELECT 1;\n",
    "over lines": "\\ \\\n sleep\\\n40 ms\nSELECT 1;\n",
    "behind a line of an old Macintosh": "-- no comment\r\\sleep 40 ms\nSELECT 1;\n",
    "in a pipeline": "\\startpipeline\nSELECT 1;\n\\sleep 40 ms\nSELECT 2;\n\\endpipeline\n",
}


async def check(load: Watch, file: Path, script: str, rate: float | None = None) -> None:
    file.write_bytes(script.encode())
    spec = LoadSpec(
        clients=1,
        threads=1,
        transactions=TRANSACTIONS,
        protocol="prepared",
        rate_per_s=rate,
        scripts=(ScriptChoice(str(file)),),
    )
    with pytest.raises(LoadProblem, match="counts as latency"):
        check_no_sleep(spec, load_profiles().get("select-only"))
    await load.runner.start(spec)
    await load.until(over)
    report = load.runner.report
    assert report is not None
    assert (report.processed, sum(second.logged for second in load.latencies)) == (TRANSACTIONS, TRANSACTIONS)
    assert (report.latency_average_ms or 0.0) * 1000.0 >= SLEEP_US
    assert sum(second.sum_us for second in load.latencies) >= TRANSACTIONS * SLEEP_US


WITH_A_RATE = 20.0


@pytest.mark.parametrize(
    ("place", "rate"), [*((place, None) for place in SCRIPTS), ("first", WITH_A_RATE), ("last", WITH_A_RATE)]
)
async def test_a_sleep_is_part_of_the_latency_and_an_objective_refuses_it(
    tables: LoadEndpoint,
    watch: Callable[..., Watch],
    pgbench: Pgbench,
    tmp_path_factory: pytest.TempPathFactory,
    place: str,
    rate: float | None,
) -> None:
    file = tmp_path_factory.mktemp("script") / "sleeps.sql"
    await check(watch(tables, pgbench), file, SCRIPTS[place], rate=rate)


@pytest.mark.long
async def test_the_newest_pgbench_counts_it_too(
    tables: LoadEndpoint, watch: Callable[..., Watch], servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    try:
        newest = probe(servers.binaries(19).bin_dir / "pgbench")
    except NotAvailable as problem:
        pytest.skip(f"no pgbench 19: {problem}")
    file = tmp_path_factory.mktemp("script") / "sleeps.sql"
    for script in SCRIPTS.values():
        for rate in (None, 20.0):
            await check(watch(tables, newest), file, script, rate)
