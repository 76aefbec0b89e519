"""One line on every screen: the first finding, the page that proves it, and the key that goes on from there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pgtop_tune.diagnosis.finding import Diagnosis, Finding, FindingKind, ParameterAdvice
from pgtop_tune.tui.pages.registry import NAMES
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, fit, shortened, text_width, width

STYLES: Final[Mapping[FindingKind, str]] = {
    FindingKind.OUTAGE: "critical", FindingKind.LIMIT: "warning", FindingKind.LATENCY: "strong",
    FindingKind.NOTE: PLAIN,
}  # fmt: skip
"""Red is kept for outages."""
_TITLES: Final = dict(NAMES)
_LEAST: Final = 40
"""Cells of a sentence that come before keys beside it."""
_CLAUSE: Final = "; "
"""What stands behind it may be left out."""


def finding_line(diagnosis: Diagnosis | None, cells: int, glyphs: Glyphs, key: str = "") -> Line:
    """At most so many cells.

    Args:
        diagnosis: Of the moment shown; None before there is one.
        cells: Width.
        glyphs: Characters.
        key: Opens the list; "" where there is none.
    """
    if diagnosis is None:
        return fit(((f" {glyphs.pointer} looking {glyphs.ellipsis}", "dim"),), cells)
    first = diagnosis.first
    style = STYLES[first.kind]
    text, keys = _fitting(first, _keys(first, key, len(diagnosis.findings) - 1), cells - 4)
    shown = shortened(text, cells - 4 - width(keys), glyphs.ellipsis)
    return fit(((f" {glyphs.pointer} {shown}", style), *keys), cells)


def _keys(first: Finding, key: str, others: int) -> tuple[Line, ...]:
    """The keys beside the sentence, from many words to none."""
    page: Line = (("  ", PLAIN), (first.page, "key"))
    named: Line = (*page, (f" {_TITLES.get(first.page, '')}", PLAIN))
    if not key:
        return named, page, ()
    more: Line = (("  ", PLAIN), (key, "key"))
    words: Line = (*more, (f" {_next_words(first, others)}", PLAIN))
    return (*named, *words), (*page, *words), (*page, *more), ()


def _fitting(first: Finding, keys: tuple[Line, ...], room: int) -> tuple[str, Line]:
    """The sentence with as many of its clauses as there is room for, else its short form, else fewer words at the
    keys; these stay as long as the sentence has its least."""
    clauses = first.sentence.split(_CLAUSE)
    texts = [_CLAUSE.join(clauses[:count]) for count in range(len(clauses), 0, -1)]
    for text in (text for text in (*texts, first.short) if len(text) >= len(first.short)):
        if text_width(text) <= room - width(keys[0]):
            return text, keys[0]
    for line in keys[1:]:
        if text_width(first.short) <= room - width(line):
            return first.short, line
    return first.short, next(line for line in keys if room - width(line) >= _LEAST or not line)


def _next_words(first: Finding, others: int) -> str:
    """What the list offers first."""
    if first.advice is None:
        words = "why"
    elif isinstance(first.advice, ParameterAdvice):
        words = f"try {first.advice.name}"
    else:
        words = f"session {first.advice.backend[0]}"
    return f"{words}, {others} more" if others else words
