"""The operating system: overcommit, swap, dirty pages, NUMA.

Source: PostgreSQL documentation, "Managing Kernel Resources"; Documentation/admin-guide/sysctl/{vm,kernel}.rst,
mm/overcommit-accounting.rst.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.units import GB, about, share
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, CheckFinding, Evidence, Findings, Fix, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand
from pgtop_tune.health.machine_figures import figure, kernel_number, kernel_setting, told
from pgtop_tune.health.rules import advised_setting
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.host_values import swap_used_bytes
from pgtop_tune.model.absence import Unavailable

_GROUP: Final = "operating system"
_KERNEL: Final = "kernel-resources.html"
_OVERCOMMIT: Final = f"{_KERNEL}#LINUX-MEMORY-OVERCOMMIT"
_RATIO: Final = "vm.overcommit_ratio"
_FLUSHES: Final = ("checkpoint_flush_after", "bgwriter_flush_after")
"""While they are set, what checkpointer and background writer write is handed to the kernel's writeback at once."""


def _sysctl(name: str, value: int) -> Evidence:
    return Evidence(f"{name} {value}", f"/proc/sys/{name.replace('.', '/')}")


def _overcommit(facts: CheckFacts, limits: Limits) -> Findings:
    mode = kernel_number(facts, "vm.overcommit_memory")
    if mode == 2:
        return
    promise = "promises any amount of memory" if mode == 1 else "promises more memory than it has"
    share_promised, evidence = promised(facts)
    little = share_promised is not None and share_promised < limits["percent"]
    yield CheckFinding(
        severity=Severity.INFO if mode == 0 and little else Severity.WARNING,
        says=f"the kernel {promise}: its OOM killer may end the server"
        + ("" if share_promised is None else f"; {share(share_promised)} of memory and swap is promised now"),
        evidence=(_sysctl("vm.overcommit_memory", mode), *evidence),
        fix=_with_limit_before(
            advised_setting(facts, _RATIO, "vm.overcommit_memory", remark="only if the machine runs no other programs"),
            facts,
        ),
    )


def promised(facts: CheckFacts) -> tuple[float | None, tuple[Evidence, ...]]:
    """Return the per cent of memory and swap, outside huge pages, promised to processes; None where it is not seen."""
    sample = needs.MEMORY.of(facts)
    if isinstance(sample, Unavailable) or sample.committed_bytes is None:
        return None, ()
    huge = sum(pool.total * pool.page_bytes for pool in sample.huge_pages)
    total = sample.total_bytes - huge + (sample.swap_total_bytes or 0)
    limit = "" if sample.commit_limit_bytes is None else f", CommitLimit {about(sample.commit_limit_bytes)}"
    says = f"Committed_AS {about(sample.committed_bytes)}{limit}, {about(total)} of memory and swap"
    return 100 * sample.committed_bytes / max(total, 1), (Evidence(says, "/proc/meminfo"),)


def _commit_limit(facts: CheckFacts, limits: Limits) -> Findings:
    if kernel_number(facts, "vm.overcommit_memory") != 2:
        return
    sample = facts.have(needs.MEMORY)
    huge = sum(pool.total * pool.page_bytes for pool in sample.huge_pages)
    usable = sample.total_bytes - huge
    limit = figure(facts, "host.memory.commit_limit", sample.commit_limit_bytes)
    committed = figure(facts, "host.memory.committed", sample.committed_bytes)
    swap = figure(facts, "host.swap.used", sample.swap_total_bytes)
    evidence = (
        Evidence(f"CommitLimit {about(limit)}, Committed_AS {about(committed)}", "/proc/meminfo"),
        Evidence(
            f"{about(sample.total_bytes)} of memory, {about(huge)} of it huge pages, {about(swap)} swap",
            "MemTotal, HugePages_Total, SwapTotal of /proc/meminfo",
        ),
        Evidence("CommitLimit = (memory − huge pages) × vm.overcommit_ratio + swap", "overcommit-accounting.rst"),
    )
    raise_it = _with_limit_before(advised_setting(facts, _RATIO), facts)
    left_percent = 100 * (limit - committed) / limit if limit > 0 else 0.0
    if left_percent < limits["headroom"]:
        yield CheckFinding(
            severity=Severity.HIGH,
            says=f"{share(left_percent)} of CommitLimit is left: at the limit, statements fail with out of memory",
            evidence=evidence, fix=raise_it,
        )  # fmt: skip
    elif 100 * limit < limits["usable"] * usable:
        yield CheckFinding(
            says=f"CommitLimit keeps {about(usable - limit)} of memory from every process",
            evidence=evidence, fix=raise_it,
        )  # fmt: skip


