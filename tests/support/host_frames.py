"""A made-up machine in full: every section of the host page."""

from __future__ import annotations

from pgtop_tune.model.host import (
    DiskCounters,
    DiskSample,
    FileSystem,
    FileSystemSample,
    HostSample,
    InterfaceCounters,
    NetworkSample,
)
from pgtop_tune.model.machine import CgroupSample, CpuFrequency, FrequencySample, NumaNode, NumaSample, StorageIo
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.support.frames import GIB, MIB, frame, host_sample

FILLING_BYTES_PER_S = 64 * MIB


def file_systems(second: int) -> FileSystemSample:
    """The data mount stands still, that of WAL loses 64 MiB a second; looked at every 5 s."""
    at = second // 5 * 5
    return FileSystemSample(
        float(at),
        (
            FileSystem("/data", "xfs", "/dev/vda1", ("data",), 200 * GIB, 80 * GIB, 80 * GIB, 0, 0),
            FileSystem(
                "/wal", "ext4", "/dev/nvme1n1", ("wal",), 100 * GIB, 60 * GIB, 50 * GIB - FILLING_BYTES_PER_S * at,
                6_553_600, 6_550_000,
            ),
        ),
    )  # fmt: skip


def network(second: int) -> NetworkSample:
    """A link of 10 Gbit/s with a quarter of it in use, two drops a second; a loopback without a speed."""
    return NetworkSample(
        float(second),
        (
            InterfaceCounters("lo", MIB * second, 900 * second, 0, 0, MIB * second, 900 * second, 0, 0),
            InterfaceCounters(
                "ens5", 312_500_000 * second, 210_000 * second, 0, 2 * second, 40 * MIB * second, 90_000 * second, 0, 0,
                10_000_000_000,
            ),
        ),
    )  # fmt: skip


def numa(second: int) -> NumaSample:
    """Two nodes, the second nearly full; looked at every 5 s."""
    second = second // 5 * 5
    return NumaSample(
        float(second),
        tuple(
            NumaNode(
                node, 8 * GIB, (3 - 2 * node) * GIB, 4 * GIB, GIB, GIB // 2, 100 * MIB, 1500, 28, 9_000 * second,
                node * 40 * second, (1 - node) * 40 * second,
            )
            for node in (0, 1)
        ),
    )  # fmt: skip


def cgroup(second: int) -> CgroupSample:
    """Twelve of sixteen GiB, two CPUs; the quota runs out in every fifth period."""
    return CgroupSample(
        at_s=float(second), path="/system.slice/postgresql.service", version=2, memory_max_bytes=16 * GIB,
        memory_high_bytes=None, memory_bytes=12 * GIB, memory_max_events=0, oom_kills=0, cpu_quota_cores=2.0,
        cpu_periods=10 * second, cpu_throttled_periods=2 * second, cpu_throttled_us=120_000 * second,
        cpu_used_us=1_900_000 * second, io_some_us=380_000 * second, io_full_us=120_000 * second, memory_some_us=0,
        memory_full_us=0,
    )  # fmt: skip


def frequency(second: int, cores: int) -> FrequencySample:
    """Every core at 2.9 of 3.5 GHz, the first at 2.1."""
    return FrequencySample(
        float(second // 5 * 5),
        tuple(CpuFrequency(f"policy{n}", 2900 if n else 2100, 3500, "performance") for n in range(cores)),
    )


def full_host(second: int, cores: int = 4, **other: object) -> HostSample:
    """Every section of the machine at that second."""
    pids = [2_000, 2_231, 2_232, 4_000]
    sections: dict[str, object] = {
        "network": network(second), "file_systems": file_systems(second), "numa": numa(second),
        "frequency": frequency(second, cores), "cgroup": cgroup(second), "storage_io": storage_io(second),
    }  # fmt: skip
    return host_sample(second, pids, cores, **(sections | other))


def storage_io(second: int) -> StorageIo:
    """A backup beside a server that writes three times as much."""
    return StorageIo(
        at_s=float(second),
        own_read_bytes=4 * MIB * second,
        own_write_bytes=26 * MIB * second,
        others_read_bytes=9 * MIB * second,
        others_write_bytes=MIB * second,
        refused=0,
    )


def capped_disks(second: int, iops: int = 6_000) -> DiskSample:
    """From second 10 on a disk that does so many requests a second whatever is asked of it; they take ever longer."""
    stands = max(second - 10, 0)
    writes = 2_000 * min(second, 10) + iops * stands
    waited_ms = 2 * writes + 400 * stands * stands
    return DiskSample(
        float(second),
        (
            DiskCounters(
                "vda", 0, 0, 0, writes, 15_000 * writes, waited_ms, 8, 1_000 * second, 30_000 * second, ("data", "wal")
            ),
        ),
    )


def full_session(seconds: int, cores: int = 4) -> Session:
    """A session of that machine, a frame a second."""
    session = Session(CHARTED)
    for second in range(seconds):
        session.apply(Step((frame(second, cores=cores, host=full_host(second, cores)),)))
    return session
