"""What a baseline overlay says in the head of a chart: its name, and how the load differs from it."""

from __future__ import annotations

from typing import Final

from pgtop_tune.compare.overlay.difference import Against, OverlayWatch
from pgtop_tune.compare.statistics.effect import Verdict
from pgtop_tune.runtime.session import Session
from pgtop_tune.safe_text import one_line
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line, width
from pgtop_tune.tui.widgets.phrase import Phrase

_NAME: Final = 24
_NOT_YET: Final = "-".rjust(7)
_STYLES: Final = {Verdict.DIFFER: "strong"}
_LONGEST: Final = len(Verdict.UNDECIDED)


def throughput_phrase(session: Session, watch: OverlayWatch, glyphs: Glyphs) -> Phrase:
    """`baseline run-041 +4.1 % (−0.3 … +8.2) undecided`; in short `baseline +4.1 %`."""
    name = one_line(watch.overlay.ghost.name, _NAME)
    label: Line = ((f"baseline {name} ", "label"),)
    if watch.overlay.now(session.now) is None:
        words = f"{glyphs.ellipsis} " if watch.reading else "no such load"
        return Phrase((*label, (words, "dim")), 0, (("baseline ", "label"), (words, "dim")))
    found, _ = watch.against(session)
    return Phrase((*label, *_figure(found, glyphs, long=True)), 0, (("baseline ", "label"), *_figure(found, glyphs)))


def latency_phrase(session: Session, watch: OverlayWatch, glyphs: Glyphs) -> Phrase:
    """`baseline p99 +4.1 %`: of the p99 of seconds."""
    _, found = watch.against(session)
    return Phrase((("baseline p99 ", "label"), *_figure(found, glyphs)), 1)


def short_of(phrase: Phrase) -> Phrase:
    """Where there is never room for more."""
    return Phrase(phrase.short or phrase.line, 1)


def cells_of(phrase: Phrase) -> int:
    """Room its short form takes, with the gap beside it."""
    return width(phrase.short or phrase.line) + 3


def _figure(found: Against | None, glyphs: Glyphs, *, long: bool = False) -> Line:
    if found is None:
        return ((_NOT_YET, "dim"),)
    effect, style = found.effect, _STYLES.get(found.verdict, "dim")
    figure = f"{_percent(effect.relative, glyphs)} %"
    if not long or effect.low is None or effect.high is None:
        return ((figure, style),)
    between = f" ({_percent(effect.low, glyphs)} {glyphs.ellipsis} {_percent(effect.high, glyphs)})"
    return ((figure, style), (between, style), (f" {found.verdict:<{_LONGEST}}", style))


def _percent(share: float, glyphs: Glyphs) -> str:
    return f"{100.0 * share:+5.1f}".replace("-", glyphs.minus)
