"""Rows that asyncpg has not made: with the same access as its records, and from the bytes of a message.

Source: send functions of the types, src/backend/utils/adt; oids, src/include/catalog/pg_type.dat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from struct import Struct
from typing import Any, ClassVar, Final, SupportsIndex

from pgtop_tune.postgres.server.encodings import Decode


class NamedRow(tuple[Any, ...]):
    """A row as asyncpg's Record: values by place and by name, also as a mapping."""

    __slots__ = ()
    places: ClassVar[Mapping[str, int]] = {}

    def __getitem__(self, key: SupportsIndex | slice | str) -> Any:
        return tuple.__getitem__(self, self.places[key] if isinstance(key, str) else key)

    def keys(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.places)


@cache
def kind_of(names: tuple[str, ...]) -> type[NamedRow]:
    """Rows with these columns; our queries are a hundred, so the kinds are kept."""
    places = {name: index for index, name in enumerate(names)}
    return type("Row", (NamedRow,), {"__slots__": (), "places": places})


_LENGTH: Final = Struct(">i")
_COUNT: Final = Struct(">h")
_DIMENSIONS: Final = Struct(">iiI")
_BOUNDS: Final = Struct(">ii")
_ELEMENTS_AT: Final = 20
"""Offset of an array's elements: before them stand dimensions, flags, type of the elements, and length and lower bound
of one dimension."""


def _number(layout: str) -> Callable[[bytes], Any]:
    """Return the decoder of a number of fixed length; another length is an error."""
    unpack = Struct(layout).unpack

    def number(value: bytes) -> Any:
        return unpack(value)[0]

    return number


_oid: Final = _number(">I")


def _elements(of: Callable[[bytes], Any]) -> Callable[[bytes], list[Any]]:
    def elements(value: bytes) -> list[Any]:
        values, at = [], _ELEMENTS_AT
        while at < len(value):
            (length,) = _LENGTH.unpack_from(value, at)
            at += 4
            values.append(None if length < 0 else of(value[at : at + length]))
            at += max(length, 0)
        if at > max(len(value), _ELEMENTS_AT):
            raise ValueError("an array element extends beyond the array")
        return values

    return elements


_DECODERS: Final[Mapping[int, Callable[[bytes], Any]]] = {
    16: _number(">?"),
    20: _number(">q"),
    23: _number(">i"),
    26: _oid,
    701: _number(">d"),
    1028: _elements(_oid),
}
"""By the oid of the type: bool, int8, int4, oid, float8, oid[]; arrays of one dimension."""

TEXTS: Final[Mapping[int, str]] = {19: "name", 25: "text", 1043: "varchar"}
"""Types whose values are texts, by their oid."""
TEXT_ARRAYS: Final[Mapping[int, str]] = {1003: "name[]", 1009: "text[]"}
_TEXT: Final = 25


@cache
def text_decoders(decode: Decode) -> Mapping[int, Callable[[bytes], Any]]:
    """Return the decoders of texts and of their arrays, by the oid of the type."""
    return dict.fromkeys(TEXTS, decode) | dict.fromkeys(TEXT_ARRAYS, _elements(decode))


def text_array(encode: Callable[[str], bytes], texts: Sequence[str]) -> bytes:
    """Return a text[] of one dimension as a parameter in binary form."""
    values = [encode(text) for text in texts]
    if not values:
        return _DIMENSIONS.pack(0, 0, _TEXT)
    head = _DIMENSIONS.pack(1, 0, _TEXT) + _BOUNDS.pack(len(values), 1)
    return head + b"".join([_LENGTH.pack(len(value)) + value for value in values])


class RowForm:
    """The columns of a statement.

    Args:
        decoders: One for each.
    """

    __slots__ = ("_decoders",)

    def __init__(self, decoders: Sequence[Callable[[bytes], Any]]) -> None:
        self._decoders = tuple(decoders)

    @classmethod
    def of(cls, types: Sequence[int], decode: Decode) -> RowForm | None:
        """Return the form of columns of these types, by their oids; None where one is not among those known here."""
        texts = text_decoders(decode)
        decoders = [decoder for oid in types if (decoder := texts.get(oid) or _DECODERS.get(oid)) is not None]
        return cls(decoders) if len(decoders) == len(types) else None

    def row(self, data: bytes) -> tuple[Any, ...]:
        """Return the values in a DataRow.

        Raises:
            struct.error: A number has another length than its type.
            ValueError: There are more or fewer columns, or bytes.
        """
        values: list[Any] = []
        if _COUNT.unpack_from(data) != (len(self._decoders),):
            raise ValueError("a row does not have as many columns as its statement")
        at = 2
        for decoder in self._decoders:
            (length,) = _LENGTH.unpack_from(data, at)
            at += 4
            if length < 0:
                values.append(None)
            else:
                values.append(decoder(data[at : at + length]))
                at += length
        if at != len(data):
            raise ValueError("the length of a row does not match its columns")
        return tuple(values)
