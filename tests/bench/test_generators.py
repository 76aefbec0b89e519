"""One load from two machines: two sshd on the loopback stand for them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.bench.ssh import SshPlace
from pgtop_tune.metrics.percentiles import WORST_RELATIVE_ERROR, estimates, merge
from pgtop_tune.metrics.run_evidence import RunEvidence
from pgtop_tune.metrics.run_validity import RULES
from pgtop_tune.model.bench import BenchRun, LoadSpec, RunState
from pgtop_tune.model.run_result import Doubt, RunFacts
from tests.bench.conftest import Logs
from tests.bench.sshd import Sshd, sshd, why_not
from tests.bench.test_groups import Load
from tests.bench.test_runner import over
from tests.bench.test_ssh_place import name_in, processes
from tests.support.processes import eventually


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sshd, Sshd]]:
    if reason := why_not():
        pytest.skip(reason)
    with sshd(tmp_path_factory.mktemp("a")) as first, sshd(tmp_path_factory.mktemp("b")) as second:
        yield first, second


@pytest.fixture
async def load(daemons: tuple[Sshd, Sshd], tables: LoadEndpoint, tmp_path: Path, logs: Logs) -> AsyncIterator[Load]:
    places = [SshPlace(daemon.address, daemon.client) for daemon in daemons]
    made = Load(PgbenchRunner(tables, load_places=places, base=tmp_path))
    made.logs = logs
    yield made
    await made.runner.aclose()
    names = {name_in(group.command) for group in made.look().groups}
    assert eventually(lambda: not [pid for name in names for pid in processes(name)])


def judged(rule_id: str, run: BenchRun) -> Doubt | None:
    """What one rule says of a run."""
    [rule] = [rule for rule in RULES if rule.id == rule_id]
    return rule.judge(RunEvidence(run, (), RunFacts()))


async def test_both_machines_share_the_clients_and_their_logs_are_one(load: Load, daemons: tuple[Sshd, Sshd]) -> None:
    await load.runner.start(LoadSpec(clients=3, threads=1, duration_s=3, rate_per_s=300.0))
    run = await load.until(over)
    assert (run.state, run.exit_status, run.message) == (RunState.FINISHED, 0, "")
    assert [(group.machine, group.clients, group.rate_per_s) for group in run.groups] == [
        (str(daemons[0].address), 2, 200.0), (str(daemons[1].address), 1, 100.0)
    ]  # fmt: skip
    assert not run.changed
    for group in run.groups:
        assert group.clock_ahead_ms is not None
        assert abs(group.clock_ahead_ms) <= (group.clock_uncertain_ms or 0.0) + 5.0
        assert group.cpus is not None
        assert group.lag_ms is not None
    report = load.runner.report
    assert report is not None
    latencies = load.logs.latencies_us()
    merged = merge(load.latencies)
    assert report.processed == merged.logged == len(latencies)
    true = np.percentile(latencies, (50.0, 99.0))
    assert estimates(merged.buckets, (50.0, 99.0), merged.max_us) == pytest.approx(true, rel=WORST_RELATIVE_ERROR)


async def test_a_machine_that_dies_is_a_doubt_and_the_other_s_figures_stand(load: Load) -> None:
    await load.runner.start(LoadSpec(clients=4, threads=1))
    run = await load.until(lambda run: len(load.progress) >= 1)
    [victim] = processes(name_in(run.groups[1].command))
    os.kill(victim, signal.SIGKILL)
    await load.until(lambda run: run.groups[1].problem)
    seconds = len(load.progress)
    await load.until(lambda run: len(load.progress) >= seconds + 2)
    await load.runner.stop()
    run = load.look()
    assert (run.state, run.message) == (RunState.STOPPED, "")
    assert [bool(group.problem) for group in run.groups] == [False, True]
    report = load.runner.report
    assert report is not None
    assert report.processed == sum(second.logged for second in load.latencies)
    assert len(load.progress) >= 3
    doubt = judged("GENERATOR-LOST", run)
    assert doubt is not None
    assert "the figures from then on are of 2 clients" in doubt.reason


async def test_a_machine_that_gets_no_cpu_is_behind_its_rate_and_named(load: Load, daemons: tuple[Sshd, Sshd]) -> None:
    await load.runner.start(LoadSpec(clients=2, threads=1, duration_s=4, rate_per_s=1000.0))
    run = await load.until(lambda run: load.progress)
    [victim] = processes(name_in(run.groups[0].command))
    os.kill(victim, signal.SIGSTOP)
    try:
        # Until its time is over: however late it is woken, it cannot catch up.
        await asyncio.sleep(4.0)
    finally:
        os.kill(victim, signal.SIGCONT)
    run = await load.until(over)
    assert (run.state, run.message) == (RunState.FINISHED, "")
    doubt = judged("GENERATOR-BEHIND", run)
    assert doubt is not None
    # The other one may be behind as well, on a busy machine.
    assert doubt.reason.startswith(f"{daemons[0].address} did ")
    assert "of its 500 transactions per second" in doubt.reason
    assert dict(doubt.numbers)["tps"] < 450.0


async def test_fewer_clients_than_machines_are_refused(load: Load) -> None:
    with pytest.raises(LoadProblem, match="2 machines need as many clients"):
        await load.runner.start(LoadSpec(clients=1, duration_s=1))
    await load.runner.start(LoadSpec(clients=2, duration_s=1, threads=1))
    await load.until(over)