def _with_limit_before(fix: Fix, facts: CheckFacts) -> Fix:
    """Return the fix with an undo in kilobytes where CommitLimit is set so: vm.overcommit_ratio is 0 then."""
    ratio = f"sysctl -w {_RATIO}={kernel_setting(facts, _RATIO)}\n"
    return replace(fix, undo=fix.undo.replace(ratio, f"sysctl -w {_limit_before(facts)}\n"))


def _limit_before(facts: CheckFacts) -> str:
    """Return the setting that CommitLimit is made of; the kernel makes one 0 where the other is set."""
    ratio = kernel_setting(facts, "vm.overcommit_ratio")
    kilobytes = kernel_number(facts, "vm.overcommit_kbytes") if ratio == "0" else 0
    return f"vm.overcommit_kbytes={kilobytes}" if kilobytes else f"vm.overcommit_ratio={ratio}"


def _swappiness(facts: CheckFacts, limits: Limits) -> Findings:
    swap = figure(facts, "host.swap.used", facts.have(needs.MEMORY).swap_total_bytes)
    value = kernel_number(facts, "vm.swappiness")
    if not swap or 0 < value <= limits["warning"]:
        return
    early = value > 0
    yield CheckFinding(
        severity=Severity.WARNING if early else Severity.INFO,
        says=f"vm.swappiness is {value}: "
        + ("session memory is swapped out for file cache" if early else "the OOM killer acts before swapping"),
        evidence=(
            _sysctl("vm.swappiness", value),
            Evidence(f"{about(swap)} of swap", "SwapTotal of /proc/meminfo"),
        ),
        fix=advised_setting(facts, "vm.swappiness"),
    )


def _dirty(facts: CheckFacts, limits: Limits) -> Findings:
    sample = facts.have(needs.MEMORY)
    configured = kernel_number(facts, "vm.dirty_background_bytes")
    ratio = kernel_number(facts, "vm.dirty_background_ratio")
    # The kernel's ratio is of free memory and file cache, not of all memory.
    cached = figure(facts, "host.memory.cache", sample.cached_bytes)
    room = sample.free_bytes + max(cached - figure(facts, "host.memory.shared", sample.shmem_bytes), 0)
    size = configured or room * ratio / 100
    if size <= limits["warning"]:
        return
    limit_text = (
        f"vm.dirty_background_bytes {configured}"
        if configured
        else f"{ratio} % of {about(room)} of free memory and file cache"
    )
    fix = advised_setting(facts, "vm.dirty_background_bytes")
    is_large, early = size > limits["high"], _flushed_early(facts, limits["warning"])
    severities = (Severity.INFO, Severity.WARNING) if early else (Severity.WARNING, Severity.HIGH)
    yield CheckFinding(
        severity=severities[is_large],
        says=f"the kernel collects {about(size)} of dirty pages before it starts writeback"
        + ("; the server flushes its own earlier" if early else ""),
        evidence=(
            *early,
            Evidence(
                limit_text, "/proc/sys/vm/dirty_background_bytes, /proc/sys/vm/dirty_background_ratio, /proc/meminfo"
            ),
        ),
        fix=replace(fix, undo=fix.undo.replace(f"bytes={configured}", f"ratio={ratio}")) if not configured else fix,
    )


def _flushed_early(facts: CheckFacts, most_bytes: float) -> tuple[Evidence, ...]:
    """Return evidence that the server flushes its writes early and little is dirty now; () where that is not so."""
    sample, dirty_bytes = needs.PARAMETERS.of(facts), facts.have(needs.MEMORY).dirty_bytes
    if isinstance(sample, Unavailable) or dirty_bytes is None or dirty_bytes > most_bytes:
        return ()
    rows = [needs.Parameters(sample).visible(name) for name in _FLUSHES]
    if not all(row is not None and row.setting != "0" for row in rows):
        return ()
    settings = ", ".join(f"{row.name} {row.shown}" for row in rows if row is not None)
    return (Evidence(f"{settings}; {about(dirty_bytes)} dirty now", "pg_settings.setting, /proc/meminfo"),)


def _swapping(facts: CheckFacts, limits: Limits) -> Findings:
    newest, oldest = facts.have(needs.MEMORY), sections.memory(facts.frames[0])
    told(facts, "host.swap.in")
    if isinstance(oldest, Unavailable) or newest.swap_in_pages is None or newest.swap_out_pages is None:
        yield Unknown("swap traffic is not counted: /proc/vmstat cannot be read")
        return
    if not newest.swap_total_bytes:
        return
    used_swap = figure(facts, "host.swap.used", swap_used_bytes(newest))
    seconds = newest.at_s - oldest.at_s
    if seconds <= 0 or oldest.swap_in_pages is None or oldest.swap_out_pages is None:
        yield Unknown("swap traffic needs two samples, but there is one")
        return
    read, written = newest.swap_in_pages - oldest.swap_in_pages, newest.swap_out_pages - oldest.swap_out_pages
    if (read + written) / seconds <= limits["pages"]:
        return
    yield CheckFinding(
        severity=Severity.HIGH,
        says=f"the machine swaps: {read} pages in, {written} out within {units.duration(seconds)}",
        evidence=(
            Evidence(f"pswpin +{read}, pswpout +{written} in {units.duration(seconds)}", "/proc/vmstat"),
            Evidence(
                f"{about(used_swap)} of {about(newest.swap_total_bytes)} in use",
                "SwapTotal, SwapFree of /proc/meminfo",
            ),
        ),
        fix=by_hand("Find the processes that use the memory (MEM-01 shows the server's part), and reduce the load."),
    )


