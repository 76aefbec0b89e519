"""Docstrings of commands as `--help` shows them: lines joined to paragraphs, each example on a line of its own."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Final

_EXAMPLES: Final = "Examples:"
_AS_IT_IS: Final = "\b"
"""Click's mark of a paragraph whose lines are left alone."""
_BETWEEN: Final = re.compile(r"\s+·\s+")


def help_of(command: Callable[..., Any]) -> str:
    """The help text of a command, from its docstring; Typer keeps the line ends it is given."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(_paragraph(text) for text in paragraphs)


def _paragraph(text: str) -> str:
    joined = " ".join(text.split())
    if not joined.startswith(_EXAMPLES):
        return joined
    examples = _BETWEEN.split(joined.removeprefix(_EXAMPLES).strip())
    return "\n".join((_AS_IT_IS, _EXAMPLES, *(f"  {example}" for example in examples)))
