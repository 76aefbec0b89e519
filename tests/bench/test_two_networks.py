"""One load from two machines, each a network namespace with a link of its own: counted against the logs over there."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles
from typing import Final

import pytest

from pgtop_tune.bench.datasets.pgbench_tables import initialise
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.bench.ssh import SshPlace
from pgtop_tune.metrics.percentiles import bucket_of, estimates, merge
from pgtop_tune.model.bench import BenchRun, LoadLevel, LoadSpec, RunState
from tests.bench.conftest import Watch, endpoint_of
from tests.bench.sshd import Sshd, sshd
from tests.bench.sshd import why_not as why_no_sshd
from tests.bench.test_generators import judged
from tests.bench.test_runner import over
from tests.bench.test_ssh_place import name_in, processes, there
from tests.support.net_namespaces import DEVICE, PORT, Namespace, ip, namespace, on_link, why_not
from tests.support.processes import eventually
from tests.support.quick_server import quick_server
from tests.support.servers import Servers

pytestmark = pytest.mark.root

FAKE: Final = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
AHEAD_S: Final = 3600
GONE_S: Final = 90.0
"""The far side ends pgbench 30 s after the last sign of life."""


@pytest.fixture(scope="module")
def spaces() -> Iterator[tuple[Namespace, Namespace]]:
    if reason := why_no_sshd() or why_not():
        pytest.skip(reason)
    with namespace() as first, namespace() as second:
        yield first, second


@pytest.fixture(scope="module")
def endpoint(spaces: tuple[Namespace, Namespace], servers: Servers) -> Iterator[LoadEndpoint]:
    """A server that both machines reach at the end of the first one's link."""
    made = quick_server(servers.binaries(18))
    try:
        with on_link(made, spaces[0]) as server:
            local = endpoint_of(server)
            asyncio.run(initialise(LoadEndpoint(local.host, PORT, local.user, local.dbname), 1, find_pgbench()))
            yield LoadEndpoint(spaces[0].here, PORT, local.user, local.dbname)
    finally:
        made.stop("immediate")


class Far(Watch):
    """A load from over there whose log files over there are copied to a directory when they go."""

    def __init__(self, runner: PgbenchRunner, copies: Path) -> None:
        super().__init__(runner)
        self._copies = copies
        self.names: set[str] = set()

    def look(self) -> BenchRun:
        run = super().look()
        self.names |= {f"{name_in(group.command)}" for group in run.groups}
        return run

    def far_latencies_us(self) -> list[int]:
        """What pgbench itself wrote on both machines."""
        contents = [file.read_bytes() for file in self._copies.iterdir()]
        return [int(line.split()[2]) for content in contents for line in content.splitlines()]


Begin = Callable[..., Far]


@pytest.fixture
def begin(spaces: tuple[Namespace, Namespace], endpoint: LoadEndpoint, tmp_path: Path) -> Iterator[Begin]:
    """Makes loads from both machines; nothing of them may be left afterwards."""
    keeps, copies = tmp_path / "bin", tmp_path / "copies"
    keeps.mkdir()
    copies.mkdir()
    # The logs over there are not given back to the disk after they were sent, and copied before they are removed.
    copy = f'for each; do cp "$each"/transactions.* {copies}; done 2>/dev/null'
    for name, text in (("fallocate", "#!/bin/sh\n"), ("rm", f'#!/bin/sh\n{copy}\nexec /bin/rm "$@"\n')):
        (keeps / name).write_text(text)
        (keeps / name).chmod(0o755)
    made: list[Far] = []
    with ExitStack() as stack:

        def begin(*variables: Mapping[str, str]) -> Far:
            daemons: list[Sshd] = []
            for number, space in enumerate(spaces):
                (directory := tmp_path / space.name).mkdir()
                own = {"PATH": f"{keeps}:{os.environ['PATH']}", **(variables[number] if variables else {})}
                daemons.append(stack.enter_context(sshd(directory, space.there, within=space.within, variables=own)))
            (base := tmp_path / "base").mkdir()
            places = [SshPlace(daemon.address, daemon.client) for daemon in daemons]
            made.append(Far(PgbenchRunner(endpoint, load_places=places, base=base), copies))
            return made[-1]

        yield begin
        for load in made:
            assert eventually(lambda load=load: not any(map(processes, load.names)), GONE_S)
            assert eventually(lambda load=load: not any(map(there, load.names)), GONE_S)
    assert not list((tmp_path / "base").iterdir())


def check_counts(load: Far) -> list[int]:
    """The report and the seconds of the run have the transactions that the logs over there have."""
    report, latencies_us = load.runner.report, load.far_latencies_us()
    assert report is not None
    assert report.processed == sum(second.logged for second in load.latencies) == len(latencies_us) > 0
    return latencies_us


