"""A value that must not be seen: its repr and str are masked, so no traceback or log shows it."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "********"


class Secret:
    """A password on its way to a driver. Only `reveal()` gives it away."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself, for the one call that hands it to a driver."""
        return self._value

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Secret is not pickled")


_NAMED: Final = re.compile(
    r"""(pass(?:word|wd)?\s*=\s*)"""
    r"""('(?:[^'\\]|\\.|'')*'?|"(?:[^"\\]|\\.)*"?|[^\s&;,|]+)""",
    re.IGNORECASE,
)
_IN_URI: Final = re.compile(r"(?<=://)([^\s/:@]*):([^\s/]*)@")


def without_passwords(text: str) -> str:
    """A parameter's value with what looks like a password masked: `password=…` of a connection string, and of a URI.

    Source: chapter "Connection Strings" of libpq's manual; quoting as there. Better one word too many than a password.
    """
    if "=" not in text and "@" not in text:
        return text
    return _IN_URI.sub(rf"\1:{MASK}@", _NAMED.sub(rf"\1{MASK}", text))
