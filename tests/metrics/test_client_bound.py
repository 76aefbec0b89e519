"""Whether pgbench was the limit: by the time of its threads, and by whose turn it was."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.client_bound import client_bound
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import RunState
from pgtop_tune.model.host import CpuSample, CpuTimes
from pgtop_tune.model.waits import WaitCount, WaitSample
from tests.support.frames import host_sample
from tests.support.run_frames import evidence, run_frames


def turn(observations: int, event: str = "between"):  # type: ignore[no-untyped-def]
    def change(second: int) -> dict[str, object]:
        counts = (
            WaitCount("Client", event, "client backend", observations, of_load=True),
            WaitCount("CPU", "", "client backend", 100 - observations, of_load=True),
        )
        return {"waits": WaitSample(float(second), 10, counts)}

    return change


def test_threads_that_sleep_leave_the_server_as_the_limit() -> None:
    load = evidence(cpu=(40, 35), delay_ms=(100, 80)).generator
    assert not load.bound
    assert load.threads == 2
    assert load.cpu_cores == pytest.approx(0.75)
    assert load.busiest_cpu == pytest.approx(40)
    assert load.busiest_demand == pytest.approx(50)


def test_one_thread_that_never_sleeps_is_the_limit_whatever_the_others_do() -> None:
    load = evidence(cpu=(97, 5)).generator
    assert load.bound
    assert "used a CPU 97 %" in load.reason
    assert "-j 4" in load.advice


def test_waiting_for_a_cpu_is_wanting_one() -> None:
    load = evidence(cpu=(50, 50), delay_ms=(450, 400)).generator
    assert load.bound
    assert "waited for a CPU 45 %" in load.reason


def test_a_thread_that_mostly_waits_for_a_cpu_is_no_limit_of_pgbench_s() -> None:
    load = evidence(cpu=(4, 40), delay_ms=(960, 100)).generator
    assert not load.bound
    assert load.most_queued == pytest.approx(96)


def test_without_threads_the_sessions_tell() -> None:
    assert evidence(cpu=(), postgres=turn(85)).generator.bound
    assert not evidence(cpu=(), postgres=turn(60)).generator.bound
    assert evidence(cpu=(), postgres=turn(85)).generator.client_turn == pytest.approx(85)


def test_on_a_full_machine_idle_looks_prove_nothing() -> None:
    def full(second: int) -> dict[str, object]:
        cpu = host_sample(second).cpu
        assert isinstance(cpu, CpuSample)
        return {"cpu": replace(cpu, total=CpuTimes("cpu", 400 * second, 0, 0, 0, 0, 0, 0, 0, 0, 0))}

    assert not evidence(cpu=(), postgres=turn(85), host=full).generator.bound


def test_pauses_that_a_rate_makes_are_not_the_client_s_turn() -> None:
    load = evidence(cpu=(), postgres=turn(85), run={"rate_per_s": 100.0}, lines={"lag_ms": 3.0}).generator
    assert not load.bound
    assert load.client_turn == pytest.approx(0.0)
    assert load.lag_ms == pytest.approx(3.0)


def test_sessions_that_idle_while_the_threads_sleep_too_are_no_fault_of_pgbench() -> None:
    assert not evidence(cpu=(40, 40), postgres=turn(85)).generator.bound


def test_of_a_pgbench_on_another_machine_no_thread_is_seen() -> None:
    load = evidence(cpu=(98, 3), run={"machine": "ssh://load1"}).generator
    assert (load.threads, load.bound) == (0, False)


def test_what_is_not_there_is_none_and_not_zero() -> None:
    load = evidence(
        cpu=(),
        host=lambda second: {"cpu": Unavailable(Reason.NOT_LOCAL)},
        postgres=lambda second: {"waits": Unavailable(Reason.TOO_SLOW)},
    ).generator
    assert (load.cpu_cores, load.busiest_cpu, load.client_turn, load.machine_busy) == (None, None, None, None)


def test_the_screen_s_look_is_at_the_load_under_way_only() -> None:
    frames = run_frames(cpu=(97, 5))
    under_way = client_bound(Interval(frames[:-1]))
    assert under_way is not None
    assert under_way.bound
    assert client_bound(Interval(frames)) is None
    assert frames[-1].bench.run.state is RunState.FINISHED  # type: ignore[union-attr]


def test_a_wait_for_a_cpu_that_nobody_counts_is_unknown_and_not_zero() -> None:
    frames = run_frames(cpu=(97, 5))
    without = [
        replace(
            frame,
            host=replace(
                frame.host,
                processes=replace(
                    frame.host.processes,
                    threads=tuple(replace(row, run_delay_ms=None) for row in frame.host.processes.threads),
                ),
            ),
        )
        for frame in frames
    ]
    load = client_bound(Interval(without[:-1]))
    assert load is not None
    assert (load.most_queued, load.busiest_demand) == (None, None)
    assert load.bound
    assert "used a CPU 97 % of the time" in load.reason
