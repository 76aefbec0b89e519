"""Frames as bytes that never leave this process: made and read several times as fast as the lines of a recording.

A form is built of what `marshal` knows, and says only what is not the same as in the frame before:

    number, text, None              itself
    struct                          (its number, field, field, ...)
    tuple of structs of a kind      (-1, its number, column, column, ...)
    other tuple                     (-2, item, item, ...)
    word of an enumeration          (-3, its number, text)
    the same as before              ...
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from enum import StrEnum
from operator import attrgetter
from types import NoneType
from typing import Any, Final

from msgspec import Struct

_SAME: Final = ...
_TABLE: Final = -1
_ITEMS: Final = -2
_WORD: Final = -3
_MANY: Final = 4
"""So many rows are taken column by column."""
_PLAIN: Final = frozenset((int, float, str, bool, NoneType))
_PLAIN_HINTS: Final = frozenset(f"{kind}{rest}" for kind in ("int", "float", "str", "bool") for rest in ("", " | None"))
"""As they stand in the source: to have them evaluated takes longer than the first frame does."""
_VERSION: Final = 2
"""Of marshal: later ones look for what is the same object, which takes longer than it saves."""

_EMPTY: Final = (_ITEMS,)

Form = Any


class _Kind:
    """A struct as forms see it."""

    def __init__(self, number: int, kind: type[Struct]) -> None:
        names = kind.__struct_fields__
        self.number = number
        self.make: Callable[..., Any] = kind
        self.getters = [attrgetter(name) for name in names]
        self.values: Callable[[Any], tuple[Any, ...]] = (
            attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
        )
        hints = kind.__annotations__
        self.deep = tuple(place for place, name in enumerate(names) if not _is_plain(hints.get(name)))
        """Places of the fields that hold more than a number or a text."""


def _is_plain(hint: Any) -> bool:
    """Whether a field surely holds no more than a number or a text; where that is not seen it costs time, no more."""
    return isinstance(hint, str) and hint.removeprefix("Annotated[").partition(",")[0] in _PLAIN_HINTS


class MemoryForm:
    """Turns frames into bytes and back. One writer; readers need no more than the bytes since a whole frame."""

    def __init__(self) -> None:
        self._kinds: dict[type, _Kind] = {}
        self._types: list[Any] = []
        self._words: dict[type, int] = {}
        self._value: Any = None
        self._form: Form = None

    def whole(self, value: Any) -> bytes:
        """A value that can be read by itself."""
        self._form, self._value = self._formed(value, self._value, self._form), value
        return marshal.dumps(self._form, _VERSION)

    def changed(self, value: Any) -> bytes:
        """What is not the same as in the value given before."""
        before = self._form
        self._form, self._value = self._formed(value, self._value, before), value
        return marshal.dumps(_difference(before, self._form), _VERSION)

    def read(self, data: bytes, before: Any = None) -> Any:
        """The value of some bytes.

        Args:
            before: The value before; not looked at where the bytes are of a whole one.
        """
        return self._read(marshal.loads(data), before)

    def _formed(self, value: Any, before: Any = None, form: Form = None) -> Form:
        """The form of a value; what is the same object as before has the form it had."""
        if value is before:
            return form if value is not None else None
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is tuple:
            if not value:
                return _EMPTY
            if len(value) >= _MANY and type(value[0]) in self._kinds and len(set(map(type, value))) == 1:
                return self._table(value)
            return (_ITEMS, *map(self._formed, value))
        known = self._kinds.get(kind)
        if known is None and issubclass(kind, Struct):
            known = self._learned(kind)
        if known is not None:
            fields = list(known.values(value))
            if type(before) is kind:
                old = known.values(before)
                for place in known.deep:
                    fields[place] = self._formed(fields[place], old[place], form[place + 1])
            else:
                for place in known.deep:
                    fields[place] = self._formed(fields[place])
            return (known.number, *fields)
        if issubclass(kind, StrEnum):
            if kind not in self._words:
                self._words[kind] = self._numbered(kind)
            return (_WORD, self._words[kind], str(value))
        raise TypeError(f"no form for {kind!r}")

    def _table(self, rows: tuple[Any, ...]) -> Form:
        known = self._kinds[type(rows[0])]
        columns: list[tuple[Any, ...]] = list(zip(*map(known.values, rows), strict=True))
        for place in known.deep:
            empty = columns[place].count(()) == len(rows)
            columns[place] = (_EMPTY,) * len(rows) if empty else tuple(map(self._formed, columns[place]))
        return (_TABLE, known.number, *columns)

    def _learned(self, kind: type[Struct]) -> _Kind:
        known = self._kinds[kind] = _Kind(self._numbered(None), kind)
        self._types[known.number] = known
        return known

    def _numbered(self, kind: type | None) -> int:
        self._types.append(kind)
        return len(self._types) - 1

    def _read(self, form: Form, before: Any) -> Any:
        if form is _SAME:
            return before
        if type(form) is not tuple:
            return form
        tag = form[0]
        if tag == _TABLE:
            return self._rows(form, before)
        if tag == _ITEMS:
            return tuple(map(self._read, form[1:], _padded(before, len(form) - 1)))
        known = self._types[form[1] if tag == _WORD else tag]
        if tag == _WORD:
            return known(form[2])
        fields = list(form[1:])
        if type(before) is known.make:
            old = known.values(before)
            for place in known.deep:
                fields[place] = self._read(fields[place], old[place])
            return known.make(*[was if now is _SAME else now for was, now in zip(old, fields, strict=True)])
        for place in known.deep:
            fields[place] = self._read(fields[place], None)
        return known.make(*fields)

    def _rows(self, form: Form, before: Any) -> tuple[Any, ...]:
        known = self._types[form[1]]
        columns = []
        for place, (cells, getter) in enumerate(zip(form[2:], known.getters, strict=True)):
            if cells is _SAME:
                columns.append(list(map(getter, before)))
            elif _SAME in cells or place in known.deep:
                old = (
                    map(getter, before) if type(before) is tuple and len(before) == len(cells) else [None] * len(cells)
                )
                columns.append([self._read(cell, was) for cell, was in zip(cells, old, strict=True)])
            else:
                columns.append(cells)
        return tuple(map(known.make, *columns))


def _padded(before: Any, count: int) -> Any:
    return before if type(before) is tuple and len(before) == count else (None,) * count


def _difference(before: Form, now: Form) -> Form:
    if now is before:
        return _SAME
    if type(now) is not tuple or type(before) is not tuple or not now or len(now) != len(before):
        return _SAME if now == before and type(now) is type(before) else now
    tag = now[0]
    if tag != before[0] or tag == _WORD or (tag == _TABLE and now[1] != before[1]):
        return _SAME if now == before else now
    if tag != _TABLE:
        fields = tuple(map(_difference, before[1:], now[1:]))
        return _SAME if fields.count(_SAME) == len(fields) else (tag, *fields)
    columns = tuple(map(_cells, before[2:], now[2:]))
    if columns.count(_SAME) == len(columns):
        return _SAME
    if len(before[2]) != len(now[2]):
        return now
    return (tag, now[1], *columns)


def _cells(before: tuple[Any, ...], now: tuple[Any, ...]) -> Form:
    if before == now:
        return _SAME
    if len(before) != len(now):
        return now
    return tuple([_SAME if new == old else new for old, new in zip(before, now, strict=True)])
