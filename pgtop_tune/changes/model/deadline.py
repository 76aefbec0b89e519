"""The deadline of a pending change: on the boot clock within one boot, on the wall clock for people and after a reboot.

A wall clock that is set, or a machine that slept, neither cuts a deadline short nor puts it off.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from pgtop_tune.process.boot_clock import boot_clock_mark, boot_clock_s

NO_DEADLINE: Final[Mapping[str, Any]] = MappingProxyType({"until_ms": None, "until_boot_ms": None, "boot_clock": ""})
"""Fields of a confirmed change."""


class HasDeadline(Protocol):
    """A change of the server or of its machine."""

    @property
    def until_ms(self) -> int | None:
        """The deadline, milliseconds since the epoch; None without one."""
        ...

    @property
    def until_boot_ms(self) -> int | None:
        """The deadline on the boot clock, milliseconds."""
        ...

    @property
    def boot_clock(self) -> str:
        """Which boot clock."""
        ...


def deadline_in(within_s: float) -> dict[str, Any]:
    """Return the fields of a change whose deadline is so many seconds from now."""
    within_ms = int(within_s * 1000)
    return {
        "until_ms": time.time_ns() // 1_000_000 + within_ms,
        "until_boot_ms": int(boot_clock_s() * 1000) + within_ms,
        "boot_clock": boot_clock_mark(),
    }


def deadline_ms(change: HasDeadline) -> int | None:
    """Return the deadline on the wall clock as that runs now, milliseconds since the epoch; None without one."""
    if change.until_ms is None or change.until_boot_ms is None or not change.boot_clock:
        return change.until_ms
    if change.boot_clock != boot_clock_mark():
        return change.until_ms
    return time.time_ns() // 1_000_000 + change.until_boot_ms - int(boot_clock_s() * 1000)
