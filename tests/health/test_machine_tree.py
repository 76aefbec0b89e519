"""Checks of the machine on trees of the kernel's own files: a spoilt one is found out, a well-set one passes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from pgtop_tune.health.check import Severity
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import CHECKS, chosen
from pgtop_tune.host.local import LocalHost
from pgtop_tune.host.machine_setup import machine_details
from pgtop_tune.model.host import FileSystem, FileSystemSample
from tests.support.health_facts import spoilt
from tests.support.machine_tree import THP, USUAL, write

GROUPS = ("huge pages", "operating system", "processes", "processors", "disks")
PID = 700
KB = 1024
CLOCK = "sys/devices/system/clocksource/clocksource0"
POLICY = "sys/devices/system/cpu/cpufreq/policy0"
POOL = "sys/kernel/mm/hugepages/hugepages-2048kB"


def meminfo(huge: int, huge_free: int, swap_kb: int, limit_kb: int, committed_kb: int) -> str:
    amounts = {
        "MemTotal": 16 * KB * KB, "MemFree": KB * KB, "MemAvailable": 9 * KB * KB, "Buffers": 1, "Cached": 8 * KB * KB,
        "SReclaimable": 0, "Shmem": KB * KB, "Dirty": 0, "Writeback": 0, "PageTables": 1, "AnonHugePages": 0,
        "ShmemHugePages": 0, "FileHugePages": 0, "CommitLimit": limit_kb, "Committed_AS": committed_kb,
        "SwapTotal": swap_kb, "SwapFree": swap_kb, "SwapCached": 0, "Hugepagesize": 2048,
    }  # fmt: skip
    pages = f"HugePages_Total: {huge}\nHugePages_Free: {huge_free}\nHugePages_Rsvd: 0\nHugePages_Surp: 0\n"
    return "".join(f"{name}: {amount} kB\n" for name, amount in amounts.items()) + pages


def pool(total: int, free: int) -> dict[str, str]:
    values = {"nr_hugepages": total, "free_hugepages": free, "resv_hugepages": 0, "surplus_hugepages": 0}
    return {f"{POOL}/{name}": f"{value}\n" for name, value in values.items()}


def limits(soft: int) -> str:
    return f"Max open files            {soft}                 524288               files     \n"


COMMON = {
    **USUAL,
    "proc/sys/kernel/hostname": "db1\n",
    "proc/sys/kernel/osrelease": "6.12.0\n",
    "proc/loadavg": "0.1 0.1 0.1 1/100 4711\n",
    f"proc/{PID}/task/{PID}/children": "701\n",
    "proc/701/oom_score_adj": "0\n",
    f"{CLOCK}/available_clocksource": "tsc hpet\n",
    f"{POLICY}/scaling_cur_freq": "2900000\n",
    f"{POLICY}/cpuinfo_max_freq": "3500000\n",
    "sys/devices/system/node/node0/meminfo": "",
    "sys/devices/system/node/node1/meminfo": "",
}
WELL_SET = {
    **COMMON,
    "proc/meminfo": meminfo(2200, 60, 0, 12 * KB * KB, 2 * KB * KB),
    **pool(2200, 60),
    "etc/sysctl.d/30-pages.conf": "vm.nr_hugepages = 2200\n",
    "proc/sys/vm/nr_hugepages": "2200\n",
    "proc/sys/vm/swappiness": "5\n",
    "proc/sys/vm/dirty_background_bytes": "67108864\n",
    "proc/sys/vm/overcommit_memory": "2\n",
    "proc/sys/vm/overcommit_ratio": "80\n",
    "proc/sys/vm/zone_reclaim_mode": "0\n",
    "proc/sys/kernel/numa_balancing": "0\n",
    "proc/sys/kernel/sched_autogroup_enabled": "0\n",
    f"{THP}/enabled": "always [madvise] never\n",
    f"proc/{PID}/oom_score_adj": "-1000\n",
    f"proc/{PID}/limits": limits(65536),
    f"{CLOCK}/current_clocksource": "tsc\n",
    f"{POLICY}/scaling_governor": "performance\n",
    "proc/self/mountinfo": "30 1 259:1 / /pg rw,noatime - xfs /dev/nvme0n1 rw\n",
}
SPOILT = {
    **COMMON,
    "proc/meminfo": meminfo(4000, 2000, 2 * KB * KB, 12 * KB * KB, 2 * KB * KB),
    **pool(4000, 2000),
    "proc/sys/vm/nr_hugepages": "4000\n",
    "proc/sys/vm/dirty_background_bytes": "2000000000\n",
    "proc/sys/vm/overcommit_memory": "1\n",
    "proc/sys/vm/zone_reclaim_mode": "1\n",
    f"{THP}/enabled": "[always] madvise never\n",
    f"{THP}/defrag": "[always] defer madvise never\n",
    f"proc/{PID}/oom_score_adj": "0\n",
    f"proc/{PID}/limits": limits(1000),
    f"{CLOCK}/current_clocksource": "hpet\n",
    f"{POLICY}/scaling_governor": "powersave\n",
    "proc/self/mountinfo": "30 1 0:99 / /pg rw,relatime - overlay overlay rw,nobarrier\n",
    "sys/block/nvme0n1/queue/scheduler": "none [bfq]\n",
    "sys/block/nvme0n1/queue/read_ahead_kb": "16\n",
}
FOUND = {
    "HUGE-02": Severity.CRITICAL, "HUGE-03": Severity.WARNING, "HUGE-04": Severity.HIGH, "OS-01": Severity.WARNING,
    "OS-03": Severity.WARNING, "OS-04": Severity.WARNING, "OS-05": Severity.HIGH, "OS-06": Severity.HIGH,
    "OS-07": Severity.INFO, "OS-08": Severity.WARNING, "OS-09": Severity.WARNING, "OS-10": Severity.WARNING,
    "CPU-01": Severity.HIGH, "CPU-03": Severity.WARNING, "DISK-01": Severity.CRITICAL, "DISK-03": Severity.HIGH,
    "DISK-04": Severity.CRITICAL, "DISK-05": Severity.WARNING, "DISK-06": Severity.WARNING,
}  # fmt: skip


def looked(root: Path, files: Mapping[str, str], swapped: int, stolen: int, available: int) -> CheckFacts:
    """Two looks at a tree, between which pages were swapped and ticks stolen."""
    moment = iter(range(1, 10_000))
    host = LocalHost(lambda: float(next(moment)), root)
    made = spoilt(parameters={"max_files_per_process": "1000"})
    frames = []
    for number, frame in enumerate(made.frames):
        ticks = f"{1000 + 50 * number} 0 100 {1000 + 50 * number} 0 0 0 {stolen * number} 0 0"
        moving = {
            "proc/stat": f"cpu  {ticks}\ncpu0 {ticks}\nintr 1\nctxt 1\nprocs_running 1\nprocs_blocked 0\n",
            "proc/vmstat": f"pswpin {swapped * number}\npswpout {swapped * number}\n",
        }
        write(root, {**files, **moving})
        sample = host.sample([])
        space = FileSystem("/pg", "xfs", "/dev/nvme0n1", ("data",), 1000, available, available, 0, 0)
        sections = replace(sample, file_systems=FileSystemSample(float(number), (space,)), disks=sample.disks)
        frames.append(replace(frame, host=sections))
    host.close()
    details = machine_details(root, ["nvme0n1"], {"data": "/pg/data", "wal": "/pg/data/pg_wal"}, PID)
    return replace(made, frames=tuple(frames), machine=details)


def test_a_spoilt_machine_is_found_out_from_its_files(tmp_path: Path) -> None:
    report = judge(chosen(GROUPS, []), looked(tmp_path, SPOILT, swapped=500, stolen=40, available=50))
    worst = {result.check.id: result.severity for result in report.results if result.severity is not None}
    assert worst == FOUND


def test_a_well_set_machine_passes_from_its_files(tmp_path: Path) -> None:
    report = judge(chosen(GROUPS, []), looked(tmp_path, WELL_SET, swapped=0, stolen=0, available=900))
    assert [(check.id, finding.says) for check, finding in report.findings] == []


def test_a_machine_without_files_is_unknown_throughout(tmp_path: Path) -> None:
    host = LocalHost(lambda: 1.0, tmp_path)
    made = spoilt()
    frames = tuple(replace(frame, host=host.sample([])) for frame in made.frames)
    host.close()
    report = judge(
        [check for check in CHECKS if check.group in GROUPS],
        replace(made, frames=frames, machine=machine_details(tmp_path, [], {}, None)),
    )
    assert report.findings == ()
    told = {check.id for check, _ in report.unknowns}
    # A kernel without NUMA has no files of it.
    assert {result.check.id for result in report.results} - told == {"OS-06"}
