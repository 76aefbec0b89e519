"""Huge pages: needed, reserved and unused ones; and transparent huge pages.

Source: PostgreSQL documentation, "Linux Huge Pages"; Documentation/admin-guide/mm/{hugetlbpage,transhuge}.rst.
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.units import GB, about, share_of
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, CheckFinding, Evidence, Findings, Fix, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import CheckFacts, Missing
from pgtop_tune.health.fixes import by_hand, kernel_file
from pgtop_tune.health.machine_figures import huge_pages_needed, huge_pages_used, kernel_page_bytes, memory, told
from pgtop_tune.health.rules import advised, advised_setting
from pgtop_tune.metrics.memory_rule import page_tables_bytes
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import HugePages

_GROUP: Final = "huge pages"
_PAGE: Final = "kernel-resources.html#LINUX-HUGE-PAGES"
_COUNT: Final = "vm.nr_hugepages"
_THP: Final = "/sys/kernel/mm/transparent_hugepage"
_BOOT: Final = "transparent_hugepage=madvise on the kernel's command line"
_USUAL_BYTES: Final = 2 * 1024 * 1024


def _pools(facts: CheckFacts) -> tuple[HugePages, ...]:
    told(facts, "host.huge_pages.total")
    return facts.have(needs.MEMORY).huge_pages


def _pool(facts: CheckFacts) -> HugePages | None:
    """Return the pool that vm.nr_hugepages is about; the smallest where the default size is not known."""
    pools, machine = _pools(facts), needs.MACHINE.of(facts)
    usual_bytes = None if isinstance(machine, Unavailable) else machine.huge_page_bytes
    smallest = min(pools, key=lambda pool: pool.page_bytes, default=None)
    return next((pool for pool in pools if pool.page_bytes == usual_bytes), smallest)


def _idle_pages(pool: HugePages) -> int:
    return max(pool.free - pool.reserved, 0)


def _huge_pages_fix(facts: CheckFacts, pool: HugePages | None, needed: int) -> Fix:
    """Return the fix: room in the pool first, then the server's switch; the server restarts in any case."""
    idle = 0 if pool is None else _idle_pages(pool)
    if idle < needed:
        return advised_setting(facts, _COUNT, remark="then restart the server with huge_pages=try or on")
    if needs.parameters(facts).text("huge_pages") == "off":
        return advised(facts, "huge_pages")
    return by_hand("The pool has free pages: restart the server to use them (huge_pages is try or on).")


def _in_small_pages(facts: CheckFacts, limits: Limits) -> Findings:
    server = needs.parameters(facts)
    buffers = server.number("shared_buffers")
    if buffers < limits["warning"]:
        return
    use = huge_pages_used(facts)
    if use.used:
        return
    if use.used is None:
        yield Unknown(use.source)
        return
    pool = _pool(facts)
    page_bytes = _USUAL_BYTES if pool is None else pool.page_bytes
    needed = huge_pages_needed(facts, page_bytes)
    there = 0 if pool is None else pool.total
    table_bytes, connections = page_tables_bytes(buffers, kernel_page_bytes(facts)), server.whole("max_connections")
    percent = _percent_of_memory(facts, table_bytes * connections)
    few, is_large = percent is not None and percent <= limits["tables"], buffers >= limits["high"]
    severities = (Severity.INFO, Severity.WARNING) if few else (Severity.WARNING, Severity.HIGH)
    of_all = "" if percent is None else f"; for {connections} at most {share_of(percent, 'the memory')}"
    yield CheckFinding(
        severity=severities[is_large],
        says=f"shared_buffers of {about(buffers)} use {about(kernel_page_bytes(facts))} pages",
        evidence=(
            Evidence(f"huge pages are not used: {use.source}", "huge_pages_status, huge_pages, /proc/meminfo"),
            Evidence(
                f"{about(table_bytes)} of page tables for each session{of_all}", "8 bytes a page, max_connections"
            ),
            Evidence(f"{needed} pages of {about(page_bytes)} needed", "shared_memory_size"),
            Evidence(f"{there} in the pool", "HugePages_Total of /proc/meminfo"),
        ),
        fix=_huge_pages_fix(facts, pool, needed),
    )


def _percent_of_memory(facts: CheckFacts, size_bytes: float) -> float | None:
    """Return the share of the memory; None where the machine, or a limit on the server, is not seen."""
    try:
        return 100 * size_bytes / memory(facts).limit_bytes
    except Missing:
        return None


