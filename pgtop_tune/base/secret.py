"""Secrets: a password on its way to a driver, and the masking of those that stand in foreign text."""

from __future__ import annotations

from collections.abc import Sequence

from pgtop_tune.base.secret_tokens import HINTS, MASK, token_spans

__all__ = ["MASK", "Secret", "without_secrets"]


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


def without_secrets(text: str) -> str:
    """A text that others wrote (statement, log line, parameter, message) with what looks like a secret masked.

    Passwords of roles, user mappings and connection strings, user:password@ of URIs, -u user:password, keys and tokens
    of programs and of pgcrypto, Authorization headers; with every way of quoting, and where the text ends within one.
    What no word announces is known by its form (`secret_tokens`), or not at all: the values of an INSERT. Better one
    word too many than a password.

    Source: chapters "Connection Strings" of libpq and "Lexical Structure" of SQL.
    """
    if tokens := token_spans(text):
        text = _masked(text, tokens)
    small = text.lower()
    # Most texts have none, and the patterns take longer to make than the first picture may wait.
    if not any(hint in small for hint in HINTS):
        return text
    from pgtop_tune.base.secret_words import announced_spans

    spans = announced_spans(text)
    return _masked(text, spans) if spans else text


def _masked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    parts: list[str] = []
    kept = 0
    for begin, end in spans:
        parts += (text[kept:begin], MASK)
        kept = end
    return "".join((*parts, text[kept:]))
