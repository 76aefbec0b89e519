"""Facts that advice is derived from, of server and machine, and the shape of advice. Advice measures nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import MB
from pgtop_tune.host.machine_setup import MachineFacts
from pgtop_tune.metrics.memory_rule import USUAL_PAGE_BYTES
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import HugePages
from pgtop_tune.model.machine import Disk, DiskKind, SystemSetting, Workload

DERIVED: Final = frozenset({"default", "override"})
"""Sources of what the server has worked out by itself, such as wal_buffers from -1."""
STARTED_WITH: Final = "command line"
"""The source of a parameter that the server was started with."""
_OF_SOME: Final = "A role, a database or this session has a value of its own, which hides the server's."
OUT_OF_REACH: Final[Mapping[str, str]] = {
    STARTED_WITH: "The server was started with it: ALTER SYSTEM does not change that.",
    "database": _OF_SOME,
    "user": _OF_SOME,
    "database user": _OF_SOME,
    "client": _OF_SOME,
    "session": _OF_SOME,
}
"""Source of a parameter → why ALTER SYSTEM would not change its value."""
CLOCK: Final = "timer"
"""The measured limit that says what reading the clock costs."""


class Machine(Struct, frozen=True, kw_only=True):
    """The machine of a server, where its settings can be changed; None where a fact is not known.

    Attributes:
        ram_bytes: MemTotal.
        swap_bytes: SwapTotal.
        committed_bytes: Committed_AS.
        commit_limit_bytes: CommitLimit.
        huge_page_bytes: The kernel's default size of huge pages.
        pools: Pools of huge pages, one of each size.
        numa_nodes: Number of nodes.
        live: Values now, by name of the setting.
        disks: The disks of the server's directories.
    """

    ram_bytes: int | None = None
    swap_bytes: int | None = None
    committed_bytes: int | None = None
    commit_limit_bytes: int | None = None
    huge_page_bytes: int | None = None
    pools: tuple[HugePages, ...] = ()
    numa_nodes: int | None = None
    live: Mapping[str, str] = {}
    disks: tuple[Disk, ...] = ()

    def number(self, name: str) -> int:
        """Return a live value; 0 where it is not known or no number."""
        text = self.live.get(name, "")
        return int(text) if text.isdecimal() else 0


class AdviceFacts(Struct, frozen=True, kw_only=True):
    """A server and its machine; None where it is not known. A value that waits for a restart counts as set.

    Attributes:
        major: Major version of the server.
        ram_bytes: Memory it may use: of the machine, or the limit of its cgroup where that is less.
        cores: Processors it may use.
        disk: Kind of disk of the data directory.
        workload: Purpose of the server.
        data_bytes: Size of all databases.
        in_recovery: Whether it is a standby: some values must be no lower than its primary's.
        sessions: Present number of client sessions.
        max_connections, max_worker_processes, autovacuum_max_workers: Set values.
        reserved_connections: superuser_reserved_connections and reserved_connections.
        autovacuum_worker_slots: Set value (18+).
        shared_buffers_bytes: As set.
        running_buffers_bytes: shared_buffers of the running server; None is as set.
        shared_memory_bytes: Of the running server, all of it (15+).
        huge_pages: The parameter, as set.
        huge_page_bytes: huge_page_size, as set; 0 for the kernel's default size.
        in_huge_pages: Whether the running server's shared memory is.
        work_mem_bytes, temp_buffers_bytes: As set.
        autovacuum_work_mem_bytes: As set; negative where maintenance_work_mem counts.
        hash_mem_multiplier: As set.
        checkpoint_timeout_s: As set.
        checkpoint_completion_target: As set.
        max_wal_size_bytes: As set.
        wal_keep_bytes: wal_keep_size, as set.
        slot_keep_bytes: max_slot_wal_keep_size, as set; negative for no limit.
        slot_bytes: WAL that the slot furthest behind keeps.
        wal_buffers_bytes: As set; 0 where the server chooses.
        running_wal_buffers_bytes: Of the running server.
        wal_buffers_full_per_s: Rate at which they were full since the counters began.
        clock_ns: Measured time of reading the clock.
        wal_segment_bytes: Of this cluster.
        block_bytes: Of this server: BLCKSZ.
        page_bytes: Of memory that is not in huge pages.
        wal_bytes_per_s: Measured under the load that counts.
        wal_rate_source: Source of that rate.
        wal_disk_bytes: Size of the file system of pg_wal.
        started_with: Parameters that were given when the server was started: no advice changes them.
        machine: None where its settings cannot be changed, as those of another machine.
        pending: Values that wait for a restart, by parameter, as the files have them.
        unsuitable: What to set in place of a value that suits no server, by parameter; counts where no rule has a
            value.
    """

    major: int
    ram_bytes: int | None = None
    cores: int | None = None
    disk: DiskKind | None = None
    workload: Workload = Workload.OLTP
    data_bytes: int | None = None
    in_recovery: bool = False
    sessions: int = 0
    max_connections: int | None = None
    reserved_connections: int = 3
    max_worker_processes: int | None = None
    autovacuum_max_workers: int | None = None
    autovacuum_worker_slots: int | None = None
    shared_buffers_bytes: int | None = None
    running_buffers_bytes: int | None = None
    shared_memory_bytes: int | None = None
    huge_pages: str = ""
    huge_page_bytes: int = 0
    in_huge_pages: bool | None = None
    work_mem_bytes: int | None = None
    temp_buffers_bytes: int = 8 * MB
    autovacuum_work_mem_bytes: int | None = None
    hash_mem_multiplier: float | None = None
    checkpoint_timeout_s: float | None = None
    checkpoint_completion_target: float | None = None
    max_wal_size_bytes: int | None = None
    wal_keep_bytes: int = 0
    slot_keep_bytes: int = -1
    slot_bytes: int = 0
    wal_buffers_bytes: int = 0
    running_wal_buffers_bytes: int = 16 * MB
    wal_buffers_full_per_s: float | None = None
    clock_ns: float | None = None
    wal_segment_bytes: int = 16 * MB
    block_bytes: int = 8192
    page_bytes: int = USUAL_PAGE_BYTES
    wal_bytes_per_s: float | None = None
    wal_rate_source: str = ""
    wal_disk_bytes: int | None = None
    started_with: frozenset[str] = frozenset()
    machine: Machine | None = None
    pending: Mapping[str, str] = {}
    unsuitable: Mapping[str, Advice] = {}


class Opinion(Struct, frozen=True):
    """Value of one of the known calculators for these facts.

    Attributes:
        who: Its name.
        value: As one types it.
    """

    who: str
    value: str


class Advice(Struct, frozen=True):
    """Value to start from, and bounds of a search.

    Attributes:
        value: As one types it; None where there is nothing to start from but what is set.
        because: The reasoning, with the numbers it stands on. One or two sentences.
        low, high: Bounds for a search, as one types them; "" where there are none.
        opinions: Values of others; they differ up to 20-fold.
    """

    value: str | None
    because: str
    low: str = ""
    high: str = ""
    opinions: tuple[Opinion, ...] = ()


# A machine as advice takes it. Pure.


class MachineLook(Struct, frozen=True):
    """State of a `MachineControl` at one moment.

    Attributes:
        settings: Settings that exist.
        facts: Of the machine.
        disks: Under the server's directories.
    """

    settings: tuple[SystemSetting, ...]
    facts: MachineFacts
    disks: tuple[Disk, ...]


def machine_of(look: MachineLook) -> Machine:
    """Return the machine; its committed memory and its pools are in frames (`gather.facts_of`)."""
    return Machine(
        ram_bytes=look.facts.ram_bytes,
        swap_bytes=look.facts.swap_bytes,
        huge_page_bytes=look.facts.huge_page_bytes,
        numa_nodes=look.facts.numa_nodes,
        live=live_settings(look.settings),
        disks=look.disks,
    )


def live_settings(settings: Iterable[SystemSetting]) -> dict[str, str]:
    """Return values now, by name, of settings that can be read."""
    return {setting.name: setting.live for setting in settings if not isinstance(setting.live, Unavailable)}
