"""The line of the marked windows, and the line of the baseline overlay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import wall_clock
from pgtop_tune.compare.overlay.curves import Against, OverlayWatch
from pgtop_tune.compare.statistics.effect import Verdict
from pgtop_tune.runtime.session import Session
from pgtop_tune.runtime.window import Marks, Window
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line, width
from pgtop_tune.tui.widgets.phrase import Phrase, fitting, lasting


def marks_line(marks: Marks, cells: int, glyphs: Glyphs, began_ms: float, begin: str, end: str, table: str) -> Line:
    """One line of at most so many cells.

    Args:
        began_ms: When the session's clock was 0, see `began_ms`.
        begin, end, table: The keys that set a begin, an end, and open the table.
    """
    title: Line = ((" marks  ", "title"),)
    shown = [*_windows(marks, glyphs, began_ms), *_following(marks, begin, end, table)]
    return (*title, *fitting(shown, cells - 8, ("   ", "dim")))


def began_ms(session: Session) -> float:
    """Milliseconds since the epoch at the session's 0: windows are told in times of day, as charts are."""
    return 0.0 if session.now is None else session.now.taken_at_ms - 1000.0 * session.now.elapsed_s


def _windows(marks: Marks, glyphs: Glyphs, began_ms: float) -> Iterator[Phrase]:
    alone = len(marks.windows) == 1 and marks.begun_s is None
    names = ("window",) if alone else ("A", "B")
    for name, window in zip(names, marks.windows, strict=False):
        label, words = (f"{name} ", "label"), span_words(window, began_ms)
        yield Phrase((label, (words, "strong")), 0, (label, (_span(window, began_ms), "strong")))
    if marks.begun_s is not None:
        since = _time_of_day(marks.begun_s, began_ms)
        yield Phrase(((f"{names[len(marks.windows)]} ", "label"), (f"{since}{glyphs.ellipsis}", "strong")))


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


def span_words(window: Window, began_ms: float) -> str:
    """`12:40:10–12:41:40 (1m30s)`."""
    return f"{_span(window, began_ms)} ({lasting(window.seconds)})"


def _span(window: Window, began_ms: float) -> str:
    since, until = (_time_of_day(at_s, began_ms) for at_s in (window.since_s, window.until_s))
    return f"{since}–{until}"


def _time_of_day(at_s: float, began_ms: float) -> str:
    return wall_clock(round(began_ms + 1000.0 * at_s))


# What a baseline overlay says in the head of a chart: its name, and how the load differs from it.

_NAME: Final = 24
_NOT_YET: Final = "-".rjust(7)
_STYLES: Final = {Verdict.DIFFER: "strong"}
_LONGEST: Final = len(Verdict.UNDECIDED)


def throughput_phrase(session: Session, watch: OverlayWatch, glyphs: Glyphs) -> Phrase:
    """`baseline run-041 +4.1 % (−0.3 … +8.2) undecided`; in short `baseline +4.1 %`."""
    name = one_line(watch.overlay.baseline.name, _NAME)
    label: Line = ((f"baseline {name} ", "label"),)
    if watch.overlay.now(session.now) is None:
        words = f"{glyphs.ellipsis} " if watch.reading else watch.overlay.nothing
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
