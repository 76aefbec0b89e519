"""Numbers in kernel files: unsigned, at most 64 bits. Anything else is not a kernel file."""

from __future__ import annotations

from typing import Final

_LIMIT: Final = 1 << 64


def unsigned(word: bytes) -> int:
    """The number a kernel file spells.

    Raises:
        ValueError: Not a decimal number of 0 to 2^64-1. The files of a remote server are foreign: a number of a
            thousand digits would break arithmetic far from here.
    """
    if not word.isdigit() or len(word) > 20 or (value := int(word)) >= _LIMIT:
        raise ValueError(f"not a kernel counter: {word[:40]!r}")
    return value
