"""The table of what differs between two windows, as lines of a dialog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pgtop_tune.compare import words
from pgtop_tune.compare.sides.waits import WaitRow
from pgtop_tune.compare.windows.differing import Brushed, Differing
from pgtop_tune.compare.windows.differing_words import amount, between, changed, sized, titled
from pgtop_tune.safe_text import one_line
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, clip
from pgtop_tune.tui.widgets.wrapping import wrapped
from pgtop_tune.units import UNKNOWN

_WIDE: Final = 100
"""From here on there is room for intervals and sizes."""
_STYLES: Final = {"better": "good", "worse": "critical", "more": "strong", "less": "strong"}
_SHORT: Final = {
    "no difference distinguishable": "no difference",
    "too little to say": "too short",
}
_FIGURE, _EFFECT, _INTERVAL, _SIZE, _VERDICT = 7, 9, 19, 6, 14
_LEAST_NAME: Final = 20
_MOST_EVENTS: Final = 12
_HEADS: Final = ("A", "B", "effect", "95 % interval", "size", "verdict")


def differing_lines(found: Brushed, cells: int, glyphs: Glyphs) -> list[Line]:
    """Everything, the largest effect first: what was set, every number, waits of a transaction, events."""
    lines: list[Line] = []
    for reason in found.comparison.reasons:
        lines += wrapped(f"not comparable: {one_line(reason, 300)}", cells, "critical")
    for each in found.comparison.fingerprints.under_test:
        said = f"{one_line(each.name, 60)}  {one_line(each.a, 60)} {glyphs.arrow} {one_line(each.b, 60)}"
        lines += wrapped(said, cells, "event-parameter")
    for note in found.notes:
        lines += wrapped(one_line(note, 300), cells, "dim")
    lines.append(())
    if found.outcomes:
        lines += [_row(("outcome", *_HEADS), "title", cells)]
        lines += [*(_number(row, cells, glyphs) for row in found.outcomes), ()]
    lines.append(_row(("largest effect first", *_HEADS), "title", cells))
    lines += [_number(row, cells, glyphs) for row in found.others]
    for phase in found.comparison.phases:
        if phase.waits:
            lines += [(), _row(("ms per transaction", "A", "B", "change", "% of A's latency", "", ""), "title", cells)]
            lines += [_wait(row, cells, glyphs) for row in phase.waits]
    lines += _events(found, cells)
    notes = [note for phase in found.comparison.phases for note in phase.notes]
    lines.append(())
    for note in notes:
        lines += wrapped(one_line(note, 300), cells, "dim")
    for phase in found.comparison.phases:
        for command in phase.to_settle:
            lines += wrapped(command, cells, PLAIN)
    if found.alike:
        lines += wrapped(f"{found.alike} numbers are constant and equal in both", cells, "dim")
    return lines


def _number(row: Differing, cells: int, glyphs: Glyphs) -> Line:
    texts = (titled(row), amount(row, row.a), amount(row, row.b), changed(row), between(row), sized(row))
    style = _STYLES.get(row.verdict, "dim" if not row.certain else PLAIN)
    return _row((*_drawn(texts, glyphs), _SHORT.get(row.verdict, row.verdict)), style, cells)


def _wait(row: WaitRow, cells: int, glyphs: Glyphs) -> Line:
    name = one_line(row.label, 40) if row.whole_class else f"  {one_line(row.label, 40)}"
    interval = words.wait_interval(row) or ""
    texts = (name, f"{row.a_ms:.2f}", f"{row.b_ms:.2f}", f"{row.b_ms - row.a_ms:+.2f}", interval, "")
    style = PLAIN if row.whole_class else "dim"
    return _row((*_drawn(texts, glyphs), _SHORT.get(row.verdict, row.verdict)), style, cells)


def _drawn(texts: Sequence[str], glyphs: Glyphs) -> Iterator[str]:
    name, *figures = texts
    yield name
    for figure in figures:
        yield figure.replace("-", glyphs.minus).replace("…", glyphs.ellipsis) if figure != UNKNOWN else figure


def _row(texts: Sequence[str], style: str, cells: int) -> Line:
    name, a, b, effect, interval, size, said = texts
    head = style if style == "title" else PLAIN
    figures = [(a, _FIGURE), (b, _FIGURE), (effect, _EFFECT)]
    if cells >= _WIDE:
        figures += [(interval, _INTERVAL), (size, _SIZE)]
    taken = sum(1 + room for _, room in figures) + 2 + _VERDICT
    line: list[tuple[str, str]] = [(clip(name, max(cells - taken, _LEAST_NAME)), head)]
    for at, (text, room) in enumerate(figures):
        line.append((f" {text:>{room}}", head if at < 2 else style))
    line.append((f"  {said}", style))
    return tuple(line)


def _events(found: Brushed, cells: int) -> Iterator[Line]:
    for name, side in (("A", found.comparison.a), ("B", found.comparison.b)):
        if not side.events:
            continue
        yield ()
        yield ((f"events in {name}", "title"),)
        for event in side.events[:_MOST_EVENTS]:
            after, kind, text = words.event_words(event, side.began_ms)
            yield ((clip(f"{after}  {kind}  {one_line(text, 100)}", cells).rstrip(), PLAIN),)
        if len(side.events) > _MOST_EVENTS:
            yield ((f"and {len(side.events) - _MOST_EVENTS} more", "dim"),)
