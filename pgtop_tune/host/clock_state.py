"""Whether the kernel's clock is kept right by NTP, PTP or the hypervisor: adjtimex(2), which any program may read."""

from __future__ import annotations

import ctypes
import struct
import sys
from typing import Final

_SIZE: Final = 512
"""More than struct timex has, 208 bytes."""
_STATUS: Final = struct.Struct("@illlli")
"""modes, offset, freq, maxerror, esterror, status: the beginning of struct timex."""
_UNSYNCHRONISED: Final = 0x40
"""STA_UNSYNC of linux/timex.h."""


def clock_in_step() -> bool | None:
    """None on other systems than Linux, and where the call is not permitted."""
    if not sys.platform.startswith("linux"):
        return None
    timex = ctypes.create_string_buffer(_SIZE)
    try:
        failed = ctypes.CDLL(None).adjtimex(timex) < 0
    except (AttributeError, OSError):
        return None
    return None if failed else in_step(timex.raw)


def in_step(timex: bytes) -> bool:
    """The same of a struct timex that the kernel has filled."""
    status: int = _STATUS.unpack_from(timex)[-1]
    return not status & _UNSYNCHRONISED