async def test_the_merged_p99_is_that_of_both_logs_together_within_a_bucket(
    begin: Begin, spaces: tuple[Namespace, Namespace]
) -> None:
    load = begin()
    await load.runner.start(LoadSpec(clients=5, threads=1, duration_s=5, rate_per_s=500.0))
    run = await load.until(over)
    assert (run.state, run.message) == (RunState.FINISHED, "")
    latencies_us, merged = check_counts(load), merge(load.latencies)
    for quantile in (50.0, 95.0, 99.0):
        (estimate_us,) = estimates(merged.buckets, (quantile,), merged.max_us)
        true_us = quantiles(latencies_us, n=100, method="inclusive")[round(quantile) - 1]
        assert abs(bucket_of(round(estimate_us)) - bucket_of(round(true_us))) <= 1
    for group in run.groups:
        network = group.network
        assert network is not None
        assert network.interface == DEVICE
        # A transaction has a packet at least in each direction, of which an answer has more than 100 bytes.
        rate = (group.processed or 0) / 5.0
        assert min(network.sent_packets_per_s, network.received_packets_per_s) > rate / 2
        assert network.received_bytes_per_s > 50.0 * rate
        # A veth calls itself 10 Gbit/s.
        assert network.speed_bits_per_s == 10_000_000_000


@pytest.mark.long
async def test_phases_and_changes_count_the_transactions_of_the_logs_over_there(begin: Begin) -> None:
    load = begin()
    await load.runner.start(LoadSpec(clients=2, threads=1, phases="hold 2s, hold 3s at 4, pause 2s, hold 2s at 2"))
    run = await load.until(over)
    assert (run.state, run.message) == (RunState.FINISHED, "")
    assert [span.level.clients for span in run.spans] == [2, 4, 0, 2]
    check_counts(load)


@pytest.mark.long
async def test_keys_count_the_transactions_of_the_logs_over_there(begin: Begin) -> None:
    load = begin()
    await load.runner.start(LoadSpec(clients=2, threads=1, duration_s=60, rate_per_s=200.0))
    for level in (LoadLevel(4, 400.0), LoadLevel(0, 400.0), LoadLevel(2, 100.0)):
        lines = len(load.progress)
        await load.until(lambda run, lines=lines: len(load.progress) >= lines + 2)
        await load.runner.change(level)
        load.look()
    lines = len(load.progress)
    await load.until(lambda run: len(load.progress) >= lines + 2)
    await load.runner.stop()
    assert load.look().state is RunState.STOPPED
    check_counts(load)


async def test_seconds_of_a_machine_whose_clock_is_ahead_are_our_seconds(begin: Begin) -> None:
    if not FAKE.exists():
        pytest.skip("no libfaketime (Debian: faketime)")
    fake = {"LD_PRELOAD": str(FAKE), "FAKETIME": f"+{AHEAD_S}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    load = begin({}, fake)
    began_s = time.time()
    await load.runner.start(LoadSpec(clients=4, threads=1, duration_s=3, rate_per_s=200.0))
    run = await load.until(over)
    assert (run.state, run.message) == (RunState.FINISHED, "")
    true, ahead = run.groups
    assert abs(true.clock_ahead_ms or 0.0) < 1000.0
    assert abs((ahead.clock_ahead_ms or 0.0) - 1000.0 * AHEAD_S) <= (ahead.clock_uncertain_ms or 0.0) + 5.0
    assert all(began_s - 2.0 < second.second < time.time() + 2.0 for second in load.latencies)
    check_counts(load)


def kill_sshd(space: Namespace) -> None:
    """kill -9 of every sshd over there, the one of our connection among them."""
    pids = subprocess.run(["ip", "netns", "pids", space.name], check=True, capture_output=True, text=True).stdout
    for pid in map(int, pids.split()):
        if Path(f"/proc/{pid}/comm").read_text().strip().startswith("sshd"):
            os.kill(pid, signal.SIGKILL)


def cut_link(space: Namespace) -> None:
    ip("link", "set", space.link, "down")


@pytest.mark.long
@pytest.mark.parametrize("fault", [kill_sshd, cut_link])
async def test_a_machine_that_is_lost_is_a_doubt_and_the_others_figures_stand(
    begin: Begin, spaces: tuple[Namespace, Namespace], fault: Callable[[Namespace], None]
) -> None:
    load = begin()
    await load.runner.start(LoadSpec(clients=4, threads=1, duration_s=45, rate_per_s=400.0))
    try:
        await load.until(lambda run: len(load.progress) >= 3)
        fault(spaces[1])
        run = await load.until(over, 120.0)
    finally:
        ip("link", "set", spaces[1].link, "up")
    assert (run.state, run.message) == (RunState.FINISHED, "")
    assert [bool(group.problem) for group in run.groups] == [False, True]
    staying = run.groups[0]
    assert staying.processed is not None
    assert staying.processed > 0.9 * 45 * 200
    # Those of the lost machine count as far as its log has come.
    assert load.runner.report is not None
    assert load.runner.report.processed == sum(second.logged for second in load.latencies) > staying.processed
    assert len(load.progress) >= 40
    doubt = judged("GENERATOR-LOST", run)
    assert doubt is not None
    assert "the figures from then on are of 2 clients" in doubt.reason