def _numa(facts: CheckFacts, limits: Limits) -> Findings:
    machine = facts.have(needs.MACHINE)
    if machine.numa_nodes < 2:
        return
    nodes = Evidence(f"{machine.numa_nodes} nodes", "/sys/devices/system/node")
    reclaim = kernel_number(facts, "vm.zone_reclaim_mode")
    if reclaim:
        yield CheckFinding(
            severity=Severity.HIGH,
            says="the kernel drops file cache rather than use another node's memory",
            evidence=(_sysctl("vm.zone_reclaim_mode", reclaim), nodes),
            fix=advised_setting(facts, "vm.zone_reclaim_mode"),
            subject="vm.zone_reclaim_mode",
        )
    balancing = kernel_number(facts, "kernel.numa_balancing")
    if balancing:
        yield CheckFinding(
            severity=Severity.INFO,
            says="the kernel moves pages of shared_buffers between nodes, although all nodes use them",
            evidence=(_sysctl("kernel.numa_balancing", balancing), nodes),
            fix=advised_setting(facts, "kernel.numa_balancing"),
            subject="kernel.numa_balancing",
        )


def _autogroup(facts: CheckFacts, limits: Limits) -> Findings:
    if kernel_number(facts, "kernel.sched_autogroup_enabled") == 0:
        return
    yield CheckFinding(
        severity=Severity.INFO,
        says="the kernel schedules backends as one group per kernel session, not as single processes",
        evidence=(_sysctl("kernel.sched_autogroup_enabled", 1),),
        fix=advised_setting(facts, "kernel.sched_autogroup_enabled"),
    )


CHECKS: Final = (
    Check(
        "OS-01", _GROUP, "memory overcommit",
        "When memory runs out, the kernel kills a process, and a killed backend ends all sessions.",
        _OVERCOMMIT, (needs.MACHINE,), _overcommit, Severity.WARNING,
        (Threshold("percent", 80, "%", "of memory and swap promised: a warning from this share, or with mode 1"),),
    ),
    Check(
        "OS-02", _GROUP, "commit limit",
        "With strict accounting the kernel refuses memory beyond CommitLimit, even if memory is free.",
        _OVERCOMMIT, (needs.MACHINE, needs.MEMORY), _commit_limit, Severity.HIGH,
        (
            Threshold("headroom", 20, "%", "of CommitLimit left: high below it"),
            Threshold("usable", 60, "%", "CommitLimit as a share of memory outside huge pages: warning below it"),
        ),
    ),
    Check(
        "OS-03", _GROUP, "swappiness",
        "A session with swapped-out memory answers at disk speed.",
        _OVERCOMMIT, (needs.MACHINE, needs.MEMORY), _swappiness, Severity.WARNING,
        (Threshold("warning", 10, "", "warning above it, when there is swap"),),
    ),
    Check(
        "OS-04", _GROUP, "dirty pages",
        "The kernel writes collected pages at once, and a checkpoint's fsync and all commits wait behind them.",
        "runtime-config-wal.html#GUC-CHECKPOINT-FLUSH-AFTER", (needs.MACHINE, needs.MEMORY), _dirty, Severity.HIGH,
        (
            Threshold("warning", GB, "bytes", "warning above it; info if the server flushes early and less is dirty"),
            Threshold("high", 4 * GB, "bytes", "high above it; warning if the server flushes early"),
        ),
    ),
    Check(
        "OS-05", _GROUP, "swap traffic",
        "A swapping server is slower by orders of magnitude.",
        _OVERCOMMIT, (needs.MEMORY,), _swapping, Severity.HIGH,
        (Threshold("pages", 0, "pages/s", "in and out: high above it"),), twice=True,
    ),
    Check(
        "OS-06", _GROUP, "NUMA",
        "All nodes use shared_buffers: a kernel that moves pages to the local node wastes cache and time.",
        _KERNEL, (needs.MACHINE,), _numa, Severity.HIGH,
    ),
    Check(
        "OS-07", _GROUP, "scheduler groups",
        "Autogrouping shares the CPUs between groups of processes instead of backends.",
        _KERNEL, (needs.MACHINE,), _autogroup, Severity.INFO,
    ),
)  # fmt: skip
"""Rows of the registry."""
