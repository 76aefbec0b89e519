"""Numbers of the host page by hand arithmetic: space until full, network, nodes, limits, delay, caps of disks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from pgtop_tune.metrics import ceilings, host_details
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric
from pgtop_tune.metrics.ceilings import CapReached, disks_at_cap
from pgtop_tune.metrics.host import PROCESS_READ_BYTES
from pgtop_tune.model.absence import NOT_YET
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import (
    CpuSample,
    DiskSample,
    HostFacts,
    HostSample,
    ProcessCounters,
    ProcessSample,
    ThreadCounters,
)
from pgtop_tune.model.machine import StorageIo
from tests.support.frames import GIB, MIB
from tests.support.host_frames import FILLING_BYTES_PER_S, capped_disks, full_host

ROWS: tuple[Metric | Keyed[str] | Keyed[int], ...] = (
    *host_details.METRICS, *host_details.KEYED, *host_details.NETWORK_METRICS, *host_details.SPACE_METRICS,
    *host_details.NODE_METRICS, *host_details.GROUP_METRICS,
)  # fmt: skip


def machine(second: int) -> HostSample:
    """The made-up machine with interrupts, delays and threads besides."""
    host = full_host(second)
    assert isinstance(host.cpu, CpuSample)
    processes = ProcessSample(
        float(second),
        (ProcessCounters(7, 1, "R", 0, 0, 0, 0, 0, 0, run_delay_ms=250 * second),),
        0,
        (
            ThreadCounters(40, 40, 5, 3 * second, second, 0),
            ThreadCounters(41, 40, 5, 70 * second, 25 * second, 0),
        ),
    )
    memory = replace(host.memory, file_huge_bytes=4 * MIB)  # type: ignore[type-var]
    return replace(host, cpu=replace(host.cpu, interrupts=9_000 * second), processes=processes, memory=memory)


def over(seconds: range, look: Callable[[int], HostSample] = machine) -> Interval:
    return Interval([Frame(second, 0, float(second), host=look(second)) for second in seconds])


def test_bytes_are_those_between_two_looks_that_read_them() -> None:
    """Of a crowd bytes are read of sessions that are not idle, and delays of all."""

    def look(second: int) -> HostSample:
        read = {"read_bytes": 1000 * second, "write_bytes": 0} if second in (0, 4) else {}
        row = ProcessCounters(7, 1, "S", 0, 0, 0, 0, run_delay_ms=250 * second, **read)
        return replace(machine(second), processes=ProcessSample(float(second), (row,)))

    assert PROCESS_READ_BYTES(over(range(7), look)) == {7: 1000.0}
    assert host_details.PROCESS_RUN_DELAY(over(range(7), look)) == {7: 25.0}


def test_every_row_is_complete_and_says_something_of_a_minute() -> None:
    interval = over(range(61))
    assert len({row.id for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row.title
        assert row.definition.endswith(".")
        assert row.source
        assert row(interval) not in (None, {}), row.id


def test_nothing_is_said_of_rates_after_a_reboot() -> None:
    def rebooted(second: int) -> HostSample:
        host = machine(second)
        assert isinstance(host.facts, HostFacts)
        return replace(host, facts=replace(host.facts, boot_id=f"boot-{second}"))

    interval = over(range(9, 12), rebooted)
    rates = (
        host_details.INTERRUPTS, host_details.PROCESS_RUN_DELAY, host_details.BUSIEST_THREAD,
        host_details.NETWORK_RECEIVED, host_details.NETWORK_BUSY, host_details.NODE_MISS, host_details.GROUP_THROTTLED,
        host_details.GROUP_THROTTLED_TIME,
    )  # fmt: skip
    assert [row(interval) for row in rates if row(interval) not in (None, {})] == []


def test_details_by_hand() -> None:
    interval = over(range(61))
    assert host_details.INTERRUPTS(interval) == pytest.approx(9_000)
    # 250 ms of each second waited for a CPU; the busier thread of pgbench uses 95 ticks of 100.
    assert host_details.PROCESS_RUN_DELAY(interval) == pytest.approx({7: 25.0})
    assert host_details.BUSIEST_THREAD(interval) == pytest.approx({40: 95.0})
    assert host_details.FREQUENCY(interval) == pytest.approx((2100 + 3 * 2900) / 4)
    assert host_details.FREQUENCY_SHARE(interval)["policy0"] == pytest.approx(60.0)
    assert host_details.IO_OTHERS(interval) == pytest.approx(10 << 20)
    assert host_details.IO_OWN(interval) == pytest.approx(30 << 20)


def test_an_account_that_may_not_look_at_others_does_not_see_that_they_do_nothing() -> None:
    for refused, told in ((0, 0.0), (7, None)):
        silent = [
            replace(each, host=replace(full_host(0), storage_io=StorageIo(float(place), 0, 0, 5, 5, refused)))
            for place, each in enumerate(over(range(2))._frames)
        ]
        assert host_details.IO_OTHERS(Interval(silent)) == told


def test_network_by_hand() -> None:
    interval = over(range(61))
    assert host_details.NETWORK_RECEIVED(interval)["ens5"] == pytest.approx(312_500_000)
    # 312.5 MB/s are 2.5 of 10 Gbit/s; the speed of the loopback is not known.
    assert host_details.NETWORK_BUSY(interval) == pytest.approx({"ens5": 25.0})
    assert host_details.NETWORK_DROPS(interval) == pytest.approx({"lo": 0.0, "ens5": 2.0})


def test_space_by_hand() -> None:
    interval = over(range(61))
    left = 50 * GIB - FILLING_BYTES_PER_S * 60
    assert host_details.SPACE_GROWTH(interval) == pytest.approx({"/data": 0.0, "/wal": FILLING_BYTES_PER_S})
    # Only what fills gets a time.
    assert host_details.MINUTES_LEFT(interval) == pytest.approx({"/wal": left / FILLING_BYTES_PER_S / 60})
    used = 40 * GIB
    assert host_details.SPACE_USED(interval)["/wal"] == pytest.approx(100 * used / (used + left))
    assert set(host_details.INODES_USED(interval)) == {"/wal"}


def test_space_that_grows_back_has_no_time_and_an_enlarged_file_system_no_rate() -> None:
    def freed(second: int) -> HostSample:
        host = machine(60 - second)
        return replace(host, file_systems=replace(host.file_systems, at_s=float(second)))  # type: ignore[type-var]

    interval = over(range(0, 61, 5), freed)
    assert host_details.SPACE_GROWTH(interval)["/wal"] == pytest.approx(-FILLING_BYTES_PER_S)
    assert host_details.MINUTES_LEFT(interval) == {}

    def enlarged(second: int) -> HostSample:
        host = machine(second)
        rows = tuple(
            replace(row, total_bytes=row.total_bytes + second // 60 * GIB)
            for row in host.file_systems.file_systems  # type: ignore[union-attr]
        )
        return replace(host, file_systems=replace(host.file_systems, file_systems=rows))  # type: ignore[type-var]

    assert host_details.SPACE_GROWTH(over(range(0, 61, 5), enlarged)) == {}


def test_one_look_says_nothing_of_filling() -> None:
    assert host_details.SPACE_GROWTH(over(range(3))) == {}


def test_limits_by_hand() -> None:
    interval = over(range(61))
    assert host_details.GROUP_MEMORY_SHARE(interval) == pytest.approx(75.0)
    assert host_details.GROUP_THROTTLED(interval) == pytest.approx(20.0)
    assert host_details.GROUP_THROTTLED_TIME(interval) == pytest.approx(120.0)
    assert host_details.GROUP_IO_SOME(interval) == pytest.approx(38.0)
    assert host_details.NODE_MISS(interval) == pytest.approx({0: 0.0, 1: 40.0})
    assert host_details.NODE_HUGE(interval) == {0: 1472, 1: 1472}


def test_another_group_after_a_restart_is_not_compared() -> None:
    def moved(second: int) -> HostSample:
        host = machine(second)
        return replace(host, cgroup=replace(host.cgroup, path=f"/group-{second}"))  # type: ignore[type-var]

    assert host_details.GROUP_THROTTLED(over(range(3), moved)) is None


def disks(seconds: range, look: Callable[[int], DiskSample]) -> Interval:
    return over(seconds, lambda second: replace(full_host(second), disks=look(second)))


class TestCap:
    def test_a_height_held_for_twenty_seconds_while_requests_slow_down_is_a_cap(self) -> None:
        assert disks_at_cap(disks(range(29), capped_disks)) == {}
        found = disks_at_cap(disks(range(32), capped_disks))
        assert found == {"vda": CapReached(pytest.approx(6_000), pytest.approx(90e6), True)}

    def test_a_steady_load_whose_requests_do_not_slow_down_is_none(self) -> None:
        def steady(second: int) -> DiskSample:
            sample = capped_disks(second)
            (disk,) = sample.disks
            return replace(sample, disks=(replace(disk, write_ms=2 * disk.writes),))

        assert disks_at_cap(disks(range(60), steady)) == {}

    def test_without_a_queue_it_is_none(self) -> None:
        def alone(second: int) -> DiskSample:
            sample = capped_disks(second)
            (disk,) = sample.disks
            return replace(sample, disks=(replace(disk, weighted_ms=900 * second),))

        assert disks_at_cap(disks(range(60), alone)) == {}

    def test_time_without_a_queue_does_not_count_when_a_queue_comes_later(self) -> None:
        def late(second: int) -> DiskSample:
            sample = capped_disks(second)
            (disk,) = sample.disks
            return replace(sample, disks=(replace(disk, weighted_ms=900 * second + 5_000 * max(second - 45, 0)),))

        assert disks_at_cap(disks(range(60), late)) == {}

    def test_heights_that_differ_by_more_than_three_per_cent_are_none(self) -> None:
        def uneven(second: int) -> DiskSample:
            sample = capped_disks(second)
            (disk,) = sample.disks
            more = 250 * (second % 2)
            return replace(
                sample, disks=(replace(disk, writes=disk.writes + more, write_bytes=disk.write_bytes + 20_000 * more),)
            )

        assert disks_at_cap(disks(range(60), uneven)) == {}

    def test_a_learned_cap_is_remembered_while_the_load_rests(self) -> None:
        def resting(second: int) -> DiskSample:
            sample = capped_disks(min(second, 40) if second < 50 else second - 10)
            return replace(sample, at_s=float(second))

        assert disks_at_cap(disks(range(46), resting)) == {}
        assert disks_at_cap(disks(range(53), resting))["vda"].iops == pytest.approx(6_000)

    def test_a_given_cap_counts_at_once_and_by_itself(self) -> None:
        def given(second: int) -> DiskSample:
            sample = capped_disks(second)
            (disk,) = sample.disks
            return replace(sample, disks=(replace(disk, cap_iops=6_100.0, cap_bytes_per_s=None),))

        assert disks_at_cap(disks(range(9), given)) == {}
        assert disks_at_cap(disks(range(13), given)) == {"vda": CapReached(6_100.0, None, False)}

    def test_nothing_without_looks(self) -> None:
        assert disks_at_cap(Interval([Frame(0, 0, 0.0, host=NOT_YET)])) == {}
        assert ceilings.STANDS_S == 20.0
