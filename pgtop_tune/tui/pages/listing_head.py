"""The titles in the head of a page's table, and which of its rows are in sight."""

from __future__ import annotations

from collections.abc import Sequence

from pgtop_tune.tui.pages.page import PageTable
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line, Span
from pgtop_tune.tui.widgets.lines import width as cells_of
from pgtop_tune.tui.widgets.phrase import dot


def titles(tables: Sequence[PageTable], table: PageTable, cells: int, glyphs: Glyphs) -> Line:
    """The tables' titles from the first one on, or as near to it as the one in view allows; the others are counted."""
    at = tables.index(table)
    found: Line = ()
    for first in range(at + 1):
        for end in range(len(tables), at, -1):
            found = _some_titles(tables, table, first, end, glyphs)
            if cells_of(found) <= cells:
                return found
    return found


def _some_titles(tables: Sequence[PageTable], table: PageTable, first: int, end: int, glyphs: Glyphs) -> Line:
    spans: list[Span] = [(f"{glyphs.pointer_left}{first}", "label")] if first else []
    for each in tables[first:end]:
        if spans:
            spans.append(dot(glyphs))
        spans.append((each.title, "title" if each is table else "dim"))
    behind = len(tables) - end
    return (*spans, *((dot(glyphs), (f"{behind}{glyphs.pointer}", "label")) if behind else ()))


def unseen(before: int, behind: int, glyphs: Glyphs) -> str:
    """ "columns ◂2 3▸": columns without room on either side."""
    words = f"{glyphs.pointer_left}{before}" if before else ""
    if behind:
        words += f" {behind}{glyphs.pointer}"
    return f"columns {words.strip()}"


def rows_in_sight(top: int, visible: int, found: int) -> str:
    """ "1-20 of 64", or the number alone where all rows are in sight."""
    return f"{top + 1}-{min(top + visible, found)} of {found}" if found > visible else str(found)
