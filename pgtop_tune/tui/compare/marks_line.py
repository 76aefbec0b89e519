"""What is marked, in one line: the windows, and what the next key does."""

from __future__ import annotations

from collections.abc import Iterator

from pgtop_tune.runtime.window import Marks, Window
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line
from pgtop_tune.tui.widgets.phrase import Phrase, fitting, lasting
from pgtop_tune.units import clock


def marks_line(marks: Marks, cells: int, glyphs: Glyphs, begin: str, end: str, table: str) -> Line:
    """One line of at most so many cells.

    Args:
        begin, end, table: The keys that set a begin, an end, and open the table.
    """
    title: Line = ((" marks  ", "title"),)
    shown = [*_windows(marks, glyphs), *_following(marks, begin, end, table)]
    return (*title, *fitting(shown, cells - 8, ("   ", "dim")))


def _windows(marks: Marks, glyphs: Glyphs) -> Iterator[Phrase]:
    alone = len(marks.windows) == 1 and marks.begun_s is None
    names = ("window",) if alone else ("A", "B")
    for name, window in zip(names, marks.windows, strict=False):
        label = (f"{name} ", "label")
        yield Phrase((label, (span_words(window, glyphs), "strong")), 0, (label, (_span(window, glyphs), "strong")))
    if marks.begun_s is not None:
        yield Phrase(
            ((f"{names[len(marks.windows)]} ", "label"), (f"{clock(marks.begun_s)}{glyphs.ellipsis}", "strong"))
        )


def _following(marks: Marks, begin: str, end: str, table: str) -> Iterator[Phrase]:
    """What the keys do next."""
    if marks.begun_s is not None:
        yield _key(end, "ends it here", "ends it", 1)
    elif len(marks.windows) == 1:
        yield _key(table, "compare with the time before", "compare", 1)
        yield _key(begin, "starts window B", "a second", 2)
    else:
        yield _key(table, "what differs", "compare", 1)
        yield _key(begin, "starts over", "anew", 2)
    yield _key("Esc", "clears", "clears", 3)


def _key(key: str, words: str, short: str, rank: int) -> Phrase:
    return Phrase(((key, "key"), (f" {words}", "dim")), rank, ((key, "key"), (f" {short}", "dim")))


def span_words(window: Window, glyphs: Glyphs) -> str:
    """`00:02:10–00:03:40 (1m30s)`."""
    return f"{_span(window, glyphs)} ({lasting(window.seconds)})"


def _span(window: Window, glyphs: Glyphs) -> str:
    return f"{clock(window.since_s)}{'–' if glyphs.braille else '-'}{clock(window.until_s)}"
