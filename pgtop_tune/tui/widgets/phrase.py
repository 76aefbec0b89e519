"""Facts on one line: which of them shorten or go when the room gets short, numbers in slots that do not jump about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from rich.cells import cell_len

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import age
from pgtop_tune.metrics.catalogue import Interval, Metric
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.waits import QUEUE
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.lines import CUT, PLAIN, Glyphs, Line, Span, ellipsized, fit, width, wrap

# One colour per wait class, the same in every pane.

_STYLES: Final = {
    "CPU": "cpu",
    QUEUE: "cpu-queue",
    "IO": "wait-io",
    "Lock": "wait-lock",
    "LWLock": "wait-lwlock",
    "Client": "wait-client",
    "IPC": "wait-ipc",
    "BufferPin": "wait-ipc",
    "Buffer": "wait-ipc",
    "background": "dim",
    "pacing": "dim",
    "io worker": "dim",
}


def wait_style(wait_event_type: str) -> str:
    """Return the style of a pg_stat_activity.wait_event_type, of "CPU", its queue, or of inactive sessions."""
    return _STYLES.get(wait_event_type, "wait-other")


class Phrase(Struct, frozen=True):
    """A fact on a line.

    Attributes:
        line: How it reads.
        rank: 0 stays to the last; the highest ranks shorten, then go first.
        short: How it reads when room is short, () for not at all; None when it goes at once.
    """

    line: Line
    rank: int = 0
    short: Line | None = None


def fitting(phrases: Sequence[Phrase], cells: int, gap: Span) -> Line:
    """Return the phrases joined by a gap, as many as there is room for.

    When room is short all that can shorten do so, then the last ranks go; what is left over lets the first ranks
    read in full again.
    """
    gap_cells = width((gap,))
    kept = [_measured(phrase.line, gap_cells, phrase) for phrase in phrases if phrase.line]
    needed = sum([used_cells for _, used_cells, _ in kept]) - gap_cells
    if needed > cells:
        kept = [row if row[2].short is None else _measured(row[2].short, gap_cells, row[2]) for row in kept]
        needed = sum([used_cells for _, used_cells, _ in kept]) - gap_cells
        while needed > cells and len(kept) > 1:
            needed -= kept.pop(max(range(len(kept)), key=lambda index: (kept[index][2].rank, index)))[1]
        for index in sorted(range(len(kept)), key=lambda index: kept[index][2].rank):
            _, used_cells, phrase = kept[index]
            in_full = _measured(phrase.line, gap_cells, phrase)
            if needed + in_full[1] - used_cells <= cells:
                kept[index] = in_full
                needed += in_full[1] - used_cells
    joined: list[Span] = []
    for line in (line for line, _, _ in kept if line):
        if joined:
            joined.append(gap)
        joined.extend(line)
    return _cut(tuple(joined), cells) if needed > cells else tuple(joined)


def _cut(line: Line, cells: int) -> Line:
    """Return a line as `fit` does, with a sign that something was cut."""
    return (*fit(line, cells - 1), (CUT, line[-1][1])) if cells > 0 else ()


def _measured(line: Line, gap_cells: int, phrase: Phrase) -> tuple[Line, int, Phrase]:
    """Return a form of a phrase with the cells that it takes, its gap among them."""
    return line, width(line) + gap_cells if line else 0, phrase


def dot(glyphs: Glyphs) -> Span:
    """Return the gap between two facts."""
    return f" {glyphs.separator} ", "dim"


def summed(phrases: Sequence[Phrase], cells: int, glyphs: Glyphs) -> Line:
    """Return facts on a line above a table, beginning where its first column does."""
    return ((" ", PLAIN), *fitting(phrases, cells - 1, dot(glyphs)))


def head(title: Line, cells: int, glyphs: Glyphs, right: Sequence[Phrase] = ()) -> Line:
    """Return a pane's head: `─ title ───── facts ─`, exactly so many cells."""
    stroke = glyphs.rule
    facts = fitting(right, max(cells - width(title) - 8, 0), dot(glyphs)) if right else ()
    spans: list[Span] = [(stroke + " ", "dim"), *title]
    closing: list[Span] = [(" ", PLAIN), *facts, (f" {stroke}", "dim")] if facts else []
    middle = cells - width(tuple(spans)) - width(tuple(closing)) - 1
    if middle < 1:
        return padded(fit(tuple(spans), cells), cells)
    return (*spans, (" " + stroke * middle, "dim"), *closing)


