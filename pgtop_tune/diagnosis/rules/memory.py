"""Memory: swapping, the limit of a control group, page tables, distant nodes."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.units import size
from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.finding import FindingKind, ParameterAdvice
from pgtop_tune.diagnosis.rule import Hit, Rule
from pgtop_tune.diagnosis.wording import told
from pgtop_tune.metrics import host, host_details, sections

_SWAP_BYTES: Final = 1e6
_PRESSURE: Final = 5.0
_HITS: Final = 1.0
_PAGE_TABLES: Final = 0.02
_FAR: Final = 0.1


def _swap(facts: Facts) -> Hit | None:
    swapped, stalled = facts.of(host.SWAP_IN) or 0.0, facts.of(host.PSI_MEMORY_SOME)
    if swapped < _SWAP_BYTES or (stalled or 0.0) < _PRESSURE:
        return None
    return Hit(
        sentence=f"the machine swaps: {size(swapped)}/s come back, tasks wait for memory {stalled:.0f} % of the time",
        short=f"the machine swaps: {size(swapped)}/s come back",
        impact_ms=(stalled or 0.0) / 100.0 * facts.latency_ms,
        evidence=told(("back from swap", f"{size(swapped)}/s"), ("waiting for memory", f"{stalled:.0f} %")),
        next_step="less shared_buffers or work_mem, fewer sessions; vm.swappiness 1",
        advice=ParameterAdvice("shared_buffers", "lower", "the machine swaps"),
    )


def _group(facts: Facts) -> Hit | None:
    hits, stalled = facts.of(host_details.GROUP_MEMORY_HITS) or 0.0, facts.of(host_details.GROUP_MEMORY_SOME)
    if hits < _HITS or (stalled or 0.0) < _PRESSURE:
        return None
    return Hit(
        sentence=f"the control group is at its memory limit: tasks wait for memory {stalled:.0f} % of the time",
        short=f"the control group is at its memory limit: {stalled:.0f} %",
        impact_ms=(stalled or 0.0) / 100.0 * facts.latency_ms,
        evidence=told(("limit hit", f"{hits:.0f}/s"), ("waiting for memory", f"{stalled:.0f} %")),
        next_step="a larger limit, or less shared_buffers and work_mem. Refuted if the waits for memory stay",
    )


def _pages(facts: Facts) -> Hit | None:
    tables, total = host.PAGE_TABLES(facts.interval), host.MEMORY_TOTAL(facts.interval)
    if not tables or not total or tables < _PAGE_TABLES * total or sum(host.HUGE_USED(facts.interval).values()) > 0:
        return None
    return Hit(
        sentence=f"{size(tables)} of page tables: each session maps shared_buffers in pages of 4 kB",
        short=f"{size(tables)} of page tables: no huge pages",
        share=tables / total,
        evidence=told(("page tables", size(tables)), ("of memory", f"{100 * tables / total:.1f} %")),
        next_step="huge_pages=try with vm.nr_hugepages, after a restart. Its time cannot be measured from here",
        advice=ParameterAdvice("huge_pages", "set", "page tables take memory"),
    )


def _numa(facts: Facts) -> Hit | None:
    hits, misses = host_details.NODE_HIT(facts.interval), host_details.NODE_MISS(facts.interval)
    far = {node: missed / (missed + hits.get(node, 0.0)) for node, missed in misses.items() if missed > 0}
    node = max(sorted(far), key=lambda each: far[each], default=None)
    if node is None or len(hits) < 2 or far[node] < _FAR:
        return None
    return Hit(
        sentence=f"{misses[node]:.0f} pages/s of node {node} were meant for another: its memory is full",
        short=f"{misses[node]:.0f} pages/s come from another memory node",
        evidence=told(("from afar", f"{100 * far[node]:.0f} %")),
        next_step="interleave the server's memory (numactl --interleave=all); a copy of files looks the same for a while",
    )


RULES: Final = (
    Rule(id="mem.swap", kind=FindingKind.LATENCY, page="7", needs=(sections.memory, sections.pressure), find=_swap),
    Rule(id="mem.group", kind=FindingKind.LATENCY, page="7", needs=(sections.cgroup,), find=_group),
    Rule(id="mem.pages", kind=FindingKind.NOTE, page="7", needs=(sections.memory,), find=_pages),
    Rule(id="mem.numa", kind=FindingKind.NOTE, page="7", needs=(sections.numa,), find=_numa),
)
