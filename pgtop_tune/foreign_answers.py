"""Answers that have another form than PostgreSQL's: of forks, proxies and poolers, and of servers that mean harm.

Taking such an answer apart raises whatever Python makes of it. The functions that do so turn that into a problem of the
server, which ends one section or one command with a sentence; a bug elsewhere keeps its traceback.
"""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, TypeVar, cast

from pgtop_tune.errors import ServerProblem

F = TypeVar("F", bound=Callable[..., Any])

MALFORMED: Final[tuple[type[Exception], ...]] = (
    LookupError, TypeError, ValueError, ArithmeticError, AttributeError, BufferError, MemoryError, AssertionError,
    struct.error,
)  # fmt: skip
"""Raised by taking apart rows, columns, lengths and NULLs that are not what was asked for."""
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
"""What an exception says of an answer; the others come of a value of another type, or of NULL."""


def malformed(error: Exception, section: str = "") -> ServerProblem:
    """Return the problem for an answer that could not be taken apart.

    Args:
        error: What Python made of it.
        section: What was asked for: a section, a question; "" where the operator knows.
    """
    form = next(
        (description for kind, description in _FORMS if isinstance(error, kind)), "values of another type, or none"
    )
    question = f" to the question for {section.replace('_', ' ')}" if section else ""
    return ServerProblem(
        f"the server's answer{question} has {form}, unlike PostgreSQL's",
        "connect to the server itself, without a proxy or pooler in between",
    )


@contextmanager
def decoding() -> Iterator[None]:
    """Within, an answer that cannot be taken apart raises a ServerProblem."""
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
        ServerProblem: One is.
    """
    for row in rows:
        for value in row:
            if type(value) in (str, bytes) and len(value) > LONGEST_VALUE:
                raise ServerProblem(f"the server sent a value of {len(value) >> 20} MB", "connect to the server itself")
