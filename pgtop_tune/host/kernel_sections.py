"""Sections of a HostSample from the content of kernel files, wherever that comes from: this machine, or a server's
own /proc over SQL. Paths are without the leading slash; `read` raises OSError for what is not there.

/proc/net/dev. Source: proc_pid_net(5), Documentation/networking/statistics.rst.

/proc/pressure/{cpu,io,memory}. Source: Documentation/accounting/psi.rst.

/proc/stat and /proc/loadavg. Source: Documentation/filesystems/proc.rst, sections 1.7 and 1.8, and proc(5).

/proc/diskstats. Source: Documentation/admin-guide/iostats.rst; sectors are 512 bytes whatever the device. Paths of
NVMe: drivers/nvme/host/multipath.c (nvme_mpath_start_request, nvme_mpath_set_disk_name).

/proc/meminfo, swap traffic of /proc/vmstat, huge pages. Source: Documentation/filesystems/proc.rst, meminfo.

The cache of ZFS, which the kernel counts as used. Source: OpenZFS, arc_stats; size of /proc/spl/kstat/zfs/arcstats.

/sys/devices/system/node/nodeN/{meminfo,numastat}. Source: numastat.rst, sysfs-devices-node of the kernel.

Pools of huge pages. Source: Documentation/admin-guide/mm/hugetlbpage.rst, /sys/kernel/mm/hugepages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from pgtop_tune.host.kernel_text import KeptFile, unsigned
from pgtop_tune.metrics.host_values import used_bytes
from pgtop_tune.model.host import (
    CpuSample,
    CpuTimes,
    DiskCounters,
    HugePages,
    InterfaceCounters,
    MemorySample,
    NetworkSample,
    PressureLine,
    PressureSample,
    UntoldFigure,
)
from pgtop_tune.model.machine import NumaNode, NumaSample

_POOLS: Final = "sys/kernel/mm/hugepages"
USUAL_PAGE_BYTES: Final = (2 << 20, 1 << 30)
"""Sizes to try where the directory cannot be listed: those of x86-64, and of arm64 with pages of 4 kB."""


def pool_paths(page_bytes: int) -> tuple[str, ...]:
    """Return the files of a pool: total, free, reserved and surplus pages."""
    directory = f"{_POOLS}/hugepages-{page_bytes // 1024}kB"
    return tuple(f"{directory}/{name}_hugepages" for name in ("nr", "free", "resv", "surplus"))


def with_pools(
    default: tuple[HugePages, ...], sizes: Iterable[int], read: Callable[[str], bytes]
) -> tuple[HugePages, ...]:
    """Return the default pool and every other pool that holds a page, by size; a pool that cannot be read is left out.

    Args:
        default: The pool of /proc/meminfo.
        sizes: Page sizes in bytes to look for.
        read: Content of a file by its path without the leading slash; raises OSError.
    """
    default_sizes = {pool.page_bytes for pool in default}
    pools = (_pool(page_bytes, read) for page_bytes in sizes if page_bytes not in default_sizes)
    return tuple(sorted((*default, *filter(None, pools)), key=lambda pool: pool.page_bytes))


def _pool(page_bytes: int, read: Callable[[str], bytes]) -> HugePages | None:
    total, *parts = pool_paths(page_bytes)
    try:
        pages = unsigned(read(total).strip())
        return HugePages(page_bytes, pages, *(unsigned(read(path).strip()) for path in parts)) if pages else None
    except (OSError, ValueError):
        return None


class HugePagePools:
    """Pools of huge pages of other than the default size, which /proc/meminfo does not show.

    Args:
        root: Where /sys is found.
    """

    def __init__(self, root: Path) -> None:
        names = sorted(pool.name for pool in (root / _POOLS).glob("hugepages-*kB"))
        sizes = (name.removeprefix("hugepages-").removesuffix("kB") for name in names)
        self._sizes = tuple(int(size) * 1024 for size in sizes if size.isdigit())
        self._files = {path: KeptFile(root / path) for size in self._sizes for path in pool_paths(size)}

    def read(self, default: tuple[HugePages, ...]) -> tuple[HugePages, ...]:
        """Return the default pool and every other pool that holds a page, by size; a pool that cannot be read is left
        out."""
        return with_pools(default, self._sizes, lambda path: self._files[path].read())

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


_LINE: Final = re.compile(rb"^Node \d+ (\w+(?:\(\w+\))?): +(\d+)( kB)?$", re.MULTILINE)
_MOST: Final = 4096


def parse_id_list(ids: bytes) -> tuple[int, ...]:
    """Return the numbers of a list as sysfs writes it: "0-2,5" → 0, 1, 2, 5.

    Raises:
        ValueError: It is no such list, or one of more numbers than any machine has.
    """
    listed: list[int] = []
    for part in ids.strip().split(b","):
        if not part:
            continue
        first, _, last = part.partition(b"-")
        low = unsigned(first)
        high = unsigned(last) if last else low
        if high - low >= _MOST or len(listed) >= _MOST:
            raise ValueError(f"a list of too many numbers: {ids[:40]!r}")
        listed.extend(range(low, high + 1))
    return tuple(listed)


def parse_node(node: int, meminfo: bytes, numastat: bytes) -> NumaNode:
    """Return the memory of one NUMA node.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    amounts = {name: unsigned(word) * (1024 if kilo else 1) for name, word, kilo in _LINE.findall(meminfo)}
    pages = {pair[0]: unsigned(pair[1]) for line in numastat.split(b"\n") if len(pair := line.split()) == 2}
    try:
        return NumaNode(
            node=node,
            total_bytes=amounts[b"MemTotal"],
            free_bytes=amounts[b"MemFree"],
            file_bytes=amounts.get(b"FilePages"),
            anon_bytes=amounts.get(b"AnonPages"),
            shmem_bytes=amounts.get(b"Shmem"),
            dirty_bytes=amounts.get(b"Dirty"),
            huge_pages=amounts.get(b"HugePages_Total", 0),
            huge_pages_free=amounts.get(b"HugePages_Free", 0),
            hit_pages=pages.get(b"numa_hit"),
            miss_pages=pages.get(b"numa_miss"),
            foreign_pages=pages.get(b"numa_foreign"),
        )
    except KeyError as missing:
        raise ValueError(f"node{node} has no {missing.args[0].decode('ascii', 'replace')}") from None


