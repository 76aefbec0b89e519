"""Numbers of the machine by hand arithmetic, and silence wherever a counter started anew."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.metrics import host as metrics
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric
from pgtop_tune.metrics.host_values import foreign_cpu_over
from pgtop_tune.model.absence import NOT_YET, Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import (
    CpuSample,
    CpuTimes,
    DiskCounters,
    DiskSample,
    HostFacts,
    HostSample,
    HugePages,
    MemorySample,
    PressureLine,
    PressureSample,
    ProcessCounters,
    ProcessSample,
)
from pgtop_tune.model.postgres import Activity, PostgresSample
from tests.support.frames import backend, facts

GIB = 1 << 30
FACTS = HostFacts("db1", "6.12.0", "local", "boot-1", 2, 100, 4096, 16 * GIB)
KEYED: tuple[Keyed[str] | Keyed[int], ...] = (
    *metrics.CORE_METRICS,
    *metrics.HUGE_PAGE_METRICS,
    *metrics.DISK_METRICS,
    *metrics.PROCESS_METRICS,
)
GAUGES = {
    *("host.run_queue", "host.blocked", "host.load_1m", "host.load_5m", "host.load_15m", "host.swap.used"),
    *(metric.id for metric in metrics.METRICS if metric.id.startswith("host.memory.")),
    *(metric.id for metric in metrics.HUGE_PAGE_METRICS),
    "host.process.rss",
}


def cpu_times(name: str, *ticks: int) -> CpuTimes:
    return CpuTimes(name, *ticks, *([0] * (10 - len(ticks))))


def cpu(at_s: float, cores: tuple[CpuTimes, ...], ctxt: int = 0) -> CpuSample:
    return CpuSample(at_s, cores[0], cores[1:], ctxt, 9, 2, 8.31, 7.9, 6.25)


def memory(at_s: float, swap_in: int | None = 0, swap_out: int | None = 0) -> MemorySample:
    return MemorySample(
        at_s=at_s, total_bytes=16 * GIB, free_bytes=GIB, available_bytes=8 * GIB, buffers_bytes=GIB // 4,
        cached_bytes=9 * GIB, shmem_bytes=2 * GIB, dirty_bytes=100, writeback_bytes=50, page_tables_bytes=70,
        anon_huge_bytes=None, shmem_huge_bytes=None, committed_bytes=5, commit_limit_bytes=6, swap_total_bytes=1000,
        swap_free_bytes=400, swap_in_pages=swap_in, swap_out_pages=swap_out, thp_mode="never",
        huge_pages=(HugePages(2 << 20, 3000, 2944, 2051, 0),),
    )  # fmt: skip


def pressure(at_s: float, us: int) -> PressureSample:
    return PressureSample(at_s, PressureLine(us, None), PressureLine(3 * us, 2 * us), PressureLine(us // 10, us // 20))


def disk(name: str = "vda", factor: int = 1) -> DiskCounters:
    return DiskCounters(
        name, reads=12 * factor, read_bytes=98_304 * factor, read_ms=5 * factor, writes=5_900 * factor,
        write_bytes=48_332_800 * factor, write_ms=57_820 * factor, in_flight=7, busy_ms=980 * factor,
        weighted_ms=57_000 * factor,
    )  # fmt: skip


def process(
    pid: int, ticks: int = 0, start: int = 1, read: int | None = None, write: int | None = None
) -> ProcessCounters:
    return ProcessCounters(pid, start, "S", ticks, ticks, 20 << 20, 0, read, write)


def look(at_s: float, factor: int, boot_id: str = "boot-1") -> HostSample:
    """Every section; every counter grows with the factor."""
    times = (
        cpu_times("cpu", 80 * factor, 2, 24 * factor, 50 * factor, 46 * factor),
        cpu_times("cpu0", factor, 0, factor, factor),
    )
    return HostSample(
        facts=replace(FACTS, boot_id=boot_id),
        cpu=cpu(at_s, times, 48_000 * factor),
        memory=memory(at_s, 10 * factor, 20 * factor),
        pressure=pressure(at_s, 140_000 * factor),
        disks=DiskSample(at_s, (disk(factor=factor),)),
        processes=ProcessSample(at_s, (process(7, factor, 1, 100 * factor, 200 * factor),)),
    )  # fmt: skip


def over(*samples: HostSample | Unavailable) -> Interval:
    return Interval([Frame(number, 0, float(number), host=sample) for number, sample in enumerate(samples)])


def sections(**by_name: object) -> HostSample:
    return HostSample(**({"facts": FACTS} | by_name))  # type: ignore[arg-type]


def test_rows_are_complete_and_their_ids_unique() -> None:
    rows: list[Metric | Keyed[str] | Keyed[int]] = [*metrics.METRICS, *KEYED]
    assert len({row.id for row in rows}) == len(rows) == 35 + 18
    for row in rows:
        assert row.title
        assert row.definition.endswith(".")
        assert row.source


def said(interval: Interval) -> set[str]:
    """Ids of everything that can be said."""
    return {metric.id for metric in metrics.METRICS if metric(interval) is not None} | {
        row.id for row in KEYED if row(interval)
    }


def test_everything_can_be_said_of_two_looks() -> None:
    ids = {metric.id for metric in metrics.METRICS} | {row.id for row in KEYED}
    assert ids - said(over(look(1, 1), look(2, 2))) == {"host.psi.cpu_full", "host.memory.anon_huge", "host.memory.arc"}


REMAINING = GAUGES - {"host.memory.anon_huge", "host.memory.arc"}


@pytest.mark.parametrize(
    "interval",
    [
        pytest.param(over(look(2, 2)), id="first look"),
        pytest.param(over(look(1, 1), look(2, 2, "boot-2")), id="reboot"),
        pytest.param(over(look(2, 1), look(2, 2)), id="no time has passed"),
        pytest.param(over(look(1, 3), look(2, 2)), id="counters went backwards"),
        pytest.param(over(look(1, 1), Unavailable(Reason.NO_ANSWER), look(3, 3)), id="outage"),
        pytest.param(over(look(1, 1), HostSample(), look(3, 3)), id="sections absent in between"),
    ],
)
def test_rates_are_silent_and_gauges_are_not(interval: Interval) -> None:
    assert said(interval) == REMAINING


def test_nothing_is_said_of_a_machine_that_cannot_be_seen() -> None:
    assert said(over(look(1, 1), look(2, 2), NOT_YET)) == set()


def test_cpu_shares_by_hand() -> None:
    older = cpu(1.0, (cpu_times("cpu", 100, 10, 50, 500, 60, 5, 5, 20, 90, 10),))
    newer = cpu(2.0, (cpu_times("cpu", 150, 20, 74, 560, 106, 7, 8, 25, 140, 20),), 48_000)
    interval = over(sections(cpu=older), sections(cpu=newer))
    # 50 + 10 + 24 + 60 + 46 + 2 + 3 + 5 = 200 ticks; guest time is part of user and nice.
    found = {metric.id.removeprefix("host.cpu."): metric(interval) for metric in metrics.METRICS[:7]}
    assert found == {"user": 30.0, "system": 12.0, "iowait": 23.0, "steal": 2.5, "idle": 30.0, "irq": 2.5, "busy": 47.0}
    assert metrics.CONTEXT_SWITCHES(interval) == 48_000


def test_cpu_time_that_is_neither_the_server_s_nor_ours_is_foreign() -> None:
    older = cpu(1.0, (cpu_times("cpu", 100, 0, 0, 500, 0, 0, 0, 0),))
    newer = cpu(2.0, (cpu_times("cpu", 250, 0, 0, 540, 0, 0, 0, 10),))
    server = [
        ProcessCounters(pid=7, start_ticks=1, state="R", user_ticks=ticks, system_ticks=0, rss_bytes=0, delay_ticks=0)
        for ticks in (40, 140)
    ]
    found = [
        sections(cpu=sample, processes=ProcessSample(sample.at_s, (process,)))
        for sample, process in zip((older, newer), server, strict=True)
    ]
    # Of 200 ticks 160 were not idle, 10 of them stolen; 100 were the server's.
    assert metrics.CPU_FOREIGN(over(*found)) == pytest.approx(30.0)
    assert metrics.CPU_FOREIGN(over(sections(cpu=older), sections(cpu=newer))) is None


def test_sessions_that_begin_or_end_between_two_looks_are_not_foreign() -> None:
    """Parallel workers, connections of a transaction each: the postmaster has the time of those that have ended."""
    older = cpu(1.0, (cpu_times("cpu", 100, 0, 0, 500, 0, 0, 0, 0),))
    newer = cpu(2.0, (cpu_times("cpu", 260, 0, 0, 540, 0, 0, 0, 0),))

    def process(pid: int, ticks: int, reaped: int = 0) -> ProcessCounters:
        return ProcessCounters(
            pid=pid, start_ticks=1, state="R", user_ticks=ticks, system_ticks=0, rss_bytes=0, delay_ticks=0,
            reaped_ticks=reaped,
        )  # fmt: skip

    # 9 had 900 ticks and used 20 more to its end; two lived in between, of 15 ticks each; 11 began; 12 is an old one.
    before = (process(7, 3, reaped=5000), process(8, 40), process(9, 900))
    after = (process(7, 3, reaped=5950), process(8, 60), process(11, 30), process(12, 70_000))
    found = [
        sections(cpu=sample, processes=ProcessSample(sample.at_s, processes))
        for sample, processes in ((older, before), (newer, after))
    ]
    # Of 200 ticks 160 were not idle; 20 + 20 + 30 + 30 = 100 were the server's.
    assert metrics.CPU_FOREIGN(over(*found)) == pytest.approx(30.0)


def test_hundreds_of_sessions_that_end_at_once_are_no_work_of_the_last_second() -> None:
    """The postmaster gets their time to the nanosecond; what was seen of them were ticks, half a tick less of each."""

    def process(pid: int, ms: int, reaped: int = 0) -> ProcessCounters:
        return ProcessCounters(
            pid=pid, start_ticks=1, state="S", user_ticks=ms // 10, system_ticks=0, rss_bytes=0, delay_ticks=0,
            reaped_ticks=reaped, run_ms=ms,
        )  # fmt: skip

    older = sections(
        cpu=cpu(1.0, (cpu_times("cpu", 100, 0, 0, 500, 0, 0, 0, 0),)),
        processes=ProcessSample(1.0, (process(7, 0), *(process(100 + at, 1009) for at in range(200)))),
    )
    newer = sections(
        cpu=cpu(2.0, (cpu_times("cpu", 260, 0, 0, 540, 0, 0, 0, 0),)),
        processes=ProcessSample(2.0, (process(7, 0, reaped=200 * 1009 // 10),)),
    )
    # Of 200 ticks of two CPUs 160 were not idle, and nobody's that is known.
    assert metrics.CPU_FOREIGN(over(older, newer)) == pytest.approx(80.0)


def test_work_of_processes_from_before_the_first_look_is_not_taken_from_other_programs() -> None:
    """The server did not answer at first: its time since its start took 1.2 of 1.6 CPUs from the others."""

    def process(pid: int, start: int, ticks: int) -> ProcessCounters:
        return ProcessCounters(
            pid=pid, start_ticks=start, state="R", user_ticks=ticks, system_ticks=0, rss_bytes=0, delay_ticks=0
        )

    frames = []
    for second in range(6):
        total = cpu_times("cpu", 200 * second, 0, 0, 0, 0, 0, 0, 0)
        answers = second >= 2
        rows = (process(9, 900, 0), *((process(7, 100, 150 + 20 * second),) if answers else ()))
        sample = sections(cpu=cpu(float(second), (total,)), processes=ProcessSample(float(second), rows))
        frames.append(Frame(second, 0, float(second), host=sample))
    assert foreign_cpu_over(Interval(frames[:3]), 10.0) is None
    assert foreign_cpu_over(Interval(frames), 10.0) == pytest.approx(90.0)


def test_the_cpu_time_of_others_is_of_the_time_between_two_looks_at_processes() -> None:
    """Of a crowd processes are looked at every third second: a second in which the crowd works is no one else's."""
    frames, processes = [], ProcessSample(0.0, ())
    busy = own = 0
    for second in range(13):
        works = second in (5, 6, 7)
        busy, own = busy + (160 if works else 20), own + (150 if works else 10)
        if second % 3 == 0:
            row = ProcessCounters(
                pid=7, start_ticks=1, state="R", user_ticks=own, system_ticks=0, rss_bytes=0, delay_ticks=0
            )
            processes = ProcessSample(float(second), (row,))
        total = cpu_times("cpu", busy, 0, 0, 200 * second + 500 - busy, 0, 0, 0, 0)
        sample = sections(cpu=cpu(float(second), (total,)), processes=processes)
        frames.append(Frame(second, 0, float(second), host=sample))
    found = [metrics.CPU_FOREIGN(Interval(frames[: end + 1])) for end in range(13)]
    assert found == [None] * 3 + [pytest.approx(5.0)] * 10
    assert foreign_cpu_over(Interval(frames), 10.0) == pytest.approx(5.0)


