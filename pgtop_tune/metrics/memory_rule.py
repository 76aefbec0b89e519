"""The memory rule: what a server may ask for beside shared memory, if all sessions sort or hash at once. Pure.

Source: the documentation of each parameter; "Resource Consumption: Memory".
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from pgtop_tune.units import GB, MB

_FOR_THE_SYSTEM_BYTES: Final = 2 * GB
_WORKERS: Final = 3
"""autovacuum_max_workers where it is not known: the server's default."""


class MemoryUse(Struct, frozen=True, kw_only=True):
    """What the rule adds up.

    Attributes:
        major: Of the server.
        ram_bytes: Of the machine, or of the server's control group where that is less.
        max_connections: Sessions that may sort at once.
        shared_buffers_bytes: Taken at the start.
        autovacuum_max_workers: None for the server's default.
        maintenance_work_mem_bytes: Of each autovacuum worker; None for `maintenance_bytes`.
        hash_mem_multiplier: None for the major's default.
    """

    major: int
    ram_bytes: int
    max_connections: int
    shared_buffers_bytes: int
    autovacuum_max_workers: int | None = None
    maintenance_work_mem_bytes: float | None = None
    hash_mem_multiplier: float | None = None


def work_mem_ceiling_bytes(use: MemoryUse) -> float:
    """What each session may take if all of them sort at once: the memory rule solved for work_mem.

    (memory − 2 GB − shared_buffers − autovacuum workers × maintenance_work_mem) ÷ (connections × hash_mem_multiplier)
    """
    maintenance = use.maintenance_work_mem_bytes
    if maintenance is None:
        maintenance = maintenance_bytes(use.major, use.ram_bytes)
    workers = _WORKERS if use.autovacuum_max_workers is None else use.autovacuum_max_workers
    free = use.ram_bytes - _FOR_THE_SYSTEM_BYTES - use.shared_buffers_bytes - workers * maintenance
    return free / (use.max_connections * hash_multiplier(use.major, use.hash_mem_multiplier))


def maintenance_bytes(major: int, ram_bytes: float) -> float:
    """A sixteenth of the memory; VACUUM could not use more than 1 GB before 17."""
    return max(min(ram_bytes / 16, (2 if major >= 17 else 1) * GB), 64 * MB)


def hash_multiplier(major: int, hash_mem_multiplier: float | None) -> float:
    """How much of work_mem a hash may take: 2 since 15, 1 before, unless set."""
    if hash_mem_multiplier is not None:
        return hash_mem_multiplier
    return 2.0 if major >= 15 else 1.0