_ARC_SIZE: Final = re.compile(rb"^size +4 +(\d+)$", re.MULTILINE)
_SWAPPED: Final = re.compile(rb"^(pswpin|pswpout) +(\d+)$", re.MULTILINE)
_MODE: Final = re.compile(r"\[(always|defer\+madvise|defer|madvise|never)\]")


_MEMORY_LINES: Final = (
    ("available_bytes", "MemAvailable", ("host.memory.available",)),
    ("buffers_bytes", "Buffers", ("host.memory.cache",)),
    ("cached_bytes", "Cached", ("host.memory.cache",)),
    ("shmem_bytes", "Shmem", ("host.memory.shared", "host.memory.cache")),
    ("dirty_bytes", "Dirty", ("host.memory.dirty",)),
    ("writeback_bytes", "Writeback", ("host.memory.writeback",)),
    ("page_tables_bytes", "PageTables", ("host.memory.page_tables",)),
    ("committed_bytes", "Committed_AS", ("host.memory.committed",)),
    ("commit_limit_bytes", "CommitLimit", ("host.memory.commit_limit",)),
    ("anon_huge_bytes", "AnonHugePages", ("host.memory.anon_huge",)),
    ("shmem_huge_bytes", "ShmemHugePages", ("host.memory.shmem_huge",)),
    ("file_huge_bytes", "FileHugePages", ("host.memory.file_huge",)),
)
"""Fields of a MemorySample that may be None, their lines of /proc/meminfo, and the figures unknown without them."""


