"""Tables of texts, aligned by spaces or as Markdown, and foreign words in Markdown as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from pgtop_tune.base.safe_text import printable

_IN_A_CELL: Final = str.maketrans({letter: f"\\{letter}" for letter in "\\|`["} | {"<": "&lt;"})
"""Escapes of the characters that would end a cell of Markdown, or begin code, a link or markup in it."""
_ESCAPED: Final = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]|#"} | {"<": "&lt;", ">": "&gt;"})


class Table(Struct, frozen=True):
    """Cells as text.

    Attributes:
        right: Columns whose cells are numbers, by index.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()


def escaped(text: str) -> str:
    """Return words in Markdown as they are."""
    return printable(text).translate(_ESCAPED)


def _escaped_cell(text: str) -> str:
    return text.translate(_IN_A_CELL)


def as_markdown(table: Table, escape: Callable[[str], str] = _escaped_cell) -> str:
    """Return a Markdown table; characters that would end a cell are escaped."""
    rule = ["---:" if index in table.right else "---" for index in range(len(table.heads))]
    heads, *rows = ([escape(text) for text in row] for row in (table.heads, *table.rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rule, *rows))


def aligned_text(table: Table) -> str:
    """Return columns aligned by spaces; a reason that is longer than its column's figures does not widen it."""
    last = len(table.heads) - 1
    widths = [
        max(len(row[index]) for row in (table.heads, *table.rows) if not _is_reason(row[index]))
        for index in range(len(table.heads))
    ]
    lines = []
    for row in (table.heads, *table.rows):
        cells = [
            text if _is_reason(text) and index == last
            else text.rjust(widths[index]) if index in table.right
            else text.ljust(widths[index])
            for index, text in enumerate(row)
        ]  # fmt: skip
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _is_reason(text: str) -> bool:
    return text.startswith("failed: ")
