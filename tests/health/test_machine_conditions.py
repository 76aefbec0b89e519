"""Conditions of a machine in the kernel's own files: control groups, commit limit, huge pages, inodes, shared disks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.health.check import Severity
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.host.local import LocalHost
from pgtop_tune.host.machine_setup import machine_details
from pgtop_tune.host.mounts import FileSystems
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import FileSystem, FileSystemSample
from pgtop_tune.process.mount_namespace import MountNamespace, parse_mountinfo
from tests.health.test_machine_tree import KB, PID, WELL_SET, meminfo
from tests.support.health_facts import details, found, spoilt, unknown
from tests.support.machine_tree import write

DEADLINE_S = 30.0
BY_ID = {check.id: check for check in CHECKS}
MOUNTS = (
    "30 1 259:1 / / rw,noatime - xfs /dev/nvme0n1 rw\n"
    "31 30 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
)
ELSEWHERE = Path("/proc")
"""A directory that every machine has, and that lies on no device of the test's directory."""


@contextmanager
def host_of(root: Path, files: Mapping[str, str]) -> Iterator[LocalHost]:
    """A well-set machine with other files, read by what reads the real one."""
    write(root, {**WELL_SET, "proc/self/mountinfo": MOUNTS, **files})
    moment = iter(range(1, 10_000))
    host = LocalHost(lambda: float(next(moment)), root)
    try:
        yield host
    finally:
        host.close()


def facts_of(root: Path, host: LocalHost, made: CheckFacts | None = None) -> CheckFacts:
    """What is seen of this machine, with a well-set server on it."""
    made = made or spoilt()
    frames = tuple(replace(frame, host=host.sample([])) for frame in made.frames)
    return replace(made, frames=frames, machine=machine_details(root, [], {}, PID))


GROUP = "sys/fs/cgroup/db.slice/postgresql.service"
LIMITED = {
    f"proc/{PID}/cgroup": "0::/db.slice/postgresql.service\n",
    f"{GROUP}/memory.max": "4294967296\n",
    f"{GROUP}/memory.current": "4000000000\n",
    f"{GROUP}/memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
    f"{GROUP}/cpu.max": "200000 100000\n",
    f"{GROUP}/cpu.stat": "usage_usec 900\nnr_periods 1000\nnr_throttled 10\nthrottled_usec 5000\n",
}


def throttled(periods: int) -> dict[str, str]:
    return {f"{GROUP}/cpu.stat": f"usage_usec 900\nnr_periods 1000\nnr_throttled {periods}\nthrottled_usec 5000\n"}


@pytest.mark.parametrize(
    ("id_", "files", "severity", "says"),
    [
        ("OS-11", {}, None, ""),
        ("OS-11", {f"{GROUP}/memory.events": "max 7\noom 0\noom_kill 0\n"}, Severity.WARNING, "memory limit 7 times"),
        ("OS-11", {f"{GROUP}/memory.events": "max 7\noom 2\noom_kill 2\n"}, Severity.HIGH, "control group: 2"),
        ("CPU-02", {}, None, ""),
        ("CPU-02", throttled(11), Severity.WARNING, "1.1 % of the periods"),
        ("CPU-02", throttled(101), Severity.HIGH, "10 % of the periods"),
        ("CPU-02", {**throttled(999), f"{GROUP}/cpu.max": "max 100000\n"}, None, ""),
    ],
)
def test_a_control_group_that_holds_its_server_back(
    tmp_path: Path, id_: str, files: dict[str, str], severity: Severity | None, says: str
) -> None:
    with host_of(tmp_path, {**LIMITED, **files}) as host:
        host.set_server(PID)
        said = found(BY_ID[id_], facts_of(tmp_path, host))
    assert [finding.severity for finding in said] == ([] if severity is None else [severity])
    assert all(says in finding.says for finding in said)
    assert all("/db.slice/postgresql.service" in finding.evidence[0].says for finding in said)


GB_KB = KB * KB