def parse_meminfo(
    at_s: float, meminfo: bytes, vmstat: bytes = b"", thp: bytes = b"", defrag: bytes = b"", arcstats: bytes = b""
) -> MemorySample:
    """Return memory as the kernel counts it.

    Args:
        at_s: When the files were read.
        meminfo: Content of /proc/meminfo.
        vmstat: Content of /proc/vmstat; empty where it cannot be read.
        thp: Content of /sys/kernel/mm/transparent_hugepage/enabled; empty where it cannot be read.
        defrag: Content of …/transparent_hugepage/defrag; empty where it cannot be read.
        arcstats: Content of /proc/spl/kstat/zfs/arcstats; empty without ZFS.

    Returns:
        The sample, with the pool of the default huge page size only (meminfo has no other).

    Raises:
        ValueError: The content is not what the kernel writes: without MemTotal and MemFree there is no figure at all.
    """
    amounts = _amounts(meminfo)
    swapped = parse_vmstat(vmstat)
    optional: dict[str, Any] = {field: amounts.get(line.encode()) for field, line, _ in _MEMORY_LINES}
    if optional["cached_bytes"] is not None:
        optional["cached_bytes"] += amounts.get(b"SReclaimable", 0)
    swap_total, swap_free = amounts.get(b"SwapTotal"), amounts.get(b"SwapFree")
    if swap_total is not None and swap_free is not None and swap_free > swap_total:
        # WSL 1 writes -n as 2^54 − n kB there.
        swap_free = None
    try:
        return MemorySample(
            at_s=at_s,
            total_bytes=amounts[b"MemTotal"],
            free_bytes=amounts[b"MemFree"],
            **optional,
            swap_total_bytes=swap_total,
            swap_free_bytes=swap_free,
            swap_in_pages=swapped.get("pswpin"),
            swap_out_pages=swapped.get("pswpout"),
            thp_mode=parse_thp(thp),
            huge_pages=_default_pool(amounts),
            thp_defrag=parse_thp(defrag),
            arc_bytes=_arc(arcstats, amounts[b"MemTotal"] - amounts[b"MemFree"]),
        )
    except KeyError as missing:
        raise ValueError(f"/proc/meminfo has no {missing.args[0].decode()}") from None


def _arc(arcstats: bytes, most: int) -> int | None:
    """Return the size of the cache of ZFS; None for one that does not fit into this memory: it is another machine's."""
    line = _ARC_SIZE.search(arcstats)
    size = None if line is None else unsigned(line[1])
    return size if size is not None and size <= most else None


def parse_vmstat(vmstat: bytes) -> dict[str, int]:
    """Return the pages swapped since boot: `pswpin` and `pswpout`, where present.

    Raises:
        ValueError: A number is out of range.
    """
    return {name.decode("ascii"): unsigned(pages) for name, pages in _SWAPPED.findall(vmstat)}


def parse_thp(enabled: bytes) -> str:
    """Return the mode in brackets: "always", "madvise", "never", "defer" or "defer+madvise"; "" when there is none."""
    match = _MODE.search(enabled.decode("ascii", "replace"))
    return match.group(1) if match else ""


def _amounts(meminfo: bytes) -> dict[bytes, int]:
    """Return every line of meminfo; kilobytes become bytes, plain counts stay."""
    amounts: dict[bytes, int] = {}
    for line in meminfo.split(b"\n"):
        name, colon, value = line.partition(b":")
        fields = value.split()
        if colon and fields:
            amounts[name] = unsigned(fields[0]) * (1024 if fields[1:] == [b"kB"] else 1)
    return amounts


def _default_pool(amounts: Mapping[bytes, int]) -> tuple[HugePages, ...]:
    """Return the pool of the default page size; nothing where the kernel was built without huge pages or does not show
    them."""
    names = (b"Hugepagesize", b"HugePages_Total", b"HugePages_Free", b"HugePages_Rsvd", b"HugePages_Surp")
    counts = [amounts[name] for name in names if name in amounts]
    return (HugePages(*counts),) if len(counts) == len(names) else ()


