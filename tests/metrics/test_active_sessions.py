"""The one definition of active sessions: what counts, what stands beside, and that nothing is lost or counted twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.host.psutil_rows import NEVER
from pgtop_tune.metrics.active_sessions import (
    WAITS_WINDOW_S,
    SessionActivity,
    activity_of,
    is_active,
    sessions,
)
from pgtop_tune.metrics.budget import latency_budget
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.host import PROCESS_CPU
from pgtop_tune.metrics.host_values import untold
from pgtop_tune.metrics.load_cpu import cpu_of_load
from pgtop_tune.metrics.waits import (
    ACTIVE_SESSIONS,
    BACKGROUND,
    CLASSES,
    CLIENT_THINKS,
    IO_WORKERS,
    NEWEST,
    PACING,
    mean_over,
    watched_s,
)
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostFacts, HostSample, ProcessSample
from pgtop_tune.model.postgres import Activity, PostgresSample
from pgtop_tune.model.waits import QUEUE, WaitCount, WaitSample
from tests.metrics.test_budget import interval, waiting
from tests.support.frames import facts

BESIDE = (
    (SessionActivity.PACING, WaitCount("Timeout", "CheckpointWriteDelay", "checkpointer", 10)),
    (SessionActivity.PACING, WaitCount("Timeout", "VacuumDelay", "autovacuum worker", 10)),
    (SessionActivity.PACING, WaitCount("Timeout", "VacuumDelay", "client backend", 10)),
    (SessionActivity.PACING, WaitCount("Timeout", "RecoveryRetrieveRetryInterval", "startup", 10)),
    (SessionActivity.PACING, WaitCount("CPU", "", "archiver", 10)),
    (SessionActivity.PACING, WaitCount("IPC", "ArchiveCommand", "archiver", 10)),
    (SessionActivity.PACING, WaitCount("IPC", "WalReceiverWaitStart", "walreceiver", 10)),
    (SessionActivity.PACING, WaitCount("Client", "LibPQWalReceiverReceive", "walreceiver", 10)),
    (SessionActivity.PACING, WaitCount("Client", "WalSenderWaitForWAL", "walsender", 10)),
    (SessionActivity.PACING, WaitCount("IPC", "WaitForWalFlush", "REPACK decoding worker", 10)),
    (SessionActivity.IO_WORKER, WaitCount("IO", "DataFileRead", "io worker", 10)),
    (SessionActivity.IO_WORKER, WaitCount("CPU", "", "io worker", 10)),
    (SessionActivity.TURN, WaitCount("Client", "turn", "client backend", 10)),
    (SessionActivity.BACKGROUND, WaitCount("IO", "DataFileWrite", "checkpointer", 10)),
    (SessionActivity.BACKGROUND, WaitCount("CPU", "", "autovacuum worker", 10)),
    (SessionActivity.BACKGROUND, WaitCount("BufferPin", "BufferPin", "startup", 10)),
    (SessionActivity.BACKGROUND, WaitCount("CPU", "", "pg_cron", 10)),
)
AT_WORK = (
    WaitCount("Timeout", "PgSleep", "client backend", 10),
    WaitCount("Client", "ClientRead", "client backend", 10),
    WaitCount("Client", "LibpqwalreceiverReceive", "client backend", 10),
    WaitCount("CPU", "", "parallel worker", 10),
    WaitCount("CPU", "", "", 10),
    WaitCount("IO", "AioIoCompletion", "client backend", 10),
    WaitCount("Buffer", "BufferExclusive", "client backend", 10),
    WaitCount("IPC", "WaitForWalFlush", "client backend", 10),
)


def test_sleeps_that_are_meant_and_processes_of_the_server_stand_beside() -> None:
    assert [activity_of(count) for _, count in BESIDE] == [expected for expected, _ in BESIDE]
    assert all(is_active(count) for count in AT_WORK)
    found = interval(*(count for _, count in BESIDE), *AT_WORK)
    assert ACTIVE_SESSIONS(found) == pytest.approx(len(AT_WORK))
    beside = (PACING(found), IO_WORKERS(found), CLIENT_THINKS(found), BACKGROUND(found))
    assert beside == pytest.approx((10.0, 2.0, 1.0, 4.0))


def test_sleeps_and_processes_of_the_server_are_no_part_of_a_transaction() -> None:
    strangers = [count for _, count in BESIDE]
    for load in (True, False):
        seen = interval(*strangers, waiting("IO", "WalSync", 10), load=load)
        budget = latency_budget(seen)
        assert budget is not None
        assert {part.label for part in budget.parts} <= {"IO:WalSync", "Client:think", "other"}
        assert {budget.ms_of(count) for count in strangers if not count.is_idle} == {0.0}


KINDS = (
    waiting("CPU", "", 1), waiting("IO", "WalSync", 1), waiting("Client", "turn", 1), waiting("Client", "between", 1),
    waiting("CPU", "", 1, of_load=False), *AT_WORK, *(count for _, count in BESIDE),
)  # fmt: skip


@given(
    st.lists(st.integers(0, 200), min_size=len(KINDS), max_size=len(KINDS)),
    st.none() | st.integers(0, 100),
    st.none() | st.integers(0, 3000),
    st.sampled_from((NEWEST, 10.0)),
)
def test_the_parts_add_up_and_no_session_is_lost_or_made(
    observed: list[int], ticks: int | None, delay_ms: int | None, window_s: float
) -> None:
    counts = [
        WaitCount(kind.wait_event_type, kind.wait_event, kind.backend_type, each, kind.query_id, of_load=kind.of_load)
        for kind, each in zip(KINDS, observed, strict=True)
    ]
    found = interval(*counts, cpu_ticks=ticks, delay_ms=delay_ms)
    listed = sessions(found, window_s)
    assert listed is not None
    assert all(one.mean >= 0.0 for one in listed)
    active = mean_over(ACTIVE_SESSIONS, found, window_s) or 0.0
    parts = sum(mean_over(metric, found, window_s) or 0.0 for metric in CLASSES)
    assert parts == pytest.approx(active)
    beside = sum(
        mean_over(metric, found, window_s) or 0.0 for metric in (CLIENT_THINKS, PACING, BACKGROUND, IO_WORKERS)
    )
    whole = sum(observed) / 10.0
    # Two processes of the load: the kernel may have counted more than the looks saw of it, never less.
    measured = 0.0 if ticks is None or not any(observed[:4]) else (2 * ticks / 100.0) + 2 * (delay_ms or 0) / 1000.0
    assert active + beside >= whole - 1e-6
    assert active + beside == pytest.approx(
        max(whole, (sum(observed) - sum(observed[i] for i in (0, 2, 3))) / 10.0 + measured)
    )


def test_the_queue_is_taken_from_the_client_s_turn_and_stands_on_its_own() -> None:
    found = interval(
        waiting("IO", "WalSync", 10), waiting("CPU", "", 10), waiting("Client", "turn", 40), cpu_ticks=25, delay_ms=1000
    )
    means = {metric.title: metric(found) for metric in (*CLASSES, ACTIVE_SESSIONS, CLIENT_THINKS)}
    expected = {"IO": 1.0, "CPU": 0.5, QUEUE: 2.0, "active sessions": 3.5, "client think/network": 2.5}
    assert {name: value for name, value in means.items() if value} == pytest.approx(expected)


def test_time_in_system_calls_is_a_share_of_the_cpu_time_of_the_load() -> None:
    use = cpu_of_load(interval(waiting("CPU", "", 10), cpu_ticks=30, system_ticks=10), WAITS_WINDOW_S)
    assert use is not None
    assert (use.used, use.system) == pytest.approx((0.8, 0.25))


def test_the_cpu_time_of_hundreds_of_sessions_is_not_counted_in_ticks() -> None:
    """Of 900 that began together none had a tick of 10 ms for half a minute, and then all had one in a second."""
    frames = []
    for each in interval(waiting("Client", "turn", 90), cpu_ticks=0)._frames:
        host = each.host
        assert isinstance(host, HostSample)
        assert isinstance(host.processes, ProcessSample)
        rows = tuple(replace(row, run_ms=round(200 * each.elapsed_s)) for row in host.processes.processes)
        frames.append(replace(each, host=replace(host, processes=replace(host.processes, processes=rows))))
    use = cpu_of_load(Interval(frames), WAITS_WINDOW_S)
    assert use is not None
    assert use.used == pytest.approx(0.2 * len(rows))
    assert PROCESS_CPU(Interval(frames)) == pytest.approx({row.pid: 20.0 for row in rows})


def test_a_queue_that_the_host_source_does_not_tell_is_no_0() -> None:
    *frames, last = interval(waiting("IO", "WalSync", 10), waiting("Client", "turn", 40), cpu_ticks=25)._frames
    host = last.host
    assert isinstance(host, HostSample)
    assert isinstance(host.facts, HostFacts)
    (queue,) = [metric for metric in CLASSES if metric.title == QUEUE]
    assert queue(Interval((*frames, last))) == 0.0
    facts = replace(host.facts, source="psutil", untold=NEVER)
    found = Interval((*frames, replace(last, host=replace(host, facts=facts))))
    assert (queue(found), mean_over(queue, found, 10.0)) == (None, None)
    assert "schedstat" in str(untold(found.newest, queue.id))


def test_of_a_young_load_no_more_is_counted_than_there_was() -> None:
    """Three of ten seconds: what the kernel measured since it began is not the mean of all ten."""
    seen = (waiting("IO", "WalSync", 10), waiting("Client", "turn", 40))
    frames = list(interval(*seen, cpu_ticks=25, delay_ms=1000)._frames)
    for at, each in enumerate(frames[:-3]):
        postgres = replace(each.postgres, waits=WaitSample(float(at), 10, ()))
        host = replace(each.host, processes=ProcessSample(float(at), ()))
        run = replace(each.bench.run, started_ms=frames[-3].taken_at_ms)
        frames[at] = replace(each, postgres=postgres, host=host, bench=replace(each.bench, run=run, progress=()))
    for at, worked_s in ((-3, None), (-2, 1.0), (-1, 2.0)):
        bench = frames[at].bench
        lines = () if worked_s is None else (replace(bench.progress[-1], elapsed_s=worked_s),)
        frames[at] = replace(frames[at], bench=replace(bench, run=frames[0].bench.run, progress=lines))
    found = Interval(frames)
    listed = sessions(found, 10.0)
    assert listed is not None
    assert sum(one.mean for one in listed) == pytest.approx(5.0 * 3 / 10)
    budget = latency_budget(found)
    assert budget is not None
    ms = {part.label: part.ms for part in budget.parts}
    assert (ms["IO:WalSync"], ms["CPU"], ms[QUEUE]) == pytest.approx((1.0, 0.5, 2.0), rel=0.01), (
        "of the two seconds it has run"
    )


@pytest.mark.parametrize("left", [(), (11,)])
def test_a_load_that_has_just_ended_keeps_its_queue_over_the_window(left: tuple[int, ...]) -> None:
    """Of hundreds of sessions some are still there when it is looked."""
    found = interval(waiting("CPU", "", 10), waiting("Client", "turn", 40), cpu_ticks=25, delay_ms=1000)
    *frames, last = found._frames
    postgres, host = last.postgres, last.host
    assert isinstance(postgres, PostgresSample)
    assert isinstance(postgres.activity, Activity)
    assert isinstance(host, HostSample)
    assert isinstance(host.processes, ProcessSample)
    backends = tuple(each for each in postgres.activity.backends if each.pid in left)
    rows = tuple(each for each in host.processes.processes if each.pid in left)
    ended = replace(
        last,
        postgres=replace(postgres, activity=Activity(11.0, 0, backends), waits=WaitSample(11.0, 10, ())),
        host=replace(host, processes=ProcessSample(11.0, rows)),
    )
    (queue,) = [metric for metric in CLASSES if metric.title == QUEUE]
    running, over = Interval(frames), Interval((*frames, ended))
    assert mean_over(queue, running, 10.0) == pytest.approx(2.0)
    # Each queues all of the time and is on a CPU for a quarter of it.
    more = len(left) / 10
    assert mean_over(queue, over, 10.0) == pytest.approx(2.0 * 9 / 10 + more, rel=0.02)
    assert mean_over(CLIENT_THINKS, over, 10.0) == pytest.approx(2.5 * 9 / 10 - 1.25 * more, rel=0.02)


@pytest.mark.parametrize(
    ("looks", "of_s"),
    [([10] * 10, 10.0), ([10, *[0] * 8], 1.0), ([0, 1, 0, 0, 0, 0, 1, 0, 0], 10.0), ([0] * 5, 1.0)],
)
def test_a_mean_is_said_to_be_of_the_time_in_which_there_were_looks(looks: list[int], of_s: float) -> None:
    """After a look that took the server seconds there is none for a while."""
    frames = []
    for second, samples in enumerate(looks):
        waits = WaitSample(at_s=float(second), samples=samples, counts=())
        frames.append(Frame(second, 0, float(second), postgres=PostgresSample(server=facts(), waits=waits)))
    assert watched_s(Interval(frames), WAITS_WINDOW_S) == of_s