@pytest.mark.parametrize(
    ("limit_gb", "committed_gb", "mode", "severity"),
    [
        (10, 8, 2, None),
        (10, 9, 2, Severity.HIGH),
        (5, 1, 2, Severity.WARNING),
        (10, 9, 0, None),
    ],
)
def test_what_the_kernel_may_still_promise(
    tmp_path: Path, limit_gb: int, committed_gb: int, mode: int, severity: Severity | None
) -> None:
    files = {
        "proc/meminfo": meminfo(2200, 60, 0, limit_gb * GB_KB, committed_gb * GB_KB),
        "proc/sys/vm/overcommit_memory": f"{mode}\n",
        "proc/vmstat": "pswpin 0\npswpout 0\n",
    }
    with host_of(tmp_path, files) as host:
        said = found(BY_ID["OS-02"], facts_of(tmp_path, host))
    assert [finding.severity for finding in said] == ([] if severity is None else [severity])


@pytest.mark.parametrize(
    ("buffers", "pages", "free", "severity"),
    [
        ("8GB", 0, 0, Severity.HIGH),
        ("8GB", 4200, 4200, Severity.HIGH),
        ("2GB", 0, 0, Severity.WARNING),
        ("2047MB", 0, 0, None),
    ],
)
def test_a_pool_of_huge_pages_that_the_server_does_not_use(
    tmp_path: Path, buffers: str, pages: int, free: int, severity: Severity | None
) -> None:
    with host_of(tmp_path, pool_files(pages, free)) as host:
        said = found(BY_ID["HUGE-01"], facts_of(tmp_path, host, trying(buffers)))
    assert [finding.severity for finding in said] == ([] if severity is None else [severity])
    assert all(any(f"{pages} in the pool" in each.says for each in finding.evidence) for finding in said)


def test_a_pool_that_somebody_uses_leaves_it_open_who_does(tmp_path: Path) -> None:
    with host_of(tmp_path, pool_files(4400, 0)) as host:
        (said,) = unknown(BY_ID["HUGE-01"], facts_of(tmp_path, host, trying("8GB")))
    assert "4400 huge pages are in use" in said.reason


def trying(buffers: str) -> CheckFacts:
    """A server before 17, which does not say whether it got the huge pages it tried to get."""
    without = ("huge_pages_status", "shared_memory_size", "shared_memory_size_in_huge_pages")
    return spoilt({"shared_buffers": buffers, "huge_pages": "try"}, major=14, without=without)


def pool_files(total: int, free: int) -> dict[str, str]:
    directory = "sys/kernel/mm/hugepages/hugepages-2048kB"
    counts = {"nr_hugepages": total, "free_hugepages": free, "resv_hugepages": 0, "surplus_hugepages": 0}
    return {
        "proc/meminfo": meminfo(total, free, 0, 12 * GB_KB, 2 * GB_KB),
        "proc/vmstat": "pswpin 0\npswpout 0\n",
        **{f"{directory}/{name}": f"{count}\n" for name, count in counts.items()},
    }


@pytest.mark.parametrize(("free", "severity"), [(31, None), (30, Severity.WARNING), (10, Severity.CRITICAL)])
def test_a_tablespace_whose_file_system_fills_up(free: int, severity: Severity | None) -> None:
    places = (
        FileSystem("/", "xfs", "/dev/vda1", ("data", "wal"), 100, 90, 90, 0, 0),
        FileSystem("/big", "xfs", "/dev/vdb", ("tablespace big",), 100, free, free, 0, 0),
    )
    said = found(BY_ID["DISK-01"], spoilt(host={"file_systems": FileSystemSample(1.0, places)}))
    assert [finding.severity for finding in said] == ([] if severity is None else [severity])
    assert all("holds tablespace big" in finding.evidence[1].says for finding in said)


@pytest.mark.parametrize(("left", "severity"), [(201, None), (200, Severity.WARNING), (50, Severity.CRITICAL)])
def test_a_file_system_that_runs_out_of_inodes(tmp_path: Path, left: int, severity: Severity | None) -> None:
    """The answer of statvfs(3) alone is made up: a file system that is full of files takes root to make."""
    mounts = parse_mountinfo(b"30 1 259:1 / / rw,noatime - xfs /dev/nvme0n1 rw\n")

    def statvfs(path: str) -> os.statvfs_result:
        assert path == "/"
        return os.statvfs_result((4096, 4096, 1000, 900, 900, 1000, left, left, 0, 255))

    reader = FileSystems(time.monotonic, statvfs)
    reader.watch({"data": str(tmp_path)}, MountNamespace(mounts))
    until = time.monotonic() + DEADLINE_S
    while isinstance(sample := reader.sample(), Unavailable) and time.monotonic() < until:
        time.sleep(0.01)
    said = found(BY_ID["DISK-02"], spoilt(host={"file_systems": sample}))
    assert [finding.severity for finding in said] == ([] if severity is None else [severity])
    assert all(f"{left} of 1000 are left" in finding.evidence[0].says for finding in said)