def split(
    grown: tuple[int, ...], used: dict[int, int], source: str = "local", answers: bool = True
) -> Mapping[str, float]:
    """The users of two CPUs in a second, 200 ticks: 7 and 1 are the server, 8 and 9 pgbench and pgtop-tune."""
    frames = []
    sessions = (backend(7, 0), backend(6, 0))
    for second in (0, 1, 2):
        ticks = second
        rows = tuple(
            ProcessCounters(
                pid=pid, start_ticks=1, state="R", user_ticks=ticks * grew, system_ticks=0, rss_bytes=0, delay_ticks=0
            )
            for pid, grew in used.items()
        )
        server = facts(postmaster_pid=1)
        activity = Activity(second - 0.1, 0, sessions, own_backends=0)
        host = sections(
            facts=replace(FACTS, source=source),
            cpu=cpu(float(second), (cpu_times("cpu", *(1_000 + ticks * kind for kind in grown)),)),
            processes=ProcessSample(float(second), rows),
        )
        silent = Unavailable(Reason.NO_ANSWER, "no answer") if second == 2 and not answers else None
        frames.append(
            Frame(
                second, 0, float(second), host=host, postgres=silent or PostgresSample(server=server, activity=activity)
            )
        )
    return metrics.CPU_SPLIT(Interval(frames))


