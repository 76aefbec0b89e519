"""Answers that have another form than PostgreSQL's: of forks, proxies and poolers, and of servers that mean harm.

Code that takes such an answer apart can raise almost any exception. `decodes` and `decoding` turn it into a problem of
the server, which ends one section or one command with a sentence; a bug elsewhere keeps its traceback.
"""

from __future__ import annotations

import inspect
import struct
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import cache, wraps
from operator import attrgetter
from typing import Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import fields

from pgtop_tune.base.errors import ServerProblem

# msgspec does not check the values that a Struct is made of. Where a server sends NULL or text in place of a number,
# its reader would not notice, and the screen would fail where it uses the figure.
_NUMBERS: Final = frozenset({int, float, bool, Decimal})
_TEXTS: Final = frozenset({str})
_KINDS: Final = {int: _NUMBERS, float: _NUMBERS, bool: _NUMBERS, str: _TEXTS, type(None): frozenset({type(None)})}


def check_shape(value: Any) -> None:
    """Make sure that a struct and the structs in it hold what their fields declare.

    Raises:
        TypeError: A field does not; the message names it.
    """
    if isinstance(value, Struct):
        _check_rows(type(value), (value,))


def _check_rows(kind: type[Struct], rows: Sequence[Any]) -> None:
    for name, read, allowed, nested in _columns(kind):
        values = list(map(read, rows))
        if allowed is not None and not allowed.issuperset(map(type, values)):
            raise TypeError(f"{kind.__name__}.{name} has an unexpected type")
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
    """Return name, reader, allowed types (None is any) and the struct inside, of each field that can be checked."""
    hints = get_type_hints(kind)
    columns = []
    for field in fields(kind):
        allowed, nested = _types_of(hints[field.name]), _struct_of(hints[field.name])
        if allowed is not None or nested is not None:
            columns.append((field.name, attrgetter(field.name), allowed, nested))
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


F = TypeVar("F", bound=Callable[..., Any])

MALFORMED: Final[tuple[type[Exception], ...]] = (
    LookupError, TypeError, ValueError, ArithmeticError, AttributeError, BufferError, MemoryError, AssertionError,
    struct.error,
)  # fmt: skip
"""Exceptions of code that takes an answer apart and meets other rows, columns, lengths or NULLs than it asked for."""
LONGEST_VALUE: Final = 16 * 1024 * 1024
"""Bytes or characters of one value; nothing that PostgreSQL answers to us is as long."""


_FORMS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (MemoryError, "values that are too large"),
    (LookupError, "too few rows or columns"),
    (ArithmeticError, "numbers out of range"),
    (struct.error, "values of another length"),
    (BufferError, "values of another length"),
    (ValueError, "values in another form"),
)
"""Defects of an answer by exception; all other exceptions come from a value of another type, or from NULL."""


def malformed(error: Exception, section: str = "") -> ServerProblem:
    """Return the problem for an answer that could not be taken apart.

    Args:
        error: Exception of the code that took it apart.
        section: Section or question that was asked for; "" where the operator knows it.
    """
    form = next(
        (description for kind, description in _FORMS if isinstance(error, kind)),
        "values of another type, or missing values",
    )
    question = f" about {section.replace('_', ' ')}" if section else ""
    return ServerProblem(
        f"the server's answer{question} has {form}, unlike PostgreSQL's",
        "connect to the server directly, without a proxy or pooler",
    )


@contextmanager
def decoding() -> Iterator[None]:
    """Turn an exception in the block, which takes an answer apart, into a ServerProblem."""
    try:
        yield
    except MALFORMED as error:
        raise malformed(error) from None


def decodes(read: F) -> F:
    """Decorate a function, async or not, that takes an answer apart: it raises a ServerProblem where it cannot."""
    if inspect.iscoroutinefunction(read):

        @wraps(read)
        async def awaited(*arguments: Any, **keywords: Any) -> Any:
            with decoding():
                return await read(*arguments, **keywords)

        return cast(F, awaited)

    @wraps(read)
    def called(*arguments: Any, **keywords: Any) -> Any:
        with decoding():
            return read(*arguments, **keywords)

    return cast(F, called)


def check_sizes(rows: Any) -> None:
    """Make sure that no value of these rows is longer than `LONGEST_VALUE`.

    Raises:
        ServerProblem: A value is longer.
    """
    for row in rows:
        for value in row:
            if type(value) in (str, bytes) and len(value) > LONGEST_VALUE:
                raise ServerProblem(
                    f"the server sent a value of {len(value) >> 20} MB", "connect to the server directly"
                )
