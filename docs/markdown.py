"""The few shapes of Markdown that the generated pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; whatever would end a cell is escaped."""
    lines = [_row(heads), "|" + "---|" * len(heads), *(_row(row) for row in rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def plain(text: str) -> str:
    """Words of the program in a cell, so that nothing in them is taken for Markdown."""
    for mark in ("\\", "*", "_", "<", "`", "["):
        text = text.replace(mark, f"\\{mark}")
    return text
