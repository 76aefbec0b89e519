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
    keys: Line = (("  ", PLAIN), (first.page, "key"), (f" {_TITLES.get(first.page, '')}", PLAIN))
    if key:
        keys += (("  ", PLAIN), (key, "key"), (f" {_next_words(first, len(diagnosis.findings) - 1)}", PLAIN))
    room = cells - 4 - width(keys)
    if room < _LEAST:
        keys, room = (), cells - 4
    sentence = first.sentence if text_width(first.sentence) <= room else first.short
    style = STYLES[first.kind]
    return fit(((f" {glyphs.pointer} {shortened(sentence, room, glyphs.ellipsis)}", style), *keys), cells)


def _next_words(first: Finding, others: int) -> str:
    """What the list offers first."""
    if first.advice is None:
        words = "why"
    elif isinstance(first.advice, ParameterAdvice):
        words = f"try {first.advice.name}"
    else:
        words = f"session {first.advice.backend[0]}"
    return f"{words}, {others} more" if others else words
