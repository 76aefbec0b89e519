"""The memory rule: the memory that a server may request if all sessions sort or hash at once. Pure.

system (2 GB, at most an eighth) + shared memory + connections × (work_mem × hash_mem_multiplier + temp_buffers)
+ parallel workers × work_mem × hash_mem_multiplier + autovacuum workers × their memory + page tables

Source: the documentation of each parameter; "Resource Consumption: Memory"; 8 bytes of page table for each 4 kB page
(x86-64, arm64).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.units import GB, MB, about

SESSIONS: Final = "sessions"
SHARED: Final = "shared memory"
PARALLEL: Final = "parallel workers"
AUTOVACUUM: Final = "autovacuum"
PAGE_TABLES: Final = "page tables"
_SYSTEM_BYTES: Final = 2 * GB
_SYSTEM_SHARE: Final = 8
USUAL_PAGE_BYTES: Final = 4096
_ENTRY_BYTES: Final = 8
_WORKERS: Final = 3
"""autovacuum_max_workers where it is not known: the server's default."""
_OF_AUTOVACUUM: Final = 0.1
_LEAST_MAINTENANCE: Final = 4 * MB


class MemoryUse(Struct, frozen=True, kw_only=True):
    """Input of the memory rule.

    Attributes:
        major: Major version of the server.
        ram_bytes: Memory of the machine, or of the server's control group where that is less.
        max_connections: Sessions that may sort at once.
        shared_buffers_bytes: The parameter shared_buffers.
        shared_memory_bytes: All shared memory that the server takes at its start; None for shared_buffers alone.
        work_mem_bytes: Memory of each sort.
        temp_buffers_bytes: Memory of each session.
        parallel_workers: Number of workers of all sessions together.
        autovacuum_max_workers: Number of workers; None for the server's default.
        maintenance_work_mem_bytes: Memory of each autovacuum worker; None for `maintenance_bytes`.
        hash_mem_multiplier: The parameter; None for the major's default.
        small_pages: Whether shared memory is not in huge pages, so that each session has page tables for all of it.
        page_bytes: Size of a page.
    """

    major: int
    ram_bytes: float
    max_connections: int
    shared_buffers_bytes: float
    shared_memory_bytes: float | None = None
    work_mem_bytes: float = 0.0
    temp_buffers_bytes: float = 0.0
    parallel_workers: int = 0
    autovacuum_max_workers: int | None = None
    maintenance_work_mem_bytes: float | None = None
    hash_mem_multiplier: float | None = None
    small_pages: bool = False
    page_bytes: int = USUAL_PAGE_BYTES


class Term(Struct, frozen=True):
    """A term of the memory rule.

    Attributes:
        name: "sessions"; stable.
        size_bytes: The memory.
        says: The arithmetic: "1000 connections × (work_mem 32 MB × hash_mem_multiplier 2 + temp_buffers 8 MB)".
    """

    name: str
    size_bytes: float
    says: str


def terms(use: MemoryUse) -> tuple[Term, ...]:
    """Return the terms of the memory rule, largest first; page tables only with small pages."""
    times = hash_multiplier(use.major, use.hash_mem_multiplier)
    sort, temp, sessions = use.work_mem_bytes * times, use.temp_buffers_bytes, use.max_connections
    shared = max(use.shared_memory_bytes or 0.0, use.shared_buffers_bytes)
    workers, worker_bytes = _autovacuum(use)
    tables = page_tables_bytes(use.shared_buffers_bytes, use.page_bytes) if use.small_pages else 0.0
    system = min(_SYSTEM_BYTES, use.ram_bytes / _SYSTEM_SHARE)
    hashed = f"work_mem {about(use.work_mem_bytes)} × hash_mem_multiplier {times:g}"
    all_terms = (
        Term("system", system, f"operating system {about(system)}"),
        Term(SHARED, shared, f"shared_buffers and related memory {about(shared)}"),
        Term(SESSIONS, sessions * (sort + temp), f"{sessions} connections × ({hashed} + temp_buffers {about(temp)})"),
        Term(PARALLEL, use.parallel_workers * sort, f"{use.parallel_workers} parallel workers × {hashed}"),
        Term(AUTOVACUUM, workers * worker_bytes, f"{workers} autovacuum workers × {about(worker_bytes)}"),
        Term(
            PAGE_TABLES,
            sessions * tables,
            f"{sessions} connections × {about(tables)} of page tables, without huge pages",
        ),
    )
    counted = (term for term in all_terms if term.name != PAGE_TABLES or use.small_pages)
    return tuple(sorted(counted, key=lambda term: -term.size_bytes))


