"""Advice on the operating system: where to start, why, and what others say.

Sources: the kernel's documentation of each setting; PostgreSQL documentation, "Managing Kernel Resources"; the
defaults of autobase, the rules of postgresqltuner. None of them measures anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.facts import Advice, AdviceFacts, Machine, Opinion
from pgtop_tune.advice.knobs.system import POOL, row_of
from pgtop_tune.advice.plan import SMALL_BUFFERS, MemoryPlan, is_enough, pages_taken, usual_pool
from pgtop_tune.base.units import GB, MB, about
from pgtop_tune.metrics.memory_rule import page_tables_bytes
from pgtop_tune.model.machine import Disk, DiskKind

_GIGABYTE_PAGES_FROM: Final = 32 * GB
_BACKGROUND: Final[Mapping[DiskKind | None, int]] = MappingProxyType(
    {DiskKind.NVME: 256 * MB, DiskKind.NETWORK: 128 * MB}
)
_MOST_TIMES: Final = 8
_READ_AHEAD_KB: Final[Mapping[DiskKind, str]] = MappingProxyType(
    {DiskKind.HDD: "4096", DiskKind.NETWORK: "4096", DiskKind.SSD: "512", DiskKind.NVME: "512"}
)

_LEAST_AHEAD_KB: Final = 64
_MOST_AHEAD_KB: Final = 16384
"""Bounds of the read-ahead that suits a disk."""


class Site(Struct, frozen=True):
    """Facts for rules of the machine: server, machine, and the division of its memory."""

    facts: AdviceFacts
    machine: Machine
    plan: MemoryPlan | None


def kind_of(disk: Disk) -> DiskKind | None:
    """Return the kind of a disk; None where it does not tell, and for a virtual one, which often claims to rotate."""
    if disk.nvme:
        return DiskKind.NVME
    if disk.virtual or disk.rotational is None:
        return None
    return DiskKind.HDD if disk.rotational else DiskKind.SSD


def advise_setting(name: str, facts: AdviceFacts, plan: MemoryPlan | None) -> Advice | None:
    """Return advice on a setting ("vm.swappiness", "vda/scheduler"), with the values of known tools.

    Returns:
        None where nobody has anything to say; with a value of None where it is better left alone, or others only have
        an opinion.
    """
    if facts.machine is None:
        return None
    row, site = row_of(name), Site(facts, facts.machine, plan)
    opinions = tuple(
        Opinion(tool, value) for tool, of in _OPINIONS.get(row, ()) if (value := of(name, site)) is not None
    )
    rule = _RULES.get(row)
    own_advice = rule(name, site) if rule is not None else None
    if own_advice is None:
        return Advice(None, "There is no rule for these facts.", opinions=opinions) if opinions else None
    return replace(own_advice, opinions=opinions)


def _nr_hugepages(name: str, site: Site) -> Advice | None:
    plan, live = site.plan, site.machine.live.get(name)
    if plan is None or not site.machine.huge_page_bytes:
        return None
    if plan.buffers_bytes < SMALL_BUFFERS:
        pool = usual_pool(site.machine)
        used_pages = pages_taken(pool)
        idle = pool.total > 0 and not is_enough(pool.total, used_pages, pool.page_bytes)
        reason = (
            f"shared_buffers of {about(plan.buffers_bytes)} save little with huge pages; {used_pages} of them are "
            f"in use."
        )
        return Advice(str(used_pages) if idle else None, reason)
    if plan.pages is None:
        return Advice(None, plan.pages_refused or "The memory of this machine is unknown.")
    needed = math.ceil(plan.shared_bytes / plan.page_bytes)
    spare = f", {plan.pages - needed} are spare or for others" if plan.pages > needed else ""
    tables = about(page_tables_bytes(plan.buffers_bytes, plan.use.page_bytes))
    kept = " The reserved pages are enough." if str(plan.pages) == live else ""
    return Advice(
        value=str(plan.pages),
        because=f"{needed} pages of {about(plan.page_bytes)} hold the shared memory of a server with shared_buffers of "
        f"{about(plan.buffers_bytes)}{spare}; without them each backend may have {tables} of page tables. Further "
        f"pages are lost to all other programs.{kept}",
        low=str(plan.pages),
        high=str(math.ceil(plan.pages * 1.05)),
    )


def _other_pool(name: str, site: Site) -> Advice | None:
    size = name.removeprefix("hugepages-").partition("kB")[0]
    if site.plan is None or not (size.isdecimal() and int(size)):
        return None
    buffers, page_bytes = site.plan.buffers_bytes, int(size) * 1024
    pool = next((candidate for candidate in site.machine.pools if candidate.page_bytes == page_bytes), None)
    if pool is not None and pages_taken(pool):
        return Advice(None, f"{pages_taken(pool)} of these pages are in use.")
    if buffers < _GIGABYTE_PAGES_FROM:
        return Advice(
            "0", f"For shared_buffers of {about(buffers)} pages of the default size suffice; these would be lost."
        )
    pages = math.ceil(site.plan.shared_bytes / page_bytes)
    return Advice(
        value=None,
        because=f"{pages} pages of {about(page_bytes)} would hold the server's shared memory, with "
        f"huge_page_size={size}kB. "
        "Measure whether it is worth it, and reserve them at boot.",
        low="0",
        high=str(pages),
    )


def _swappiness(name: str, site: Site) -> Advice:
    if site.machine.swap_bytes == 0:
        return Advice(None, "This machine has no swap: the setting has no effect.")
    return Advice(
        value="5",
        because="The kernel may swap out memory of idle backends, not that of busy ones. With 0 it swaps nothing until "
        "the OOM killer is near.",
        low="1",
        high="10",
    )


def _dirty_background(name: str, site: Site) -> Advice:
    size = _background_bytes(site)
    ram = site.machine.ram_bytes
    default = f" The default of 10 % would let a checkpoint's fsync wait for up to {about(ram / 10)}." if ram else ""
    return Advice(
        value=str(size),
        because=f"The kernel starts writeback at {about(size)}.{default}",
        low=str(32 * MB),
        high=str(max(GB, size)),
    )


def _dirty(name: str, site: Site) -> Advice:
    size = _background_bytes(site) * _MOST_TIMES
    return Advice(
        value=str(size),
        because=f"{_MOST_TIMES} times vm.dirty_background_bytes: room for a burst, with a bounded wait behind it.",
        low=str(256 * MB),
        high=str(max(4 * GB, size)),
    )


def _background_bytes(site: Site) -> int:
    return _BACKGROUND.get(site.facts.disk, 64 * MB)


def _instead(counterpart: str) -> Callable[[str, Site], Advice]:
    return lambda name, site: Advice(None, f"Set {counterpart} instead: the kernel then sets this to 0.")


def _overcommit_memory(name: str, site: Site) -> Advice | None:
    plan = site.plan
    if plan is None:
        return None
    if plan.strict_left:
        return Advice("0", f"{plan.strict_refused} With strict accounting the server would not start.")
    if plan.strict_refused:
        return Advice(None, plan.strict_refused)
    return Advice(
        value="2",
        because=f"CommitLimit is {about(plan.commit_limit_bytes)} then: a query that asks for too much memory fails "
        "with an error, and the OOM killer does not end the server. Only for a machine dedicated to the server; "
        "set vm.overcommit_ratio first.",
        low="0",
        high="2",
    )


def _overcommit_ratio(name: str, site: Site) -> Advice | None:
    plan, swap = site.plan, site.machine.swap_bytes
    if plan is None or not plan.commit_limit_bytes:
        return None
    if plan.ratio is None:
        now = f"The present limit, {about(plan.commit_limit_bytes)}, is above the advised one, and is in use."
        return Advice(None, now)
    if plan.strict_refused and site.machine.number("vm.overcommit_memory") != 2:
        return Advice(None, f"It takes effect only with vm.overcommit_memory=2. {plan.strict_refused}")
    return Advice(
        value=str(plan.ratio),
        because=f"CommitLimit is {about(plan.commit_limit_bytes)} then: {plan.ratio} % of the memory outside huge "
        f"pages, and {about(swap) if swap else 'no'} swap. The default, 50, leaves half of the memory unused.",
        low="50",
        high="100",
    )


def _min_free(name: str, site: Site) -> Advice | None:
    ram = site.machine.ram_bytes
    if not ram:
        return None
    live = site.machine.live.get(name, "")
    advised_kb = int(min(max(ram * 0.002, 64 * MB), GB)) // 1024
    if live.isdecimal() and int(live) >= advised_kb:
        return Advice(live, f"The kernel's choice is enough for {about(ram)} of memory.")
    return Advice(
        value=str(advised_kb),
        because=f"Two thousandths of {about(ram)}, for bursts of network and disk.",
        low=str(advised_kb),
        high=str(advised_kb * 4),
    )


def _numa(name: str, site: Site) -> Advice:
    if site.machine.numa_nodes == 1:
        return Advice(None, "One node: the setting has no effect.")
    return Advice("0", "All nodes use shared_buffers: no node is the right place for them.")


def _scheduler(name: str, site: Site) -> Advice | None:
    disk = _disk_of(name, site)
    if disk is None:
        return None
    if disk.stacked:
        return Advice(None, "Composed of other disks, which order the requests.")
    if disk.virtual or disk.nvme:
        which = "The hypervisor orders requests" if disk.virtual else "NVMe takes requests in any order"
        return Advice("none", f"{which}: ordering them here only costs CPU.")
    return Advice("mq-deadline", "Keeps reads from waiting behind writes; bfq shares fairly and slowly.")


def _read_ahead(name: str, site: Site) -> Advice | None:
    disk = _disk_of(name, site)
    kind = site.facts.disk or (kind_of(disk) if disk is not None else None)
    if kind is None:
        live = site.machine.live.get(name, "")
        suits = not live.isdecimal() or _LEAST_AHEAD_KB <= int(live) <= _MOST_AHEAD_KB
        return None if suits else Advice("512", "Enough for any kind of disk.")
    because = (
        "A sequential scan pays for every rotation of the disk"
        if kind is DiskKind.HDD
        else "Enough for sequential scans; PostgreSQL 17 and later read ahead themselves"
    )
    return Advice(value=_READ_AHEAD_KB[kind], because=f"{because}.", low="128", high="16384")


def _disk_of(name: str, site: Site) -> Disk | None:
    device = name.rpartition("/")[0]
    return next((disk for disk in site.machine.disks if disk.name == device), None)


def _always(value: str, because: str, low: str = "", high: str = "") -> Callable[[str, Site], Advice]:
    return lambda name, site: Advice(value=value, because=because, low=low, high=high)


_RULES: Final[Mapping[str, Callable[[str, Site], Advice | None]]] = MappingProxyType(
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


def _says(value: str) -> Callable[[str, Site], str | None]:
    return lambda name, site: value


def _autobase_pages(name: str, site: Site) -> str | None:
    page_bytes = site.machine.huge_page_bytes
    if site.plan is None or not page_bytes or site.plan.buffers_bytes < 8 * GB:
        return None
    return str(int(site.plan.buffers_bytes // GB + 1) * GB // page_bytes)


def _autobase_scheduler(name: str, site: Site) -> str | None:
    disk = _disk_of(name, site)
    return None if disk is None else "none" if disk.nvme else "mq-deadline"


_OPINIONS: Final[Mapping[str, tuple[tuple[str, Callable[[str, Site], str | None]], ...]]] = MappingProxyType(
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
