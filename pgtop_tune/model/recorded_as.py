"""Annotations of fields with the facts that a recording needs besides the type: see `recording.codec`."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class KeyedBy(Struct, frozen=True, gc=False):
    """A table whose rows are identified by one of their fields.

    Attributes:
        by: Name of the field.
    """

    by: str


class Near(Struct, frozen=True, gc=False):
    """A number that is close to another one of the same row.

    Attributes:
        field: Name of the other number's field.
    """

    field: str


class Wide(Struct, frozen=True, gc=False):
    """An integer of more than 53 bits, which JSON readers would round."""


WIDE: Final = Wide()
