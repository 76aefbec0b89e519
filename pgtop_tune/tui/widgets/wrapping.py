"""Long foreign text on several lines, measured in cells."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len

from pgtop_tune.safe_text import printable_lines
from pgtop_tune.tui.widgets.lines import PLAIN, Line

_DEEPER: Final = 6
"""Cells by which a line that goes on lies under its beginning: what PostgreSQL's plans put before a node."""


def wrap(text: str, cells: int) -> list[str]:
    """The text as lines of at most so many cells, broken at blanks where there are any; line breaks are kept.

    Args:
        text: Anything; it is made printable.
        cells: At least 2, so that a wide character has room.
    """
    lines: list[str] = []
    for paragraph in printable_lines(text):
        lines.extend(_wrap_one(paragraph.rstrip(), max(cells, 2)))
    return lines


def _wrap_one(text: str, cells: int) -> list[str]:
    lines: list[str] = []
    while cell_len(text) > cells:
        end = _characters_within(text, cells)
        blank = text.rfind(" ", 0, end + 1)
        if blank > 0 and text[:blank].strip():
            lines.append(text[:blank].rstrip())
            text = text[blank + 1 :]
        else:
            lines.append(text[:end])
            text = text[end:]
    return [*lines, text]


def _characters_within(text: str, cells: int) -> int:
    taken = 0
    for index, character in enumerate(text):
        taken += cell_len(character)
        if taken > cells:
            return max(index, 1)
    return len(text)


def wrapped(text: str, cells: int, style: str = "") -> list[Line]:
    """Like `wrap`, as lines of one style."""
    return [((line, style),) for line in wrap(text, cells)]


def hanging(text: str, cells: int) -> list[Line]:
    """Like `wrapped`; what does not fit on a line goes on further right than that line begins."""
    lines: list[str] = []
    for paragraph in printable_lines(text):
        first, *rest = _wrap_one(paragraph.rstrip(), max(cells, 2))
        lines.append(first)
        if rest:
            depth = min(len(paragraph) - len(paragraph.lstrip()) + _DEEPER, cells // 2)
            below = paragraph[len(first) :].strip()
            lines += [" " * depth + line for line in _wrap_one(below, max(cells - depth, 2))]
    return [((line, PLAIN),) for line in lines]


def labelled(label: str, text: str, cells: int, style: str = "", label_cells: int = 14) -> list[Line]:
    """A label and beside it the text, wrapped under itself."""
    rows = wrap(text, cells - label_cells) or [""]
    return [
        (((label if index == 0 else "").ljust(label_cells), "label"), (row, style)) for index, row in enumerate(rows)
    ]
