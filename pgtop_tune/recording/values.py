"""Codecs of single values: numbers, words, null, tuples without a key; and texts for many numbers. The rules stand in
`codec`."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import chain, islice
from typing import Any, Final, Protocol

from pgtop_tune.base.errors import RecordingProblem

Json = Any
SAME: Final = object()
"""The delta of an unchanged value."""


class Codec(Protocol):
    """Writer and reader of one type.

    Attributes:
        kind: The type, where it is a simple one.
        counts: The values are integers or null, and their differences mean something.
    """

    kind: type | None = None
    counts: bool = False

    def full(self, value: Any) -> Json: ...

    def delta(self, old: Any, new: Any) -> Json: ...

    def read(self, json: Json) -> Any: ...

    def apply(self, old: Any, json: Json) -> Any: ...

    def read_many(self, values: Sequence[Json]) -> tuple[Any, ...]:
        """Return `read` of each value; faster where all are of one kind."""
        return tuple(map(self.read, values))


def refuse(expected: str, json: Json) -> RecordingProblem:
    return RecordingProblem(f"{expected} expected, found {type(json).__name__}")


def as_object(json: Json) -> dict[str, Json]:
    if type(json) is not dict:
        raise refuse("object", json)
    return json


def as_array(json: Json) -> list[Json]:
    if type(json) is not list:
        raise refuse("array", json)
    return json


class Scalar(Codec):
    """str, float, bool, int and enumerations: a delta is the new value, of an int the difference."""

    def __init__(self, kind: type) -> None:
        self.kind: type = kind
        self.counts = kind is int
        self._enum = issubclass(kind, StrEnum)

    def full(self, value: Any) -> Json:
        return value

    def delta(self, old: Any, new: Any) -> Json:
        if old == new:
            return SAME
        return new - old if self.counts and type(old) is int else new

    def read(self, json: Json) -> Any:
        kind = self.kind
        if type(json) is kind:
            return json
        if kind is float and type(json) is int:
            return float(json)
        if self._enum and type(json) is str:
            try:
                return kind(json)
            except ValueError:
                raise RecordingProblem(f"unknown word {json[:40]!r}") from None
        raise refuse(kind.__name__, json)

    def apply(self, old: Any, json: Json) -> Any:
        value = self.read(json)
        return old + value if self.counts and type(old) is int else value

    def read_many(self, values: Sequence[Json]) -> tuple[Any, ...]:
        return tuple(values if set(map(type, values)) == {self.kind} else map(self.read, values))


class WideInt(Scalar):
    """A 64-bit identity such as a query id: a string in JSON, because most readers have 53 bits. No differences."""

    def __init__(self) -> None:
        super().__init__(int)
        self.counts = False

    def full(self, value: Any) -> Json:
        return str(value)

    def delta(self, old: Any, new: Any) -> Json:
        return SAME if old == new else str(new)

    def read(self, json: Json) -> Any:
        try:
            return int(json) if type(json) is str and len(json) <= 20 else super().read(json)
        except ValueError:
            raise refuse("number as text", json) from None

    def apply(self, old: Any, json: Json) -> Any:
        return self.read(json)


class Optional(Codec):
    """A value or null."""

    def __init__(self, inner: Codec) -> None:
        self._inner = inner
        self.kind, self.counts = inner.kind, inner.counts

    def full(self, value: Any) -> Json:
        return None if value is None else self._inner.full(value)

    def delta(self, old: Any, new: Any) -> Json:
        if new is None:
            return SAME if old is None else None
        return self._inner.full(new) if old is None else self._inner.delta(old, new)

    def read(self, json: Json) -> Any:
        return None if json is None else self._inner.read(json)

    def apply(self, old: Any, json: Json) -> Any:
        if json is None:
            return None
        return self._inner.read(json) if old is None else self._inner.apply(old, json)

    def read_many(self, values: Sequence[Json]) -> tuple[Any, ...]:
        plain = set(map(type, values)) <= {self.kind, type(None)}
        return tuple(values if plain else map(self.read, values))


class _WholeTuple(Codec):
    """A tuple whose delta is its whole value."""

    def delta(self, old: Any, new: Any) -> Json:
        return SAME if old == new else self.full(new)

    def apply(self, old: Any, json: Json) -> Any:
        return self.read(json)


class List(_WholeTuple):
    """A tuple of any length, whose items have no key."""

    def __init__(self, item: Codec) -> None:
        self._item = item

    def full(self, value: Any) -> Json:
        return list(map(self._item.full, value))

    def read(self, json: Json) -> Any:
        return self._item.read_many(as_array(json))

    def read_many(self, values: Sequence[Json]) -> tuple[Any, ...]:
        if set(map(type, values)) != {list}:
            return super().read_many(values)
        items = iter(self._item.read_many([*chain.from_iterable(values)]))
        return tuple([tuple(islice(items, len(value))) for value in values])


class PairCodec(_WholeTuple):
    """A tuple of fixed length, such as (bucket, count)."""

    def __init__(self, items: tuple[Codec, ...]) -> None:
        self._items = items
        self._integers = all(type(item) is Scalar and item.counts for item in items)

    def full(self, value: Any) -> Json:
        return [codec.full(item) for codec, item in zip(self._items, value, strict=True)]

    def read(self, json: Json) -> Any:
        if type(json) is not list or len(json) != len(self._items):
            raise refuse(f"array of {len(self._items)}", json)
        return tuple(codec.read(item) for codec, item in zip(self._items, json, strict=True))

    def read_many(self, values: Sequence[Json]) -> tuple[Any, ...]:
        # Histograms: all are integers.
        if self._integers and set(map(type, values)) == {list} and set(map(len, values)) == {len(self._items)}:
            kinds = set(map(type, chain.from_iterable(values)))
            return tuple(map(tuple if kinds == {int} else self.read, values))
        return super().read_many(values)


# Numbers of many rows as text: a character per row where digits and a comma would stand.
#
#     "0031"                                  0, 0, 3, 1
#     "05z,001"                               two characters per row, the lower ones first: 0, 5, 61 + 64
#     {"least": -2, "rows": "0031"}           -2, -2, 1, -1
#     {"numbers": [8192, 57344], "rows": "0110"}    8192, 57344, 57344, 8192
#     [0, 5000000, null]                      as it is, where nothing is gained
#
# Characters are 0 to 9, A to Z, a to z, - and _ for 0 to 63; "." is null and "=" is the value before. A column of
# hundreds of small numbers takes a third of the CPU that its digits take, and less room, compressed too.

LEAST: Final = "least"
NUMBERS: Final = "numbers"
ROWS: Final = "rows"
BEFORE: Final = "="
_DIGITS: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
_BITS: Final = 6
BASE: Final = 1 << _BITS
MANY_NUMBERS: Final = 16
"""Numbers from which on a text is written: fewer gain hardly anything, and people can read them."""
_MOST: Final = BASE**3
"""First number that is written as it is."""
_MARKS: Final[dict[Any, int]] = {None: BASE, BEFORE: BASE + 1}
_MARKED: Final = {number: mark for mark, number in _MARKS.items()}
_CHARACTERS: Final = _DIGITS + b".="
_WRITTEN: Final = bytes.maketrans(bytes(range(len(_CHARACTERS))), _CHARACTERS)
_READ: Final = bytes.maketrans(_CHARACTERS, bytes(range(len(_CHARACTERS))))
_BETWEEN: Final = ","
_LOWEST: Final = bytes((BASE - 1, 0, 0, 0))
_ROW_BYTES: Final = len(_LOWEST)
_ALLOWED: Final = frozenset(_CHARACTERS.decode() + _BETWEEN)


def short_form(values: Sequence[Any], *, weighed: bool = True) -> tuple[Json, int]:
    """Return the shortest form of numbers, and about how many bits it takes compressed.

    Args:
        values: Integers, None and `BEFORE`.
        weighed: Whether the bits are estimated; else they are 0.
    """
    if len(values) < MANY_NUMBERS:
        return list(values), 5 * len(repr(values)) if weighed else 0
    distinct = set(values)
    marked = not distinct.isdisjoint(_MARKS)
    distinct -= _MARKS.keys()
    low, high = min(distinct, default=0), max(distinct, default=0)
    least = min(low, 0)
    if high - least >= BASE and len(distinct) <= min(BASE, len(values) // 4):
        numbers = sorted(distinct)
        at = {number: index for index, number in enumerate(numbers)} | _MARKS
        text = _written(values, at)
        bits = len(values) * len(numbers).bit_length() + 8 * len(repr(numbers)) if weighed else 0
        return {NUMBERS: numbers, ROWS: text}, bits
    if high - least >= _MOST:
        return list(values), 4 * len(repr(values)) if weighed else 0
    if high - least < BASE:
        text = _written(values, {value: value - least for value in distinct} | _MARKS)
    else:
        marks = [index for index, value in enumerate(values) if value in _MARKS] if marked else []
        text = _text(values, marks, least, high - least)
    form = {LEAST: least, ROWS: text} if least else text
    if not weighed:
        return form, 0
    return form, len(values) + sum([(value - least).bit_length() for value in distinct]) * len(values) // len(
        distinct or "-"
    )


def digits_of(values: Iterable[int]) -> str:
    """Return the text of numbers of which each is less than 64."""
    return bytes(values).translate(_WRITTEN).decode()


def _written(values: Sequence[Any], at: dict[Any, int]) -> str:
    return digits_of(map(at.__getitem__, values))


def _text(values: Sequence[Any], marks: Sequence[int], least: int, highest: int) -> str:
    """Return the digits in base 64 of the differences to the least value, the lowest digits of all rows first.

    The rows stand in one integer, 32 bits each: a digit of all of them is one mask, not a step of a loop for each.

    Args:
        marks: Places of values that are no numbers.
        highest: The largest difference; three digits at most.
    """
    numbers = list(values)
    for index in marks:
        numbers[index] = least
    if least:
        numbers = [value - least for value in numbers]
    room = _ROW_BYTES * len(numbers)
    rows = int.from_bytes(struct.pack(f"<{len(numbers)}I", *numbers), "little")
    mask = int.from_bytes(_LOWEST * len(numbers), "little")
    lowest = bytearray((rows & mask).to_bytes(room, "little")[::_ROW_BYTES])
    for index in marks:
        lowest[index] = _MARKS[values[index]]
    digits = [lowest.translate(_WRITTEN).decode()]
    while highest := highest >> _BITS:
        rows >>= _BITS
        digits.append((rows & mask).to_bytes(room, "little")[::_ROW_BYTES].translate(_WRITTEN).decode())
    return _BETWEEN.join(digits)


def numbers_of(json: Json) -> list[Any]:
    """Return the numbers of a form.

    Raises:
        RecordingProblem: It is none of the forms.
    """
    if type(json) is str:
        return _values(json)
    if type(json) is not dict:
        return as_array(json)
    text = json.get(ROWS)
    if type(text) is not str:
        raise refuse("numbers of rows", json)
    if NUMBERS in json:
        numbers = as_array(json[NUMBERS])
        places = _values(text)
        if not all(type(index) is not int or index < len(numbers) for index in places):
            raise RecordingProblem("a row with a number that is not there")
        return [numbers[index] if type(index) is int else index for index in places]
    least = json.get(LEAST)
    if type(least) is not int:
        raise refuse("a least number", json)
    return [value + least if type(value) is int else value for value in _values(text)]


def _values(text: str) -> list[Any]:
    if not _ALLOWED.issuperset(text):
        raise RecordingProblem("rows with characters that are no digits")
    lowest, *higher = (one.encode().translate(_READ) for one in text.split(_BETWEEN))
    values: list[Any] = list(lowest)
    for index, digits in enumerate(higher, 1):
        if len(digits) != len(lowest) or index >= _MOST.bit_length() // _BITS or max(digits, default=0) >= BASE:
            raise RecordingProblem("rows with fewer digits than others")
        values = [value + (digit << _BITS * index) for value, digit in zip(values, digits, strict=True)]
    if max(lowest, default=0) >= BASE:
        return [_MARKED[low] if low >= BASE else value for low, value in zip(lowest, values, strict=True)]
    return values