_SECTOR_BYTES: Final = 512
_DISK_FILES_FIELDS: Final = 14
_NVME_PATH: Final = re.compile(r"(nvme\d+)c\d+(n\d+)")
_SUMMED: Final = (
    "reads", "read_bytes", "read_ms", "writes", "write_bytes", "write_ms", "in_flight", "weighted_ms",
)  # fmt: skip
_BY_ROLE_ONLY: Final = ("loop", "ram", "sr", "fd")
"""Shown only under a directory of the server's: snap images, boot images, drives."""


def parse_diskstats(diskstats: bytes) -> tuple[DiskCounters, ...]:
    """Return every block device of the file, partitions too, in the kernel's order and without roles.

    Shorter lines are left out: before Linux 2.6.25 those of partitions have four numbers.

    Raises:
        ValueError: A number is none that the kernel writes.
    """
    lines = [fields for line in diskstats.split(b"\n") if (fields := line.split(None, _DISK_FILES_FIELDS))]
    devices = [fields for fields in lines if len(fields) >= _DISK_FILES_FIELDS]
    if lines and not devices:
        raise ValueError(f"/proc/diskstats: too few fields in {b' '.join(lines[0])[:80]!r}")
    return tuple(map(_disk_files_counters, devices))


def _disk_files_counters(fields: list[bytes]) -> DiskCounters:
    numbers = [unsigned(word) for word in fields[3:_DISK_FILES_FIELDS]]
    return DiskCounters(
        name=fields[2].decode("ascii", "replace"),
        reads=numbers[0],
        read_bytes=numbers[2] * _SECTOR_BYTES,
        read_ms=numbers[3],
        writes=numbers[4],
        write_bytes=numbers[6] * _SECTOR_BYTES,
        write_ms=numbers[7],
        in_flight=numbers[8],
        busy_ms=numbers[9],
        weighted_ms=numbers[10],
    )


def _without_paths(devices: Collection[DiskCounters]) -> Collection[DiskCounters]:
    """Return the devices without the paths of NVMe's native multipath: nvme0c1n1 is a path to the head nvme0n1.

    Where the kernel counts in the paths only (without NVME_MPATH_IO_STATS, before Linux 6.4), the head has what they
    count.
    """
    paths: dict[str, list[DiskCounters]] = {}
    for device in devices:
        match = _NVME_PATH.fullmatch(device.name)
        if match is not None:
            paths.setdefault(f"{match[1]}{match[2]}", []).append(device)
    if not paths:
        return devices
    heads = {device.name for device in devices} & paths.keys()
    hidden = {path.name for head in heads for path in paths[head]}
    return [
        device if device.name not in heads or device.reads or device.writes else _sum_of(device, paths[device.name])
        for device in devices
        if device.name not in hidden
    ]


def _sum_of(head: DiskCounters, paths: Sequence[DiskCounters]) -> DiskCounters:
    """Return the head with what its paths count; busy as long as the busiest: they may be at the same time."""
    totals = {field: sum(getattr(path, field) or 0 for path in paths) for field in _SUMMED}
    return replace(head, **totals, busy_ms=max(path.busy_ms or 0 for path in paths))


def choose_disks(
    devices: Collection[DiskCounters],
    whole_disks: Collection[str],
    stacked: Collection[str],
    roles: Mapping[str, tuple[str, ...]],
) -> tuple[DiskCounters, ...]:
    """Return the disks that an operator expects to see: those with traffic, and those with the server's directories.

    Args:
        devices: All of /proc/diskstats.
        whole_disks: Names that are not partitions (/sys/block).
        stacked: Names of devices made of others (dm, md).
        roles: Roles of the server's directories by device.

    Returns:
        Devices with a role first, then whole disks that have seen a request since boot; of the stacked ones only those
        with a role, because their traffic is that of the disks below. The paths to an NVMe namespace are one disk.
    """
    devices = _without_paths(devices)
    carriers = [
        replace(device, roles=roles[device.name], stacked=device.name in stacked)
        for device in devices
        if device.name in roles
    ]
    busy_disks = [
        device
        for device in devices
        if device.name not in roles
        and device.name in whole_disks
        and device.name not in stacked
        and device.name.rstrip("0123456789") not in _BY_ROLE_ONLY
        and (device.reads or device.writes)
    ]
    return (*carriers, *busy_disks)


