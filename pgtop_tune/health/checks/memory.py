"""Memory: the amount that the server may request, against the memory of the machine.

Source: PostgreSQL documentation, "Resource Consumption"; 8 bytes of page table for each 4 kB page (x86-64, arm64).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pgtop_tune.base.units import GB, MB, about, count, duration, share_of
from pgtop_tune.changes.start.next_start import AT_START
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, CheckFinding, Evidence, Findings, Fix, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.configured import row_with_value, with_values
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand, set_parameter, set_several
from pgtop_tune.health.machine_figures import HugePageUse, huge_pages_used, kernel_page_bytes, memory
from pgtop_tune.health.needs import Parameters
from pgtop_tune.health.rules import advised, advised_or, also_scoped, counted, counted_s
from pgtop_tune.metrics import memory_rule
from pgtop_tune.metrics.memory_rule import MemoryUse, Term, page_tables_bytes
from pgtop_tune.model.postgres import Parameter, ParameterSample

_GROUP: Final = "memory"
_RESOURCES: Final = "runtime-config-resource.html"
_HOUR_S: Final = 3600.0
_SHOWN: Final = 3
_OF_TERM: Final[Mapping[str, tuple[str, ...]]] = {
    memory_rule.SHARED: ("shared_buffers",),
    memory_rule.SESSIONS: ("work_mem", "hash_mem_multiplier", "temp_buffers", "max_connections"),
    memory_rule.PARALLEL: ("work_mem", "hash_mem_multiplier"),
    memory_rule.AUTOVACUUM: ("autovacuum_work_mem", "maintenance_work_mem"),
    memory_rule.PAGE_TABLES: ("max_connections", "shared_buffers"),
}
"""Term of the memory rule → the parameters that lower it, in the order in which they are to be tried."""


def _use(server: Parameters, facts: CheckFacts, limit_bytes: int, pages: HugePageUse) -> MemoryUse:
    """Return the memory rule's terms; shared memory counts as in huge pages where that is not known."""
    shared = server.find("shared_memory_size")
    return MemoryUse(
        major=needs.major(facts),
        ram_bytes=limit_bytes,
        max_connections=server.whole("max_connections"),
        shared_buffers_bytes=server.number("shared_buffers"),
        shared_memory_bytes=None if shared is None else server.number("shared_memory_size"),
        work_mem_bytes=server.number("work_mem"),
        temp_buffers_bytes=server.number("temp_buffers"),
        parallel_workers=min(server.whole("max_parallel_workers"), server.whole("max_worker_processes")),
        autovacuum_max_workers=server.whole("autovacuum_max_workers"),
        maintenance_work_mem_bytes=autovacuum_bytes(server),
        hash_mem_multiplier=server.number("hash_mem_multiplier"),
        small_pages=pages.used is False,
        page_bytes=kernel_page_bytes(facts),
    )


def autovacuum_bytes(server: Parameters) -> float:
    """Return the limit of one autovacuum worker: autovacuum_work_mem; maintenance_work_mem where that is -1."""
    own_bytes = server.number("autovacuum_work_mem")
    return server.number("maintenance_work_mem") if own_bytes < 0 else own_bytes


def _rule(facts: CheckFacts, limits: Limits) -> Findings:
    there, pages = memory(facts), huge_pages_used(facts)
    terms = _terms(needs.parameters(facts), facts)
    beside: tuple[Evidence, ...] = ()
    if there.of_group and pages.used:
        beside = (Evidence("the limit of a control group does not count memory in huge pages", "cgroup-v2.rst"),)
    total = sum(term.size_bytes for term in terms)
    percent = 100 * total / there.limit_bytes
    severity = _by(percent, limits)
    if severity is None:
        return
    arithmetic = " + ".join(f"{about(term.size_bytes)} ({term.says})" for term in terms)
    yield CheckFinding(
        severity=severity,
        says=f"{about(total)} may be requested, {share_of(percent, 'the memory')}; most of it for {terms[0].name}",
        evidence=(
            Evidence(f"{arithmetic} = {about(total)}", "pg_settings"),
            there.evidence,
            _pages_evidence(pages),
            *beside,
        ),
        fix=_less_memory(facts, terms, limits),
    )


def _terms(server: Parameters, facts: CheckFacts) -> tuple[Term, ...]:
    """Return the terms of the memory rule, largest first, without memory that a control group does not count."""
    there, pages = memory(facts), huge_pages_used(facts)
    terms = memory_rule.terms(_use(server, facts, there.limit_bytes, pages))
    uncounted = there.of_group and pages.used
    return tuple(term for term in terms if not (uncounted and term.name == memory_rule.SHARED))


