"""The latency budget against arithmetic done by hand: it adds up, never exceeds what the client measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.metrics.active_sessions import WAITS_WINDOW_S
from pgtop_tune.metrics.budget import CLIENT_THINKS, OTHER, SCHEDULE_LAG, LatencyBudget, latency_budget
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load_cpu import cpu_of_load
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchProgress
from pgtop_tune.model.host import HostSample, ProcessCounters, ProcessSample
from pgtop_tune.model.postgres import Activity
from pgtop_tune.model.waits import QUEUE, WaitCount, WaitSample
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.waits import budget_lines
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text
from tests.support.frames import EPOCH_MS, backend, bench_sample, frame, host_sample, postgres_sample
from tests.support.situations import Situation

ELSEWHERE = Unavailable(Reason.NOT_LOCAL)
TPS = 1000.0


def waiting(wait: str, event: str, observations: int, *, of_load: bool = True) -> WaitCount:
    return WaitCount(wait, event, "client backend", observations, 7, "bench", "bench", of_load)


def interval(
    *counts: WaitCount,
    latency_ms: float = 10.0,
    cpu_ticks: int | None = None,
    delay_ms: int | None = None,
    system_ticks: int = 0,
    rate_per_s: float | None = None,
    lag_ms: float | None = None,
    load: bool = True,
) -> Interval:
    """Ten seconds of ten looks each; two backends of pgbench that use so many ticks and wait so long each second."""
    frames = []
    for second in range(12):
        now_ms = EPOCH_MS + second * 1000
        activity = Activity(float(second), now_ms, tuple(backend(pid, now_ms) for pid in (11, 12)))
        waits = WaitSample(float(second), 10, counts)
        host: HostSample | Unavailable = ELSEWHERE
        if cpu_ticks is not None:
            delay = None if delay_ms is None else delay_ms * second
            rows = tuple(
                ProcessCounters(pid, pid, "S", cpu_ticks * second, system_ticks * second, 0, 0, None, None, delay)
                for pid in (11, 12)
            )
            host = host_sample(second, processes=ProcessSample(float(second), rows))
        bench = bench_sample(second, progress=(BenchProgress(float(second), TPS, latency_ms, 1.0, lag_ms=lag_ms),))
        bench = replace(bench, run=replace(bench.run, rate_per_s=rate_per_s))
        postgres = postgres_sample(second, activity=activity, waits=waits)
        frames.append(frame(second, host=host, postgres=postgres, bench=bench if load else Unavailable(Reason.NO_LOAD)))
    return Interval(frames)


@pytest.mark.parametrize(("delay_ms", "is_told"), [(None, True), (500, False)])
def test_where_the_system_counts_no_queue_the_pane_says_where_it_went(delay_ms: int | None, *, is_told: bool) -> None:
    session = Session(())
    for each in interval(waiting("Client", "turn", 20), cpu_ticks=25, delay_ms=delay_ms)._frames:
        session.apply(Step((each,)))
    title = plain_text(budget_lines(session, 120, 4, UNICODE)[0])
    assert ("CPU queue unknown" in title) is is_told


def parts(budget: LatencyBudget | None) -> dict[str, float]:
    assert budget is not None
    assert sum(part.ms for part in budget.parts) == pytest.approx(budget.total_ms)
    assert min(part.ms for part in budget.parts) >= 0.0
    return {part.label: pytest.approx(part.ms) for part in budget.parts}


WAITS = (waiting("IO", "WalSync", 40), waiting("CPU", "", 10), waiting("Client", "turn", 20))


def test_sampled_sessions_over_throughput_are_milliseconds_and_the_rest_is_other() -> None:
    found = latency_budget(interval(*WAITS))
    assert parts(found) == {"IO:WalSync": 4.0, "CPU": 1.0, CLIENT_THINKS: 2.0, OTHER: 3.0}
    assert found is not None
    assert (found.measured, found.scale) == (True, 1.0)
    assert found.parts[-1].label == OTHER


def test_what_a_transaction_began_late_is_a_part_of_its_own() -> None:
    found = latency_budget(interval(*WAITS, latency_ms=310.0, rate_per_s=1100.0, lag_ms=300.0))
    assert parts(found) == {SCHEDULE_LAG: 300.0, "IO:WalSync": 4.0, "CPU": 1.0, CLIENT_THINKS: 2.0, OTHER: 3.0}
    assert found is not None
    assert found.begun_ms == pytest.approx(10.0)


def test_measured_cpu_and_queue_take_the_place_of_what_sampling_saw() -> None:
    # Two backends with 25 ticks a second each are half a CPU; 1,500 ms of waiting a second each are three in the queue.
    # One of these 3.5 was seen as CPU, the others as the client's turn.
    found = interval(*WAITS, waiting("Client", "between", 20), cpu_ticks=25, delay_ms=1500)
    assert parts(latency_budget(found)) == {"IO:WalSync": 4.0, "CPU": 0.5, QUEUE: 3.0, CLIENT_THINKS: 1.5, OTHER: 1.0}


def test_time_in_the_queue_is_taken_out_of_the_client_s_turn_first() -> None:
    found = interval(*WAITS, waiting("Client", "between", 60), cpu_ticks=50, delay_ms=1500)
    assert parts(latency_budget(found)) == {"IO:WalSync": 4.0, "CPU": 1.0, QUEUE: 3.0, CLIENT_THINKS: 2.0, OTHER: 0.0}


def test_without_schedstat_the_larger_of_both_cpu_figures_counts() -> None:
    assert parts(latency_budget(interval(*WAITS, cpu_ticks=25)))["CPU"] == 1.0
    assert parts(latency_budget(interval(*WAITS, cpu_ticks=100)))["CPU"] == 2.0


def test_parts_that_overlap_are_scaled_down_to_what_the_client_measured() -> None:
    found = latency_budget(interval(*WAITS, latency_ms=2.5))
    assert parts(found) == {"IO:WalSync": 2.0, "CPU": 0.5, OTHER: 0.0}
    assert found is not None
    assert found.scale == pytest.approx(0.5)


def test_pauses_between_transactions_of_a_throttled_load_are_not_part_of_its_latency() -> None:
    between = waiting("Client", "between", 30)
    assert parts(latency_budget(interval(*WAITS, between)))[CLIENT_THINKS] == 5.0
    assert parts(latency_budget(interval(*WAITS, between, rate_per_s=100.0)))[CLIENT_THINKS] == 2.0


def test_other_sessions_are_not_charged_to_the_load() -> None:
    stranger = waiting("IO", "DataFileRead", 500, of_load=False)
    assert "IO:DataFileRead" not in parts(latency_budget(interval(*WAITS, stranger)))


def test_a_load_that_does_not_call_itself_pgbench_is_all_client_backends() -> None:
    strangers = [replace(wait, of_load=False) for wait in WAITS]
    assert parts(latency_budget(interval(*strangers)))["IO:WalSync"] == 4.0


def test_without_a_load_the_parts_are_over_the_server_s_throughput() -> None:
    found = latency_budget(interval(*WAITS, load=False))
    assert found is not None
    assert not found.measured
    assert {part.label for part in found.parts} == {"IO:WalSync", "CPU", CLIENT_THINKS}
    assert found.total_ms == pytest.approx(1000.0 * 7.0 / found.tps)


def test_without_a_load_waits_and_throughput_are_of_the_same_seconds() -> None:
    """Divided by the throughput of one slow second, ten seconds of waits made ten times as many milliseconds."""
    steady = Situation(waits={"IO:WalSync": 2.0}, tps=1000.0, load=False)
    frames = [steady.frame(second) for second in range(20)]
    counted = frames[-1].postgres.database  # type: ignore[union-attr]
    slow = steady.frame(20)
    database = replace(counted, at_s=20.0, xact_commit=counted.xact_commit + 100)
    frames.append(replace(slow, postgres=replace(slow.postgres, database=database)))  # type: ignore[type-var]
    found = latency_budget(Interval(frames))
    assert found is not None
    assert found.tps == pytest.approx(910.0)
    assert found.total_ms == pytest.approx(1000.0 * 2.0 / 910.0)


def test_cpu_is_not_known_when_backends_come_and_go() -> None:
    seen = interval(*WAITS, cpu_ticks=25, delay_ms=0)
    assert cpu_of_load(seen, WAITS_WINDOW_S) is not None
    fresh = [
        replace(one, host=replace(one.host, processes=ProcessSample(one.elapsed_s, tuple(
            replace(row, start_ticks=one.sequence) for row in one.host.processes.processes
        )))) for one in seen._frames
    ]  # fmt: skip
    assert cpu_of_load(Interval(fresh), WAITS_WINDOW_S) is None


@given(
    st.lists(st.integers(0, 300), min_size=4, max_size=4),
    st.floats(0.01, 100.0),
    st.none() | st.integers(0, 400),
    st.none() | st.integers(0, 4000),
)
def test_any_budget_adds_up_and_nothing_is_negative(
    seen: list[int], latency_ms: float, cpu_ticks: int | None, delay_ms: int | None
) -> None:
    kinds = (("IO", "WalSync"), ("CPU", ""), ("Client", "turn"), ("Client", "between"))
    counts = [waiting(*kind, observations) for kind, observations in zip(kinds, seen, strict=True)]
    found = latency_budget(interval(*counts, latency_ms=latency_ms, cpu_ticks=cpu_ticks, delay_ms=delay_ms))
    if any(seen):
        assert found is not None
        assert found.total_ms == pytest.approx(latency_ms)
        parts(found)
