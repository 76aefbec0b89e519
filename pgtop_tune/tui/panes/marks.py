"""What is marked, in one line: the windows, and what the next key does."""

from __future__ import annotations

from pgtop_tune.session.window import Marks, Window
from pgtop_tune.tui.glyphs import Glyphs
from pgtop_tune.tui.lines import PLAIN, Line, fit
from pgtop_tune.tui.panes.phrase import lasting
from pgtop_tune.units import clock


def marks_line(marks: Marks, cells: int, glyphs: Glyphs, begin: str, end: str, table: str) -> Line:
    """One line of at most so many cells.

    Args:
        begin, end, table: The keys that set a begin, an end, and open the table.
    """
    gap = f"  {glyphs.separator} "
    line: list[tuple[str, str]] = [(" marks ", "title")]
    names = ("B",) if len(marks.windows) == 1 and marks.begun_s is None else ("A", "B")
    for name, window in zip(names, marks.windows, strict=False):
        line += [(f" {name} ", "label"), (span_words(window, glyphs), "strong"), (" ", PLAIN)]
    if marks.begun_s is not None:
        name = names[len(marks.windows)] if len(marks.windows) < len(names) else "B"
        line += [(f" {name} ", "label"), (f"{clock(marks.begun_s)}{glyphs.ellipsis} ", "strong")]
        line += [(f" {end}", "key"), (" ends it here", "dim")]
    elif len(marks.windows) == 1:
        line += [(f" {table}", "key"), (" what differs from the time before", "dim")]
        line += [(gap, "dim"), (begin, "key"), (" begins a second window", "dim")]
    else:
        line += [(f" {table}", "key"), (" what differs", "dim"), (gap, "dim"), (begin, "key"), (" anew", "dim")]
    line += [(gap, "dim"), ("Esc", "key"), (" clears", "dim")]
    return fit(tuple(line), cells)


def span_words(window: Window, glyphs: Glyphs) -> str:
    """`00:02:10–00:03:40 (90 s)`."""
    dash = "–" if glyphs.braille else "-"
    return f"{clock(window.since_s)}{dash}{clock(window.until_s)} ({lasting(window.seconds)})"
