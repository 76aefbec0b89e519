"""Advice on memory. Source of the memory rule: the documentation of each parameter, and what 15's hash_mem_multiplier
and the page tables add to it."""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.facts import Advice, Facts
from pgtop_tune.metrics import memory_rule
from pgtop_tune.metrics.memory_rule import MemoryUse
from pgtop_tune.units import GB, MB, about, memory

_PAGE_BYTES: Final = 4096
_ENTRY_BYTES: Final = 8


def shared_buffers(facts: Facts) -> Advice | None:
    """A quarter of the memory, at most 40 %."""
    if not facts.ram_bytes:
        return None
    quarter = facts.ram_bytes / 4
    fits = ""
    if facts.data_bytes is not None:
        fits = (
            f" The data, {about(facts.data_bytes)}, {'fit' if facts.data_bytes <= quarter else 'do not fit'} into it."
        )
    return Advice(
        memory(quarter),
        f"A quarter of {about(facts.ram_bytes)} of memory; the rest caches files as well.{fits}",
        memory(max(facts.ram_bytes / 10, 128 * MB)),
        memory(facts.ram_bytes * 0.4),
    )


def effective_cache_size(facts: Facts) -> Advice | None:
    """Three quarters of the memory: shared_buffers and the kernel's cache."""
    if not facts.ram_bytes:
        return None
    return Advice(
        memory(facts.ram_bytes * 0.75),
        f"Three quarters of {about(facts.ram_bytes)}: what shared_buffers and the kernel cache. It reserves nothing.",
        memory(facts.ram_bytes / 2),
        memory(facts.ram_bytes * 0.9),
    )


def maintenance_work_mem(facts: Facts) -> Advice | None:
    """See `metrics.memory_rule.maintenance_bytes`."""
    if not facts.ram_bytes:
        return None
    size = memory_rule.maintenance_bytes(facts.major, facts.ram_bytes)
    cap = "" if facts.major >= 17 else "; VACUUM uses at most 1 GB of it before 17"
    return Advice(memory(size), f"A sixteenth of {about(facts.ram_bytes)}{cap}.", "64MB", memory(facts.ram_bytes / 8))


def work_mem_ceiling_bytes(facts: Facts) -> float | None:
    """See `metrics.memory_rule`; None where a part of it is not known."""
    if not (facts.ram_bytes and facts.max_connections and facts.shared_buffers_bytes):
        return None
    return memory_rule.work_mem_ceiling_bytes(
        MemoryUse(
            major=facts.major,
            ram_bytes=facts.ram_bytes,
            max_connections=facts.max_connections,
            shared_buffers_bytes=facts.shared_buffers_bytes,
            autovacuum_max_workers=facts.autovacuum_max_workers,
            hash_mem_multiplier=facts.hash_mem_multiplier,
        )
    )


def work_mem(facts: Facts) -> Advice | None:
    """Half of the ceiling, 4 to 256 MB."""
    ceiling = work_mem_ceiling_bytes(facts)
    if ceiling is None:
        return None
    if ceiling < 4 * MB:
        return Advice(
            "4MB",
            f"{facts.max_connections} connections leave {about(max(ceiling, 0))} for each: fewer connections, or a "
            "pooler, before more work_mem.",
            "1MB",
            "4MB",
        )
    hash_multiplier = memory_rule.hash_multiplier(facts.major, facts.hash_mem_multiplier)
    return Advice(
        memory(min(ceiling / 2, 256 * MB)),
        f"Half of {about(ceiling)}: the share of each of {facts.max_connections} connections if all hash at once "
        f"(hash_mem_multiplier {hash_multiplier:g}). Raise it per role or session if temporary files appear.",
        "4MB",
        memory(ceiling),
    )


def page_tables_bytes(facts: Facts) -> float | None:
    """Page tables of a backend that has touched all of shared_buffers, with 4 kB pages: 8 bytes a page."""
    if not facts.shared_buffers_bytes:
        return None
    return facts.shared_buffers_bytes / _PAGE_BYTES * _ENTRY_BYTES


def huge_pages(facts: Facts) -> Advice | None:
    """'on' once the pages are there, where page tables would be worth mentioning."""
    each = page_tables_bytes(facts)
    if each is None or facts.shared_buffers_bytes is None:
        return None
    if facts.shared_buffers_bytes < GB:
        return Advice("try", f"shared_buffers is only {about(facts.shared_buffers_bytes)}: little to save.")
    sessions = facts.max_connections or 0
    need = f"; it needs vm.nr_hugepages of at least {facts.huge_pages_needed}" if facts.huge_pages_needed else ""
    return Advice(
        "on",
        f"With 4 kB pages a backend that has touched all of shared_buffers has {about(each)} of page tables, "
        f"{sessions} of them {about(each * sessions)}{need}. 'try' would silently continue without.",
    )
