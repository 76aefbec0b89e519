"""Annotations of fields with the facts that a recording needs besides the type: see `recording.codec`."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class KeyedBy(Struct, frozen=True, gc=False):
    """A table: rows are told apart by one of their fields.

    Attributes:
        by: Its name.
    """

    by: str


class Near(Struct, frozen=True, gc=False):
    """A number that lies close to another of the same row.

    Attributes:
        other: The name of its field.
    """

    other: str


class Wide(Struct, frozen=True, gc=False):
    """An integer of more than 53 bits, which JSON readers would round."""


WIDE: Final = Wide()