def test_cpu_time_is_split_by_its_user() -> None:
    """User, nice, system, idle, iowait, irq, softirq, steal."""
    grown = (100, 0, 20, 40, 10, 4, 6, 20)
    expected = {"postgres": 32.0, "ours": 10.0, "others": 23.0, "steal": 10.0, "idle": 25.0}
    used = {7: 60, 1: 4, 8: 14, 9: 6}
    assert split(grown, used) == pytest.approx(expected)
    assert split(grown, used, answers=False) == pytest.approx(expected), "its processes are known a while longer"
    over_sql = split(grown, {7: 60, 1: 4}, source="server's /proc over SQL")
    assert over_sql == pytest.approx({"postgres": 32.0, "others": 33.0, "steal": 10.0, "idle": 25.0})
    hidden = split(grown, {8: 14, 9: 6})
    assert hidden == pytest.approx({"unknown": 65.0, "steal": 10.0, "idle": 25.0}), "hidden processes used not nothing"


@given(
    st.lists(st.integers(0, 4000), min_size=8, max_size=8),
    st.lists(st.integers(0, 9000), min_size=4, max_size=4),
    st.booleans(),
)
def test_the_users_of_cpu_time_add_up_to_the_whole(grown: list[int], used: list[int], hidden: bool) -> None:
    """Ticks of CPUs are counted by chance, those of processes exactly: the sum of these may be larger."""
    parts = split(tuple(grown), dict(zip((2, 3) if hidden else (7, 1, 8, 9), used, strict=False)))
    assert sum(parts.values()) == (pytest.approx(100.0) if any(grown) else 0)
    assert all(0.0 <= part <= 100.0 + 1e-6 for part in parts.values())


