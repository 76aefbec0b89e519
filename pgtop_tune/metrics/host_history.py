"""What of the machine is kept for charts: CPU by kind, memory, pressure, and the disk of the data directory."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import host, sections
from pgtop_tune.metrics.catalogue import Interval, Keyed

_ROLES: Final = ("data", "wal")


class DataDisk(Struct, frozen=True):
    """A figure of the disk that holds the data directory, else WAL; None where neither is known."""

    keyed: Keyed[str]

    @property
    def id(self) -> str:
        """As that of the family, for this disk."""
        return f"{self.keyed.id}.data"

    def __call__(self, interval: Interval) -> float | None:
        name = data_disk(interval)
        return None if name is None else self.keyed(interval).get(name)


def data_disk(interval: Interval) -> str | None:
    """Its name."""
    sample = interval.now(sections.disks)
    if sample is None:
        return None
    for role in _ROLES:
        name = next((disk.name for disk in sample.disks if role in disk.roles), None)
        if name is not None:
            return name
    return None


DISK_READ: Final = DataDisk(host.DISK_READ_BYTES)
DISK_WRITE: Final = DataDisk(host.DISK_WRITE_BYTES)
READ_AWAIT: Final = DataDisk(host.DISK_READ_AWAIT)
WRITE_AWAIT: Final = DataDisk(host.DISK_WRITE_AWAIT)
CPU: Final = (host.CPU_USER, host.CPU_SYSTEM, host.CPU_IOWAIT, host.CPU_STEAL)
MEMORY: Final = (host.MEMORY_USED, host.MEMORY_CACHE)
PRESSURE: Final = (host.PSI_CPU_SOME, host.PSI_IO_SOME, host.PSI_MEMORY_SOME)
CHARTED: Final = (*CPU, DISK_READ, DISK_WRITE, READ_AWAIT, WRITE_AWAIT, *MEMORY, *PRESSURE)
