"""Poolers and proxies on the way of a real load: each of their threads is in its frames, and a full one is named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.cli.wiring import endpoint_of
from pgtop_tune.cluster.throwaway import Throwaway, server_account
from pgtop_tune.experiment.path import LoadTarget, _processes
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.frame import Frame
from tests.experiment.test_load_run import Bench, bench_on
from tests.support.accounts import own
from tests.support.certificates import Authority
from tests.support.poolers import LOOPBACK, HaProxy, PgBouncer, number_of, reserved_port
from tests.support.servers import conninfo

_STRANGER = 65_533
_TRIES, _FULL, _RAN = 6, 0.97, 1.2
LOAD = LoadSpec("select-only", clients=6, threads=1, duration_s=5, protocol="simple")


def through(bench: Bench, port: int) -> LoadTarget:
    endpoint = replace(endpoint_of(bench.conninfo), host="127.0.0.1", port=port)
    return LoadTarget("pooled", endpoint, direct=False)


def pooler_pids(frame: Frame) -> set[int]:
    processes = sections.processes(frame)
    return set() if isinstance(processes, Unavailable) else {row.pid for row in processes.poolers}


async def test_every_thread_of_each_process_on_the_way_is_in_the_frames_and_pgbench_s_are_apart(
    server: Throwaway,
) -> None:
    shared = reserved_port()
    with ExitStack() as stack:
        stack.callback(shared.close)
        bouncers = [stack.enter_context(PgBouncer(server, so_reuseport=1, port=shared)) for _ in range(2)]
        proxy = stack.enter_context(HaProxy(number_of(shared), threads=2))
        async with bench_on(conninfo(server)) as bench:
            await bench.measure(replace(LOAD, duration_s=2), target=through(bench, bouncers[0].port))
            frame = bench.keeper.frames[-1]
            assert not isinstance(frame.bench, Unavailable)
            assert {process.name for process in frame.bench.run.path} == {"pgbouncer"}
            assert pooler_pids(frame) == {bouncer.pid for bouncer in bouncers}
            processes = sections.processes(frame)
            assert not isinstance(processes, Unavailable)
            assert not {row.pid for row in processes.threads} & pooler_pids(frame)
            await bench.measure(replace(LOAD, duration_s=2), target=through(bench, proxy.port))
            processes = sections.processes(bench.keeper.frames[-1])
            assert not isinstance(processes, Unavailable)
            assert [row.pid for row in processes.poolers] == [proxy.pid] * 2
            # A load without a pooler has none.
            await bench.measure(replace(LOAD, duration_s=1))
            assert pooler_pids(bench.keeper.frames[-1]) == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
def test_of_a_pooler_that_only_another_account_sees_no_process_counts(server: Throwaway) -> None:
    """Of two PgBouncers, one is on the way."""
    with PgBouncer(server) as bouncer, PgBouncer(server):
        assert [process.pid for process in _processes([(LOOPBACK, bouncer.port)], [])[0]] == [bouncer.pid]
        os.seteuid(_STRANGER)
        try:
            processes, unseen = _processes([(LOOPBACK, bouncer.port)], [])
        finally:
            os.seteuid(0)
    assert processes == ()
    assert unseen.endswith(f" can see the process that listens on port {bouncer.port}")


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A certificate, and a key that makes each new session dear for who has it."""
    directory = Path("/dev/shm") / tmp_path.name
    directory.mkdir()
    try:
        certificate, key = Authority(directory).signed("localhost", bits=4096)
        for path in (directory, certificate, key):
            own(server_account(), path)
        yield certificate, key
    finally:
        shutil.rmtree(directory)


def times_s(pid: int) -> tuple[float, float]:
    """CPU time of a process of one thread, and its wait for a CPU, as the scheduler counts them."""
    ran, waited, *_ = (int(word) / 1e9 for word in Path(f"/proc/{pid}/schedstat").read_text().split())
    return ran, waited


@pytest.mark.long
async def test_a_pgbouncer_that_has_no_time_left_is_named(server: Throwaway, keys: tuple[Path, Path]) -> None:
    try:
        find_pgbench(over_tls=True)
    except LoadProblem as problem:
        pytest.skip(problem.message)
    settings = {"client_tls_sslmode": "require", "client_tls_cert_file": keys[0], "client_tls_key_file": keys[1]}
    load = replace(LOAD, clients=48, threads=48, connect_per_transaction=True)
    with PgBouncer(server, **settings) as bouncer:
        async with bench_on(conninfo(server)) as bench:
            target = through(bench, bouncer.port)
            target = replace(target, endpoint=replace(target.endpoint, env={"PGSSLMODE": "require"}))
            for _ in range(_TRIES):
                before = times_s(bouncer.pid)
                result = await bench.measure(load, target=target)
                ran, waited = (now - then for now, then in zip(times_s(bouncer.pid), before, strict=True))
                # Other tests may take its CPU, or keep pgbench from giving it work.
                if ran + waited > _FULL * (load.duration_s or 0) and ran > _RAN * waited:
                    break
            else:
                pytest.skip("this machine is too busy to fill a pooler")
    doubts = {doubt.id: doubt for doubt in result.doubts}
    assert "pgbouncer: its only working thread used a CPU" in doubts["POOLER-BOUND"].reason
    assert "CLIENT-BOUND" not in doubts