@pytest.mark.parametrize(
    ("in_step", "virtual", "severity"),
    [(True, False, None), (False, False, Severity.WARNING), (False, True, Severity.INFO), (False, None, Severity.INFO)],
)
def test_a_clock_that_nothing_keeps_right(in_step: bool, virtual: bool | None, severity: Severity | None) -> None:
    """A hypervisor may keep it right."""
    said = found(BY_ID["TIME-01"], spoilt(machine=details(clock_in_step=in_step, virtual=virtual)))
    assert [finding.severity for finding in said] == ([] if severity is None else [severity])


def test_a_clock_that_is_not_seen_is_unknown() -> None:
    assert len(unknown(BY_ID["TIME-01"], spoilt(machine=details(clock_in_step=None)))) == 1


@pytest.mark.parametrize(
    ("committed_gb", "mode", "severity"),
    [(8, 0, Severity.INFO), (12, 0, Severity.WARNING), (1, 1, Severity.WARNING), (12, 2, None)],
)
def test_promises_count_by_what_there_is_to_keep_them(
    tmp_path: Path, committed_gb: int, mode: int, severity: Severity | None
) -> None:
    """16 GB of memory, 4.3 GB of it huge pages, no swap."""
    files = {
        "proc/meminfo": meminfo(2200, 60, 0, 12 * GB_KB, committed_gb * GB_KB),
        "proc/sys/vm/overcommit_memory": f"{mode}\n",
        "proc/vmstat": "pswpin 0\npswpout 0\n",
    }
    with host_of(tmp_path, files) as host:
        said = found(BY_ID["OS-01"], facts_of(tmp_path, host))
    assert [finding.severity for finding in said] == ([] if severity is None else [severity])


@pytest.mark.parametrize(
    ("collector", "target", "severity"),
    [("off", "/dev/null", Severity.HIGH), ("off", "/var/log/pg.log", None), ("on", "/dev/null", None)],
)
def test_a_log_that_nobody_keeps(tmp_path: Path, collector: str, target: str, severity: Severity | None) -> None:
    made = spoilt({"logging_collector": collector, "log_destination": "stderr"})
    with host_of(tmp_path, {"proc/vmstat": "pswpin 0\npswpout 0\n"}) as host:
        link = tmp_path / f"proc/{PID}/fd/2"
        link.parent.mkdir()
        link.symlink_to(target)
        said = found(BY_ID["LOG-07"], facts_of(tmp_path, host, made))
    assert [finding.severity for finding in said] == ([] if severity is None else [severity])


@pytest.mark.parametrize("apart", [False, True])
def test_wal_and_data_on_one_disk(tmp_path: Path, apart: bool) -> None:
    root, data = tmp_path / "root", tmp_path / "data"
    data.mkdir()
    if apart:
        (data / "pg_wal").symlink_to(ELSEWHERE)
    else:
        (data / "pg_wal").mkdir()
    disks = {"vda": data, "vdb": ELSEWHERE}
    counters = "".join(f" 259 {number} {name} 5 0 40 1 5 0 40 1 0 2 2\n" for number, name in enumerate(disks))
    with host_of(root, {"proc/diskstats": counters}) as host:
        for name, directory in disks.items():
            attach(root, name, directory)
        host.set_directories(str(data))
        said = found(BY_ID["DISK-07"], facts_of(root, host))
    assert [(finding.severity, finding.subject) for finding in said] == ([] if apart else [(Severity.INFO, "vda")])


def attach(root: Path, name: str, directory: Path) -> None:
    """Says in the tree's sysfs that a directory that is really there lies on this disk."""
    device = root / "sys/devices/pci0" / name
    device.mkdir(parents=True)
    number = directory.stat().st_dev
    for link in (f"sys/block/{name}", f"sys/dev/block/{os.major(number)}:{os.minor(number)}"):
        (root / link).parent.mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(device)
