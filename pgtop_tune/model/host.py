"""Readings of the machine: raw counters of the kernel, of network interfaces and of the file systems that PostgreSQL
uses.

Times named `at_s` are seconds on the session's monotonic clock at the time of the reading. CPU times are in clock ticks
(`HostFacts.ticks_per_s` in a second), sizes in bytes. Sectors are converted to bytes (512 each,
Documentation/admin-guide/iostats.rst).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from pgtop_tune.model.absence import NOT_RECORDED, Unavailable
from pgtop_tune.model.machine import CgroupSample, FrequencySample, NumaSample, StorageIo
from pgtop_tune.model.recorded_as import KeyedBy
from pgtop_tune.model.setup import MachineSetup


class FileSystem(Struct, frozen=True, gc=False):
    """statvfs(3) of one mount.

    Attributes:
        mount: Mount point; foreign text.
        kind: ext4, xfs, btrfs, …
        source: Mounted device, as the file system reports it.
        roles: PostgreSQL's directories on the mount: "data", "wal", "temp", "log", "tablespace NAME".
        total_bytes: f_blocks.
        free_bytes: f_bfree, including blocks reserved for root.
        available_bytes: f_bavail: space that the server can still write.
        inodes: f_files; 0 where the file system creates them on demand.
        inodes_free: f_favail.
    """

    mount: str
    kind: str
    source: str
    roles: tuple[str, ...]
    total_bytes: int
    free_bytes: int
    available_bytes: int
    inodes: int
    inodes_free: int


class FileSystemSample(Struct, frozen=True, gc=False):
    """The mounts that PostgreSQL uses, every few seconds.

    Attributes:
        unanswered: Mounts that do not answer: "/mnt/dead (nfs4) does not answer". Foreign text.
    """

    at_s: float
    file_systems: Annotated[tuple[FileSystem, ...], KeyedBy("mount")]
    unanswered: tuple[str, ...] = ()


class InterfaceCounters(Struct, frozen=True, gc=False):
    """One line of /proc/net/dev, since the interface came up.

    Attributes:
        received_drops: Packets dropped for lack of buffers (`drop`), as `sent_drops`.
        speed_bits_per_s: /sys/class/net/NAME/speed; None if unknown (virtual interfaces, no link).
    """

    name: str
    received_bytes: int
    received_packets: int
    received_errors: int
    received_drops: int
    sent_bytes: int
    sent_packets: int
    sent_errors: int
    sent_drops: int
    speed_bits_per_s: int | None = None


class NetworkSample(Struct, frozen=True, gc=False):
    """Interfaces with traffic, including loopback, which a local pgbench uses."""

    at_s: float
    interfaces: Annotated[tuple[InterfaceCounters, ...], KeyedBy("name")]


class NetworkLoad(Struct, frozen=True, gc=False):
    """Mean traffic of an interface over a time.

    Attributes:
        interface: Its name; foreign text.
        speed_bits_per_s: As in `InterfaceCounters`.
    """

    interface: str
    received_bytes_per_s: float
    received_packets_per_s: float
    sent_bytes_per_s: float
    sent_packets_per_s: float
    speed_bits_per_s: int | None = None

    @property
    def busy_percent(self) -> float | None:
        """Return the busier direction as a share of the speed of the link; None where that is unknown."""
        if not self.speed_bits_per_s:
            return None
        return 800.0 * max(self.received_bytes_per_s, self.sent_bytes_per_s) / self.speed_bits_per_s


class MachineLoad(Struct, frozen=True, gc=False):
    """Mean load of a machine over a run.

    Attributes:
        cpus: Mean number of busy CPUs; None where that is unknown.
        network: The interface with most traffic; None where that is unknown.
    """

    cpus: float | None = None
    network: NetworkLoad | None = None


class UntoldFigure(Struct, frozen=True, gc=False):
    """A figure that the source of host numbers lacks; its fields in the sections are None or empty.

    Attributes:
        metric: Id in the catalogue: "host.disk.queue".
        why: The reason, one sentence for the operator.
    """

    metric: str
    why: str


class HostFacts(Struct, frozen=True, gc=False):
    """Facts of the machine that do not change during a session.

    Attributes:
        hostname: Name of the machine that the numbers describe.
        kernel: `uname -r`.
        source: Source of the numbers, for the pane titles: "local", "psutil" or "server's /proc over SQL".
        boot_id: /proc/sys/kernel/random/boot_id; another one after a reboot, which resets every counter. With psutil
            the time of the boot.
        cpu_count: Logical CPUs online.
        ticks_per_s: sysconf(_SC_CLK_TCK).
        page_size_bytes: sysconf(_SC_PAGESIZE).
        memory_bytes: MemTotal.
        untold: Figures that this source lacks; with /proc, the figures of lines missing in this kernel or container.
    """

    hostname: str
    kernel: str
    source: str
    boot_id: str
    cpu_count: int
    ticks_per_s: int
    page_size_bytes: int
    memory_bytes: int
    untold: Annotated[tuple[UntoldFigure, ...], KeyedBy("metric")] = ()

    @property
    def is_of_server(self) -> bool:
        """Return whether the figures come from the server's machine over SQL, without the programs of this machine."""
        return "SQL" in self.source