def absent(title: str, unavailable: Unavailable, cells: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """Return a pane without content: the reason stands in its head, or below it where the head is too short."""
    reason = absence(unavailable)
    beside: Line = ((f"{title}  ", "title"), *reason)
    if width(beside) + 4 <= cells or rows < 2:
        return [head(beside, cells, glyphs)]
    text, style = reason[0]
    lines = wrap(text, cells - 2)
    if len(lines) < rows:
        return [head(((title, "title"),), cells, glyphs), *(padded(((f" {line}", style),), cells) for line in lines)]
    # The reason begins in the head; where that does not suffice, its end is marked as cut.
    first = wrap(text, cells - cell_len(title) - 6)[0]
    lines = wrap(text[len(first) :].lstrip(), cells - 2)
    if len(lines) >= rows:
        lines[rows - 2 :] = [ellipsized(" ".join(lines[rows - 2 :]), cells - 2, glyphs.ellipsis)]
    below = [padded(((f" {line}", style),), cells) for line in lines]
    return [head(((f"{title}  ", "title"), (first, style)), cells, glyphs), *below]


def padded(line: Line, cells: int) -> Line:
    """Return the line filled up with blanks, or cut, to exactly so many cells."""
    missing = cells - width(line)
    if missing < 0:
        return fit(line, cells)
    return (*line, (" " * missing, PLAIN)) if missing else line


def labelled(label: str, text: str, style: str = PLAIN, unit: str = "") -> Line:
    """Return `label number unit`."""
    spans: list[Span] = [(f"{label} ", "label")] if label else []
    spans.append((text, style))
    if unit:
        spans.append((unit, "label"))
    return tuple(spans)


def lasting(seconds: float | None, cells: int = 0) -> str:
    """Return a time with its unit: "53 s", "3m12s"."""
    return (age(seconds) + (" s" if seconds is not None and round(seconds) < 60 else "")).rjust(cells)


def value_of(metric: Metric, session: Session) -> float | None:
    """Return the present value of a metric; None before the first frame."""
    interval: Interval | None = session.interval
    return None if interval is None else metric(interval)


def alarm(value: float | None, critical: float | None, otherwise: str = PLAIN) -> str:
    """Return the style of a number: "critical" from its critical line on, "dim" when it is not known."""
    if value is None:
        return "dim"
    return "critical" if critical is not None and value >= critical else otherwise


# The header alone is red when the server does not answer: one alarm is read, five are noise.
_ABSENCE_STYLES: Final = {
    Reason.NOT_YET: "dim",
    Reason.NO_LOAD: "dim",
    Reason.NOT_RECORDED: "dim",
    Reason.NO_ANSWER: "dim",
    Reason.NOT_SUPPORTED: "dim",
    Reason.FAILED: "critical",
}


_RETRY: Final = "; trying again"
"""Begins the part of an absence that says when the server is asked again, and how to mend it."""


def absence(unavailable: Unavailable) -> Line:
    """Return why a number is not there, in its place."""
    text = str(unavailable)
    if unavailable.reason is Reason.NO_ANSWER:
        # Who was asked, and why there is no answer any more, stands in the header; the hint where the sessions would.
        text = text.partition(_RETRY)[0]
        text = text.partition(": ")[0] if text.startswith(unavailable.reason) else text.rpartition(": ")[2]
    return ((one_line(text, 300), _ABSENCE_STYLES.get(unavailable.reason, "warning")),)
