"""The differences between two windows of the session: read beside the screen, then a table that scrolls."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import UNKNOWN, duration
from pgtop_tune.compare.reports.sheets import (
    BELOW_NOISE,
    HEADING,
    event_cells,
    statement_cells,
    statement_interval_heading,
    statement_notes,
    wait_interval,
    wait_text,
)
from pgtop_tune.compare.sides.figures import WaitRow
from pgtop_tune.compare.statement_rows import GONE, NEW, StatementComparison
from pgtop_tune.compare.window_comparison import Differing, WindowComparison, amount, between, changed, sized, titled
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.scene.banners import span_words
from pgtop_tune.tui.widgets.lines import CUT, PLAIN, Glyphs, Line, clip, ellipsized, wrapped

if TYPE_CHECKING:
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.runtime.ports import FramesFrom
    from pgtop_tune.runtime.window import Window


_LOOK_S: Final = 0.5
_BREATH: Final = 20
"""Frames after which the screen gets the processor."""
_BREATH_S: Final = 0.002
_MISSING_S: Final = 5.0
"""Frames may be some seconds apart; what is missing beyond that is said."""


class WindowsDialog(Dialog[None]):
    """Reads both windows when it opens, and shows what differs until Escape.

    Args:
        frames: Gives the frames of the session from a moment on; used in a thread.
        pair: A and B.
        glyphs: Characters of the drawing.
        began_ms: When the session's clock was 0.
    """

    CELLS = 132
    KEYS = "y copy  Esc back"
    LIVE = False

    def __init__(self, frames: FramesFrom, pair: tuple[Window, Window], glyphs: Glyphs, began_ms: float) -> None:
        super().__init__("differences", glyphs)
        self._frames = frames
        self._pair = pair
        self._spans = tuple(span_words(window, began_ms) for window in pair)
        self._found: WindowComparison | None = None
        self._problem = ""
        self._read = 0
        self._notes: list[str] = []
        self._given_up = threading.Event()

    def on_mount(self) -> None:
        """Begin to read the windows."""
        self.run_worker(self._compare(), group="compare")
        self.set_interval(_LOOK_S, self._show_progress)

    def on_unmount(self) -> None:
        """Give up reading."""
        self._given_up.set()

    async def _compare(self) -> None:
        try:
            self._found = await asyncio.to_thread(self._compute)
        except PgtopError as problem:
            self._problem = str(problem)
        self.repaint()

    def _show_progress(self) -> None:
        if self._found is None and not self._problem:
            self.repaint()

    def _compute(self) -> WindowComparison | None:
        from pgtop_tune.compare.sides.from_window import LEAST_FRAMES, read_window
        from pgtop_tune.compare.window_comparison import window_comparison

        sides = []
        for name, window, span in zip("AB", self._pair, self._spans, strict=True):
            side = read_window(self._counted(window), window, name, self._given_up.is_set)
            if self._given_up.is_set():
                return None
            if side is None:
                raise UsageProblem(
                    f"window {name} ({span}) has fewer than {LEAST_FRAMES} frames", "mark another window"
                )
            missing_s = side.since_s - window.since_s
            if missing_s > _MISSING_S:
                self._notes.append(
                    f"the first {duration(missing_s)} of window {name} are no longer in the history buffer"
                )
            sides.append(side)
        return window_comparison(sides[0], sides[1])

    def _counted(self, window: Window) -> Iterator[Frame]:
        for frame in self._frames(window.since_s):
            if window.since_s <= frame.elapsed_s <= window.until_s:
                self._read += 1
                if self._read % _BREATH == 0:
                    time.sleep(_BREATH_S)
            yield frame

    def content(self, cells: int) -> list[Line]:
        """Return the windows, then the table."""
        lines: list[Line] = [
            ((f"{name}  ", "label"), (span, "strong")) for name, span in zip("AB", self._spans, strict=True)
        ]
        lines.append(())
        if self._problem:
            return [*lines, *wrapped(self._problem, cells, "warning")]
        if self._found is None:
            return [*lines, ((f"reading, {self._read} frames so far {self.glyphs.ellipsis}", "dim"),)]

        missing = [line for note in self._notes for line in wrapped(note, cells, "warning")]
        return [*lines[:-1], *missing, *differing_lines(self._found, cells, self.glyphs)]

    async def pressed(self, key: str, character: str | None) -> bool:
        """Scroll, copy or close."""
        if key == "y":
            self._copy()
        elif key == "enter":
            self.dismiss(None)
        else:
            return self.scroll_key(key)
        return True

    def _copy(self) -> None:
        if self._found is None:
            return
        from pgtop_tune.compare.reports.written import sheets_text
        from pgtop_tune.compare.window_comparison import window_sheets

        self.copy(sheets_text(window_sheets(self._found)), "the table is in your terminal's clipboard")


# The table of what differs between two windows, as lines of a dialog.

_WIDE: Final = 100
"""Cells from which on there is room for intervals."""
_SIZED: Final = 70
"""Cells from which on there is room for sizes."""
_NARROW: Final = 64
"""Cells below which only the effect and the verdict stand beside a name."""
_STYLES: Final = {"better": "good", "worse": "critical", "more": "strong", "less": "strong"}
_SHORT: Final = {
    "no difference distinguishable": "no difference",
    "too little to say": "too short",
    BELOW_NOISE: "below noise",
}
_FIGURE, _EFFECT, _INTERVAL, _SIZE, _VERDICT = 9, 9, 19, 6, 14
_LEAST_NAME: Final = 8
_MOST_EVENTS: Final = 12
_HEADS: Final = ("A", "B", "effect", "95 % interval", "size", "verdict")


def differing_lines(comparison: WindowComparison, cells: int, glyphs: Glyphs) -> list[Line]:
    """Return everything, the largest effect first: what was set, every number, waits of a transaction, events."""
    lines: list[Line] = []
    for reason in comparison.comparison.reasons:
        lines += wrapped(f"not comparable: {one_line(reason, 300)}", cells, "critical")
    for change in comparison.comparison.fingerprints.under_test:
        text = f"{one_line(change.name, 60)}  {one_line(change.a, 60)} {glyphs.arrow} {one_line(change.b, 60)}"
        lines += wrapped(text, cells, "event-parameter")
    for note in comparison.notes:
        lines += wrapped(one_line(note, 300), cells, "dim")
    lines.append(())
    if comparison.outcomes:
        lines += [_row(("outcome", *_HEADS), "title", cells)]
        lines += [*(_number(row, cells, glyphs) for row in comparison.outcomes), ()]
    if comparison.statements is not None:
        lines += [*_statements(comparison.statements, cells, glyphs), ()]
    lines.append(_row(("largest effect first", *_HEADS), "title", cells))
    lines += [_number(row, cells, glyphs) for row in comparison.others]
    for phase in comparison.comparison.phases:
        if phase.waits:
            lines += [(), _row(("ms per transaction", "A", "B", "change", "% of A's latency", "", ""), "title", cells)]
            lines += [_wait(row, cells, glyphs) for row in phase.waits]
    lines += _events(comparison, cells)
    notes = [note for phase in comparison.comparison.phases for note in phase.notes]
    lines.append(())
    for note in notes:
        lines += wrapped(one_line(note, 300), cells, "dim")
    for phase in comparison.comparison.phases:
        for command in phase.to_settle:
            lines += wrapped(command, cells, PLAIN)
    if comparison.alike:
        lines += wrapped(f"{comparison.alike} metrics are constant and equal in both", cells, "dim")
    return lines


def _number(row: Differing, cells: int, glyphs: Glyphs) -> Line:
    texts = (titled(row), amount(row, row.a), amount(row, row.b), changed(row), between(row), sized(row))
    style = _STYLES.get(row.verdict, "dim" if not row.certain else PLAIN)
    return _row((*_drawn(texts, glyphs), _SHORT.get(row.verdict, row.verdict)), style, cells)


def _statements(comparison: StatementComparison, cells: int, glyphs: Glyphs) -> Iterator[Line]:
    """Yield time per call; a statement below the noise is dim."""
    heads = (HEADING, "A ms", "B ms", "effect", statement_interval_heading(comparison), "", "verdict")
    yield _row(heads, "title", cells)
    for row in statement_cells(comparison):
        texts = (row.name, row.a, row.b, row.change, row.interval, "")
        style = _STYLES.get(row.verdict, PLAIN if row.verdict in (NEW, GONE) else "dim")
        yield _row((*_drawn(texts, glyphs), _SHORT.get(row.verdict, row.verdict)), style, cells)
    for note in statement_notes(comparison):
        yield from wrapped(note, cells, "dim")


def _wait(row: WaitRow, cells: int, glyphs: Glyphs) -> Line:
    name = one_line(row.label, 40) if row.whole_class else f"  {one_line(row.label, 40)}"
    interval = wait_interval(row) or ""
    texts = (name, *(wait_text(ms, ".2f") for ms in (row.a_ms, row.b_ms)), wait_text(row.change_ms, "+.2f"))
    texts = (*texts, interval, "")
    style = PLAIN if row.whole_class else "dim"
    return _row((*_drawn(texts, glyphs), _SHORT.get(row.verdict, row.verdict)), style, cells)


def _drawn(texts: Sequence[str], glyphs: Glyphs) -> Iterator[str]:
    name, *figures = texts
    yield name
    for figure in figures:
        yield figure.replace("-", glyphs.minus).replace("…", glyphs.ellipsis) if figure != UNKNOWN else figure


def _row(texts: Sequence[str], style: str, cells: int) -> Line:
    name, a, b, effect, interval, size, verdict = texts
    head = style if style == "title" else PLAIN
    figures = [
        (text, room, column_style)
        for text, room, from_cells, column_style in (
            (a, _FIGURE, _NARROW, head), (b, _FIGURE, _NARROW, head), (effect, _EFFECT, 0, style),
            (interval, _INTERVAL, _WIDE, style), (size, _SIZE, _SIZED, style),
        )
        if cells >= from_cells
    ]  # fmt: skip
    used_cells = sum(1 + room for _, room, _ in figures) + 2 + _VERDICT
    line: list[tuple[str, str]] = [(ellipsized(name, max(cells - used_cells, _LEAST_NAME), CUT), head)]
    for text, room, column_style in figures:
        line.append((f" {text if len(text) <= room else ellipsized(text, room, CUT):>{room}}", column_style))
    line.append((f"  {clip(verdict, _VERDICT).rstrip()}", style))
    return tuple(line)


def _events(comparison: WindowComparison, cells: int) -> Iterator[Line]:
    for name, side in (("A", comparison.comparison.a), ("B", comparison.comparison.b)):
        if not side.events:
            continue
        yield ()
        yield ((f"events in {name}", "title"),)
        for event in side.events[:_MOST_EVENTS]:
            after, kind, text = event_cells(event, side.began_ms)
            yield ((clip(f"{after}  {kind}  {one_line(text, 100)}", cells).rstrip(), PLAIN),)
        if len(side.events) > _MOST_EVENTS:
            yield ((f"and {len(side.events) - _MOST_EVENTS} more", "dim"),)
