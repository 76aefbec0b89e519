"""/proc of other kernels and containers, as public reports show it: what is there is right, the rest has a reason."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from pgtop_tune.host.local import LocalHost
from pgtop_tune.host.over_sql import SqlHost
from pgtop_tune.metrics.host import OTHER_PROGRAMS
from pgtop_tune.metrics.host_values import page_cache_bytes, swap_used_bytes, used_bytes
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import HostFacts, HostSample
from pgtop_tune.model.machine import NOWHERE_ELSE

CPU = "cpu 400 0 200 3000 100 0 10 5 0 0\ncpu0 400 0 200 3000 100 0 10 5 0 0\nintr 9 1\nctxt 99\nbtime 1426355694\n"
STAT = CPU + "processes 6499\nprocs_running 1\nprocs_blocked 0\n"
MEMINFO = "MemTotal: 1048576 kB\nMemFree: 834036 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
WHOLE = {
    "stat": STAT,
    "loadavg": "0.52 0.58 0.59 1/5 5\n",
    "meminfo": "".join(
        f"{name}: {kilobytes} kB\n"
        for name, kilobytes in {
            "MemTotal": 1000, "MemFree": 100, "MemAvailable": 600, "Buffers": 50, "Cached": 500, "SwapTotal": 80,
            "SwapFree": 60, "Dirty": 1, "Writeback": 0, "Shmem": 40, "SReclaimable": 30, "PageTables": 7,
            "CommitLimit": 900, "Committed_AS": 300, "AnonHugePages": 0, "ShmemHugePages": 0, "FileHugePages": 0,
        }.items()
    ),
    "vmstat": "pswpin 1\npswpout 2\n",
    "sys/kernel/hostname": "somewhere\n",
    "sys/kernel/osrelease": "6.1.0\n",
    "sys/kernel/random/boot_id": "b\n",
    "version": "Linux version 4.4.0 (dummy@example.org) #1 SMP\n",
    "self/stat": f"7 (postgres) S 1 {' '.join(['0'] * 50)}\n",
    "diskstats": "8 0 sda 9 0 9 9 9 0 9 9 0 9 9\n",
    "self/net/dev": "Inter-| Receive\n face |bytes\n  eth0: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n",
}  # fmt: skip


def without(name: str) -> str:
    """meminfo without a line."""
    return "".join(line for line in WHOLE["meminfo"].splitlines(keepends=True) if not line.startswith(f"{name}:"))


SYSTEMS: dict[str, tuple[dict[str, str], set[str]]] = {
    "complete": ({}, set()),
    "OpenVZ, psutil issue 1010": (
        {"meminfo": MEMINFO},
        {
            "host.memory.used", "host.memory.cache", "host.memory.available", "host.memory.shared",
            "host.memory.dirty", "host.memory.writeback", "host.memory.page_tables", "host.memory.committed",
            "host.memory.commit_limit", "host.memory.anon_huge", "host.memory.shmem_huge", "host.memory.file_huge",
        },
    ),
    "OpenVZ, goprocinfo pull 21": (
        {"stat": "cpu  4611 1 2056 138437095 4398 0 0 0\ncpu0 640 0 185 17302946 2177 0 0 0\nintr 0\nswap 0 0\n\n"
                 "ctxt 955681\nbtime 1426355694\nprocesses 6499\nprocs_running 1\nprocs_blocked 0\n"},
        {"host.cpu.guest"},
    ),
    "lxcfs issue 35": ({"stat": STAT.replace(" 5 0 0\n", " 5 0\n")}, set()),
    "gVisor issue 1336": (
        {"stat": STAT.replace("400 0 200 3000 100 0 10 5", "0 0 0 0 0 0 0 0"), "diskstats": "", "vmstat": "",
         "sys/kernel/osrelease": "", "sys/kernel/random/boot_id": "",
         "meminfo": without("PageTables").replace("Committed_AS", "Mapped").replace("CommitLimit", "Mlocked")},
        {"host.memory.page_tables", "host.memory.committed", "host.memory.commit_limit", "host.swap.in",
         "host.swap.out"},
    ),
    "WSL 1, psutil pull 1517": (
        {"meminfo": without("MemAvailable").replace("SwapFree: 60 kB", "SwapFree:18014398503714728 kB")},
        {"host.memory.available", "host.swap.used"},
    ),
    "OpenWrt, sysinfo issue 164": (
        {"meminfo": without("MemAvailable")}, {"host.memory.available"},
    ),
    "Linux 2.6 on OpenVZ, psutil issue 313": (
        {"meminfo": without("Cached")}, {"host.memory.cache"},
    ),
    "FreeBSD linprocfs": (
        {"stat": "cpu 400 0 200 3000\ncpu0 400 0 200 3000\nctxt 99\nbtime 1426355694\n",
         "meminfo": "MemTotal: 1000 kB\nMemFree: 100 kB\nBuffers: 50 kB\nCached: 500 kB\nSwapTotal: 80 kB\n"
                    "SwapFree: 60 kB\n"},
        {"host.cpu.iowait", "host.cpu.irq", "host.cpu.hardirq", "host.cpu.softirq", "host.cpu.steal",
         "host.cpu.guest", "host.run_queue", "host.blocked", "host.interrupts", "host.memory.used",
         "host.memory.available", "host.memory.shared", "host.memory.cache", "host.memory.dirty",
         "host.memory.writeback", "host.memory.page_tables", "host.memory.committed", "host.memory.commit_limit",
         "host.memory.anon_huge", "host.memory.shmem_huge", "host.memory.file_huge"},
    ),
    "a container without loadavg": ({"loadavg": ""}, {"host.load_1m", "host.load_5m", "host.load_15m"}),
}  # fmt: skip


def made(root: Path, files: dict[str, str]) -> Path:
    """A /proc of these files; an empty one is none."""
    for name, content in (WHOLE | files).items():
        path = root / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content:
            path.write_text(content)
    return root


async def looks(root: Path) -> list[tuple[HostFacts | Unavailable, HostSample | Unavailable]]:
    """The machine as we read it ourselves, and over SQL."""

    async def read(paths: Sequence[str]) -> list[bytes | None]:
        files = [root / path.removeprefix("/") for path in paths]
        return [file.read_bytes() if file.exists() else None for file in files]

    local, remote = LocalHost(time.monotonic, root=root), SqlHost(time.monotonic, read)
    try:
        opened = await remote.open("", NOWHERE_ELSE)
        return [(local.facts(), local.sample((), (), ())), (opened, await remote.sample((), ()))]
    finally:
        local.close()


@pytest.mark.parametrize("name", SYSTEMS)
async def test_a_line_that_is_not_there_takes_no_other_figure_with_it(name: str, tmp_path: Path) -> None:
    files, absent = SYSTEMS[name]
    for facts, sample in await looks(made(tmp_path, files)):
        assert isinstance(facts, HostFacts), facts
        assert isinstance(sample, HostSample), sample
        assert not isinstance(sample.cpu, Unavailable), sample.cpu
        assert not isinstance(sample.memory, Unavailable), sample.memory
        untold = [figure for figure in facts.untold if figure.metric != OTHER_PROGRAMS.id]
        assert (len(untold) < len(facts.untold)) is facts.is_of_server, (
            "the names of all processes are not read over SQL"
        )
        assert {figure.metric for figure in untold} == absent
        assert all(figure.why.startswith("this system has n") for figure in untold)
        assert facts.boot_id in ("b", "boot at 1426355694")
        assert facts.kernel in ("6.1.0", "4.4.0")
        assert (sample.memory.free_bytes, facts.cpu_count) in ((100 << 10, 1), (834036 << 10, 1))
        assert (swap_used_bytes(sample.memory) is None) == ("host.swap.used" in absent)
        assert (page_cache_bytes(sample.memory) is None) == ("host.memory.cache" in absent)
        assert (used_bytes(sample.memory) is None) == ("host.memory.used" in absent)


@pytest.mark.parametrize(("file", "content"), [("meminfo", "MemFree: 1 kB\n"), ("stat", "cpu 1 2 3\n")])
async def test_a_file_without_what_cannot_be_done_without_is_refused(file: str, content: str, tmp_path: Path) -> None:
    for facts, sample in await looks(made(tmp_path, {file: content})):
        assert isinstance(facts, Unavailable)
        section = "cpu" if file == "stat" else "memory"
        assert isinstance(sample, Unavailable) or isinstance(getattr(sample, section), Unavailable)


ARC = "13 1 0x01 147 39984 6110 99\nname   type data\nhits   4    117\nsize                            4    {}\n"
LXCFS = "812 805 0:50 /proc/meminfo /proc/meminfo rw,nosuid,nodev,relatime - fuse.lxcfs lxcfs rw,user_id=0\n"


@pytest.mark.parametrize(
    ("arc_kb", "mounts", "seen_kb"),
    [(300, "", 300), (300, LXCFS, None), (901, "", None), (None, "", None)],
    ids=["ZFS", "figures lent by lxcfs", "of another machine", "no ZFS"],
)
async def test_the_cache_of_zfs_is_shown_apart_and_not_used(
    arc_kb: int | None, mounts: str, seen_kb: int | None, tmp_path: Path
) -> None:
    arc = "" if arc_kb is None else ARC.format(arc_kb << 10)
    for _, sample in await looks(made(tmp_path, {"spl/kstat/zfs/arcstats": arc, "self/mountinfo": mounts})):
        assert isinstance(sample, HostSample)
        memory = sample.memory
        assert not isinstance(memory, Unavailable), memory
        cache = page_cache_bytes(memory)
        assert cache is not None
        assert memory.arc_bytes == (None if seen_kb is None else seen_kb << 10)
        assert used_bytes(memory) == memory.total_bytes - memory.free_bytes - cache - (memory.arc_bytes or 0)
