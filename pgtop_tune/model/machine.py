"""Settings of a server's machine and of its postmaster that frames do not have: now, and after a reboot.

Limits that a control group sets on the server, and how often it ran into them.

Where a server keeps what, as it says itself over SQL.

Memory per NUMA node, and CPU frequency per policy: what a big machine has many of.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from msgspec import Struct

from pgtop_tune.model.absence import NOT_RECORDED, Unavailable
from pgtop_tune.model.recorded_as import KeyedBy

# A setting of the operating system: what it is now, and what it is after a reboot.


class Assignment(Struct, frozen=True, gc=False):
    """A place that sets a value at boot.

    Attributes:
        value: As it stands there. Foreign text.
        file: Path of the file; "/proc/cmdline" for the kernel's command line.
        line: Number of the line, from 1.
    """

    value: str
    file: str
    line: int


class AfterReboot(Struct, frozen=True, gc=False):
    """What the files that are read at boot make of a setting.

    Attributes:
        assignments: Every place that sets it, in the order in which they are read: the last one wins. Empty where
            none does and the kernel's own default comes back.
        not_read: What else may set it at boot and is not looked into: "tuned (profile …)", "udev rules"; for people.
    """

    assignments: tuple[Assignment, ...] = ()
    not_read: tuple[str, ...] = ()

    @property
    def value(self) -> str | None:
        """What wins; None where the kernel's own default comes back."""
        return self.assignments[-1].value if self.assignments else None


class SystemSetting(Struct, frozen=True, gc=False):
    """One setting of this machine.

    Attributes:
        name: As sysctl has it ("vm.swappiness"); for others the end of the path ("transparent_hugepage/enabled",
            "hugepages-1048576kB/nr_hugepages", "vda/scheduler").
        path: The kernel's file.
        live: The value now; why not, where the file cannot be read.
        choices: The words the kernel takes, where it lists them.
        after_reboot: What the machine starts with.
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
        hit_pages: Allocated here as wanted.
        miss_pages: Allocated here although another node was wanted.
        foreign_pages: Wanted here and allocated on another node.
        huge_pages, huge_pages_free: Pool of the default size on this node.

    None is an amount that this kernel does not tell.
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
    """Every node with memory."""

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
    """I/O of programs since the first look, /proc/PID/io; at least so much, for a program that ends is not seen to its
    end.

    Attributes:
        own_read_bytes: From storage, by server, load and this program.
        own_write_bytes: Handed to write calls and dirty in the page cache, by the same.
        others_read_bytes, others_write_bytes: By all other programs.
        refused: Programs whose file this one may not read; those out of sight of a container, together, count as one.
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
        temp_tablespaces: Names in the setting of that name.
        log_directory: Where the logging collector writes, absolute; "" without one or when the role may not see it.
    """

    tablespaces: tuple[tuple[str, str], ...] = ()
    temp_tablespaces: tuple[str, ...] = ()
    log_directory: str = ""


NOWHERE_ELSE: Final = ServerPlaces()


class CgroupSample(Struct, frozen=True, gc=False):
    """The postmaster's control group. Limits are the tightest of the group and those above it.

    Attributes:
        path: The group: "/system.slice/postgresql.service".
        version: 1 or 2; 2 where only one of memory and CPU is in version 1.
        memory_max_bytes: memory.max (v2), memory.limit_in_bytes (v1); None without a limit, as all limits here.
        memory_high_bytes: memory.high (v2): throttled reclaim begins there.
        memory_bytes: memory.current, memory.usage_in_bytes of the group that sets the limit; page cache included.
        memory_max_events: How often the limit was hit (`max` of memory.events; memory.failcnt).
        oom_kills: `oom_kill` of memory.events or memory.oom_control.
        cpu_quota_cores: cpu.max or cfs_quota_us ÷ cfs_period_us: how many CPUs' worth of time it may use.
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
    """CPUs that the postmaster may run on, by a cpuset or its affinity; None where it may on all."""

    @property
    def cpus(self) -> float | None:
        """CPUs' worth of time that the server may use at most: the tighter of quota and CPUs allowed."""
        return min((float(most) for most in (self.cpu_quota_cores, self.cpus_allowed) if most), default=None)

    def cpus_of(self, machine_cpus: int) -> int:
        """Return how many CPUs of the machine's the server may use, at least 1."""
        return machine_cpus if self.cpus is None else max(min(machine_cpus, round(self.cpus)), 1)