def _pages_evidence(pages: HugePageUse) -> Evidence:
    texts = {True: "in huge pages", False: "without huge pages", None: "perhaps in huge pages"}
    return Evidence(f"shared memory {texts[pages.used]}", pages.source)


def _by(percent: float, limits: Limits) -> Severity | None:
    for name, severity in (
        ("critical", Severity.CRITICAL),
        ("high", Severity.HIGH),
        ("warning", Severity.WARNING),
    ):
        if name in limits and percent > limits[name]:
            return severity
    return None


def _less_memory(facts: CheckFacts, terms: Sequence[Term], limits: Limits) -> Fix:
    """Return a fix that sets lower advised values, those of the largest term first."""
    names = tuple(dict.fromkeys(name for term in terms for name in _OF_TERM.get(term.name, ())))
    fix = _lowering(facts, names, lambda changed: _is_within(facts, changed, limits))
    if fix is not None:
        return fix
    lower = ", ".join(f"{name}={value}" for name in names if (value := _lower(facts, name)) is not None)
    enough = "allow fewer connections (max_connections), or add memory"
    return by_hand(f"Set {lower}, and also {enough}." if lower else f"{enough.capitalize()}.")


def _lowering(facts: CheckFacts, names: Sequence[str], ends: Callable[[Parameters], bool]) -> Fix | None:
    """Return lower values that end a finding, of as few parameters as possible; None if none do.

    Args:
        facts: Facts of the check.
        names: Parameters, in the order in which they are to be tried.
        ends: Whether the finding is gone with these parameters.
    """
    server = needs.parameters(facts)
    lower = {name: value for name in dict.fromkeys(names) if (value := _lower(facts, name)) is not None}

    def is_enough(changes: Mapping[str, str]) -> bool:
        return ends(Parameters(with_values(facts.have(needs.PARAMETERS), changes)))

    for name, value in lower.items():
        if is_enough({name: value}):
            return set_parameter(server.row(name), value)
    changes: dict[str, str] = {}
    for name, value in lower.items():
        changes[name] = value
        if is_enough(changes):
            break
    if not is_enough(changes):
        return None
    for name in tuple(changes):
        without = {kept: value for kept, value in changes.items() if kept != name}
        if without and is_enough(without):
            changes = without
    return set_several([(server.row(name), value) for name, value in changes.items()])


def _lower(facts: CheckFacts, name: str) -> str | None:
    """Return a lower value of a parameter: the advised one, else the server's default; None without one."""
    row = needs.parameters(facts).visible(name)
    if row is None or row.source in AT_START:
        return None
    fix = advised_or(facts, name, row.boot_val or row.setting)
    is_lower = fix.parameter is not None and _number(row, fix.parameter[1]) < _number(row, row.setting)
    return fix.parameter[1] if fix.parameter is not None and is_lower else None


def _is_within(facts: CheckFacts, server: Parameters, limits: Limits) -> bool:
    total = sum(term.size_bytes for term in _terms(server, facts))
    return _by(100 * total / memory(facts).limit_bytes, limits) is None


def _number(row: Parameter, value: str | None = None) -> float:
    """Return a row's value, or another value of the row, in bytes where it is a size."""
    typed = row if value is None else row_with_value(row, value, row.source)
    return Parameters(ParameterSample(0.0, (typed,))).number(row.name)


def _shared_buffers(facts: CheckFacts, limits: Limits) -> Findings:
    server, there = needs.parameters(facts), memory(facts)
    size = server.number("shared_buffers")
    percent = 100 * size / there.limit_bytes
    if limits["low"] <= percent <= limits["warning"]:
        return
    row = server.row("shared_buffers")
    severity = Severity.HIGH if percent > limits["high"] else Severity.WARNING
    if percent < limits["low"]:
        severity = Severity.INFO if row.source == "default" and there.limit_bytes < GB else Severity.WARNING
    yield CheckFinding(
        severity=severity,
        says=f"shared_buffers is {share_of(percent, 'the memory')}",
        evidence=(Evidence(f"shared_buffers {about(size)}", "pg_settings.setting"), there.evidence),
        fix=_sized(facts, limits),
    )


def _sized(facts: CheckFacts, limits: Limits) -> Fix:
    """Return the fix to the advised size; words where other parameters leave too little memory for it."""
    fix = advised(facts, "shared_buffers")
    if fix.parameter is None:
        return fix
    size = _number(needs.parameters(facts).row("shared_buffers"), fix.parameter[1])
    if 100 * size / memory(facts).limit_bytes >= limits["low"]:
        return fix
    return by_hand("Lower max_connections or work_mem first (MEM-01): they leave no memory for more shared_buffers.")


