"""The server's machine: settings of the operating system now and after a reboot, the postmaster, control group, NUMA
nodes, CPU frequencies, directories, and catalogues of backup tools."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from msgspec import Struct

from pgtop_tune.model.absence import NOT_RECORDED, Unavailable
from pgtop_tune.model.recorded_as import KeyedBy

# Settings of the operating system, with their values now and after a reboot.


class Assignment(Struct, frozen=True, gc=False):
    """A line that sets a value at boot.

    Attributes:
        value: The value as written. Foreign text.
        file: Path of the file; "/proc/cmdline" for the kernel's command line.
        line: Number of the line, from 1.
    """

    value: str
    file: str
    line: int


class AfterReboot(Struct, frozen=True, gc=False):
    """Value of a setting after a reboot, by the files that are read at boot.

    Attributes:
        assignments: Every line that sets it, in the order of reading: the last one applies. Empty for the kernel's own
            default.
        not_read: Further possible sources that were not read: "tuned (profile …)", "udev rules"; for display.
    """

    assignments: tuple[Assignment, ...] = ()
    not_read: tuple[str, ...] = ()

    @property
    def value(self) -> str | None:
        """Return the value that applies; None for the kernel's own default."""
        return self.assignments[-1].value if self.assignments else None


class SystemSetting(Struct, frozen=True, gc=False):
    """One setting of this machine.

    Attributes:
        name: Name in sysctl ("vm.swappiness"); for others the end of the path ("transparent_hugepage/enabled",
            "hugepages-1048576kB/nr_hugepages", "vda/scheduler").
        path: The kernel's file.
        live: The value now, or the reason why the file cannot be read.
        choices: The values that the kernel accepts, where it lists them.
        after_reboot: The value after a reboot.
        writable: Whether this process may change it.
    """

    name: str
    path: str
    live: str | Unavailable
    choices: tuple[str, ...] = ()
    after_reboot: AfterReboot = AfterReboot()
    writable: bool = False


class NumaNode(Struct, frozen=True, gc=False):
    """/sys/devices/system/node/nodeN: meminfo in bytes, numastat in pages since boot.

    Attributes:
        hit_pages: Pages allocated here as intended.
        miss_pages: Pages allocated here although intended for another node.
        foreign_pages: Pages intended for this node and allocated on another.
        huge_pages, huge_pages_free: Pool of the default size on this node.

    None stands for an amount that this kernel does not report.
    """

    node: int
    total_bytes: int
    free_bytes: int
    file_bytes: int | None
    anon_bytes: int | None
    shmem_bytes: int | None
    dirty_bytes: int | None
    huge_pages: int
    huge_pages_free: int
    hit_pages: int | None
    miss_pages: int | None
    foreign_pages: int | None


class NumaSample(Struct, frozen=True, gc=False):
    """All nodes with memory."""

    at_s: float
    nodes: Annotated[tuple[NumaNode, ...], KeyedBy("node")]


class CpuFrequency(Struct, frozen=True, gc=False):
    """One frequency policy: /sys/devices/system/cpu/cpufreq/policyN, usually one core.

    Attributes:
        policy: "policy0".
        mhz: scaling_cur_freq.
        highest_mhz: cpuinfo_max_freq, turbo included.
        governor: scaling_governor: performance, powersave, schedutil, …
    """

    policy: str
    mhz: int
    highest_mhz: int
    governor: str


class FrequencySample(Struct, frozen=True, gc=False):
    """Frequencies, every few seconds."""

    at_s: float
    policies: Annotated[tuple[CpuFrequency, ...], KeyedBy("policy")]


class StorageIo(Struct, frozen=True, gc=False):
    """I/O of programs since the first reading, /proc/PID/io; a lower bound, because the last I/O of ended programs is
    missing.

    Attributes:
        own_read_bytes: Bytes read from storage by server, load and this program.
        own_write_bytes: Bytes that these programs passed to write calls and made dirty in the page cache.
        others_read_bytes, others_write_bytes: The same of all other programs.
        refused: Programs whose /proc/PID/io pgtop-tune may not read; all programs outside the container count as one.
    """

    at_s: float
    own_read_bytes: int
    own_write_bytes: int
    others_read_bytes: int
    others_write_bytes: int
    refused: int


