"""SQL texts as files: sql/NAME.FIRSTMAJOR.sql, the highest first major that fits the server."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

_DIRECTORY: Final = Path(__file__).resolve().parent / "sql"
_NAME: Final = re.compile(r"(?P<name>[a-z_]+)\.(?P<major>\d+)\.sql")
_COMMENT: Final = re.compile(r"^\s*--.*\n?", re.MULTILINE)

OLDEST_MAJOR: Final = 14


@cache
def inventory() -> dict[str, tuple[int, ...]]:
    """Names of all queries, each with the first majors of its variants, ascending."""
    found: dict[str, list[int]] = {}
    for entry in _DIRECTORY.iterdir():
        match = _NAME.fullmatch(entry.name)
        if match:
            found.setdefault(match["name"], []).append(int(match["major"]))
    return {name: tuple(sorted(majors)) for name, majors in sorted(found.items())}


@cache
def sql(name: str, major: int) -> str:
    """The text of a query for a server of this major, without comment lines.

    Raises:
        LookupError: No such query, or none for so old a server.
    """
    fitting = [first for first in inventory()[name] if first <= major]
    if not fitting:
        raise LookupError(f"{name} needs PostgreSQL {inventory()[name][0]} or newer, the server is {major}")
    text = (_DIRECTORY / f"{name}.{fitting[-1]}.sql").read_text(encoding="utf-8")
    return _COMMENT.sub("", text).strip()