def _work_mem(facts: CheckFacts, limits: Limits) -> Findings:
    server = needs.parameters(facts)
    size = server.number("work_mem")
    if limits["low"] <= size <= limits["warning"]:
        return
    small = size < limits["low"]
    yield CheckFinding(
        says=f"work_mem is {about(size)} for every session: "
        + ("even small sorts go to disk" if small else "each sort and hash of every session may use that much"),
        evidence=(Evidence(f"work_mem {about(size)}", "pg_settings.setting"),),
        fix=advised(facts, "work_mem"),
    )


def _cache_size(facts: CheckFacts, limits: Limits) -> Findings:
    server, there = needs.parameters(facts), memory(facts)
    size, buffers = server.number("effective_cache_size"), server.number("shared_buffers")
    if buffers <= size <= there.limit_bytes:
        return
    than = f"more than the {about(there.limit_bytes)} of memory"
    if size < buffers:
        than = f"less than shared_buffers, {about(buffers)}"
    yield CheckFinding(
        says=f"effective_cache_size is {about(size)}, {than}",
        evidence=(Evidence(f"effective_cache_size {about(size)}", "pg_settings.setting"), there.evidence),
        fix=_cache_fix(facts, there.limit_bytes),
    )


def _cache_fix(facts: CheckFacts, limit_bytes: float) -> Fix:
    """Return the fix to the advised size; where shared_buffers is larger, shared_buffers has to change."""
    fix = advised(facts, "effective_cache_size")
    server = needs.parameters(facts)
    buffers = server.number("shared_buffers")
    if fix.parameter is None or _number(server.row(fix.parameter[0]), fix.parameter[1]) >= buffers:
        return fix

    def ends(changed: Parameters) -> bool:
        return changed.number("shared_buffers") <= changed.number("effective_cache_size") <= limit_bytes

    lower = _lowering(facts, ("shared_buffers",), ends)
    return lower or by_hand("Lower shared_buffers first (MEM-02): the cache size must not be below it.")


def _autovacuum(facts: CheckFacts, limits: Limits) -> Findings:
    server, there = needs.parameters(facts), memory(facts)
    workers, worker_bytes = server.whole("autovacuum_max_workers"), autovacuum_bytes(server)
    percent = 100 * workers * worker_bytes / there.limit_bytes
    severity = _by(percent, limits)
    if severity is None:
        return

    def is_within(changed: Parameters) -> bool:
        size = changed.whole("autovacuum_max_workers") * autovacuum_bytes(changed)
        return _by(100 * size / there.limit_bytes, limits) is None

    yield CheckFinding(
        severity=severity,
        says=f"autovacuum may use {share_of(percent, 'the memory')}",
        evidence=(
            Evidence(
                f"{workers} workers × {about(worker_bytes)} = {about(workers * worker_bytes)}", "pg_settings.setting"
            ),
            there.evidence,
        ),
        fix=_lowering(facts, _OF_TERM[memory_rule.AUTOVACUUM], is_within)
        or by_hand("Allow fewer workers (autovacuum_max_workers), or less maintenance_work_mem."),
    )


def _page_tables(facts: CheckFacts, limits: Limits) -> Findings:
    server, there = needs.parameters(facts), memory(facts)
    pages = huge_pages_used(facts)
    if pages.used:
        return
    if pages.used is None:
        yield Unknown(pages.source)
        return
    connections, buffers = server.whole("max_connections"), server.number("shared_buffers")
    page_bytes = kernel_page_bytes(facts)
    table_bytes = page_tables_bytes(buffers, page_bytes)
    percent = 100 * connections * table_bytes / there.limit_bytes
    severity = _by(percent, limits)
    if severity is None:
        return
    yield CheckFinding(
        severity=severity,
        says=f"page tables may use {about(connections * table_bytes)}, {share_of(percent, 'the memory')}",
        evidence=(
            Evidence(
                f"{connections} connections × shared_buffers {about(buffers)} ÷ {about(page_bytes)} × 8 bytes = "
                f"{about(table_bytes)} each",
                "pg_settings, 8 bytes a page",
            ),
            there.evidence,
            _pages_evidence(pages),
        ),
        fix=by_hand("Reserve huge pages (vm.nr_hugepages, see HUGE-01) or allow fewer connections."),
    )


