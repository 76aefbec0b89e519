"""Sections of a HostSample from the content of kernel files, wherever that comes from: this machine, or a server's
own /proc over SQL. Paths are without the leading slash; `read` raises OSError for what is not there.

/proc/net/dev. Source: proc_pid_net(5), Documentation/networking/statistics.rst.

/proc/pressure/{cpu,io,memory}. Source: Documentation/accounting/psi.rst.

/proc/stat and /proc/loadavg. Source: Documentation/filesystems/proc.rst, sections 1.7 and 1.8, and proc(5).

/proc/diskstats. Source: Documentation/admin-guide/iostats.rst; sectors are 512 bytes whatever the device. Paths of
NVMe: drivers/nvme/host/multipath.c (nvme_mpath_start_request, nvme_mpath_set_disk_name).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from pgtop_tune.host.kernel_text import unsigned
from pgtop_tune.host.memory_files import parse_meminfo, parse_node
from pgtop_tune.metrics.host_values import used_bytes
from pgtop_tune.model.host import (
    CpuSample,
    CpuTimes,
    DiskCounters,
    InterfaceCounters,
    MemorySample,
    NetworkSample,
    PressureLine,
    PressureSample,
    UntoldFigure,
)
from pgtop_tune.model.machine import NumaSample

_SECTOR_BYTES: Final = 512
_DISK_FILES_FIELDS: Final = 14
_NVME_PATH: Final = re.compile(r"(nvme\d+)c\d+(n\d+)")
_BY_ROLE_ONLY: Final = ("loop", "ram", "sr", "fd")
"""Shown only under a directory of the server's: snap images, boot images, drives."""


def parse_diskstats(diskstats: bytes) -> tuple[DiskCounters, ...]:
    """Every block device of the file, partitions too, in the kernel's order and without roles.

    Shorter lines are left out: before Linux 2.6.25 those of partitions have four numbers.

    Raises:
        ValueError: A number is none that the kernel writes.
    """
    lines = [fields for line in diskstats.split(b"\n") if (fields := line.split(None, _DISK_FILES_FIELDS))]
    devices = [fields for fields in lines if len(fields) >= _DISK_FILES_FIELDS]
    if lines and not devices:
        raise ValueError(f"/proc/diskstats: too few fields in {b' '.join(lines[0])[:80]!r}")
    return tuple(map(_disk_files_counters, devices))


