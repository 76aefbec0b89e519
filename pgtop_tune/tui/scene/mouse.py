"""What a place on the screen means to the mouse, read off the lines as they are drawn. Pure."""

from __future__ import annotations

from typing import Final

from textual.message import Message

from pgtop_tune.tui.widgets.lines import Line, text_of, text_width

WHEEL_ROWS: Final = 3
"""Rows of a table that a step of the wheel moves."""
LEAST_DRAG: Final = 2
"""Columns from which on a drag marks a window; less is a click."""


class MomentChosen(Message):
    """A click in a chart.

    Attributes:
        at_s: On the session's clock.
    """

    def __init__(self, at_s: float) -> None:
        super().__init__()
        self.at_s = at_s


class WindowDragged(Message):
    """A drag through a chart.

    Attributes:
        since_s, until_s: On the session's clock, the earlier one first.
    """

    def __init__(self, since_s: float, until_s: float) -> None:
        super().__init__()
        self.since_s, self.until_s = min(since_s, until_s), max(since_s, until_s)


def key_at(line: Line, x: int) -> str:
    """The key, as people write it, that stands in a cell with the words behind it; "" for none.

    Args:
        line: Spans of the style "key" are keys; blanks of two cells or more end their words.
        x: Cell, from 0.
    """
    key, at = "", 0
    for text, style in line:
        if style == "key":
            key = text.strip().strip("[]()")
        elif not text.strip():
            key = ""
        at += text_width(text)
        if x < at:
            return key
    return ""


def word_at(line: Line, x: int) -> str:
    """The word that stands in a cell; "" where that is blank."""
    text = text_of(line)
    if not 0 <= x < len(text) or text[x] == " ":
        return ""
    return text[text.rfind(" ", 0, x) + 1 :].partition(" ")[0]


def span_at(line: Line, x: int) -> str:
    """The span that a cell belongs to, without blanks around it."""
    at = 0
    for text, _ in line:
        at += text_width(text)
        if x < at:
            return text.strip()
    return ""
