"""Queries, kept in files sql/NAME.FIRSTMAJOR.sql; a server gets the file of the highest first major up to its own.

A line that ends with `-- from 17`, `-- until 16` or both is for servers of these majors only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

_DIRECTORY: Final = Path(__file__).resolve().parent / "sql"
_NAME: Final = re.compile(r"(?P<name>[a-z_]+)\.(?P<major>\d+)\.sql")
_MAJORS: Final = re.compile(r"\s+--(?: from (?P<first>\d+))?(?: until (?P<last>\d+))?$")
_COMMENT: Final = re.compile(r"^\s*--.*\n?", re.MULTILINE)

OLDEST_MAJOR: Final = 14


@cache
def inventory() -> dict[str, tuple[int, ...]]:
    """Return the names of all queries, each with the first majors of its variants, ascending."""
    majors_by_name: dict[str, list[int]] = {}
    for entry in _DIRECTORY.iterdir():
        match = _NAME.fullmatch(entry.name)
        if match:
            majors_by_name.setdefault(match["name"], []).append(int(match["major"]))
    return {name: tuple(sorted(majors)) for name, majors in sorted(majors_by_name.items())}


@cache
def sql(name: str, major: int) -> str:
    """Return the text of a query for a server of this major, without comment lines.

    Raises:
        LookupError: There is no such query, or none for so old a server.
    """
    fitting = [first for first in inventory()[name] if first <= major]
    if not fitting:
        raise LookupError(f"{name} needs PostgreSQL {inventory()[name][0]} or newer; the server is {major}")
    text = (_DIRECTORY / f"{name}.{fitting[-1]}.sql").read_text(encoding="utf-8")
    return "\n".join(_lines_for(major, _COMMENT.sub("", text).strip()))


def _lines_for(major: int, text: str) -> Iterator[str]:
    for line in text.splitlines():
        condition = _MAJORS.search(line)
        if condition is None:
            yield line
        elif int(condition["first"] or major) <= major <= int(condition["last"] or major):
            yield line[: condition.start()]