def _of(some: int, everything: int) -> str:
    return "" if some in (0, everything) else f" of {some} of {everything} databases"


def _temp_files(facts: CheckFacts, limits: Limits) -> Findings:
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
    yield CheckFinding(
        severity=severity,
        says=f"{count(files)} temporary files an hour, {about(size)}",
        evidence=(
            Evidence(
                ", ".join(
                    f"{row.datname}: {row.temp_files} files, {about(row.temp_bytes)} in {hours:.1f} h"
                    for row, hours in sorted(old, key=lambda pair: -pair[0].temp_bytes / pair[1])[:_SHOWN]
                ),
                "pg_stat_database.temp_files, temp_bytes since stats_reset",
            ),
            Evidence(f"work_mem {needs.parameters(facts).shown('work_mem')}", "pg_settings.setting"),
            counted(max(hours for _, hours in old) * _HOUR_S, "pg_stat_reset() in these databases"),
        ),
        fix=by_hand("Find the statements (log_temp_files, pg_stat_statements.temp_blks_written); raise work_mem for "
        "their "
              "role or session rather than for all."),
    )  # fmt: skip


_PERCENT: Final = "%"
CHECKS: Final = (
    Check(
        "MEM-01", _GROUP, "the memory rule",
        "If sessions use their full allowance, the kernel swaps or its OOM killer ends the server.",
        f"{_RESOURCES}#RUNTIME-CONFIG-RESOURCE-MEMORY", (needs.PARAMETERS, needs.HOST), _rule, Severity.CRITICAL,
        (
            Threshold("warning", 90, _PERCENT, "of the memory: warning above it"),
            Threshold("high", 100, _PERCENT, "high above it"),
            Threshold("critical", 150, _PERCENT, "critical above it"),
        ),
    ),
    Check(
        "MEM-02", _GROUP, "shared_buffers",
        "If shared_buffers is too small, pages move to and from the kernel; if it is too large, they are cached twice.",
        f"{_RESOURCES}#GUC-SHARED-BUFFERS", (needs.PARAMETERS, needs.HOST), _shared_buffers, Severity.HIGH,
        (
            Threshold("low", 15, _PERCENT, "of the memory: warning below it"),
            Threshold("warning", 40, _PERCENT, "warning above it"),
            Threshold("high", 60, _PERCENT, "high above it"),
        ),
    ),
    Check(
        "MEM-03", _GROUP, "page tables",
        "Without huge pages every session has its own page tables for shared_buffers, outside every limit.",
        "kernel-resources.html#LINUX-HUGE-PAGES", (needs.PARAMETERS, needs.HOST), _page_tables, Severity.HIGH,
        (
            Threshold("warning", 5, _PERCENT, "of the memory, if all sessions touch all buffers: warning above it"),
            Threshold("high", 15, _PERCENT, "high above it"),
        ),
    ),
    Check(
        "MEM-04", _GROUP, "work_mem",
        "work_mem limits each sort and hash of each session: a small value makes them spill to disk, a large one adds "
        "up.",
        f"{_RESOURCES}#GUC-WORK-MEM", (needs.PARAMETERS,), also_scoped(_work_mem, "work_mem"), Severity.WARNING,
        (
            Threshold("warning", 64 * MB, "bytes", "warning above it"),
            Threshold("low", 4 * MB, "bytes", "warning below it"),
        ),
    ),
    Check(
        "MEM-05", _GROUP, "effective_cache_size",
        "The planner trusts this value: if it is too small, the planner avoids indexes; if it exceeds the memory, the "
        "planner expects a cache that does not exist.",
        "runtime-config-query.html#GUC-EFFECTIVE-CACHE-SIZE", (needs.PARAMETERS, needs.HOST),
        also_scoped(_cache_size, "effective_cache_size"),
    ),
    Check(
        "MEM-06", _GROUP, "memory of autovacuum",
        "Each worker may use its whole limit, in addition to the load.",
        f"{_RESOURCES}#GUC-AUTOVACUUM-WORK-MEM", (needs.PARAMETERS, needs.HOST), _autovacuum, Severity.HIGH,
        (
            Threshold("warning", 12.5, _PERCENT, "of the memory: warning above it"),
            Threshold("high", 25, _PERCENT, "high above it"),
        ),
    ),
    Check(
        "MEM-07", _GROUP, "temporary files",
        "Sorts and hashes beyond work_mem write to disk and read back.",
        f"{_RESOURCES}#GUC-WORK-MEM", (needs.DATABASES, needs.SERVER), _temp_files, Severity.HIGH,
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
