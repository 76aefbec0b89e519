"""The machine under the made-up server of `frames`: CPUs, memory, disks and processes at any second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

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

EPOCH_MS: Final = 1_794_000_000_000
"""Wall clock of frame 0."""

TICKS: Final = 100
CORES: Final = 4
GIB: Final = 1 << 30
MIB: Final = 1 << 20


def wave(second: float, mean: float, swing: float) -> int:
    """A counter at that second whose rate is mean + swing·sin(second / 9)."""
    return int(mean * second + swing * 9.0 * (1.0 - math.cos(second / 9.0)))


def _cpu_times(name: str, second: int, cores: float, shift: int) -> CpuTimes:
    scale = cores * TICKS
    busy = 0.41 + 0.05 * (shift % 4)
    user, system, iowait = int(scale * busy * second), int(scale * 0.12 * second), int(scale * 0.23 * second)
    idle = int(scale * second) - user - system - iowait
    return CpuTimes(name, user, 0, system, idle, iowait, 0, 0, 0, 0, 0)


def processes(second: int, pids: Sequence[int]) -> ProcessSample:
    """CPU and I/O of those processes; the higher the pid the lazier."""
    rows = [
        ProcessCounters(
            pid=pid, start_ticks=pid * 10, state="S", user_ticks=(9 - index % 9) * second,
            system_ticks=index % 3 * second, rss_bytes=20 * MIB, delay_ticks=0, read_bytes=8_192 * (index % 3) * second,
            write_bytes=1_240_000 // (index + 1) * second,
        )
        for index, pid in enumerate(pids)
    ]  # fmt: skip
    return ProcessSample(float(second), tuple(rows))


def host_sample(second: int, pids: Sequence[int] = (), cores: int = CORES, **other: object) -> HostSample:
    """The machine at that second; sections replaced by name."""
    at_s = float(second)
    disks = (
        DiskCounters(
            "nvme1n1", 4 * second, 65_536 * second, 2 * second, 2_100 * second, 41 * MIB * second, 3_900 * second, 2,
            int(310 * second), 4_100 * second, ("wal",),
        ),
        DiskCounters(
            "vda", 12 * second, 204_800 * second, 5 * second, wave(second, 5_900, 300), 88 * MIB * second,
            57_820 * second, 57, 980 * second, 57_000 * second, ("data",),
        ),
        DiskCounters("vdb", second, 4_096 * second, second, 0, 0, 0, 0, second, second),
    )  # fmt: skip
    values: dict[str, object] = {
        "facts": HostFacts("db1", "6.12.0", "local", "boot-1", cores, TICKS, 4096, 16 * GIB),
        "cpu": CpuSample(
            at_s, _cpu_times("cpu", second, cores, 0),
            tuple(_cpu_times(f"cpu{core}", second, 1, core) for core in range(cores)),
            48_000 * second, 9, 2, 8.31, 7.9, 6.2,
        ),
        "memory": MemorySample(
            at_s=at_s, total_bytes=int(15.6 * GIB), free_bytes=int(0.6 * GIB), available_bytes=9 * GIB,
            buffers_bytes=120 * MIB, cached_bytes=int(8.9 * GIB), shmem_bytes=GIB, dirty_bytes=212 * MIB,
            writeback_bytes=18 * MIB, page_tables_bytes=90 * MIB, anon_huge_bytes=0, shmem_huge_bytes=0,
            committed_bytes=9 * GIB, commit_limit_bytes=12 * GIB, swap_total_bytes=0, swap_free_bytes=0,
            swap_in_pages=0, swap_out_pages=0, thp_mode="never",
            huge_pages=(HugePages(2 * MIB, 3_000, 56, 0, 0),),
        ),
        "pressure": PressureSample(
            at_s, PressureLine(140_000 * second, 0), PressureLine(380_000 * second, 120_000 * second),
            PressureLine(0, 0),
        ),
        "disks": DiskSample(at_s, disks),
        "processes": processes(second, pids),
    }  # fmt: skip
    return HostSample(**(values | other))  # type: ignore[arg-type]
