"""What a change did, in words for the head of the throughput pane: the longest form that there is room for."""

from __future__ import annotations

from typing import Final

from pgtop_tune.compare.since_change import SinceChange
from pgtop_tune.compare.statistics.effect import Verdict
from pgtop_tune.safe_text import one_line
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, width

_NAME: Final = 40
_VALUE: Final = 24
_EARLY: Final = "too early to say"
_VERDICTS: Final[dict[Verdict, tuple[str, str, str]]] = {
    Verdict.BETTER: ("better", "better", "good"),
    Verdict.WORSE: ("worse", "worse", "critical"),
    Verdict.NO_DIFFERENCE: ("no difference", "same", PLAIN),
    Verdict.UNDECIDED: ("not yet distinguishable", "undecided", "dim"),
    Verdict.DIFFER: ("differ", "differ", PLAIN),
}
"""In full, in short, and the style of the figure."""
_WORDS: Final = max(len(words) for words, _, _ in _VERDICTS.values())
_SHORT: Final = max(len(short) for _, short, _ in _VERDICTS.values())


def since_title(found: SinceChange, cells: int, glyphs: Glyphs) -> Line:
    """`since max_wal_size=16GB: +4.1 % (−0.3 … +8.2), 6 blocks: not yet distinguishable`, or less of it.

    Which form is taken does not depend on the verdict: each is measured with its longest words.

    Args:
        found: The change.
        cells: Room there is.
        glyphs: Characters.
    """
    return next((line for line, longest in _forms(found, glyphs) if longest <= cells), ())


def since_short(found: SinceChange, glyphs: Glyphs) -> Line:
    """`▲ +4.1 % undecided` in a slot, with the mark that the change has on the tape."""
    mark = (f"{glyphs.up} ", "event-parameter")
    _, short, style = _VERDICTS[found.verdict]
    effect = found.effect
    if effect is None:
        return mark, (_EARLY.ljust(_SHORT + len(_figure(0.0, glyphs)) + 1), "dim")
    return mark, (_figure(effect.relative, glyphs), style), (f" {short:<{_SHORT}}", style)


def _forms(found: SinceChange, glyphs: Glyphs) -> list[tuple[Line, int]]:
    """Longest first, each with the cells it takes at most."""
    (name, value), *more = found.changed
    name, value = one_line(name, _NAME), one_line(value, _VALUE)
    others = f" and {len(more)} more" if more else ""
    labels = f"since {name}={value}{others}: ", f"since {name}{others}: "
    effect = found.effect
    slot = since_short(found, glyphs)
    if effect is None:
        early = [((label, "label"), (_EARLY, "dim")) for label in labels]
        return [(line, width(line)) for line in (*early, slot)]
    words, short, style = _VERDICTS[found.verdict]
    if found.unlike:
        words = found.unlike
    elif effect.low is None:
        words = "too few to say"
    elif found.final and found.verdict is Verdict.UNDECIDED:
        words = "not distinguishable"
    figure, widest = _figure(effect.relative, glyphs), _between(0.0, 0.0, glyphs)
    between = "" if effect.low is None or effect.high is None else _between(effect.low, effect.high, glyphs)
    fewer = min(effect.blocks_a, effect.blocks_b)
    counted = f", {fewer:>2} block{'s' if fewer != 1 else ''}: "
    blocks = ": " if found.unlike else counted
    rows = (
        (labels[0], between, widest, blocks, words, _WORDS + len(counted) - len(blocks)),
        (labels[0], between, widest, " ", short, _SHORT),
        (labels[1], between, widest, " ", short, _SHORT),
        (labels[1], "", "", " ", short, _SHORT),
    )
    forms: list[tuple[Line, int]] = [
        (
            ((label, "label"), (figure + shown, style), (gap, "label"), (said, style)),
            width(((label + figure + room + gap, PLAIN),)) + longest,
        )
        for label, shown, room, gap, said, longest in rows
    ]
    return [*forms, (slot, width(slot))]


def _between(low: float, high: float, glyphs: Glyphs) -> str:
    return f" ({_percent(low, glyphs)} {glyphs.ellipsis} {_percent(high, glyphs)})"


def _figure(share: float, glyphs: Glyphs) -> str:
    return f"{_percent(share, glyphs)} %"


def _percent(share: float, glyphs: Glyphs) -> str:
    return f"{100.0 * share:+5.1f}".replace("-", glyphs.minus)