class Queue(Struct, frozen=True, gc=False):
    """A disk under the server's directories, as the kernel describes it.

    Attributes:
        name: As in /proc/diskstats.
        rotational: queue/rotational; None where it does not say. Virtual disks often say so wrongly.
        nvme: Whether it is an NVMe namespace.
        virtual: Whether a hypervisor's device is behind it.
        stacked: Whether it is made of others (LVM, md).
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
        options: Of the mount and of the file system: "rw", "noatime", "nobarrier".
        roles: What is on it: "data", "data/base", "wal", "temp", "tablespace NAME".
        kind_below: Of the file system with the file that the mounted device is made of; "" where it is no such device.
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
        oom_score_adj: /proc/PID/oom_score_adj: -1000 is never chosen, 1000 first.
        children_adj: The same of a child of it; None where there was none to look at.
        open_files_soft, open_files_hard: "Max open files" of /proc/PID/limits; None is no limit.
        stderr: What /proc/PID/fd/2 leads to, as "/dev/null"; "" where that is not known.
        no_flushes: A library that it has in place of fsync, and which does nothing; "" for none, or not known.
    """

    oom_score_adj: int
    children_adj: int | None
    open_files_soft: int | None
    open_files_hard: int | None
    stderr: str = ""
    no_flushes: str = ""


class MachineDetails(Struct, frozen=True, gc=False):
    """Settings, each found or the reason why not.

    Attributes:
        settings: Of the operating system, as `system_settings.settings` has them.
        queues: Disks under the server's directories.
        mounts: Of the server's directories.
        unplaced: What lies where nobody knows, by role: a symbolic link may lead it elsewhere.
        postmaster: Its process.
        clock_source: current_clocksource; "" where the kernel does not say.
        clock_sources: available_clocksource.
        numa_nodes: How many there are; 1 in a kernel without NUMA.
        huge_page_bytes: The default size of huge pages; None without them.
        virtual: Whether a hypervisor runs it ("hypervisor" among the flags of /proc/cpuinfo); None where not known.
        clock_in_step: Whether something keeps the clock right, as the kernel was told; None where not known.
    """

    settings: tuple[SystemSetting, ...]
    queues: tuple[Queue, ...] = ()
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
        """A setting now, as "vm.swappiness"; None where it is not among them."""
        return next((setting.live for setting in self.settings if setting.name == name), None)


class DiskKind(StrEnum):
    """What the data lie on, as far as it matters for costs and depths."""

    HDD = "hdd"
    SSD = "ssd"
    NVME = "nvme"
    NETWORK = "network"


class Workload(StrEnum):
    """What a server is for: the kinds that calculators ask for."""

    OLTP = "oltp"
    OLAP = "olap"
    MIXED = "mixed"
    WEB = "web"


class ToolBackup(Struct, frozen=True):
    """A backup.

    Attributes:
        label: As its tool calls it.
        full: Whether it stands alone; else it is made of others.
        ended_ms: Milliseconds since the epoch; None where it has not ended.
        failed: Why it is no good; "" for a good one.
    """

    label: str
    full: bool
    ended_ms: int | None
    failed: str = ""


class BackupCatalogue(Struct, frozen=True):
    """The backups of one server in the catalogue of a tool.

    Attributes:
        tool: "pgBackRest".
        name: What the tool calls the server: a stanza.
        system_identifiers: Of the clusters whose backups these are; empty where the tool does not tell.
        backups: In any order.
    """

    tool: str
    name: str
    system_identifiers: frozenset[str]
    backups: tuple[ToolBackup, ...]


class BackupTools(Struct, frozen=True):
    """What the backup tools of a machine say.

    Attributes:
        installed: Names of tools that were found.
        catalogues: What they have.
        problems: (tool, why it said nothing).
    """

    installed: tuple[str, ...] = ()
    catalogues: tuple[BackupCatalogue, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()
