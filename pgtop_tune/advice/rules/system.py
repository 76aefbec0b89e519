"""Advice on the operating system: where to start, why, and what others say.

Sources: the kernel's documentation of each setting; PostgreSQL documentation, "Managing Kernel Resources"; the
defaults of autobase, the rules of postgresqltuner. None of them measures anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from pgtop_tune.advice.facts import Advice, DiskKind, Facts, Opinion
from pgtop_tune.advice.knobs.system import POOL, row_of
from pgtop_tune.advice.rules.memory import page_tables_bytes
from pgtop_tune.host.block_queue import Disk
from pgtop_tune.host.machine_facts import MachineFacts
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.system_setting import SystemSetting
from pgtop_tune.units import GB, MB, about

_SMALL_BUFFERS: Final = GB
_GIGABYTE_PAGES_FROM: Final = 32 * GB
_USED_PERCENT: Final = 95
_BACKGROUND: Final[Mapping[DiskKind | None, int]] = MappingProxyType({DiskKind.NVME: 256 * MB, DiskKind.SAN: 128 * MB})
_MOST_TIMES: Final = 8
_READ_AHEAD_KB: Final[Mapping[DiskKind, str]] = MappingProxyType(
    {DiskKind.HDD: "4096", DiskKind.SAN: "4096", DiskKind.SSD: "512", DiskKind.NVME: "512"}
)


class SystemFacts(Struct, frozen=True):
    """A machine and the server on it; None where it is not known.

    Attributes:
        server: Facts about the server; `ram_bytes` of the machine.
        shared_memory_bytes: Of the running server, all of it: for majors before 15, which do not say how many huge
            pages they need.
        swap_bytes: SwapTotal.
        numa_nodes: How many there are.
        live: Values now, by name of the setting.
        disks: The disks of the server's directories.
    """

    server: Facts
    shared_memory_bytes: int | None = None
    swap_bytes: int | None = None
    numa_nodes: int | None = None
    live: Mapping[str, str] = field(default_factory=dict)
    disks: tuple[Disk, ...] = ()


def system_facts(
    server: Facts,
    machine: MachineFacts,
    settings: Sequence[SystemSetting],
    disks: tuple[Disk, ...],
    shared_memory_bytes: int | None = None,
) -> SystemFacts:
    """Facts about a server and its machine put together; what is known of the machine itself beats what is not."""
    return SystemFacts(
        server=replace(
            server,
            ram_bytes=machine.ram_bytes or server.ram_bytes,
            huge_page_bytes=machine.huge_page_bytes or server.huge_page_bytes,
            disk=server.disk or next((kind for disk in disks if (kind := kind_of(disk)) is not None), None),
        ),
        shared_memory_bytes=shared_memory_bytes,
        swap_bytes=machine.swap_bytes,
        numa_nodes=machine.numa_nodes,
        live={each.name: each.live for each in settings if not isinstance(each.live, Unavailable)},
        disks=disks,
    )


def kind_of(disk: Disk) -> DiskKind | None:
    """What a disk is; None for a virtual one, which most often says that it turns, and for one that does not say."""
    if disk.nvme:
        return DiskKind.NVME
    if disk.virtual or disk.rotational is None:
        return None
    return DiskKind.HDD if disk.rotational else DiskKind.SSD


def advise_system(name: str, facts: SystemFacts) -> Advice | None:
    """Where to start with a setting ("vm.swappiness", "vda/scheduler"), why, and what others say.

    Returns:
        None where nobody has anything to say; with a value of None where it is better left alone, or others only have
        an opinion.
    """
    row = row_of(name)
    said = tuple(Opinion(who, value) for who, of in _OPINIONS.get(row, ()) if (value := of(name, facts)) is not None)
    rule = _RULES.get(row)
    ours = rule(name, facts) if rule is not None else None
    if ours is None:
        return Advice(None, "There is no rule for these facts.", opinions=said) if said else None
    return replace(ours, opinions=said)


def huge_pages_needed(facts: SystemFacts, page_bytes: int) -> tuple[int, str] | None:
    """How many pages of a size hold the server's shared memory, and where the number is from.

    shared_memory_size_in_huge_pages where the server says it (15+) and the size is its own; else the shared memory of
    the running server; else shared_buffers and 5 % for what belongs to them, and 64 MB.
    """
    server = facts.server
    if server.huge_pages_needed and page_bytes == server.huge_page_bytes:
        return server.huge_pages_needed, "shared_memory_size_in_huge_pages"
    if facts.shared_memory_bytes:
        return math.ceil(facts.shared_memory_bytes / page_bytes), f"{about(facts.shared_memory_bytes)} of shared memory"
    if server.huge_pages_needed and server.huge_page_bytes:
        size = server.huge_pages_needed * server.huge_page_bytes
        return math.ceil(size / page_bytes), f"{about(size)} of shared memory"
    if server.shared_buffers_bytes:
        size = int(server.shared_buffers_bytes * 1.05) + 64 * MB
        return math.ceil(size / page_bytes), f"an estimate from shared_buffers of {about(server.shared_buffers_bytes)}"
    return None


def _nr_hugepages(name: str, facts: SystemFacts) -> Advice | None:
    page_bytes = facts.server.huge_page_bytes
    buffers, each = facts.server.shared_buffers_bytes, page_tables_bytes(facts.server)
    need = huge_pages_needed(facts, page_bytes) if page_bytes else None
    if need is None or page_bytes is None or buffers is None or each is None:
        return None
    pages, source = need
    if buffers < _SMALL_BUFFERS:
        return Advice(None, f"shared_buffers is only {about(buffers)}: little to save. It would need {pages} pages.")
    return Advice(
        str(pages),
        f"{pages} pages of {about(page_bytes)} hold the server's shared memory ({source}); without them each backend "
        f"may have {about(each)} of page tables. Add what other servers on this machine need. Any excess is lost to "
        "other programs.",
        str(pages),
        str(math.ceil(pages * 1.05)),
    )


def _other_pool(name: str, facts: SystemFacts) -> Advice | None:
    size = name.removeprefix("hugepages-").partition("kB")[0]
    buffers = facts.server.shared_buffers_bytes
    need = huge_pages_needed(facts, int(size) * 1024) if size.isdecimal() and int(size) else None
    if need is None or buffers is None:
        return None
    pages, source = need
    page = about(int(size) * 1024)
    if buffers < _GIGABYTE_PAGES_FROM:
        return Advice(
            "0", f"For shared_buffers of {about(buffers)} pages of the default size suffice; these would be lost."
        )
    return Advice(
        None,
        f"{pages} pages of {page} would hold the server's shared memory ({source}), with huge_page_size={size}kB. "
        "Measure whether it is worth it, and reserve them at boot.",
        "0",
        str(pages),
    )


def _swappiness(name: str, facts: SystemFacts) -> Advice:
    if facts.swap_bytes == 0:
        return Advice(None, "This machine has no swap: the setting has no effect.")
    return Advice(
        "5",
        "Memory of idle backends may be swapped out, that of busy ones should not. 0 leaves it until the OOM killer "
        "is near.",
        "1",
        "10",
    )


def _dirty_background(name: str, facts: SystemFacts) -> Advice:
    size = _background_bytes(facts)
    ram = facts.server.ram_bytes
    default = f" The default of 10 % would let a checkpoint's fsync wait for up to {about(ram / 10)}." if ram else ""
    return Advice(
        str(size), f"The kernel starts writeback at {about(size)}.{default}", str(32 * MB), str(max(GB, size))
    )


def _dirty(name: str, facts: SystemFacts) -> Advice:
    size = _background_bytes(facts) * _MOST_TIMES
    return Advice(
        str(size),
        f"{_MOST_TIMES} times vm.dirty_background_bytes: room for a burst, with a bounded wait behind it.",
        str(256 * MB),
        str(max(4 * GB, size)),
    )


def _background_bytes(facts: SystemFacts) -> int:
    return _BACKGROUND.get(facts.server.disk, 64 * MB)


def _instead(other: str) -> Callable[[str, SystemFacts], Advice]:
    return lambda name, facts: Advice(None, f"Set {other} instead: the kernel then sets this to 0.")


def _overcommit_memory(name: str, facts: SystemFacts) -> Advice:
    return Advice(
        "2",
        "On a machine that only runs the server: a query that asks for too much gets an error, and the OOM killer "
        "spares the server. First set vm.overcommit_ratio. Beside other programs keep 0.",
        "0",
        "2",
    )


def _overcommit_ratio(name: str, facts: SystemFacts) -> Advice | None:
    """Solves CommitLimit = (RAM − huge pages) × ratio + swap for the memory that is there, less 5 %."""
    ram, page_bytes = facts.server.ram_bytes, facts.server.huge_page_bytes
    if not ram or facts.swap_bytes is None:
        return None
    pages = facts.live.get("vm.nr_hugepages", "0")
    huge = int(pages) * page_bytes if pages.isdecimal() and page_bytes else 0
    if huge >= ram:
        return None
    ratio = (_USED_PERCENT * ram - 100 * huge) // (ram - huge)
    limit = (ram - huge) * ratio / 100 + facts.swap_bytes
    return Advice(
        str(max(ratio, 1)),
        f"With it CommitLimit is {about(limit)}: {ratio} % of {about(ram - huge)} outside huge pages, and "
        f"{about(facts.swap_bytes) if facts.swap_bytes else 'no'} swap. The default of 50 leaves half of the memory "
        "unused. It applies only with vm.overcommit_memory=2.",
        "50",
        "100",
    )


def _min_free(name: str, facts: SystemFacts) -> Advice | None:
    ram = facts.server.ram_bytes
    if not ram:
        return None
    live = facts.live.get(name, "")
    ours = int(min(max(ram * 0.002, 64 * MB), GB)) // 1024
    if live.isdecimal() and int(live) >= ours:
        return Advice(live, f"The kernel's choice is enough for {about(ram)} of memory.")
    return Advice(
        str(ours), f"Two thousandths of {about(ram)}, for bursts of network and disk.", str(ours), str(ours * 4)
    )


def _numa(name: str, facts: SystemFacts) -> Advice:
    if facts.numa_nodes == 1:
        return Advice(None, "One node: the setting has no effect.")
    return Advice("0", "All nodes use shared_buffers: no node is the right place for them.")


def _scheduler(name: str, facts: SystemFacts) -> Advice | None:
    disk = _disk_of(name, facts)
    if disk is None:
        return None
    if disk.stacked:
        return Advice(None, "Composed of other disks, which order the requests.")
    if disk.virtual or disk.nvme:
        which = "The hypervisor orders requests" if disk.virtual else "NVMe takes requests in any order"
        return Advice("none", f"{which}: ordering them here only costs CPU.")
    return Advice("mq-deadline", "Keeps reads from waiting behind writes; bfq shares fairly and slowly.")


def _read_ahead(name: str, facts: SystemFacts) -> Advice | None:
    disk = _disk_of(name, facts)
    kind = facts.server.disk or (kind_of(disk) if disk is not None else None)
    if kind is None:
        return None
    because = (
        "A sequential scan pays for every rotation of the disk"
        if kind is DiskKind.HDD
        else "Enough for sequential scans; 17 and later read ahead themselves"
    )
    return Advice(_READ_AHEAD_KB[kind], f"{because}.", "128", "16384")


def _disk_of(name: str, facts: SystemFacts) -> Disk | None:
    device = name.rpartition("/")[0]
    return next((disk for disk in facts.disks if disk.name == device), None)


def _always(value: str, because: str, low: str = "", high: str = "") -> Callable[[str, SystemFacts], Advice]:
    return lambda name, facts: Advice(value, because, low, high)


_RULES: Final[Mapping[str, Callable[[str, SystemFacts], Advice | None]]] = MappingProxyType(
    {
        "vm.nr_hugepages": _nr_hugepages,
        POOL: _other_pool,
        "vm.swappiness": _swappiness,
        "vm.dirty_background_bytes": _dirty_background,
        "vm.dirty_background_ratio": _instead("vm.dirty_background_bytes"),
        "vm.dirty_bytes": _dirty,
        "vm.dirty_ratio": _instead("vm.dirty_bytes"),
        "vm.dirty_expire_centisecs": _always(
            "1000", "Ten seconds: old pages are on the disk before a checkpoint syncs them.", "500", "3000"
        ),
        "vm.dirty_writeback_centisecs": _always("500", "The default; it need not be shorter than the expiry age."),
        "vm.overcommit_memory": _overcommit_memory,
        "vm.overcommit_ratio": _overcommit_ratio,
        "vm.overcommit_kbytes": _instead("vm.overcommit_ratio"),
        "vm.min_free_kbytes": _min_free,
        "vm.zone_reclaim_mode": _always("0", "Dropping cache to stay on a node costs reads from the disk."),
        "kernel.numa_balancing": _numa,
        "kernel.sched_autogroup_enabled": _always("0", "Backends should compete as processes, not as one group."),
        "transparent_hugepage/enabled": _always(
            "madvise", "PostgreSQL does not request them; other programs may. For shared_buffers use vm.nr_hugepages.",
        ),
        "transparent_hugepage/defrag": _always("madvise", "Only programs that request huge pages wait for them."),
        "transparent_hugepage/khugepaged/defrag": _always("0", "PostgreSQL gains nothing from the compaction."),
        "scheduler": _scheduler,
        "read_ahead_kb": _read_ahead,
    }
)  # fmt: skip


def _says(value: str) -> Callable[[str, SystemFacts], str | None]:
    return lambda name, facts: value


def _autobase_pages(name: str, facts: SystemFacts) -> str | None:
    buffers, page_bytes = facts.server.shared_buffers_bytes, facts.server.huge_page_bytes
    if not buffers or not page_bytes or buffers < 8 * GB:
        return None
    return str((buffers // GB + 1) * GB // page_bytes)


def _autobase_scheduler(name: str, facts: SystemFacts) -> str | None:
    disk = _disk_of(name, facts)
    return None if disk is None else "none" if disk.nvme else "mq-deadline"


_OPINIONS: Final[Mapping[str, tuple[tuple[str, Callable[[str, SystemFacts], str | None]], ...]]] = MappingProxyType(
    {
        "vm.nr_hugepages": (("autobase", _autobase_pages),),
        "vm.swappiness": (("autobase", _says("1")),),
        "vm.dirty_background_bytes": (("autobase", _says("67108864")),),
        "vm.dirty_bytes": (("autobase", _says("536870912")),),
        "vm.dirty_expire_centisecs": (("autobase", _says("1000")),),
        "vm.overcommit_memory": (("autobase", _says("2")), ("postgresqltuner", _says("2"))),
        "vm.min_free_kbytes": (("autobase", _says("102400")),),
        "vm.zone_reclaim_mode": (("autobase", _says("0")),),
        "kernel.numa_balancing": (("autobase", _says("0")),),
        "kernel.sched_autogroup_enabled": (("autobase", _says("0")),),
        "transparent_hugepage/enabled": (("autobase", _says("never")),),
        "transparent_hugepage/defrag": (("autobase", _says("never")),),
        "scheduler": (("autobase", _autobase_scheduler),),
    }
)