_TIMES: Final = 10
_REQUIRED_TIMES: Final = 4
"""user, nice, system and idle; the others came one by one, guest_nice with Linux 2.6.33."""


def parse_stat(at_s: float, stat: bytes, loadavg: bytes) -> CpuSample:
    """Return CPU times, context switches, run queue and load.

    Args:
        at_s: When the files were read.
        stat: Content of /proc/stat.
        loadavg: Content of /proc/loadavg; empty where it cannot be read.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    lines = stat.split(b"\n")
    cpus = [_times(line) for line in lines if line.startswith(b"cpu")]
    if not cpus or cpus[0].cpu != "cpu":
        raise ValueError("/proc/stat does not begin with the cpu line")
    counter_lines = [line.split(None, 2) for line in lines if line.startswith((b"ctxt", b"intr", b"procs_"))]
    counters = {word[0]: unsigned(word[1]) for word in counter_lines if len(word) > 1}
    load_1m, load_5m, load_15m = _loads(loadavg)
    return CpuSample(
        at_s=at_s,
        total=cpus[0],
        cores=tuple(cpus[1:]),
        context_switches=counters.get(b"ctxt"),
        procs_running=counters.get(b"procs_running"),
        procs_blocked=counters.get(b"procs_blocked"),
        load_1m=load_1m,
        load_5m=load_5m,
        load_15m=load_15m,
        interrupts=counters.get(b"intr"),
    )


def parse_boot_time(stat: bytes) -> int:
    """Return `btime` of /proc/stat: seconds since the epoch at which the kernel started, by today's wall clock.

    Raises:
        ValueError: There is no such line.
    """
    for line in stat.split(b"\n"):
        if line.startswith(b"btime "):
            return unsigned(line[6:].strip())
    raise ValueError("/proc/stat has no btime")


def _times(line: bytes) -> CpuTimes:
    fields = line.split()
    if len(fields) <= _REQUIRED_TIMES:
        raise ValueError(f"/proc/stat: too few fields in {line[:80]!r}")
    times: list[int | None] = [*map(unsigned, fields[1 : _TIMES + 1])]
    user, nice, system, idle, *more = times + [None] * (_TIMES - len(times))
    return CpuTimes(fields[0].decode("ascii"), user or 0, nice or 0, system or 0, idle or 0, *more)


def _loads(loadavg: bytes) -> tuple[float | None, float | None, float | None]:
    if not loadavg:
        return None, None, None
    fields = loadavg.split(None, 3)
    if len(fields) < 3:
        raise ValueError("/proc/loadavg: too few fields")
    one, five, fifteen = (float(word) for word in fields[:3])
    if not all(map(math.isfinite, (one, five, fifteen))):
        raise ValueError("/proc/loadavg: not numbers")
    return one, five, fifteen


_TOTAL: Final = re.compile(rb"^(some|full) [^\n]*\btotal=(\d+)$", re.MULTILINE)


def parse_pressure(at_s: float, cpu: bytes, io: bytes, memory: bytes) -> PressureSample:
    """Return the stall times since boot.

    Args:
        at_s: When the files were read.
        cpu: Content of /proc/pressure/cpu; before Linux 5.13 without a "full" line.
        io: Content of /proc/pressure/io.
        memory: Content of /proc/pressure/memory.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    return PressureSample(at_s=at_s, cpu=_line("cpu", cpu), io=_line("io", io), memory=_line("memory", memory))


def _line(resource: str, text: bytes) -> PressureLine:
    totals = {kind: unsigned(total) for kind, total in _TOTAL.findall(text)}
    if b"some" not in totals:
        raise ValueError(f"/proc/pressure/{resource} has no line of some stall")
    return PressureLine(totals[b"some"], totals.get(b"full"))


