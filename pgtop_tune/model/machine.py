"""Settings of a server's machine and of its postmaster that frames do not have: looked at once."""

from __future__ import annotations

from msgspec import Struct

from pgtop_tune.model.absence import NOT_RECORDED, Unavailable
from pgtop_tune.model.system_setting import SystemSetting


class Queue(Struct, frozen=True):
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


class MountPoint(Struct, frozen=True):
    """A mount that holds a directory of the server's.

    Attributes:
        point: Mount point. Foreign text.
        kind: ext4, xfs, nfs4, overlay, …
        source: Mounted device. Foreign text.
        options: Of the mount and of the file system: "rw", "noatime", "nobarrier".
        roles: What is on it: "data", "wal", "temp", "tablespace NAME".
    """

    point: str
    kind: str
    source: str
    options: tuple[str, ...]
    roles: tuple[str, ...]


class Postmaster(Struct, frozen=True):
    """The server's first process.

    Attributes:
        oom_score_adj: /proc/PID/oom_score_adj: -1000 is never chosen, 1000 first.
        children_adj: The same of a child of it; None where there was none to look at.
        open_files_soft, open_files_hard: "Max open files" of /proc/PID/limits; None is no limit.
    """

    oom_score_adj: int
    children_adj: int | None
    open_files_soft: int | None
    open_files_hard: int | None


class MachineDetails(Struct, frozen=True):
    """Settings, each found or the reason why not.

    Attributes:
        settings: Of the operating system, as `system_settings.settings` has them.
        queues: Disks under the server's directories.
        mounts: Of the server's directories.
        postmaster: Its process.
        clock_source: current_clocksource; "" where the kernel does not say.
        clock_sources: available_clocksource.
        numa_nodes: How many there are; 1 in a kernel without NUMA.
        huge_page_bytes: The default size of huge pages; None without them.
        virtual: Whether a hypervisor runs it ("hypervisor" among the flags of /proc/cpuinfo); None where not known.
    """

    settings: tuple[SystemSetting, ...]
    queues: tuple[Queue, ...] = ()
    mounts: tuple[MountPoint, ...] = ()
    postmaster: Postmaster | Unavailable = NOT_RECORDED
    clock_source: str = ""
    clock_sources: tuple[str, ...] = ()
    numa_nodes: int = 1
    huge_page_bytes: int | None = None
    virtual: bool | None = None

    def live(self, name: str) -> str | Unavailable | None:
        """A setting now, as "vm.swappiness"; None where it is not among them."""
        return next((each.live for each in self.settings if each.name == name), None)