@given(
    st.lists(st.integers(0, 1 << 40), min_size=8, max_size=8), st.lists(st.integers(0, 4000), min_size=8, max_size=8)
)
def test_the_kinds_of_cpu_time_add_up_to_the_whole(start: list[int], grown: list[int]) -> None:
    older = cpu_times("cpu", *start)
    newer = cpu_times("cpu", *(then + more for then, more in zip(start, grown, strict=True)))
    interval = over(sections(cpu=cpu(1.0, (older,))), sections(cpu=cpu(2.0, (newer,))))
    kinds = [metric(interval) for metric in metrics.METRICS[:6]]
    if sum(grown) == 0:
        assert kinds == [None] * 6
    else:
        assert sum(kind for kind in kinds if kind is not None) == pytest.approx(100.0)


@pytest.mark.parametrize("falling", range(8))
def test_a_kind_of_cpu_time_that_falls_has_not_grown(falling: int) -> None:
    """The kernel documents that iowait may decrease; idle does with cores that go off line, steal on a migration."""
    before, after = [1000] * 8, [1000 + 10 * (kind + 1) for kind in range(8)]
    after[falling] = 500
    interval = over(
        *(
            sections(cpu=cpu(at_s, (cpu_times("cpu", *ticks), cpu_times("cpu0", *ticks))))
            for at_s, ticks in ((1.0, before), (2.0, after))
        )
    )
    user, system, iowait, steal, idle, interrupts = (metric(interval) or 0.0 for metric in metrics.METRICS[:6])
    assert user + system + iowait + steal + idle + interrupts == pytest.approx(100.0)
    assert min(user, system, iowait, steal, idle, interrupts) >= 0.0
    busy = pytest.approx(100.0 - idle - iowait)
    assert metrics.CPU_BUSY(interval) == busy
    assert metrics.CORE_BUSY(interval) == {"cpu0": busy}


