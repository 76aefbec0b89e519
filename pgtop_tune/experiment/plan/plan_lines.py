"""In which line of a plan's file a key stands. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pgtop_tune.experiment.plan.model import ExperimentPlan

_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_ASSIGNED: Final = re.compile(
    r"""\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="""
)
_PART: Final = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(?:\.|$)""")


def place_of(plan: ExperimentPlan, *path: str) -> str:
    """File and line of a key, as "mine.toml, line 12"; `path` as `line_numbers` has it."""
    return place(plan.file, line_numbers(plan.text), path)


def place(file: str, lines: Mapping[tuple[str, ...], int], path: tuple[str, ...]) -> str:
    """The same of lines that are known; of a key that the file does not have, the line of its table."""
    while path and path not in lines:
        path = path[:-1]
    return f"{file}, line {lines[path]}" if path else file


def line_numbers(text: str) -> dict[tuple[str, ...], int]:
    """Lines by the path of keys; a repeated table has its index, from 0, behind its name.

    tomllib tells no lines. Lines within texts of several lines may be taken for keys, which then stand too early.
    """
    found: dict[tuple[str, ...], int] = {}
    counts: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.fullmatch(line)
        if header is not None:
            parts = _parts(header[2])
            if header[1] == "[[":
                counts[parts] = counts.get(parts, -1) + 1
                found.setdefault(parts, number)
                table = (*parts, str(counts[parts]))
            else:
                table = (parts[0], str(counts[parts[:1]]), *parts[1:]) if parts[:1] in counts else parts
            found.setdefault(table, number)
            continue
        assigned = _ASSIGNED.match(line)
        if assigned is not None:
            path = table
            for part in _parts(assigned[1]):
                path = (*path, part)
                found.setdefault(path, number)
    return found


def _parts(words: str) -> tuple[str, ...]:
    return tuple(next(filter(None, match.groups()), "") for match in _PART.finditer(words))
