"""Codecs of single values: numbers, words, what may be null, tuples without a key. The rules stand in `codec`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import chain, islice
from typing import Any, Final, Protocol

from pgtop_tune.errors import RecordingProblem

Json = Any
SAME: Final = object()
"""A delta of nothing."""


class Codec(Protocol):
    """Writes and reads one type.

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
        """What `read` says of each, sooner where all are of one kind."""
        return tuple(map(self.read, values))


def refuse(wanted: str, json: Json) -> RecordingProblem:
    return RecordingProblem(f"{wanted} expected, found {type(json).__name__}")


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


class List(Codec):
    """A tuple without a key: always whole."""

    def __init__(self, item: Codec) -> None:
        self._item = item

    def full(self, value: Any) -> Json:
        full = self._item.full
        return [full(item) for item in value]

    def delta(self, old: Any, new: Any) -> Json:
        return SAME if old == new else self.full(new)

    def read(self, json: Json) -> Any:
        if type(json) is not list:
            raise refuse("array", json)
        return self._item.read_many(json)

    def apply(self, old: Any, json: Json) -> Any:
        return self.read(json)

    def read_many(self, values: Sequence[Json]) -> tuple[Any, ...]:
        if set(map(type, values)) != {list}:
            return super().read_many(values)
        items = iter(self._item.read_many([*chain.from_iterable(values)]))
        return tuple([tuple(islice(items, len(value))) for value in values])


class Pair(Codec):
    """A tuple of fixed length, such as (bucket, count)."""

    def __init__(self, items: tuple[Codec, ...]) -> None:
        self._items = items
        self._integers = all(type(item) is Scalar and item.counts for item in items)

    def full(self, value: Any) -> Json:
        return [codec.full(item) for codec, item in zip(self._items, value, strict=True)]

    def delta(self, old: Any, new: Any) -> Json:
        return SAME if old == new else self.full(new)

    def read(self, json: Json) -> Any:
        if type(json) is not list or len(json) != len(self._items):
            raise refuse(f"array of {len(self._items)}", json)
        return tuple(codec.read(item) for codec, item in zip(self._items, json, strict=True))

    def apply(self, old: Any, json: Json) -> Any:
        return self.read(json)

    def read_many(self, values: Sequence[Json]) -> tuple[Any, ...]:
        # Histograms: all are integers.
        if self._integers and set(map(type, values)) == {list} and set(map(len, values)) == {len(self._items)}:
            kinds = set(map(type, chain.from_iterable(values)))
            return tuple(map(tuple if kinds == {int} else self.read, values))
        return super().read_many(values)
