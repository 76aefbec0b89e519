"""/proc/pressure/{cpu,io,memory}. Source: Documentation/accounting/psi.rst."""

from __future__ import annotations

import re
from typing import Final

from pgtop_tune.host.counters import unsigned
from pgtop_tune.model.host import PressureLine, PressureSample

_TOTAL: Final = re.compile(rb"^(some|full) [^\n]*\btotal=(\d+)$", re.MULTILINE)


def parse_pressure(at_s: float, cpu: bytes, io: bytes, memory: bytes) -> PressureSample:
    """Stall times since boot.

    Args:
        at_s: When the files were read.
        cpu: Content of /proc/pressure/cpu; before Linux 5.13 without a "full" line.
        io: Content of /proc/pressure/io.
        memory: Content of /proc/pressure/memory.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    return PressureSample(at_s, _line("cpu", cpu), _line("io", io), _line("memory", memory))


def _line(resource: str, text: bytes) -> PressureLine:
    totals = {kind: unsigned(total) for kind, total in _TOTAL.findall(text)}
    if b"some" not in totals:
        raise ValueError(f"/proc/pressure/{resource} has no line of some stall")
    return PressureLine(totals[b"some"], totals.get(b"full"))
