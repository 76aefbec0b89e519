"""CPU time on the half of the CPUs that each copy has: all of it, and stolen; halves change hands every second.

Source: proc_stat(5).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from pgtop_tune.host.kernel_sections import cpu_section
from pgtop_tune.host.kernel_text import read_once
from pgtop_tune.metrics.host_values import busy_ticks
from pgtop_tune.model.host import CpuTimes

_TICK_MS: Final = 1000.0 / os.sysconf("SC_CLK_TCK")


class HalfCpu:
    """Of two copies, since this was made.

    Attributes:
        busy_ms: By copy: time in which the CPUs it had at the moment were not idle, stolen time included.
        steal_ms: By copy: what the hypervisor gave to others of it.
        cpus: Of the machine.
    """

    def __init__(self) -> None:
        self.busy_ms: Final = [0.0, 0.0]
        self.steal_ms: Final = [0.0, 0.0]
        self.cpus = 0
        self._before: dict[int, CpuTimes] = {}

    def look(self, halves: Sequence[Sequence[int]]) -> None:
        """Accounts for the time since the last look.

        Args:
            halves: That the copies had meanwhile.
        """
        now = _cores()
        self.cpus = len(now)
        for copy, half in enumerate(halves):
            for cpu in half:
                if cpu in now and (before := self._before.get(cpu)) is not None:
                    # Idle time is counted by and by, and may be taken back.
                    self.busy_ms[copy] += max(busy_ticks(now[cpu]) - busy_ticks(before), 0) * _TICK_MS
                    self.steal_ms[copy] += max(_stolen(now[cpu]) - _stolen(before), 0) * _TICK_MS
        self._before = now


def _stolen(times: CpuTimes) -> int:
    return times.steal_ticks or 0


def _cores() -> dict[int, CpuTimes]:
    """Empty without /proc."""
    try:
        sample = cpu_section(0.0, lambda path: read_once(f"/{path}"))
    except (OSError, ValueError):
        return {}
    return {int(core.cpu.removeprefix("cpu")): core for core in sample.cores}
