"""The memory rule for a server with other values. Pure."""

from __future__ import annotations

from typing import Final

from pgtop_tune.changes.start.values import ValuesAfter
from pgtop_tune.metrics.memory_rule import MemoryUse

_BESIDE_BUFFERS: Final = 1.03
"""Shared memory by shared_buffers: descriptors and the mapping belong to them."""


def memory_after(major: int, now: ValuesAfter, then: ValuesAfter, clients: int, ram_bytes: float) -> MemoryUse:
    """What the server takes with the values of `then`; shared memory is what it has now and what the buffers differ.

    Args:
        now: Nothing changed.
        clients: Sessions that may sort at once.
    """
    buffers = then.number("shared_buffers") or 0.0
    shared = now.number("shared_memory_size")
    if shared is not None:
        shared += (buffers - (now.number("shared_buffers") or 0.0)) * _BESIDE_BUFFERS
    maintenance = then.number("autovacuum_work_mem")
    if maintenance is None or maintenance < 0:
        maintenance = then.number("maintenance_work_mem")
    return MemoryUse(
        major=major,
        ram_bytes=ram_bytes,
        max_connections=clients,
        shared_buffers_bytes=buffers,
        shared_memory_bytes=shared,
        work_mem_bytes=then.number("work_mem") or 0.0,
        temp_buffers_bytes=then.number("temp_buffers") or 0.0,
        parallel_workers=int(then.number("max_parallel_workers") or 0),
        autovacuum_max_workers=int(then.number("autovacuum_max_workers") or 0),
        maintenance_work_mem_bytes=maintenance,
        hash_mem_multiplier=then.number("hash_mem_multiplier"),
    )
