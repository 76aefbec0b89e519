"""What a search may never try, whatever it might bring: more memory than the machine has, WAL that its disk or a
recovery cannot take. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import MB, about, duration
from pgtop_tune.changes.start.next_start import ValuesAfter
from pgtop_tune.metrics.memory_rule import MemoryUse, terms
from pgtop_tune.model.postgres import Parameter

# The memory rule for a server with other values. Pure.

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


_MEMORY_SHARE: Final = 0.9
_WAL_SHARE: Final = 0.6
"""Of the disk of pg_wal."""
REPLAY_BYTES_PER_S: Final = 100 * MB
"""What one startup process replays in a second, at least, on disks that carry a load."""
RECOVERY_S: Final = 600.0
GUARDED: Final = (
    "max_connections", "max_wal_size", "shared_buffers", "shared_memory_size", "work_mem", "hash_mem_multiplier",
    "temp_buffers", "max_parallel_workers", "autovacuum_max_workers", "autovacuum_work_mem", "maintenance_work_mem",
)  # fmt: skip
"""Parameters that the limits are computed from."""


class Guards(Struct, frozen=True, kw_only=True):
    """Limits of a server and its machine, as they were when a search began.

    Attributes:
        major: Of the server.
        parameters: As they were, by name: those of `GUARDED` and of the search.
        ram_bytes: That the server may use; None where it is not known: no value that takes memory may rise.
        wal_room_bytes: Free on the disk of pg_wal and taken by pg_wal; None where it is not known.
        recovery_s: What a recovery may take.
    """

    major: int
    parameters: dict[str, Parameter]
    ram_bytes: float | None
    wal_room_bytes: float | None
    recovery_s: float = RECOVERY_S

    def allowed(self, values: Mapping[str, str]) -> bool:
        """Whether these values may be tried together."""
        return not self.why_not(values)

    def why_not(self, values: Mapping[str, str]) -> str:
        """Why not, with the arithmetic; "" where they may be."""
        now, then = ValuesAfter(self.parameters, {}), ValuesAfter(self.parameters, dict(values))
        return self._memory(now, then) or self._wal(now, then)

    def _memory(self, now: ValuesAfter, then: ValuesAfter) -> str:
        needed, before = self._asked_bytes(then), self._asked_bytes(now)
        if needed <= before:
            return ""
        if self.ram_bytes is None:
            return "the memory of the machine is not known"
        if needed > _MEMORY_SHARE * self.ram_bytes:
            return f"{about(needed)} may be asked for, of {about(self.ram_bytes)} of memory"
        return ""

    def _asked_bytes(self, values: ValuesAfter) -> float:
        clients = int(values.number("max_connections") or 0)
        use = memory_after(self.major, ValuesAfter(self.parameters, {}), values, clients, self.ram_bytes or 0.0)
        return sum(term.size_bytes for term in terms(use))

    def _wal(self, now: ValuesAfter, then: ValuesAfter) -> str:
        wanted, before = then.number("max_wal_size") or 0.0, now.number("max_wal_size") or 0.0
        if wanted <= before:
            return ""
        if self.wal_room_bytes is not None and wanted > _WAL_SHARE * self.wal_room_bytes:
            return f"max_wal_size {about(wanted)}, and the disk of pg_wal has room for {about(self.wal_room_bytes)}"
        if wanted > self.recovery_s * REPLAY_BYTES_PER_S:
            return f"a recovery could take {duration(wanted / REPLAY_BYTES_PER_S)}"
        return ""