class CpuTimes(Struct, frozen=True, gc=False):
    """One `cpu` line of /proc/stat, in ticks since boot. `user` contains `guest`, `nice` contains `guest_nice`.

    None is a kind of time that the system does not count: macOS counts only the first three and idle.
    """

    cpu: str
    """"cpu" for the total, "cpu0" … for one core."""
    user_ticks: int
    nice_ticks: int
    system_ticks: int
    idle_ticks: int
    iowait_ticks: int | None
    irq_ticks: int | None
    softirq_ticks: int | None
    steal_ticks: int | None
    guest_ticks: int | None
    guest_nice_ticks: int | None


class CpuSample(Struct, frozen=True, gc=False):
    """/proc/stat and /proc/loadavg."""

    at_s: float
    total: CpuTimes
    cores: Annotated[tuple[CpuTimes, ...], KeyedBy("cpu")]
    context_switches: int | None
    procs_running: int | None
    """Runnable now, on a CPU or waiting for one (`procs_running`)."""
    procs_blocked: int | None
    """Blocked on I/O now (`procs_blocked`). None for this field and the two above: unknown (`HostFacts.untold`)."""
    load_1m: float | None
    load_5m: float | None
    load_15m: float | None
    """None for all three loads if /proc/loadavg is missing."""
    interrupts: int | None = None
    """Hardware interrupts served since boot (first number of `intr`); None if unknown."""


class HugePages(Struct, frozen=True, gc=False):
    """One pool of huge pages (/sys/kernel/mm/hugepages/hugepages-<size>kB). Counts of pages, not bytes."""

    page_bytes: int
    total: int
    free: int
    reserved: int
    surplus: int


class MemorySample(Struct, frozen=True, gc=False):
    """/proc/meminfo in bytes, swap traffic of /proc/vmstat in pages, transparent huge pages from /sys.

    None stands for an amount that this system does not report (`HostFacts.untold`).
    """

    at_s: float
    total_bytes: int
    free_bytes: int
    available_bytes: int | None
    """None before Linux 3.14."""
    buffers_bytes: int | None
    cached_bytes: int | None
    """Page cache (`Cached` + `SReclaimable`), including shared memory, as in the kernel's own figure."""
    shmem_bytes: int | None
    dirty_bytes: int | None
    writeback_bytes: int | None
    page_tables_bytes: int | None
    anon_huge_bytes: int | None
    shmem_huge_bytes: int | None
    """None, as `anon_huge_bytes`, in a kernel that does not count huge pages."""
    committed_bytes: int | None
    commit_limit_bytes: int | None
    swap_total_bytes: int | None
    swap_free_bytes: int | None
    swap_in_pages: int | None
    swap_out_pages: int | None
    """Since boot; None where /proc/vmstat cannot be read."""
    thp_mode: str
    """The word in brackets in /sys/kernel/mm/transparent_hugepage/enabled: always, madvise, never; "" if unreadable."""
    huge_pages: Annotated[tuple[HugePages, ...], KeyedBy("page_bytes")] = ()
    thp_defrag: str = ""
    """The word in brackets in …/defrag: always, defer, defer+madvise, madvise, never; "" if unreadable."""
    file_huge_bytes: int | None = None
    """FileHugePages; None in a kernel without this line."""
    arc_bytes: int | None = None
    """The cache of ZFS (ARC); None without ZFS, and if larger than the used memory of /proc/meminfo (lxcfs)."""


class PressureLine(Struct, frozen=True, gc=False):
    """Stall time since boot in microseconds (`total` of a /proc/pressure file; averages are not used)."""

    some_us: int
    full_us: int | None
    """None if the kernel has no `full` line (cpu before Linux 5.13)."""


class PressureSample(Struct, frozen=True, gc=False):
    """/proc/pressure/{cpu,io,memory}."""

    at_s: float
    cpu: PressureLine
    io: PressureLine
    memory: PressureLine


class DiskCounters(Struct, frozen=True, gc=False):
    """One block device of /proc/diskstats, since boot. None stands for a counter that psutil lacks on this system."""

    name: str
    reads: int
    read_bytes: int
    read_ms: int | None
    writes: int
    write_bytes: int
    write_ms: int | None
    in_flight: int | None
    """Requests in progress now (a gauge)."""
    busy_ms: int | None
    """`io_ticks`: wall-clock time with at least one request in progress."""
    weighted_ms: int | None
    """`time_in_queue`: request-milliseconds; its rate is the mean queue."""
    roles: tuple[str, ...] = ()
    """PostgreSQL's directories on the device: "data", "wal", "temp", "tablespace NAME"; empty for other devices."""
    stacked: bool = False
    """Whether the device consists of other devices of this sample (LVM, md); sums leave it out."""
    cap_iops: float | None = None
    cap_bytes_per_s: float | None = None
    """Limit of the device, as `cap_iops`, given by the operator (--disk-cap); None if not given."""


