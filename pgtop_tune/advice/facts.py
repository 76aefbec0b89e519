"""What advice is derived from, and what it looks like. Nothing here is measured by advice itself."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class DiskKind(StrEnum):
    """What the data lie on, as far as it matters for costs and depths."""

    HDD = "hdd"
    SSD = "ssd"
    NVME = "nvme"
    SAN = "san"


class Workload(StrEnum):
    """The kinds that calculators ask for."""

    WEB = "web"
    OLTP = "oltp"
    WAREHOUSE = "dw"
    MIXED = "mixed"
    DESKTOP = "desktop"


class Facts(Struct, frozen=True):
    """A server and its machine; None where it is not known.

    Attributes:
        major: Major version of the server.
        ram_bytes: Memory it may use: of the machine, or the limit of its cgroup where that is less.
        cores: Processors it may use.
        disk: What the data directory lies on.
        workload: What the server is for.
        data_bytes: Size of all databases.
        max_connections, max_worker_processes, autovacuum_max_workers: As set.
        shared_buffers_bytes: As set.
        hash_mem_multiplier: As set.
        checkpoint_timeout_s: As set.
        checkpoint_completion_target: As set.
        wal_bytes_per_s: Measured under the load that counts.
        wal_disk_bytes: Size of the file system of pg_wal.
        huge_page_bytes: The kernel's default size of huge pages.
        huge_pages_needed: shared_memory_size_in_huge_pages (15+).
    """

    major: int
    ram_bytes: int | None = None
    cores: int | None = None
    disk: DiskKind | None = None
    workload: Workload = Workload.OLTP
    data_bytes: int | None = None
    max_connections: int | None = None
    max_worker_processes: int | None = None
    autovacuum_max_workers: int | None = None
    shared_buffers_bytes: int | None = None
    hash_mem_multiplier: float | None = None
    checkpoint_timeout_s: float | None = None
    checkpoint_completion_target: float | None = None
    wal_bytes_per_s: float | None = None
    wal_disk_bytes: int | None = None
    huge_page_bytes: int | None = None
    huge_pages_needed: int | None = None


class Opinion(Struct, frozen=True):
    """What one of the known calculators says for these facts.

    Attributes:
        who: Its name.
        value: As one types it.
    """

    who: str
    value: str


class Advice(Struct, frozen=True):
    """Where to start, and where to stop looking.

    Attributes:
        value: As one types it; None where there is nothing to start from but what is set.
        because: The reasoning, with the numbers it stands on. One or two sentences.
        low, high: Bounds for a search, as one types them; "" where there are none.
        opinions: What others say; they differ up to 20-fold.
    """

    value: str | None
    because: str
    low: str = ""
    high: str = ""
    opinions: tuple[Opinion, ...] = ()
