"""The tape: one line of event marks under the charts, each in the chart's column of its moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rich.cells import cell_len, set_cell_size

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.tui.widgets.chart import GUTTER, column_of
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, Span

_SHORTEST: Final = 6
"""Cells below which a cut text says nothing: the mark stands alone."""
_LONGEST: Final = 60
_MARKS: Final[dict[EventKind, tuple[str, str]]] = {
    EventKind.DEADLOCK: ("cross", "critical"),
    EventKind.RESTART: ("square", "critical"),
    EventKind.ROLE: ("square", "critical"),
    EventKind.CONNECTION: ("cross", "warning"),
    EventKind.GAP: ("cross", "warning"),
    EventKind.PARAMETER: ("up", "event-parameter"),
    EventKind.SWITCH: ("switch", "event-switch"),
    EventKind.NOTE: ("note", "event-other"),
    EventKind.LOAD: ("up", "event-load"),
    EventKind.WARNING: ("warning", "warning"),
    EventKind.RESET: ("ring", "warning"),
    EventKind.PRESSURE: ("warning", "warning"),
    EventKind.CHECKPOINT: ("diamond", "event-checkpoint"),
    EventKind.RECORDING: ("bullet", "event-other"),
    EventKind.AUTOVACUUM: ("down", "event-other"),
}
"""Field of `Glyphs` and style per kind; the first kinds win a column, and room for their words, from later ones."""
_RANK: Final = {kind: rank for rank, kind in enumerate(_MARKS)}


_NO_TICKS: Final[Mapping[int, str]] = {}


def event_style(kind: EventKind) -> str:
    """The style an event is drawn in, on the tape and in a chart."""
    return _MARKS[kind][1]


def event_glyph(kind: EventKind, glyphs: Glyphs) -> str:
    """The mark an event is drawn with."""
    return str(getattr(glyphs, _MARKS[kind][0]))


def tape_lines(
    events: Iterable[tuple[float, Event]],
    width: int,
    since_s: float,
    until_s: float,
    glyphs: Glyphs,
    marks: Iterable[tuple[float, bool]] = (),
    ticks: Mapping[int, str] = _NO_TICKS,
) -> list[Line]:
    """One line of exactly `width` cells: a mark per column with events, and as many of their words as fit.

    Args:
        events: (moment on the session's clock, event), as in `Session.events`; in any order. Words may be foreign.
        width: Cells, the chart's gutter included: columns agree with those of a chart of the same width.
        since_s: The window's begin on the session's clock.
        until_s: Its end.
        glyphs: For the marks of events.
        marks: (moment, whether it is an end) of marked windows; a mark wins its column.
        ticks: Times of day by column, where no event stands.
    """
    columns = width - GUTTER
    if columns < 1:
        return [((" " * max(width, 0), PLAIN),)]
    marked: dict[int, Event] = {}
    for at_s, event in events:
        column = column_of(at_s, since_s, until_s, columns)
        if column is not None and (column not in marked or _RANK[event.kind] <= _RANK[marked[column].kind]):
            marked[column] = event
    brackets = {
        column: ("]" if end else "[", "key")
        for at_s, end in marks
        if (column := column_of(at_s, since_s, until_s, columns)) is not None
    }
    taken = bytearray(columns)
    for column in brackets:
        taken[column] = 1
    for column in marked:
        taken[column] = 1
    placed: dict[int, Span] = {
        column: (_mark(event, glyphs), event_style(event.kind)) for column, event in marked.items()
    }
    for column in sorted(marked, key=lambda column: (_RANK[marked[column].kind], -column)):
        event = marked[column]
        # Arms follow each other every few cells: their letters say it.
        text = "" if _is_arm(event) else one_line(event.text, _LONGEST)
        start, text = _room(text, column, taken, glyphs)
        if text:
            cells = cell_len(text)
            taken[start : start + cells] = b"\1" * cells
            placed[start] = (text, event_style(event.kind))
    placed |= brackets
    for column, text in ticks.items():
        words = glyphs.tick + text
        if not any(taken[column : column + len(words) + 1]):
            placed[column] = (words, "dim")
    spans: list[Span] = [(f"{'tape':>{GUTTER - 2}}  ", "dim")]
    at = 0
    for start in sorted(placed):
        if start > at:
            spans.append((" " * (start - at), PLAIN))
        spans.append(placed[start])
        at = start + cell_len(placed[start][0])
    if at < columns:
        spans.append((" " * (columns - at), PLAIN))
    return [tuple(spans)]


def _is_arm(event: Event) -> bool:
    return event.kind is EventKind.SWITCH and event.text[1:2] == ":"


def _mark(event: Event, glyphs: Glyphs) -> str:
    return event.text[0] if _is_arm(event) else event_glyph(event.kind, glyphs)


def _room(text: str, column: int, taken: bytearray, glyphs: Glyphs) -> tuple[int, str]:
    """Where the words go and how much of them: right of the mark whole, left of it whole, right of it cut, nowhere."""
    columns = len(taken)
    wanted = cell_len(text)
    right = column + 1
    end = taken.find(1, right)
    free = (columns if end < 0 else end - 1) - right
    if wanted <= free:
        return right, text
    begin = taken.rfind(1, 0, column) + 1
    if wanted <= column - begin - (1 if begin else 0):
        return column - wanted, text
    if free >= _SHORTEST:
        return right, set_cell_size(text, free - 1) + glyphs.ellipsis
    return 0, ""