class DiskSample(Struct, frozen=True, gc=False):
    """Whole disks, and every device under a directory of the server's."""

    at_s: float
    disks: Annotated[tuple[DiskCounters, ...], KeyedBy("name")]
    unplaced: tuple[str, ...] = ()
    """Roles without a known device, with the reason: "wal: … is not readable …". Foreign text."""


class ProcessCounters(Struct, frozen=True, gc=False):
    """One process: /proc/PID/stat, and /proc/PID/io where we may read it (same user or root)."""

    pid: int
    start_ticks: int
    """Field 22 of stat, ticks after boot: distinguishes a process from a later one with the same pid."""
    state: str
    user_ticks: int
    system_ticks: int
    rss_bytes: int
    """Field 24 of stat × the page size, rounded down to 128 KiB."""
    delay_ticks: int | None
    """Field 42 `delayacct_blkio_ticks`: time waited for block I/O; always 0 while delay accounting is off, None
    if unknown."""
    read_bytes: int | None = None
    """Bytes read from storage, /proc/PID/io `read_bytes`; None if not permitted or not read this time."""
    write_bytes: int | None = None
    """Bytes passed to write calls, `wchar`: files and pipes, not sockets; the bytes reach storage later, if at all."""
    run_delay_ms: int | None = None
    """Time in the run queue: field 2 of /proc/PID/schedstat, main thread; None when not read."""
    reaped_ticks: int = 0
    """CPU time of ended children and their descendants, fields 16 and 17 of stat."""
    run_ms: int | None = None
    """Time on a CPU: field 1 of /proc/PID/schedstat, more precise than ticks; None when not read, and for a process
    with several threads."""


class ThreadCounters(Struct, frozen=True, gc=False):
    """One thread of a program that has several (pgbench): /proc/PID/task/TID/{stat,schedstat}."""

    tid: int
    pid: int
    start_ticks: int
    user_ticks: int
    system_ticks: int
    run_delay_ms: int | None


class OtherProgram(Struct, frozen=True, gc=False):
    """A program other than the server, pgbench and this one: its busiest process, and all processes of that name.

    Attributes:
        name: /proc/PID/comm, at most 15 bytes; foreign text.
        cpu_percent: Per cent of a core that the process took, over some seconds.
        processes: Processes of that name that took CPU time.
        all_percent: Per cent of a core that they took together; None in older recordings.
    """

    pid: int
    name: str
    cpu_percent: float
    processes: int = 1
    all_percent: float | None = None

    @property
    def cpus(self) -> float:
        """Return the CPUs that its processes took together."""
        return (self.cpu_percent if self.all_percent is None else self.all_percent) / 100.0


class ProcessSample(Struct, frozen=True, gc=False):
    """The server's processes, pgbench and this program."""

    at_s: float
    processes: Annotated[tuple[ProcessCounters, ...], KeyedBy("pid")]
    io_refused: int = 0
    """Processes whose /proc/PID/io we may not read; the server's user or root may. With psutil, also processes that are
    hidden from us."""
    threads: Annotated[tuple[ThreadCounters, ...], KeyedBy("tid")] = ()
    """Threads of pgbench on *this* machine, also if the server runs elsewhere: one busy thread falsifies the load."""
    others: Annotated[tuple[OtherProgram, ...], KeyedBy("pid")] = ()
    """The two other programs that use most CPU time, if any does; their numbers are some seconds old."""
    poolers: Annotated[tuple[ThreadCounters, ...], KeyedBy("tid")] = ()
    """Threads of the poolers and proxies on the way of the load, on *this* machine (`BenchRun.path`)."""


class HostSample(Struct, frozen=True, gc=False):
    """Reading of the machine. A section that could not be read has the reason."""

    facts: HostFacts | Unavailable = NOT_RECORDED
    cpu: CpuSample | Unavailable = NOT_RECORDED
    memory: MemorySample | Unavailable = NOT_RECORDED
    pressure: PressureSample | Unavailable = NOT_RECORDED
    disks: DiskSample | Unavailable = NOT_RECORDED
    processes: ProcessSample | Unavailable = NOT_RECORDED
    network: NetworkSample | Unavailable = NOT_RECORDED
    file_systems: FileSystemSample | Unavailable = NOT_RECORDED
    numa: NumaSample | Unavailable = NOT_RECORDED
    frequency: FrequencySample | Unavailable = NOT_RECORDED
    cgroup: CgroupSample | Unavailable = NOT_RECORDED
    setup: MachineSetup | Unavailable = NOT_RECORDED
    storage_io: StorageIo | Unavailable = NOT_RECORDED