_FIELDS = 16
_MEGABIT = 1_000_000


def parse_net_dev(net_dev: bytes, speed_of: Callable[[str], bytes]) -> tuple[InterfaceCounters, ...]:
    """Return the interfaces that have carried a packet, in the kernel's order; lines with too few numbers are left out.

    Args:
        net_dev: Content of /proc/net/dev.
        speed_of: Content of /sys/class/net/NAME/speed, megabits; b"" where it cannot be read.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    lines = net_dev.split(b"\n")
    if len(lines) < 2 or b"|bytes" not in lines[1]:
        raise ValueError("/proc/net/dev does not begin with its headings")
    interfaces = (_counters(line, speed_of) for line in lines[2:] if line.strip())
    return tuple(interface for interface in interfaces if interface is not None)


def _counters(line: bytes, speed_of: Callable[[str], bytes]) -> InterfaceCounters | None:
    # A name may hold a colon ("eth0:1"), its numbers do not.
    label, colon, counters = line.rpartition(b":")
    fields = counters.split()
    if not colon or len(fields) < _FIELDS:
        return None
    numbers = [unsigned(word) for word in fields[:_FIELDS]]
    if not (numbers[1] or numbers[9]):
        return None
    name = label.strip().decode("utf-8", "replace")
    return InterfaceCounters(
        name=name,
        received_bytes=numbers[0],
        received_packets=numbers[1],
        received_errors=numbers[2],
        received_drops=numbers[3],
        sent_bytes=numbers[8],
        sent_packets=numbers[9],
        sent_errors=numbers[10],
        sent_drops=numbers[11],
        speed_bits_per_s=parse_speed(speed_of(name)),
    )


def parse_speed(speed: bytes) -> int | None:
    """Return bits per second; None for -1, 0 and an unreadable file: virtual interfaces and dead links."""
    word = speed.strip()
    return (unsigned(word) * _MEGABIT or None) if word.isdigit() else None


Read = Callable[[str], bytes]

CPU_PATHS: Final = ("proc/stat", "proc/loadavg")
_THP: Final = "sys/kernel/mm/transparent_hugepage"
MEMORY_PATHS: Final = ("proc/meminfo", "proc/vmstat", f"{_THP}/enabled", f"{_THP}/defrag")
ARC_PATH: Final = "proc/spl/kstat/zfs/arcstats"
MOUNTS_PATH: Final = "proc/self/mountinfo"
PRESSURE_PATHS: Final = ("proc/pressure/cpu", "proc/pressure/io", "proc/pressure/memory")
# The interfaces of the process that reads it: a server in a container of its own has others.
NETWORK_PATH: Final = "proc/self/net/dev"
NODES_PATH: Final = "sys/devices/system/node/has_memory"


def speed_path(interface: str) -> str:
    return f"sys/class/net/{interface}/speed"


def node_paths(node: int) -> tuple[str, str]:
    return f"sys/devices/system/node/node{node}/meminfo", f"sys/devices/system/node/node{node}/numastat"


def cpu_section(at_s: float, read: Read) -> CpuSample:
    """Return the result of `parse_stat`; only /proc/stat must exist."""
    stat, loadavg = CPU_PATHS
    return parse_stat(at_s, read(stat), if_there(read, loadavg))


def memory_section(at_s: float, read: Read) -> MemorySample:
    """Return the result of `parse_meminfo`; only /proc/meminfo must exist."""
    meminfo, *optional_paths = MEMORY_PATHS
    vmstat, thp, defrag = (if_there(read, path) for path in optional_paths)
    arcstats = if_there(read, ARC_PATH)
    if arcstats and lent_by_lxcfs(if_there(read, MOUNTS_PATH)):
        arcstats = b""
    return parse_meminfo(at_s, read(meminfo), vmstat, thp, defrag, arcstats)


def lent_by_lxcfs(mountinfo: bytes) -> bool:
    """Return whether lxcfs gives a container figures of its own for /proc/meminfo; ZFS' figures are the machine's."""
    return b" - fuse.lxcfs " in mountinfo


def pressure_section(at_s: float, read: Read) -> PressureSample:
    return parse_pressure(at_s, *map(read, PRESSURE_PATHS))


def network_section(at_s: float, read: Read) -> NetworkSample:
    interfaces = parse_net_dev(read(NETWORK_PATH), lambda name: if_there(read, speed_path(name)))
    return NetworkSample(at_s, interfaces)


def numa_section(at_s: float, read: Read, nodes: Sequence[int]) -> NumaSample:
    return NumaSample(at_s, tuple(parse_node(node, *map(read, node_paths(node))) for node in nodes))


_CPU_LINES: Final = (
    ("iowait_ticks", "iowait", ("host.cpu.iowait",)),
    ("irq_ticks", "irq", ("host.cpu.irq", "host.cpu.hardirq")),
    ("softirq_ticks", "softirq", ("host.cpu.softirq",)),
    ("steal_ticks", "steal", ("host.cpu.steal",)),
    ("guest_ticks", "guest", ("host.cpu.guest",)),
)
_STAT_LINES: Final = (
    ("context_switches", "ctxt", ("host.context_switches",)),
    ("procs_running", "procs_running", ("host.run_queue",)),
    ("procs_blocked", "procs_blocked", ("host.blocked",)),
    ("interrupts", "intr", ("host.interrupts",)),
)
_SWAP_LINES: Final = (
    ("swap_total_bytes", "SwapTotal", ("host.swap.used",)),
    ("swap_free_bytes", "sound SwapFree", ("host.swap.used",)),
)
_VMSTAT_LINES: Final = (
    ("swap_in_pages", "pswpin", ("host.swap.in",)),
    ("swap_out_pages", "pswpout", ("host.swap.out",)),
)


def untold_figures(cpu: CpuSample, memory: MemorySample) -> tuple[UntoldFigure, ...]:
    """Return the figures whose lines this system's /proc lacks, each once."""
    optional_fields = (
        (cpu.total, _CPU_LINES, "/proc/stat"),
        (cpu, _STAT_LINES, "/proc/stat"),
        (cpu, tuple((f"load_{minutes}m", "", (f"host.load_{minutes}m",)) for minutes in (1, 5, 15)), "/proc/loadavg"),
        (memory, (*_MEMORY_LINES, *_SWAP_LINES), "/proc/meminfo"),
        (memory, _VMSTAT_LINES, "/proc/vmstat"),
    )
    missing = [
        UntoldFigure(metric, f"this system has no {line} in {file}" if line else f"this system has no {file}")
        for section, lines, file in optional_fields
        for field, line, metrics in lines
        if getattr(section, field) is None
        for metric in metrics
    ]
    if used_bytes(memory) is None:
        reason = "this system has neither page cache nor MemAvailable in /proc/meminfo"
        missing.append(UntoldFigure("host.memory.used", reason))
    return tuple({figure.metric: figure for figure in reversed(missing)}.values())[::-1]


def boot_of(read: Read) -> str:
    """Return what tells one boot from another: boot_id, else the moment of the boot; "" where neither is there."""
    boot_id = if_there(read, "proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()
    if boot_id:
        return boot_id
    try:
        return f"boot at {parse_boot_time(if_there(read, CPU_PATHS[0]))}"
    except ValueError:
        return ""


def kernel_of(read: Read) -> str:
    """Return the kernel's release: osrelease, else the third word of /proc/version; "" where neither is there."""
    release = if_there(read, "proc/sys/kernel/osrelease").decode("utf-8", "replace").strip()
    version = if_there(read, "proc/version").decode("utf-8", "replace").split()
    return release or (version[2] if len(version) > 2 else "")


def if_there(read: Read, path: str) -> bytes:
    """Return the content, b"" where the file cannot be read."""
    try:
        return read(path)
    except OSError:
        return b""