def _disk_files_counters(words: list[bytes]) -> DiskCounters:
    numbers = [unsigned(word) for word in words[3:_DISK_FILES_FIELDS]]
    return DiskCounters(
        name=words[2].decode("ascii", "replace"),
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

    def total(counter: Callable[[DiskCounters], int | None]) -> int:
        return sum(counter(path) or 0 for path in paths)

    return replace(
        head,
        reads=total(lambda path: path.reads),
        read_bytes=total(lambda path: path.read_bytes),
        read_ms=total(lambda path: path.read_ms),
        writes=total(lambda path: path.writes),
        write_bytes=total(lambda path: path.write_bytes),
        write_ms=total(lambda path: path.write_ms),
        in_flight=total(lambda path: path.in_flight),
        busy_ms=max(path.busy_ms or 0 for path in paths),
        weighted_ms=total(lambda path: path.weighted_ms),
    )


def choose_disks(
    devices: Collection[DiskCounters],
    whole: Collection[str],
    stacked: Collection[str],
    roles: Mapping[str, tuple[str, ...]],
) -> tuple[DiskCounters, ...]:
    """What an operator expects to see: disks with traffic, and whatever carries the server's directories.

    Args:
        devices: All of /proc/diskstats.
        whole: Names that are not partitions (/sys/block).
        stacked: Names of devices made of others (dm, md).
        roles: What the server keeps on which device.

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
    others = [
        device
        for device in devices
        if device.name not in roles
        and device.name in whole
        and device.name not in stacked
        and device.name.rstrip("0123456789") not in _BY_ROLE_ONLY
        and (device.reads or device.writes)
    ]
    return (*carriers, *others)


_TIMES: Final = 10
_REQUIRED_TIMES: Final = 4
"""user, nice, system and idle; the others came one by one, guest_nice with Linux 2.6.33."""


def parse_stat(at_s: float, stat: bytes, loadavg: bytes) -> CpuSample:
    """CPU times, context switches, run queue and load.

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
    words = [line.split(None, 2) for line in lines if line.startswith((b"ctxt", b"intr", b"procs_"))]
    found = {word[0]: unsigned(word[1]) for word in words if len(word) > 1}
    load_1m, load_5m, load_15m = _loads(loadavg)
    return CpuSample(
        at_s=at_s,
        total=cpus[0],
        cores=tuple(cpus[1:]),
        context_switches=found.get(b"ctxt"),
        procs_running=found.get(b"procs_running"),
        procs_blocked=found.get(b"procs_blocked"),
        load_1m=load_1m,
        load_5m=load_5m,
        load_15m=load_15m,
        interrupts=found.get(b"intr"),
    )


def parse_boot_time(stat: bytes) -> int:
    """`btime` of /proc/stat: seconds since the epoch at which the kernel started, by today's wall clock.

    Raises:
        ValueError: There is no such line.
    """
    for line in stat.split(b"\n"):
        if line.startswith(b"btime "):
            return unsigned(line[6:].strip())
    raise ValueError("/proc/stat has no btime")


def _times(line: bytes) -> CpuTimes:
    words = line.split()
    if len(words) <= _REQUIRED_TIMES:
        raise ValueError(f"/proc/stat: too few fields in {line[:80]!r}")
    times: list[int | None] = [*map(unsigned, words[1 : _TIMES + 1])]
    user, nice, system, idle, *more = times + [None] * (_TIMES - len(times))
    return CpuTimes(words[0].decode("ascii"), user or 0, nice or 0, system or 0, idle or 0, *more)


def _loads(loadavg: bytes) -> tuple[float | None, float | None, float | None]:
    if not loadavg:
        return None, None, None
    words = loadavg.split(None, 3)
    if len(words) < 3:
        raise ValueError("/proc/loadavg: too few fields")
    one, five, fifteen = (float(word) for word in words[:3])
    if not all(map(math.isfinite, (one, five, fifteen))):
        raise ValueError("/proc/loadavg: not numbers")
    return one, five, fifteen


_TOTAL: Final = re.compile(rb"^(some|full) [^\n]*\btotal=(\d+)$", re.MULTILINE)


def parse_pressure(at_s: float, cpu: bytes, io: bytes, memory: bytes) -> PressureSample:
    """Stall times since boot.

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
    """Interfaces that have carried a packet, in the kernel's order; lines with too few numbers are left out.

    Args:
        net_dev: Content of /proc/net/dev.
        speed_of: Content of /sys/class/net/NAME/speed, megabits; b"" where it cannot be read.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    lines = net_dev.split(b"\n")
    if len(lines) < 2 or b"|bytes" not in lines[1]:
        raise ValueError("/proc/net/dev does not begin with its headings")
    found = (_counters(line, speed_of) for line in lines[2:] if line.strip())
    return tuple(interface for interface in found if interface is not None)


def _counters(line: bytes, speed_of: Callable[[str], bytes]) -> InterfaceCounters | None:
    # A name may hold a colon ("eth0:1"), its numbers do not.
    label, colon, rest = line.rpartition(b":")
    words = rest.split()
    if not colon or len(words) < _FIELDS:
        return None
    numbers = [unsigned(word) for word in words[:_FIELDS]]
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
    """Bits per second; None for -1, 0 and unreadable, which is what virtual interfaces and dead links say."""
    word = speed.strip()
    return (unsigned(word) * _MEGABIT or None) if word.isdigit() else None


Read = Callable[[str], bytes]

CPU_PATHS: Final = ("proc/stat", "proc/loadavg")
_THP: Final = "sys/kernel/mm/transparent_hugepage"
MEMORY_PATHS: Final = ("proc/meminfo", "proc/vmstat", f"{_THP}/enabled", f"{_THP}/defrag")
ARC_PATH: Final = "proc/spl/kstat/zfs/arcstats"
MOUNTS_PATH: Final = "proc/self/mountinfo"
PRESSURE_PATHS: Final = ("proc/pressure/cpu", "proc/pressure/io", "proc/pressure/memory")
# Of the process that reads it: a server in a container of its own has interfaces of its own.
NETWORK_PATH: Final = "proc/self/net/dev"
NODES_PATH: Final = "sys/devices/system/node/has_memory"


def speed_path(interface: str) -> str:
    """Where the speed of an interface stands."""
    return f"sys/class/net/{interface}/speed"


def node_paths(node: int) -> tuple[str, str]:
    """meminfo and numastat of a NUMA node."""
    return f"sys/devices/system/node/node{node}/meminfo", f"sys/devices/system/node/node{node}/numastat"


def cpu_section(at_s: float, read: Read) -> CpuSample:
    """See `parse_stat`; only /proc/stat has to be there."""
    stat, loadavg = CPU_PATHS
    return parse_stat(at_s, read(stat), if_there(read, loadavg))


def memory_section(at_s: float, read: Read) -> MemorySample:
    """See `parse_meminfo`; only /proc/meminfo has to be there."""
    meminfo, *optional_paths = MEMORY_PATHS
    vmstat, thp, defrag = (if_there(read, path) for path in optional_paths)
    arcstats = if_there(read, ARC_PATH)
    if arcstats and lent_by_lxcfs(if_there(read, MOUNTS_PATH)):
        arcstats = b""
    return parse_meminfo(at_s, read(meminfo), vmstat, thp, defrag, arcstats)


def lent_by_lxcfs(mountinfo: bytes) -> bool:
    """Whether lxcfs gives a container figures of its own for /proc/meminfo; ZFS' figures are the machine's."""
    return b" - fuse.lxcfs " in mountinfo


def pressure_section(at_s: float, read: Read) -> PressureSample:
    """See `parse_pressure`."""
    return parse_pressure(at_s, *map(read, PRESSURE_PATHS))


def network_section(at_s: float, read: Read) -> NetworkSample:
    """See `parse_net_dev`."""
    found = parse_net_dev(read(NETWORK_PATH), lambda name: if_there(read, speed_path(name)))
    return NetworkSample(at_s, found)


def numa_section(at_s: float, read: Read, nodes: Sequence[int]) -> NumaSample:
    """See `parse_node`."""
    return NumaSample(at_s, tuple(parse_node(node, *map(read, node_paths(node))) for node in nodes))


_CPU_LINES: Final = (
    ("iowait_ticks", "no iowait in", ("host.cpu.iowait",)),
    ("irq_ticks", "no irq in", ("host.cpu.irq", "host.cpu.hardirq")),
    ("softirq_ticks", "no softirq in", ("host.cpu.softirq",)),
    ("steal_ticks", "no steal in", ("host.cpu.steal",)),
    ("guest_ticks", "no guest in", ("host.cpu.guest",)),
)
_STAT_LINES: Final = (
    ("context_switches", "no ctxt in", ("host.context_switches",)),
    ("procs_running", "no procs_running in", ("host.run_queue",)),
    ("procs_blocked", "no procs_blocked in", ("host.blocked",)),
    ("interrupts", "no intr in", ("host.interrupts",)),
)
_MEMORY_LINES: Final = (
    ("available_bytes", "no MemAvailable in", ("host.memory.available",)),
    ("buffers_bytes", "no Buffers in", ("host.memory.cache",)),
    ("cached_bytes", "no Cached in", ("host.memory.cache",)),
    ("shmem_bytes", "no Shmem in", ("host.memory.shared", "host.memory.cache")),
    ("dirty_bytes", "no Dirty in", ("host.memory.dirty",)),
    ("writeback_bytes", "no Writeback in", ("host.memory.writeback",)),
    ("page_tables_bytes", "no PageTables in", ("host.memory.page_tables",)),
    ("committed_bytes", "no Committed_AS in", ("host.memory.committed",)),
    ("commit_limit_bytes", "no CommitLimit in", ("host.memory.commit_limit",)),
    ("anon_huge_bytes", "no AnonHugePages in", ("host.memory.anon_huge",)),
    ("shmem_huge_bytes", "no ShmemHugePages in", ("host.memory.shmem_huge",)),
    ("file_huge_bytes", "no FileHugePages in", ("host.memory.file_huge",)),
    ("swap_total_bytes", "no SwapTotal in", ("host.swap.used",)),
    ("swap_free_bytes", "no sound SwapFree in", ("host.swap.used",)),
)
"""Fields that may be None, the words for it, and the figures that are unknown without them."""


def untold_figures(cpu: CpuSample, memory: MemorySample) -> tuple[UntoldFigure, ...]:
    """Return the figures whose lines this system's /proc lacks, each once."""
    optional_fields = (
        (cpu.total, _CPU_LINES, "/proc/stat"),
        (cpu, _STAT_LINES, "/proc/stat"),
        (cpu, tuple((f"load_{minutes}m", "no", (f"host.load_{minutes}m",)) for minutes in (1, 5, 15)), "/proc/loadavg"),
        (memory, _MEMORY_LINES, "/proc/meminfo"),
        (memory, (("swap_in_pages", "no pswpin in", ("host.swap.in",)),), "/proc/vmstat"),
        (memory, (("swap_out_pages", "no pswpout in", ("host.swap.out",)),), "/proc/vmstat"),
    )
    missing = [
        UntoldFigure(metric, f"this system has {absent} {file}")
        for section, lines, file in optional_fields
        for field, absent, metrics in lines
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
    """The content, b"" where the file cannot be read."""
    try:
        return read(path)
    except OSError:
        return b""