class ServerPlaces(Struct, frozen=True, gc=False):
    """Directories besides the data directory, on the server's machine.

    Attributes:
        tablespaces: Name → pg_tablespace_location() of those outside the data directory, in order of their names.
        temp_tablespaces: Names in the parameter temp_tablespaces.
        log_directory: Absolute directory of the logging collector; "" without one, or when the role may not see it.
    """

    tablespaces: tuple[tuple[str, str], ...] = ()
    temp_tablespaces: tuple[str, ...] = ()
    log_directory: str = ""


NOWHERE_ELSE: Final = ServerPlaces()


class CgroupSample(Struct, frozen=True, gc=False):
    """The postmaster's control group. Limits are the tightest ones of the group and its ancestors.

    Attributes:
        path: The group: "/system.slice/postgresql.service".
        version: 1 or 2; 2 if only one of memory and CPU is in version 1.
        memory_max_bytes: memory.max (v2), memory.limit_in_bytes (v1); None without a limit, as for all limits here.
        memory_high_bytes: memory.high (v2), from which on reclaim throttles the group.
        memory_bytes: memory.current, memory.usage_in_bytes of the group that sets the limit; including page cache.
        memory_max_events: Number of times the limit was hit (`max` of memory.events; memory.failcnt).
        oom_kills: `oom_kill` of memory.events or memory.oom_control.
        cpu_quota_cores: cpu.max or cfs_quota_us ÷ cfs_period_us: CPU time that the group may use, in CPUs.
        cpu_periods: `nr_periods` of cpu.stat of the group that sets the CPU limit.
        cpu_throttled_periods: `nr_throttled`.
        cpu_throttled_us: `throttled_usec` (v2), `throttled_time` (v1): summed over its CPUs.
        cpu_used_us: `usage_usec` (v2); None in v1.
        io_some_us, io_full_us: `total` of the group's io.pressure; None where there is none (v1, psi off).
        memory_some_us, memory_full_us: The same of memory.pressure.
    """

    at_s: float
    path: str
    version: int
    memory_max_bytes: int | None
    memory_high_bytes: int | None
    memory_bytes: int | None
    memory_max_events: int | None
    oom_kills: int | None
    cpu_quota_cores: float | None
    cpu_periods: int | None
    cpu_throttled_periods: int | None
    cpu_throttled_us: int | None
    cpu_used_us: int | None
    io_some_us: int | None
    io_full_us: int | None
    memory_some_us: int | None
    memory_full_us: int | None
    cpus_allowed: int | None = None
    """Number of CPUs that a cpuset or its affinity allows the postmaster; None for all CPUs."""

    @property
    def cpus(self) -> float | None:
        """CPU time that the server may use, in CPUs: the tighter one of quota and allowed CPUs."""
        return min((float(most) for most in (self.cpu_quota_cores, self.cpus_allowed) if most), default=None)

    def cpus_of(self, machine_cpus: int) -> int:
        """Return the number of the machine's CPUs that the server may use, at least 1."""
        return machine_cpus if self.cpus is None else max(min(machine_cpus, round(self.cpus)), 1)


class Disk(Struct, frozen=True, gc=False):
    """A disk with a queue of its own, as the kernel describes it.

    Attributes:
        name: As in /proc/diskstats.
        rotational: queue/rotational; None where the kernel does not say. Virtual disks often say so wrongly.
        nvme: True for an NVMe namespace.
        virtual: True for a hypervisor's device: its host has a queue as well.
        stacked: True for a device made of others (LVM, md): requests are ordered below.
    """

    name: str
    rotational: bool | None
    nvme: bool
    virtual: bool
    stacked: bool


class MountPoint(Struct, frozen=True, gc=False):
    """A mount that holds a directory of the server's.

    Attributes:
        point: Mount point. Foreign text.
        kind: ext4, xfs, nfs4, overlay, …
        source: Mounted device. Foreign text.
        options: Options of the mount and of the file system: "rw", "noatime", "nobarrier".
        roles: The server's directories on it: "data", "data/base", "wal", "temp", "tablespace NAME".
        kind_below: File system of the file behind a loop device; "" for other devices.
    """

    point: str
    kind: str
    source: str
    options: tuple[str, ...]
    roles: tuple[str, ...]
    kind_below: str = ""