def test_cores_that_come_and_go() -> None:
    whole = cpu_times("cpu", 1)
    older = cpu(1.0, (whole, cpu_times("cpu0", 10, 0, 0, 90), cpu_times("cpu1", 50)))
    newer = cpu(2.0, (whole, cpu_times("cpu0", 35, 0, 0, 165), cpu_times("cpu2", 80)))
    assert metrics.CORE_BUSY(over(sections(cpu=older), sections(cpu=newer))) == {"cpu0": 25.0}


def test_memory_adds_up_and_shared_buffers_are_used_not_cache() -> None:
    interval = over(sections(memory=memory(1.0)))
    used, cache, free, total = (
        metric(interval)
        for metric in (metrics.MEMORY_USED, metrics.MEMORY_CACHE, metrics.MEMORY_FREE, metrics.MEMORY_TOTAL)
    )
    assert cache == 7.25 * GIB
    assert used == 7.75 * GIB
    assert used + cache + (free or 0) == total
    assert metrics.SWAP_USED(interval) == 600


def test_swap_traffic_in_bytes() -> None:
    interval = over(sections(memory=memory(10.0, 5, 100)), sections(memory=memory(12.0, 5, 140)))
    assert metrics.SWAP_IN(interval) == 0.0
    assert metrics.SWAP_OUT(interval) == 20 * 4096
    blind = over(sections(memory=memory(10.0, None, None)), sections(memory=memory(12.0, 5, 140)))
    assert metrics.SWAP_IN(blind) is metrics.SWAP_OUT(blind) is None


def test_huge_pages_of_shared_buffers_count_as_used_before_they_are_touched() -> None:
    interval = over(sections(memory=memory(1.0)))
    size = 2 << 20
    assert metrics.HUGE_TOTAL(interval) == {size: 3000}
    assert metrics.HUGE_FREE(interval) == {size: 2944}
    assert metrics.HUGE_USED(interval) == {size: 56 + 2051}
    assert metrics.HUGE_RESERVED(interval) == {size: 2051}


def test_pressure_is_a_share_of_the_interval_whatever_its_length() -> None:
    interval = over(sections(pressure=pressure(10.0, 500_000)), sections(pressure=pressure(12.5, 700_000)))
    assert metrics.PSI_CPU_SOME(interval) == pytest.approx(8.0)
    assert metrics.PSI_CPU_FULL(interval) is None
    assert metrics.PSI_IO_SOME(interval) == pytest.approx(24.0)
    assert metrics.PSI_IO_FULL(interval) == pytest.approx(16.0)
    assert metrics.PSI_MEMORY_FULL(interval) == pytest.approx(0.4)
    more_than_all = over(sections(pressure=pressure(10.0, 0)), sections(pressure=pressure(11.0, 1_000_400)))
    assert metrics.PSI_CPU_SOME(more_than_all) == 100.0


