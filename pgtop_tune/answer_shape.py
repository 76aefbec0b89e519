"""The shape of what was made of an answer: numbers where numbers are declared, and NULL only where it is expected.

Structs take any value. A server that sends NULL, text or nothing in place of a number would be believed by its reader,
and the screen would fail where the figure is used.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import cache
from operator import attrgetter
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import fields

_NUMBERS: Final = frozenset({int, float, bool, Decimal})
_TEXTS: Final = frozenset({str})
_KINDS: Final = {int: _NUMBERS, float: _NUMBERS, bool: _NUMBERS, str: _TEXTS, type(None): frozenset({type(None)})}


def check_shape(made: Any) -> None:
    """Make sure that a struct and the structs in it hold what their fields declare.

    Raises:
        TypeError: One does not; named in the message.
    """
    if isinstance(made, Struct):
        _check_rows(type(made), (made,))


def _check_rows(kind: type[Struct], rows: Sequence[Any]) -> None:
    for name, read, allowed, nested in _columns(kind):
        values = list(map(read, rows))
        if allowed is not None and not allowed.issuperset(map(type, values)):
            raise TypeError(f"{kind.__name__}.{name} is not what it should be")
        if nested is not None:
            _check_nested(nested, values)


def _check_nested(kind: type[Struct], values: Iterable[Any]) -> None:
    rows: list[Any] = []
    for value in values:
        rows.extend(value if isinstance(value, tuple | list) else (value,))
    if rows := [row for row in rows if type(row) is kind]:
        _check_rows(kind, rows)


@cache
def _columns(
    kind: type[Struct],
) -> tuple[tuple[str, Callable[[Any], Any], frozenset[type] | None, type[Struct] | None], ...]:
    """Name, reader, allowed types (None is any) and the struct inside, of each field that can be checked."""
    hints = get_type_hints(kind)
    columns = []
    for each in fields(kind):
        allowed, nested = _types_of(hints[each.name]), _struct_of(hints[each.name])
        if allowed is not None or nested is not None:
            columns.append((each.name, attrgetter(each.name), allowed, nested))
    return tuple(columns)


def _types_of(hint: Any) -> frozenset[type] | None:
    if get_origin(hint) in (Union, types.UnionType):
        parts = [_types_of(part) for part in get_args(hint)]
        checked = [part for part in parts if part is not None]
        return frozenset().union(*checked) if len(checked) == len(parts) else None
    return _KINDS.get(hint)


def _struct_of(hint: Any) -> type[Struct] | None:
    if get_origin(hint) in (Union, types.UnionType, tuple, Sequence):
        return next((struct for part in get_args(hint) if (struct := _struct_of(part)) is not None), None)
    return hint if isinstance(hint, type) and issubclass(hint, Struct) else None