ARCHIVE: Final = "archive"
"""Role of the directory that archive_command names."""


class PostmasterFacts(Struct, frozen=True, gc=False):
    """The server's first process.

    Attributes:
        oom_score_adj: /proc/PID/oom_score_adj: -1000 is never killed, 1000 first.
        children_adj: oom_score_adj of one of its children; None without a child.
        open_files_soft, open_files_hard: "Max open files" of /proc/PID/limits; None is no limit.
        stderr: Target of /proc/PID/fd/2, such as "/dev/null"; "" if unknown.
        no_flushes: A loaded library that makes fsync do nothing; "" without one, or not known.
    """

    oom_score_adj: int
    children_adj: int | None
    open_files_soft: int | None
    open_files_hard: int | None
    stderr: str = ""
    no_flushes: str = ""


class MachineDetails(Struct, frozen=True, gc=False):
    """Settings of the machine, each with its value or the reason why it is missing.

    Attributes:
        settings: Settings of the operating system, from `system_settings.settings`.
        queues: Disks under the server's directories.
        mounts: Mounts of the server's directories.
        unplaced: Roles of directories without a known device: a symbolic link may lead elsewhere.
        postmaster: The postmaster.
        clock_source: current_clocksource; "" where the kernel does not report it.
        clock_sources: available_clocksource.
        numa_nodes: Number of NUMA nodes; 1 in a kernel without NUMA.
        huge_page_bytes: The default size of huge pages; None without them.
        virtual: Whether a hypervisor runs it ("hypervisor" in the flags of /proc/cpuinfo); None where not known.
        clock_in_step: Whether the clock is synchronized, according to the kernel; None where not known.
    """

    settings: tuple[SystemSetting, ...]
    queues: tuple[Disk, ...] = ()
    mounts: tuple[MountPoint, ...] = ()
    unplaced: tuple[str, ...] = ()
    postmaster: PostmasterFacts | Unavailable = NOT_RECORDED
    clock_source: str = ""
    clock_sources: tuple[str, ...] = ()
    numa_nodes: int = 1
    huge_page_bytes: int | None = None
    virtual: bool | None = None
    clock_in_step: bool | None = None

    def live(self, name: str) -> str | Unavailable | None:
        """Return the present value of a setting such as "vm.swappiness"; None for an unknown setting."""
        return next((setting.live for setting in self.settings if setting.name == name), None)


class DiskKind(StrEnum):
    """Kind of the disk with the data, for planner costs and I/O depths."""

    HDD = "hdd"
    SSD = "ssd"
    NVME = "nvme"
    NETWORK = "network"


class Workload(StrEnum):
    """Workload of a server, in the kinds of known calculators."""

    OLTP = "oltp"
    OLAP = "olap"
    MIXED = "mixed"
    WEB = "web"


class ToolBackup(Struct, frozen=True):
    """A backup.

    Attributes:
        label: Its name in the tool.
        full: Whether it needs no other backup.
        ended_ms: Milliseconds since the epoch; None where it has not ended.
        failed: Reason why it is not usable; "" for a usable one.
    """

    label: str
    full: bool
    ended_ms: int | None
    failed: str = ""


class BackupCatalogue(Struct, frozen=True):
    """The backups of one server in the catalogue of a tool.

    Attributes:
        tool: "pgBackRest".
        name: The tool's name of the server: a stanza.
        system_identifiers: System identifiers of the clusters with these backups; empty where the tool lacks them.
        backups: Backups in any order.
    """

    tool: str
    name: str
    system_identifiers: frozenset[str]
    backups: tuple[ToolBackup, ...]


class BackupTools(Struct, frozen=True):
    """Backup tools of a machine. All texts are foreign.

    Attributes:
        installed: Names of installed tools.
        catalogues: Their catalogues.
        problems: (tool, reason why its catalogue is missing).
    """

    installed: tuple[str, ...] = ()
    catalogues: tuple[BackupCatalogue, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()