def _after_reboot(facts: CheckFacts, limits: Limits) -> Findings:
    server, machine = needs.parameters(facts), facts.have(needs.MACHINE)
    mode = server.text("huge_pages")
    if mode == "off" or huge_pages_used(facts).used is False:
        return
    page_bytes = machine.huge_page_bytes or _USUAL_BYTES
    needed = huge_pages_needed(facts, page_bytes)
    setting = next((setting for setting in machine.settings if setting.name == _COUNT), None)
    if setting is None or isinstance(setting.live, Unavailable):
        yield Unknown("the number of huge pages at boot is unknown")
        return
    after = setting.after_reboot
    if after.value is None and after.not_read:
        yield Unknown(f"{_COUNT} after a reboot: {', '.join(after.not_read)} may set it and cannot be read")
        return
    pages = int(after.value) if after.value and after.value.isdecimal() else 0
    if pages >= needed:
        return
    consequence = "the server will not start" if mode == "on" else "the server will silently continue without them"
    where = f"{after.assignments[-1].file} sets {pages}" if after.assignments else "no file sets it"
    yield CheckFinding(
        severity=Severity.CRITICAL if mode == "on" else Severity.WARNING,
        says=f"after a reboot there are only {pages} of the {needed} huge pages that the server needs: {consequence}",
        evidence=(
            Evidence(f"{_COUNT} after a reboot: {where}", "/etc/sysctl.d, /proc/cmdline"),
            Evidence(f"{needed} pages of {about(page_bytes)} needed", "shared_memory_size"),
            Evidence(f"huge_pages={mode}", "pg_settings.setting"),
        ),
        fix=advised_setting(facts, _COUNT, lasting=True),
    )


def _idle(facts: CheckFacts, limits: Limits) -> Findings:
    for pool in _pools(facts):
        idle = _idle_pages(pool)
        size = idle * pool.page_bytes
        if pool.total == 0 or size <= limits["bytes"] or 100 * idle <= limits["percent"] * pool.total:
            continue
        yield CheckFinding(
            says=f"unused huge pages reserve {about(size)} of memory",
            evidence=(
                Evidence(
                    f"{pool.total} pages of {about(pool.page_bytes)}: {pool.free} free, {pool.reserved} of "
                    "these reserved",
                    "HugePages_Total, HugePages_Free, HugePages_Rsvd of /proc/meminfo",
                ),
            ),
            fix=advised_setting(facts, _COUNT) if pool == _pool(facts) else _smaller(pool, pool.total - idle),
            subject=f"pages of {about(pool.page_bytes)}",
        )


def _smaller(pool: HugePages, pages: int) -> Fix:
    """Return the fix for a pool; one of another than the default size has a file of its own."""
    size = f"{pool.page_bytes // 1024}kB"
    boot = f"hugepagesz={size.removesuffix('B')} hugepages={pages} on the kernel's command line"
    return kernel_file(f"/sys/kernel/mm/hugepages/hugepages-{size}/nr_hugepages", str(pages), str(pool.total), boot)


def _transparent(facts: CheckFacts, limits: Limits) -> Findings:
    told(facts, "host.memory.anon_huge")
    memory_sample = facts.have(needs.MEMORY)
    if not memory_sample.thp_mode:
        yield Unknown(f"{_THP}/enabled cannot be read: the kernel lacks these pages, or a container hides them")
        return
    if memory_sample.thp_mode != "always":
        return
    waits = memory_sample.thp_defrag == "always"
    yield CheckFinding(
        severity=Severity.HIGH if waits else Severity.WARNING,
        says="the kernel backs all memory with transparent huge pages"
        + (", and processes wait while memory is compacted" if waits else ""),
        evidence=(
            Evidence(
                f"enabled {memory_sample.thp_mode}, defrag {memory_sample.thp_defrag or 'unknown'}",
                f"{_THP}/enabled, defrag",
            ),
        ),
        fix=kernel_file(f"{_THP}/enabled", "madvise", memory_sample.thp_mode, _BOOT, "transparent_hugepage/enabled"),
    )


CHECKS: Final = (
    Check(
        "HUGE-01", _GROUP, "huge pages for shared_buffers",
        "With 4 kB pages each session has its own page tables for all of shared_buffers, and more TLB misses.",
        _PAGE, (needs.PARAMETERS, needs.MEMORY), _in_small_pages, Severity.HIGH,
        (
            Threshold("warning", 2 * GB, "bytes", "of shared_buffers in small pages: a warning from this size"),
            Threshold("high", 8 * GB, "bytes", "high from this size"),
            Threshold("tables", 5, "%", "of the memory for page tables of all sessions: up to it, one severity lower"),
        ),
    ),
    Check(
        "HUGE-02", _GROUP, "huge pages after a reboot",
        "Pages reserved only at run time are gone after a reboot: with huge_pages=on the server does not start.",
        _PAGE, (needs.PARAMETERS, needs.MACHINE), _after_reboot, Severity.CRITICAL,
    ),
    Check(
        "HUGE-03", _GROUP, "unused huge pages",
        "Memory reserved as huge pages is lost to everything else, the file cache included.",
        _PAGE, (needs.MEMORY,), _idle, Severity.WARNING,
        (
            Threshold("percent", 10, "%", "of a pool unused: warning above it, when `bytes` is exceeded as well"),
            Threshold("bytes", GB, "bytes", "unused: warning above it, when `percent` is exceeded as well"),
        ),
    ),
    Check(
        "HUGE-04", _GROUP, "transparent huge pages",
        "With always, processes stall while the kernel compacts memory, and use more memory than they requested.",
        _PAGE, (needs.MEMORY,), _transparent, Severity.HIGH,
    ),
)  # fmt: skip
"""Rows of the registry."""
