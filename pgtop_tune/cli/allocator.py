"""One heap of the C library for all threads: a program that runs beside the server keeps its memory small."""

from __future__ import annotations

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Parameters of mallopt(3), as glibc numbers them."""
_LARGE_BYTES: Final = 128 * 1024


def one_heap() -> None:
    """Asks glibc for a single heap, and to give back what is free; other C libraries have no such wish to be told.

    By default each thread gets a heap of its own, and what one has free another cannot use. Only one thread runs Python
    at a time, so there is nothing to be won by that. Before threads are started. Source: mallopt(3).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    for parameter, value in ((_ARENA_MAX, 1), (_TRIM_THRESHOLD, _LARGE_BYTES), (_MMAP_THRESHOLD, _LARGE_BYTES)):
        mallopt(parameter, value)


def give_back() -> None:
    """Has glibc give back the pages between what is used: after the imports, a megabyte. Source: malloc_trim(3)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return
