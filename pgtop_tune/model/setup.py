"""The set-up of the machine and its measured limits: facts that a result depends on and no counter shows."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from pgtop_tune.model.recorded_as import KeyedBy


class SetValue(Struct, frozen=True, gc=False):
    """One setting of the operating system.

    Attributes:
        name: Name in sysctl ("vm.swappiness"), for others the end of the path ("transparent_hugepage/enabled").
        value: Value in the kernel now; the selected word if the kernel lists several.
    """

    name: str
    value: str


class DiskSetup(Struct, frozen=True, gc=False):
    """A disk under the server's directories.

    Attributes:
        name: Name in /proc/diskstats.
        roles: PostgreSQL's directories on the disk.
        model: Vendor and model; "" where they are not known. Foreign text.
        size_bytes: 512 × /sys/block/…/size.
        rotational: queue/rotational; None if unknown. Virtual disks often report it wrongly.
        write_cache: queue/write_cache: "write back" or "write through"; "" if the disk has none.
        scheduler: The selected word of queue/scheduler.
        read_ahead_kb: queue/read_ahead_kb; None if the file is missing, as `nr_requests`.
        nr_requests: queue/nr_requests.
    """

    name: str
    roles: tuple[str, ...]
    model: str
    size_bytes: int | None
    rotational: bool | None
    write_cache: str
    scheduler: str
    read_ahead_kb: int | None
    nr_requests: int | None


class MountSetup(Struct, frozen=True, gc=False):
    """Mount of one of the server's directories.

    Attributes:
        role: "data", "wal", "temp", "log", "tablespace NAME".
        kind: ext4, xfs, btrfs, overlay, …
        options: Options of the mount and of the file system, sorted: "noatime", "data=ordered". Foreign text.
    """

    role: str
    kind: str
    options: tuple[str, ...]


class MachineSetup(Struct, frozen=True, gc=False):
    """The machine of the server.

    Attributes:
        cpu_model: `model name` of /proc/cpuinfo; "" where the kernel gives none. Foreign text.
        sockets: Number of different `physical id` values in /proc/cpuinfo; None if it has none.
        virtualisation: Vendor and product of /sys/class/dmi/id under a hypervisor, and "container" if our own process
            is in one; "" for a machine that appears to be physical.
        clock_source: /sys/devices/system/clocksource/clocksource0/current_clocksource; "" where unreadable.
        settings: Settings that affect a database server, see `host.system_settings`.
    """

    at_s: float
    cpu_model: str
    sockets: int | None
    virtualisation: str
    clock_source: str
    settings: Annotated[tuple[SetValue, ...], KeyedBy("name")]
    disks: Annotated[tuple[DiskSetup, ...], KeyedBy("name")]
    mounts: Annotated[tuple[MountSetup, ...], KeyedBy("role")]


# Measured limits of a server and its machine.


class MeasuredLimit(Struct, frozen=True, gc=False):
    """A measured limit that applies to every load.

    Attributes:
        id: Stable: "wal-flushes".
        says: "the WAL device flushes 1940 times a second".
        value: The number.
        unit: "1/s", "ns", "ms", "bytes/s".
        source: Method of the measurement.
    """

    id: str
    says: str
    value: float
    unit: str
    source: str


class Measured(Struct, frozen=True, gc=False):
    """Results of one measurement.

    Attributes:
        ceilings: The measured limits.
        missing: (limit, reason) for limits that could not be measured. Foreign text.
        at_ms: Time of the measurement, milliseconds since the epoch; 0 if unknown.
    """

    ceilings: Annotated[tuple[MeasuredLimit, ...], KeyedBy("id")]
    missing: tuple[tuple[str, str], ...] = ()
    at_ms: int = 0

    def value(self, id_: str) -> float | None:
        """Return one number; None where it was not measured."""
        return next((limit.value for limit in self.ceilings if limit.id == id_), None)