def book_terms(use: MemoryUse) -> tuple[Term, ...]:
    """Return the terms of the rule that books have, in their order, under the names of the memory rule.

    2 GB + shared_buffers + max_connections × (work_mem + temp_buffers) + workers × maintenance_work_mem
    """
    workers, worker_bytes = _autovacuum(use)
    session = use.work_mem_bytes + use.temp_buffers_bytes
    parts = f"work_mem {about(use.work_mem_bytes)} + temp_buffers {about(use.temp_buffers_bytes)}"
    return (
        Term("system", _SYSTEM_BYTES, about(_SYSTEM_BYTES)),
        Term(SHARED, use.shared_buffers_bytes, f"shared_buffers {about(use.shared_buffers_bytes)}"),
        Term(SESSIONS, use.max_connections * session, f"{use.max_connections} connections × ({parts})"),
        Term(AUTOVACUUM, workers * worker_bytes, f"{workers} workers × maintenance_work_mem {about(worker_bytes)}"),
    )


def work_mem_ceiling_bytes(use: MemoryUse, share: float = 1.0) -> float:
    """Return the memory that each sort may take if all sessions sort at once: the memory rule solved for work_mem.

    Args:
        use: Input; its `work_mem_bytes` does not count.
        share: Share of the machine's memory that the server may take.
    """
    reserved_bytes = sum(term.size_bytes for term in terms(replace(use, work_mem_bytes=0.0)))
    sorts = use.max_connections + use.parallel_workers
    return (use.ram_bytes * share - reserved_bytes) / (sorts * hash_multiplier(use.major, use.hash_mem_multiplier))


def _autovacuum(use: MemoryUse) -> tuple[int, float]:
    """Return the number of autovacuum workers, and the memory of each."""
    workers = _WORKERS if use.autovacuum_max_workers is None else use.autovacuum_max_workers
    given_bytes = use.maintenance_work_mem_bytes
    return workers, maintenance_bytes(use.major, use.ram_bytes, workers) if given_bytes is None else given_bytes


def maintenance_bytes(major: int, ram_bytes: float, workers: int = _WORKERS) -> float:
    """Return the default of maintenance_work_mem: a sixteenth of the memory, at most a tenth for all autovacuum workers.

    Before 17 VACUUM could not use more than 1 GB.
    """
    most = (2 if major >= 17 else 1) * GB
    return max(min(ram_bytes / 16, ram_bytes * _OF_AUTOVACUUM / max(workers, 1), most), _LEAST_MAINTENANCE)


def page_tables_bytes(shared_buffers_bytes: float, page_bytes: int) -> float:
    """Return the page tables of a backend that has touched all of shared_buffers: 8 bytes for each page, which has 4 kB,
    or 16 or 64 on arm64 and ppc64le."""
    return shared_buffers_bytes / page_bytes * _ENTRY_BYTES


def hash_multiplier(major: int, hash_mem_multiplier: float | None) -> float:
    """Return the multiple of work_mem that a hash may take: 2 since 15, 1 before, unless set."""
    if hash_mem_multiplier is not None:
        return hash_mem_multiplier
    return 2.0 if major >= 15 else 1.0
