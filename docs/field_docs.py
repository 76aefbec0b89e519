"""Words about classes and fields, read from the source: docstrings, "Attributes:" sections, strings below fields."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Final

_ATTRIBUTES: Final = re.compile(r"\n\s*Attributes:\n(?P<body>(?:    .*\n?|\n)+)")
_NAMED: Final = re.compile(r"^    (?P<name>\w+): (?P<words>.*(?:\n {8,}.*)*)", re.MULTILINE)


def class_words(kind: type) -> str:
    """The docstring in one line, without its section on attributes."""
    return _one_line(_ATTRIBUTES.sub("\n", f"{inspect.getdoc(kind) or ''}\n"))


def field_words(kind: type) -> dict[str, str]:
    """What the source says about each field or member, in one line; a field nobody describes is missing."""
    found = _ATTRIBUTES.search(f"{inspect.getdoc(kind) or ''}\n")
    words = {each["name"]: _one_line(each["words"]) for each in _NAMED.finditer(found["body"])} if found else {}
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    name = ""
    for statement in definition.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and name:
            words[name] = _one_line(str(statement.value.value))
        name = _target(statement)
    return words


def _target(statement: ast.stmt) -> str:
    """The name a statement of a class body gives something to; "" for all others."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
