"""Checks of the machine: each finds its condition, is silent beside it, and says what it could not see."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pgtop_tune.health.check import Check, Severity
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.host import CpuSample, CpuTimes, DiskCounters, DiskSample, FileSystem, FileSystemSample, HugePages
from pgtop_tune.model.machine import (
    AfterReboot,
    Assignment,
    CpuFrequency,
    Disk,
    FrequencySample,
    MountPoint,
    PostmasterFacts,
    SystemSetting,
)
from tests.support import frames
from tests.support.health_facts import GIB, MIB, SETTINGS, details, found, result, spoilt, unknown
from tests.support.host_frames import cgroup

BY_ID = {check.id: check for check in CHECKS}


def check(id_: str) -> Check:
    return BY_ID[id_]


def seen(**other: Any) -> dict[str, Any]:
    """A host whose memory section has other values."""
    memory = frames.host_sample(100).memory
    assert not isinstance(memory, Unavailable)
    return {"memory": replace(memory, **other)}


def settings(**other: str) -> dict[str, Any]:
    return {"machine": details({name.replace("__", "."): value for name, value in other.items()})}


def mounted(kind: str = "xfs", *options: str) -> dict[str, Any]:
    chosen = options or ("rw", "noatime")
    return {"machine": details(mounts=(MountPoint("/data", kind, "/dev/vda1", chosen, ("data", "wal")),))}


def filled(percent: float, inodes: float = 0.0) -> dict[str, Any]:
    free = int(GIB * (100 - percent) / 100)
    row = FileSystem("/data", "xfs", "/dev/vda1", ("data",), GIB, free, free, 1000, int(1000 - 10 * inodes))
    return {"host": {"file_systems": FileSystemSample(100.0, (row,))}}


def pool(total: int, free: int, reserved: int) -> dict[str, Any]:
    return {"host": seen(huge_pages=(HugePages(2 * MIB, total, free, reserved, 0),))}


def governed(governor: str) -> dict[str, Any]:
    return {"host": {"frequency": FrequencySample(100.0, (CpuFrequency("policy0", 2900, 3500, governor),))}}


def one_disk(*roles: str) -> dict[str, Any]:
    row = DiskCounters("vda", 0, 0, 0, 0, 0, 0, 0, 0, 0, roles)
    return {"host": {"disks": DiskSample(100.0, (row,))}}


SMALL_PAGES = {"shared_buffers": "8GB", "huge_pages": "off", "huge_pages_status": "off"}
GROUP = cgroup(100)
CASES: tuple[tuple[str, dict[str, Any], Severity, dict[str, Any]], ...] = (
    ("HUGE-01", {"parameters": SMALL_PAGES}, Severity.HIGH, {"parameters": {"shared_buffers": "8GB"}}),
    (
        "HUGE-01",
        {"parameters": {**SMALL_PAGES, "shared_buffers": "2GB", "max_connections": "300"}},
        Severity.WARNING,
        {"parameters": {**SMALL_PAGES, "shared_buffers": "2047MB", "max_connections": "300"}},
    ),
    (
        "HUGE-01",
        {"parameters": {**SMALL_PAGES, "shared_buffers": "2GB", "max_connections": "200"}},
        Severity.INFO,
        {"parameters": {**SMALL_PAGES, "shared_buffers": "2047MB", "max_connections": "200"}},
    ),
    (
        "HUGE-01",
        {"parameters": {**SMALL_PAGES, "max_connections": "50"}},
        Severity.WARNING,
        {"parameters": {"shared_buffers": "8GB", "max_connections": "50"}},
    ),
    ("HUGE-03", pool(3000, 1000, 400), Severity.WARNING, pool(3000, 1000, 490)),
    ("HUGE-04", {"host": seen(thp_mode="always", thp_defrag="madvise")}, Severity.WARNING, {"host": seen()}),
    ("HUGE-04", {"host": seen(thp_mode="always", thp_defrag="always")}, Severity.HIGH, {"host": seen()}),
    ("OS-01", settings(vm__overcommit_memory="0"), Severity.WARNING, settings(vm__overcommit_memory="2")),
    (
        "OS-02",
        {"host": seen(commit_limit_bytes=10 * GIB, committed_bytes=8 * GIB + 1)},
        Severity.HIGH,
        {"host": seen(commit_limit_bytes=10 * GIB, committed_bytes=8 * GIB)},
    ),
    (
        "OS-02",
        {"host": seen(commit_limit_bytes=5 * GIB, committed_bytes=GIB)},
        Severity.WARNING,
        {"host": seen(commit_limit_bytes=6 * GIB, committed_bytes=GIB)},
    ),
    (
        "OS-03",
        {"host": seen(swap_total_bytes=GIB), **settings(vm__swappiness="11")},
        Severity.WARNING,
        {"host": seen(swap_total_bytes=GIB), **settings(vm__swappiness="10")},
    ),
    ("OS-03", {"host": seen(swap_total_bytes=GIB), **settings(vm__swappiness="0")}, Severity.INFO, settings()),
    (
        "OS-04",
        settings(vm__dirty_background_bytes=str(GIB + 1)),
        Severity.WARNING,
        settings(vm__dirty_background_bytes=str(GIB)),
    ),
    (
        "OS-04",
        {
            "host": seen(free_bytes=40 * GIB, cached_bytes=4 * GIB, shmem_bytes=GIB),
            **settings(vm__dirty_background_bytes="0", vm__dirty_background_ratio="10"),
        },
        Severity.HIGH,
        {
            "host": seen(free_bytes=GIB, cached_bytes=9 * GIB, shmem_bytes=GIB),
            **settings(vm__dirty_background_bytes="0", vm__dirty_background_ratio="10"),
        },
    ),
    (
        "OS-06",
        {"machine": details({"vm.zone_reclaim_mode": "1"}, numa_nodes=2)},
        Severity.HIGH,
        {"machine": details({"vm.zone_reclaim_mode": "1"}, numa_nodes=1)},
    ),
    (
        "OS-06",
        {"machine": details({"kernel.numa_balancing": "1"}, numa_nodes=2)},
        Severity.INFO,
        {"machine": details(numa_nodes=2)},
    ),
    ("OS-07", settings(kernel__sched_autogroup_enabled="1"), Severity.INFO, settings()),
    (
        "OS-08",
        {"machine": details({"vm.overcommit_memory": "1"}, postmaster=PostmasterFacts(0, 0, 65536, 65536))},
        Severity.WARNING,
        {"machine": details({"vm.overcommit_memory": "1"}, postmaster=PostmasterFacts(-900, 0, 65536, 65536))},
    ),
    (
        # Strict accounting: statements fail before the OOM killer comes.
        "OS-08",
        {"machine": details(postmaster=PostmasterFacts(0, 0, 65536, 65536))},
        Severity.INFO,
        {"machine": details(postmaster=PostmasterFacts(-900, 0, 65536, 65536))},
    ),
    (
        "OS-08",
        {"machine": details(postmaster=PostmasterFacts(-1000, -1000, 65536, 65536))},
        Severity.WARNING,
        {"machine": details(postmaster=PostmasterFacts(-1000, None, 65536, 65536))},
    ),
    (
        "OS-09",
        {"machine": details(postmaster=PostmasterFacts(-1000, 0, 1023, 4096))},
        Severity.WARNING,
        {"machine": details(postmaster=PostmasterFacts(-1000, 0, 1024, 4096))},
    ),
    ("OS-10", {"machine": details(clock_source="hpet")}, Severity.WARNING, {"machine": details(clock_source="tsc")}),
    ("OS-11", {"host": {"cgroup": replace(GROUP, oom_kills=1)}}, Severity.HIGH, {"host": {"cgroup": GROUP}}),
    ("OS-11", {"host": {"cgroup": replace(GROUP, memory_max_events=3)}}, Severity.WARNING, {"host": {"cgroup": GROUP}}),
    (
        "CPU-02",
        {"host": {"cgroup": replace(GROUP, cpu_periods=1000, cpu_throttled_periods=11)}},
        Severity.WARNING,
        {"host": {"cgroup": replace(GROUP, cpu_periods=1000, cpu_throttled_periods=10)}},
    ),
    ("CPU-03", governed("powersave"), Severity.WARNING, governed("performance")),
    ("CPU-03", governed("schedutil"), Severity.INFO, governed("performance")),
    ("DISK-01", filled(70), Severity.WARNING, filled(69.9)),
    ("DISK-01", filled(90), Severity.CRITICAL, filled(10)),
    ("DISK-02", filled(10, inodes=80), Severity.WARNING, filled(10, inodes=79)),
    ("DISK-02", filled(10, inodes=95), Severity.CRITICAL, filled(10)),
    ("DISK-03", mounted("tmpfs"), Severity.CRITICAL, mounted("ext4")),
    ("DISK-03", mounted("overlay"), Severity.HIGH, mounted("xfs")),
    ("DISK-03", mounted("nfs4"), Severity.HIGH, mounted("xfs")),
    ("DISK-03", mounted("zfs"), Severity.INFO, mounted("xfs")),
    ("DISK-04", mounted("xfs", "rw", "noatime", "nobarrier"), Severity.CRITICAL, mounted("xfs", "rw", "relatime")),
    ("DISK-04", mounted("ext4", "rw", "sync", "noatime"), Severity.WARNING, mounted()),
    ("DISK-04", mounted("ext4", "rw"), Severity.INFO, mounted()),
    ("DISK-05", settings(**{"vda/scheduler": "bfq"}), Severity.WARNING, settings()),
    ("DISK-05", settings(**{"vda/scheduler": "mq-deadline"}), Severity.INFO, settings()),
    (
        "DISK-05",
        {"machine": details({"vda/scheduler": "none"}, queues=(Disk("vda", True, False, True, False),))} |
        settings(**{"vda/scheduler": "kyber"}),
        Severity.INFO,
        {"machine": details({"sda/scheduler": "mq-deadline"}, queues=(Disk("sda", True, False, False, False),))},
    ),
    ("DISK-06", settings(**{"vda/read_ahead_kb": "63"}), Severity.WARNING, settings(**{"vda/read_ahead_kb": "64"})),
    ("DISK-06", settings(**{"vda/read_ahead_kb": "16385"}), Severity.WARNING, settings()),
    ("DISK-06", settings(**{"vda/read_ahead_kb": "63"}), Severity.WARNING, settings(**{"vda/read_ahead_kb": "16384"})),
    ("DISK-07", one_disk("data", "wal"), Severity.INFO, one_disk("data")),
)  # fmt: skip
"""Id, what spoils it, how bad that is, what is just not bad."""


@pytest.mark.parametrize(("id_", "spoils", "severity", "silent"), CASES, ids=lambda each: str(each)[:20])
def test_a_check_finds_its_condition_and_is_silent_beside_it(
    id_: str, spoils: dict[str, Any], severity: Severity, silent: dict[str, Any]
) -> None:
    files = {"max_files_per_process": "1000"}
    spoils, silent = ({**each, "parameters": files | each.get("parameters", {})} for each in (spoils, silent))
    (finding,) = found(check(id_), spoilt(**spoils))
    assert finding.severity is severity
    assert finding.evidence
    assert finding.fix is not None
    assert not found(check(id_), spoilt(**silent))


def _reserved(pages: str | None, **other: Any) -> dict[str, Any]:
    files = () if pages is None else (Assignment(pages, "/etc/sysctl.d/30-pages.conf", 1),)
    rows = [SystemSetting(name, f"/{name}", value) for name, value in SETTINGS.items() if name != "vm.nr_hugepages"]
    rows.append(SystemSetting("vm.nr_hugepages", "/proc/sys/vm/nr_hugepages", "2200", after_reboot=AfterReboot(files)))
    return {"machine": details(settings_rows=tuple(rows)), **other}


def test_huge_pages_that_a_reboot_takes_away_keep_the_server_from_starting() -> None:
    (finding,) = found(check("HUGE-02"), spoilt(**_reserved(None)))
    assert finding.severity is Severity.CRITICAL
    assert "will not start" in finding.says
    (finding,) = found(check("HUGE-02"), spoilt({"huge_pages": "try"}, **_reserved("2099")))
    assert finding.severity is Severity.WARNING
    assert not found(check("HUGE-02"), spoilt(**_reserved("2100")))


def test_a_machine_that_swaps_between_two_looks_is_found() -> None:
    facts = spoilt()
    first, last = facts.frames
    swapping = seen(swap_total_bytes=GIB, swap_in_pages=40, swap_out_pages=300, at_s=101.0)["memory"]
    host = last.host
    assert not isinstance(host, Unavailable)
    facts = replace(facts, frames=(first, replace(last, host=replace(host, memory=swapping))))
    (finding,) = found(check("OS-05"), facts)
    assert finding.severity is Severity.HIGH
    assert "40 pages in, 300 out" in finding.says
    assert not found(check("OS-05"), spoilt())


@pytest.mark.parametrize(("stolen", "severity"), [(1, None), (2, Severity.WARNING), (11, Severity.HIGH)])
def test_steal_is_judged_between_two_looks(stolen: int, severity: Severity | None) -> None:
    facts = spoilt()

    def looked(second: int) -> CpuSample:
        ticks = CpuTimes("cpu", 50 * second, 0, 0, (50 - stolen) * second, 0, 0, 0, stolen * second, 0, 0)
        return CpuSample(float(second), ticks, (), 0, 1, 0, 0.0, 0.0, 0.0)

    made = []
    for each in facts.frames:
        assert not isinstance(each.host, Unavailable)
        made.append(replace(each, host=replace(each.host, cpu=looked(each.sequence))))
    said = found(check("CPU-01"), replace(facts, frames=tuple(made)))
    assert [finding.severity for finding in said] == ([] if severity is None else [severity])


def test_whatever_a_check_needs_and_is_not_there_makes_it_unknown() -> None:
    away = Unavailable(Reason.NOT_LOCAL, "another machine")
    for each in CHECKS:
        blind = spoilt(host=away, machine=Unavailable(Reason.NOT_LOCAL, "another machine"))
        if any(isinstance(need.of(blind), Unavailable) for need in each.needs):
            said = result(each, blind)
            assert not said.findings
            assert said.unknowns, each.id


def test_a_mount_that_does_not_answer_is_unknown_not_passed() -> None:
    dead = FileSystemSample(100.0, (), ("/mnt/dead (nfs4): no answer for 12 s",))
    (said,) = unknown(check("DISK-01"), spoilt(host={"file_systems": dead}))
    assert "/mnt/dead" in said.reason


@pytest.mark.parametrize(
    ("flush_after", "dirty_bytes", "background_bytes", "severity"),
    [
        ("256kB", 212 * MIB, 2 * GIB, Severity.INFO),
        ("256kB", 212 * MIB, 5 * GIB, Severity.WARNING),
        ("256kB", 2 * GIB, 2 * GIB, Severity.WARNING),
        ("256kB", None, 2 * GIB, Severity.WARNING),
        ("0", 212 * MIB, 2 * GIB, Severity.WARNING),
    ],
)
def test_a_high_limit_of_dirty_pages_weighs_less_where_the_server_has_its_own_written_earlier(
    flush_after: str, dirty_bytes: int | None, background_bytes: int, severity: Severity
) -> None:
    facts = spoilt(
        {"checkpoint_flush_after": flush_after, "bgwriter_flush_after": "512kB"},
        host=seen(dirty_bytes=dirty_bytes),
        machine=details({"vm.dirty_background_bytes": str(background_bytes)}),
    )
    (finding,) = found(check("OS-04"), facts)
    assert finding.severity is severity
    early = "checkpoint_flush_after 256kB, bgwriter_flush_after 512kB; 212 MB dirty now"
    assert (early in {each.says for each in finding.evidence}) is (flush_after != "0" and dirty_bytes == 212 * MIB)