def test_disk_by_hand() -> None:
    interval = over(sections(disks=DiskSample(5.0, (disk(),))), sections(disks=DiskSample(7.0, (disk(factor=3),))))
    found = {row.id.removeprefix("host.disk."): row(interval)["vda"] for row in metrics.DISK_METRICS}
    assert found == {
        "busy": 98.0, "reads": 12.0, "writes": 5_900.0, "read_bytes": 98_304.0, "write_bytes": 48_332_800.0,
        "read_await": pytest.approx(5 / 12), "write_await": pytest.approx(9.8), "queue": 57.0,
        "request_bytes": pytest.approx((98_304 + 48_332_800) / 5_912),
    }  # fmt: skip


def test_a_quiet_disk_has_rates_of_zero_and_no_await() -> None:
    interval = over(sections(disks=DiskSample(5.0, (disk(),))), sections(disks=DiskSample(6.0, (disk(),))))
    silent = {row.id for row in metrics.DISK_METRICS if not row(interval)}
    assert silent == {"host.disk.read_await", "host.disk.write_await", "host.disk.request_bytes"}
    assert metrics.DISK_BUSY(interval) == {"vda": 0.0}


def test_one_disk_replaced_does_not_silence_the_others() -> None:
    older, newer = (disk("sda", 9), disk("sdb", 1)), (disk("sda", 1), disk("sdb", 2), disk("sdc", 5))
    interval = over(sections(disks=DiskSample(5.0, older)), sections(disks=DiskSample(6.0, newer)))
    assert metrics.DISK_WRITES(interval) == {"sdb": 5_900.0}


def test_a_process_over_several_cores_and_a_pid_used_again() -> None:
    older = ProcessSample(1.0, (process(7, 100), process(8, 50, start=4), process(9, 50)))
    newer = ProcessSample(3.0, (process(7, 400), process(8, 60, start=90), process(9, 40), process(10, 5)))
    interval = over(sections(processes=older), sections(processes=newer))
    assert metrics.PROCESS_CPU(interval) == {7: 300.0}
    assert set(metrics.PROCESS_RSS(interval)) == {7, 8, 9, 10}


def test_io_read_in_turns_is_a_rate_over_its_own_readings() -> None:
    frames = [
        sections(processes=ProcessSample(1.0, (process(7, read=100, write=0), process(8)))),
        sections(processes=ProcessSample(2.0, (process(7), process(8, read=5, write=50)))),
        sections(processes=ProcessSample(3.0, (process(7, read=500, write=0), process(8)))),
        sections(processes=ProcessSample(4.0, (process(7), process(8, read=5, write=90)))),
    ]
    interval = over(*frames)
    assert metrics.PROCESS_READ_BYTES(interval) == {7: 200.0, 8: 0.0}
    assert metrics.PROCESS_WRITE_BYTES(interval) == {7: 0.0, 8: 20.0}
    assert metrics.PROCESS_WRITE_BYTES(over(*frames[:3])) == {7: 0.0}


def test_io_of_a_process_that_ended_or_whose_pid_another_has() -> None:
    older = ProcessSample(1.0, (process(7, read=0), process(8, start=4, read=0), process(9, read=100)))
    newer = ProcessSample(2.0, (process(8, start=90, read=900), process(9, read=50)))
    assert metrics.PROCESS_READ_BYTES(over(sections(processes=older), sections(processes=newer))) == {}


def test_io_readings_older_than_the_window_are_not_used() -> None:
    samples = [
        ProcessSample(float(at_s), (process(7, read=100 if at_s in (1, 14) else None),)) for at_s in range(1, 15)
    ]
    assert metrics.PROCESS_READ_BYTES(over(*(sections(processes=sample) for sample in samples))) == {}


def test_io_of_two_looks_that_follow_each_other_is_a_rate_however_far_apart_they_are() -> None:
    samples = [ProcessSample(at_s, (process(7, read=int(100 * at_s)),)) for at_s in (0.0, 60.0)]
    assert metrics.PROCESS_READ_BYTES(over(*(sections(processes=sample) for sample in samples))) == {7: 100.0}
