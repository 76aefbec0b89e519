"""Memory: what the server may ask for against what there is.

Source: PostgreSQL documentation, "Resource Consumption"; 8 bytes of page table for each 4 kB page (x86-64, arm64).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from pgtop_tune.health import needs
from pgtop_tune.health.check import Action, Check, Evidence, Finding, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import Facts
from pgtop_tune.health.fixes import set_parameter, words
from pgtop_tune.health.measures import HugePageUse, huge_pages_used, memory, page_tables_bytes
from pgtop_tune.health.needs import Parameters
from pgtop_tune.health.rules import also_scoped, counted, counted_s
from pgtop_tune.units import GB, MB, about, count, duration, share_of
from pgtop_tune.units import memory as typed

_GROUP: Final = "memory"
_RESOURCES: Final = "runtime-config-resource.html"
_SYSTEM_BYTES: Final = 2 * GB
_SYSTEM_SHARE: Final = 8
_SMALLEST_WORK: Final = 4 * MB
_HOUR_S: Final = 3600.0
_SHARED: Final = "shared memory"
_SHOWN: Final = 3


class Part(Struct, frozen=True):
    """A term of the memory rule.

    Attributes:
        what: "sessions"; stable.
        size_bytes: How much.
        says: The arithmetic: "1000 connections × (work_mem 32 MB × hash_mem_multiplier 2 + temp_buffers 8 MB)".
    """

    what: str
    size_bytes: float
    says: str


def parts(server: Parameters, limit_bytes: int, pages: HugePageUse) -> tuple[Part, ...]:
    """The terms of the memory rule, largest first.

    System (2 GB, at most an eighth) + shared memory + connections × (work_mem × hash_mem_multiplier + temp_buffers)
    + parallel workers × work_mem × hash_mem_multiplier + autovacuum workers × their memory + page tables.

    Args:
        server: Its parameters.
        limit_bytes: Memory it may use.
        pages: Whether its shared memory is in huge pages; where that is not known it is taken to be.
    """
    connections = server.whole("max_connections")
    work, temp = server.number("work_mem"), server.number("temp_buffers")
    times = server.number("hash_mem_multiplier")
    buffers = server.number("shared_buffers")
    shared = server.find("shared_memory_size")
    total = buffers if shared is None else max(server.number("shared_memory_size"), buffers)
    parallel = min(server.whole("max_parallel_workers"), server.whole("max_worker_processes"))
    cleaners, each = server.whole("autovacuum_max_workers"), autovacuum_bytes(server)
    system = min(_SYSTEM_BYTES, limit_bytes / _SYSTEM_SHARE)
    hashed = f"work_mem {about(work)} × hash_mem_multiplier {times:g}"
    found = [
        Part("system", system, f"the system {about(system)}"),
        Part(_SHARED, total, f"shared_buffers and related memory {about(total)}"),
        Part(
            "sessions",
            connections * (work * times + temp),
            f"{connections} connections × ({hashed} + temp_buffers {about(temp)})",
        ),
        Part("parallel workers", parallel * work * times, f"{parallel} parallel workers × {hashed}"),
        Part("autovacuum", cleaners * each, f"{cleaners} autovacuum workers × {about(each)}"),
    ]
    if pages.used is False:
        tables = page_tables_bytes(buffers)
        found.append(
            Part(
                "page tables",
                connections * tables,
                f"{connections} connections × {about(tables)} of page tables, without huge pages",
            )
        )
    return tuple(sorted(found, key=lambda part: -part.size_bytes))


def autovacuum_bytes(server: Parameters) -> float:
    """What one autovacuum worker may take: autovacuum_work_mem, maintenance_work_mem where that is -1."""
    own = server.number("autovacuum_work_mem")
    return server.number("maintenance_work_mem") if own < 0 else own


def _rule(facts: Facts, limits: Limits) -> Iterator[Finding | Unknown]:
    server, there = needs.parameters(facts), memory(facts)
    pages = huge_pages_used(facts)
    terms = parts(server, there.limit_bytes, pages)
    beside: tuple[Evidence, ...] = ()
    if there.of_group and pages.used:
        terms = tuple(term for term in terms if term.what != _SHARED)
        beside = (Evidence("the limit of a control group does not count memory in huge pages", "cgroup-v2.rst"),)
    total = sum(term.size_bytes for term in terms)
    percent = 100 * total / there.limit_bytes
    severity = _by(percent, limits)
    if severity is None:
        return
    arithmetic = " + ".join(f"{about(term.size_bytes)} ({term.says})" for term in terms)
    yield Finding(
        severity,
        f"{about(total)} may be requested, {share_of(percent, 'the memory')}; most of it for {terms[0].what}",
        (Evidence(f"{arithmetic} = {about(total)}", "pg_settings"), there.evidence, _pages_evidence(pages), *beside),
        _less(server, there.limit_bytes, terms),
    )


def _pages_evidence(pages: HugePageUse) -> Evidence:
    said = {True: "in huge pages", False: "without huge pages", None: "perhaps in huge pages"}
    return Evidence(f"shared memory {said[pages.used]}", pages.source)


def _by(percent: float, limits: Limits) -> Severity | None:
    for name, severity in (
        ("critical", Severity.CRITICAL),
        ("high", Severity.HIGH),
        ("warning", Severity.WARNING),
    ):
        if name in limits and percent > limits[name]:
            return severity
    return None


def _less(server: Parameters, limit_bytes: int, terms: tuple[Part, ...]) -> Action:
    """The parameter to lower first: shared_buffers above 40 %, then work_mem as far as 4 MB, then the connections."""
    buffers = server.number("shared_buffers")
    if buffers > 0.4 * limit_bytes:
        return set_parameter(server.row("shared_buffers"), typed(limit_bytes / 4))
    sizes = {term.what: term.size_bytes for term in terms}
    others = sum(size for what, size in sizes.items() if what not in ("sessions", "parallel workers"))
    sessions = server.whole("max_connections") + server.whole("max_parallel_workers")
    times = server.number("hash_mem_multiplier")
    temp = server.whole("max_connections") * server.number("temp_buffers")
    fits = (0.9 * limit_bytes - others - temp) / (sessions * times)
    if _SMALLEST_WORK <= fits < server.number("work_mem"):
        return set_parameter(server.row("work_mem"), typed(fits))
    return words(
        "fewer connections: put a pooler in front and lower max_connections; "
        f"{server.whole('max_connections')} sessions do not fit with any work_mem"
    )


def _shared_buffers(facts: Facts, limits: Limits) -> Iterator[Finding]:
    server, there = needs.parameters(facts), memory(facts)
    size = server.number("shared_buffers")
    percent = 100 * size / there.limit_bytes
    if limits["low"] <= percent <= limits["warning"]:
        return
    row = server.row("shared_buffers")
    severity = Severity.HIGH if percent > limits["high"] else Severity.WARNING
    if percent < limits["low"]:
        severity = Severity.INFO if row.source == "default" and there.limit_bytes < GB else Severity.WARNING
    yield Finding(
        severity,
        f"shared_buffers is {share_of(percent, 'the memory')}",
        (Evidence(f"shared_buffers {about(size)}", "pg_settings.setting"), there.evidence),
        set_parameter(row, typed(there.limit_bytes / 4)),
    )


def _work_mem(facts: Facts, limits: Limits) -> Iterator[Finding]:
    server = needs.parameters(facts)
    size = server.number("work_mem")
    if limits["low"] <= size <= limits["warning"]:
        return
    small = size < limits["low"]
    yield Finding(
        Severity.WARNING,
        f"work_mem is {about(size)} for every session: "
        + ("sorts of any size go to disk" if small else "each sort and hash of every session may use it"),
        (Evidence(f"work_mem {about(size)}", "pg_settings.setting"),),
        set_parameter(server.row("work_mem"), typed(limits["low"] if small else limits["warning"])),
    )


def _cache_size(facts: Facts, limits: Limits) -> Iterator[Finding]:
    server, there = needs.parameters(facts), memory(facts)
    size, buffers = server.number("effective_cache_size"), server.number("shared_buffers")
    if buffers <= size <= there.limit_bytes:
        return
    than = f"more than the {about(there.limit_bytes)} of memory"
    if size < buffers:
        than = f"less than shared_buffers, {about(buffers)}"
    yield Finding(
        Severity.WARNING,
        f"effective_cache_size is {about(size)}, {than}",
        (Evidence(f"effective_cache_size {about(size)}", "pg_settings.setting"), there.evidence),
        set_parameter(server.row("effective_cache_size"), typed(max(there.limit_bytes * 0.75, buffers))),
    )


def _autovacuum(facts: Facts, limits: Limits) -> Iterator[Finding]:
    server, there = needs.parameters(facts), memory(facts)
    workers, each = server.whole("autovacuum_max_workers"), autovacuum_bytes(server)
    percent = 100 * workers * each / there.limit_bytes
    severity = _by(percent, limits)
    if severity is None:
        return
    yield Finding(
        severity,
        f"autovacuum may use {share_of(percent, 'the memory')}",
        (
            Evidence(f"{workers} workers × {about(each)} = {about(workers * each)}", "pg_settings.setting"),
            there.evidence,
        ),
        set_parameter(
            server.row("autovacuum_work_mem"),
            typed(max(there.limit_bytes * limits["warning"] / 100 / max(workers, 1), MB)),
        ),
    )


def _page_tables(facts: Facts, limits: Limits) -> Iterator[Finding | Unknown]:
    server, there = needs.parameters(facts), memory(facts)
    pages = huge_pages_used(facts)
    if pages.used:
        return
    if pages.used is None:
        yield Unknown(pages.source)
        return
    connections, buffers = server.whole("max_connections"), server.number("shared_buffers")
    each = page_tables_bytes(buffers)
    percent = 100 * connections * each / there.limit_bytes
    severity = _by(percent, limits)
    if severity is None:
        return
    yield Finding(
        severity,
        f"page tables may use {about(connections * each)}, {share_of(percent, 'the memory')}",
        (
            Evidence(
                f"{connections} connections × shared_buffers {about(buffers)} ÷ 4 kB × 8 bytes = {about(each)} each",
                "pg_settings, 8 bytes a page",
            ),
            there.evidence,
            _pages_evidence(pages),
        ),
        words("reserve huge pages (vm.nr_hugepages, see HUGE-01) or allow fewer connections"),
    )


def _of(some: int, everything: int) -> str:
    return "" if some in (0, everything) else f" of {some} of {everything} databases"


def _temp_files(facts: Facts, limits: Limits) -> Iterator[Finding | Unknown]:
    sample = facts.have(needs.DATABASES)
    # Each database can be reset for itself: their counters have no common age.
    aged = [(row, counted_s(facts, row.stats_reset_ms) / _HOUR_S) for row in sample.databases if row.datid]
    old = [(row, hours) for row, hours in aged if hours >= 1]
    young = [(row, hours) for row, hours in aged if hours < 1 and row.temp_files]
    if young or not old:
        hours = max((hours for _, hours in young or aged), default=0.0)
        yield Unknown(
            f"the statistics{_of(len(young), len(aged))} are {duration(hours * _HOUR_S)} old: too young for a rate "
            "per hour"
        )
    if sample.left_out:
        yield Unknown(f"{sample.left_out} databases with the fewest transactions were not counted")
    files, size = (sum(getattr(row, name) / hours for row, hours in old) for name in ("temp_files", "temp_bytes"))
    severity = next(
        (
            severity
            for name, severity in (("high", Severity.HIGH), ("warning", Severity.WARNING))
            if files > limits[f"files_{name}"] and size > limits[f"bytes_{name}"]
        ),
        None,
    )
    if severity is None:
        return
    yield Finding(
        severity,
        f"{count(files)} temporary files an hour, {about(size)}",
        (
            Evidence(
                ", ".join(
                    f"{row.datname}: {row.temp_files} files, {about(row.temp_bytes)} in {hours:.1f} h"
                    for row, hours in sorted(old, key=lambda each: -each[0].temp_bytes / each[1])[:_SHOWN]
                ),
                "pg_stat_database.temp_files, temp_bytes since stats_reset",
            ),
            Evidence(f"work_mem {needs.parameters(facts).shown('work_mem')}", "pg_settings.setting"),
            counted(max(hours for _, hours in old) * _HOUR_S, "pg_stat_reset() in these databases"),
        ),
        words("find the statements (log_temp_files, pg_stat_statements.temp_blks_written); raise work_mem for their "
              "role or session rather than for all"),
    )  # fmt: skip


_PERCENT: Final = "%"
CHECKS: Final = (
    Check(
        "MEM-01", _GROUP, "the memory rule",
        "If sessions use their full allowance, the kernel swaps or its OOM killer ends the server.",
        Severity.CRITICAL, f"{_RESOURCES}#RUNTIME-CONFIG-RESOURCE-MEMORY", (needs.PARAMETERS, needs.HOST), _rule,
        (
            Threshold("warning", 90, _PERCENT, "of the memory: warning above it"),
            Threshold("high", 100, _PERCENT, "high above it"),
            Threshold("critical", 150, _PERCENT, "critical above it"),
        ),
    ),
    Check(
        "MEM-02", _GROUP, "shared_buffers",
        "Too small, and pages move to and from the kernel; too large, and they are cached twice.",
        Severity.HIGH, f"{_RESOURCES}#GUC-SHARED-BUFFERS", (needs.PARAMETERS, needs.HOST), _shared_buffers,
        (
            Threshold("low", 15, _PERCENT, "of the memory: warning below it"),
            Threshold("warning", 40, _PERCENT, "warning above it"),
            Threshold("high", 60, _PERCENT, "high above it"),
        ),
    ),
    Check(
        "MEM-03", _GROUP, "page tables",
        "Without huge pages every session has its own page tables for shared_buffers, outside every limit.",
        Severity.HIGH, "kernel-resources.html#LINUX-HUGE-PAGES", (needs.PARAMETERS, needs.HOST), _page_tables,
        (
            Threshold("warning", 5, _PERCENT, "of the memory, if all sessions touch all buffers: warning above it"),
            Threshold("high", 15, _PERCENT, "high above it"),
        ),
    ),
    Check(
        "MEM-04", _GROUP, "work_mem",
        "It is a limit for each sort and hash of each session: small ones spill to disk, large ones add up.",
        Severity.WARNING, f"{_RESOURCES}#GUC-WORK-MEM", (needs.PARAMETERS,), also_scoped(_work_mem, "work_mem"),
        (
            Threshold("warning", 64 * MB, "bytes", "warning above it"),
            Threshold("low", 4 * MB, "bytes", "warning below it"),
        ),
    ),
    Check(
        "MEM-05", _GROUP, "effective_cache_size",
        "The planner trusts it: too small, and it avoids indexes; above the memory, and it expects a cache that does "
        "not exist.",
        Severity.WARNING, "runtime-config-query.html#GUC-EFFECTIVE-CACHE-SIZE", (needs.PARAMETERS, needs.HOST),
        also_scoped(_cache_size, "effective_cache_size"),
    ),
    Check(
        "MEM-06", _GROUP, "memory of autovacuum",
        "Each worker may use all of it, beside the load.",
        Severity.HIGH, f"{_RESOURCES}#GUC-AUTOVACUUM-WORK-MEM", (needs.PARAMETERS, needs.HOST), _autovacuum,
        (
            Threshold("warning", 12.5, _PERCENT, "of the memory: warning above it"),
            Threshold("high", 25, _PERCENT, "high above it"),
        ),
    ),
    Check(
        "MEM-07", _GROUP, "temporary files",
        "Sorts and hashes beyond work_mem write to disk and read back.",
        Severity.HIGH, f"{_RESOURCES}#GUC-WORK-MEM", (needs.DATABASES, needs.SERVER), _temp_files,
        (
            Threshold("files_warning", 5, "1/h", "warning above it, when bytes_warning is exceeded as well"),
            Threshold("bytes_warning", GB, "bytes/h", "warning above it, when files_warning is exceeded as well"),
            Threshold("files_high", 20, "1/h", "high above it, when bytes_high is exceeded as well"),
            Threshold("bytes_high", 5 * GB, "bytes/h", "high above it, when files_high is exceeded as well"),
        ),
        counts=True,
    ),
)  # fmt: skip
"""Rows of the registry."""
