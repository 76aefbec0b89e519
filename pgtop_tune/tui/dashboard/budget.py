"""Where the time of a transaction goes; without transactions, what the active sessions wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import mean, ms, with_ms
from pgtop_tune.metrics.active_sessions import WAITS_WINDOW_S, sessions
from pgtop_tune.metrics.budget import OTHER, latency_budget
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load_cpu import cpu_of_load
from pgtop_tune.metrics.waits import wait_profile
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.tail_line import tail_phrases
from pgtop_tune.tui.dashboard.wait_source import wait_source
from pgtop_tune.tui.widgets.gauges import bar
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, Span, shortened
from pgtop_tune.tui.widgets.lines import width as cells_of
from pgtop_tune.tui.widgets.phrase import absent, head, padded
from pgtop_tune.tui.widgets.wait_style import wait_style

_LABEL: Final = 22
_VALUE: Final = 5
_SLOT: Final = 38
"""Cells a wait with a bar takes at least."""
_FEW: Final = 4
"""With fewer slots than this on the pane, words without bars say more."""
_NAME: Final = 60
_TITLES: Final = {
    True: ("where each transaction's ", " goes"),
    False: ("waits explain ", " of each transaction"),
}
"""Around the whole, by whether a client of ours measured it."""


_STROKES: Final = 8
"""Cells of a head that are neither title nor facts."""


class _Part(Struct, frozen=True):
    label: str
    wait_event_type: str
    value: float


def budget_lines(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """A head with the whole, then bars per wait, largest first, "other" last; what has no room is one sum."""
    interval, waits = session.interval, wait_source(session)
    if interval is None or isinstance(waits, Unavailable):
        reason = waits if isinstance(waits, Unavailable) else NOT_YET
        return _filled(absent("waits", reason, width, height, glyphs), width, height)
    title, parts, unit = _content(interval)
    lines: list[Line] = [head(title, width, glyphs, tail_phrases(session, width - cells_of(title) - _STROKES))]
    across = max((width - 1) // _SLOT, 1)
    rows = height - 1
    if rows > 0 and across * rows >= _FEW:
        lines += _bars(_gathered(parts, across * rows), unit, width, across, rows, glyphs)
    elif rows > 0:
        lines += [_words(parts, unit, width)]
    return _filled(lines, width, height)


def _filled(lines: list[Line], width: int, height: int) -> list[Line]:
    return [*lines, *[((" " * width, PLAIN),)] * (height - len(lines))][:height]


def _content(interval: Interval) -> tuple[Line, list[_Part], str]:
    budget = latency_budget(interval)
    if budget is None:
        return _profile(interval)
    parts = [_Part(part.label, part.wait_event_type, part.ms) for part in budget.parts]
    before, after = _TITLES[budget.measured]
    title: Line = (
        (before, "title"),
        (with_ms(budget.total_ms), "strong"),
        (after, "title"),
        (f", mean of {budget.window_s:.0f} s", "label"),
    )
    use = cpu_of_load(interval, budget.window_s) if budget.measured else None
    if use is not None and use.queued is None:
        title += ((" · CPU queue unknown", "dim"),)
    return title, parts, "ms"


def _profile(interval: Interval) -> tuple[Line, list[_Part], str]:
    profile = wait_profile(interval)
    parts = [_Part(wait.label, wait.wait_event_type, wait.sessions) for wait in profile]
    seen = sessions(interval, WAITS_WINDOW_S) is not None
    whole = sum(part.value for part in parts) if seen else None
    title: Line = (("waits of ", "title"), (mean(whole), "strong"), (" active sessions, mean of 10 s", "title"))
    return title, parts, ""


def _gathered(parts: Sequence[_Part], slots: int) -> list[_Part]:
    """At most so many parts: the smaller ones become one sum, "other" keeps its place at the end."""
    if len(parts) <= slots:
        return list(parts)
    tail = [part for part in parts if part.label == OTHER][:slots]
    named = [part for part in parts if part.label != OTHER]
    room = max(slots - len(tail) - 1, 0)
    rest = named[room:]
    summed = _Part(f"{len(rest)} more", OTHER, sum(part.value for part in rest))
    return [*named[:room], summed, *tail][:slots]


def _bars(parts: Sequence[_Part], unit: str, width: int, across: int, rows: int, glyphs: Glyphs) -> list[Line]:
    slot = (width - 1) // across
    cells = slot - _LABEL - _VALUE - 4
    most = max((part.value for part in parts), default=0.0)
    lines: list[Line] = []
    for row in range(rows):
        spans: list[Span] = [(" ", PLAIN)]
        for part in parts[row * across : (row + 1) * across]:
            style = wait_style(part.wait_event_type)
            share = part.value / most if most > 0 else 0.0
            spans += [
                (shortened(part.label, _LABEL, glyphs.ellipsis) + " ", "label"),
                (_value(part, unit).rjust(_VALUE) + " ", PLAIN),
                (bar(share, cells, glyphs) + "  ", style),
            ]
        lines.append(padded(tuple(spans), width))
    return lines


def _words(parts: Sequence[_Part], unit: str, width: int) -> Line:
    line: Line = ()
    for slots in range(len(parts), 0, -1):
        spans: list[Span] = []
        for part in _gathered(parts, slots):
            spans += [
                (f"{'  ' if spans else ' '}{one_line(part.label, _NAME)} ", wait_style(part.wait_event_type)),
                (_value(part, unit), PLAIN),
            ]
        line = tuple(spans)
        if cells_of(line) <= width:
            break
    return padded(line, width)


def _value(part: _Part, unit: str) -> str:
    return ms(part.value) if unit == "ms" else mean(part.value)
