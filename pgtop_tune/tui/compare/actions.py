"""The choice of a baseline overlay: the newest recordings with time, target, length and transactions per second."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import clock, count, wall_moment
from pgtop_tune.runtime.window import Marks
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.scene.banners import began_ms
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, clip, ellipsized, wrapped
from pgtop_tune.tui.widgets.phrase import padded

if TYPE_CHECKING:
    from pgtop_tune.compare.overlay.curves import Overlay, OverlayCurves, OverlayEntry, OverlaySource, OverlayWatch
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.tui.app_context import AppContext
    from pgtop_tune.tui.time_travel import TimeTravel

# Windows marked on the tape and what differs between them; an earlier run under the charts.


class WindowActions:
    """Sets marks and opens the table.

    Args:
        context: The application.
        time_travel: The moment shown, which is marked.

    Attributes:
        marks: The marked windows.
    """

    def __init__(self, context: AppContext, time_travel: TimeTravel) -> None:
        self._context = context
        self._time_travel = time_travel
        self.marks = Marks()
        self._growing: tuple[int, Marks] = (-1, self.marks)
        """Moves of the operator so far, and the marks with the begin of the window that grows with each further one."""

    def mark_moving(self, by: int) -> None:
        """Go so many frames forward or back, and mark the way: a window that grows as long as only this moves."""
        frame = self._time_travel.shown.now
        if frame is None:
            return
        moves, marks = self._growing
        if moves != self._time_travel.moves:
            marks = self.marks.begin(frame.elapsed_s)
        self._time_travel.step(by)
        self._growing = self._time_travel.moves, marks
        self.follow()

    def follow(self) -> None:
        """Let a window grow to the moment shown."""
        frame, (moves, marks) = self._time_travel.shown.now, self._growing
        if frame is not None and moves == self._time_travel.moves:
            self.marks = marks.end(frame.elapsed_s)

    def mark(self, end: bool = False) -> None:
        """Begin or end a window at the moment shown; a second window that ends shows the table."""
        frame = self._time_travel.shown.now
        if frame is None:
            self._warn("no data yet")
            return
        before, self._growing = self.marks, (-1, self.marks)
        self.marks = before.end(frame.elapsed_s) if end else before.begin(frame.elapsed_s)
        if end and self.marks == before:
            self._warn("a window ends after its start: set the start ({mark-begin}) at an earlier time first")
        elif len(self.marks.windows) == 2 and before.begun_s is not None and end:
            self.compare()
        self._context.repaint()

    def mark_between(self, since_s: float, until_s: float) -> None:
        """Mark a window; the second one shows the table."""
        if self._context.controls.frames is None:
            return
        self.marks = self.marks.begin(since_s).end(until_s)
        if len(self.marks.windows) == 2:
            self.compare()
        self._context.repaint()

    def clear(self) -> None:
        """Forget everything."""
        if self.marks:
            self.marks = Marks()
            self._growing = -1, self.marks
            self._context.repaint()

    def compare(self) -> None:
        """Open the table."""
        from pgtop_tune.tui.compare.windows_dialog import WindowsDialog

        frames, pair = self._context.controls.frames, self.marks.pair
        if frames is None or pair is None:
            self._warn(
                "no window is marked: {mark-begin} starts one and {mark-end} ends it, at the time shown; "
                "{mark-earlier} and {mark-later} mark one while moving"
            )
        elif pair[0].overlaps(pair[1]):
            self._warn("the two windows overlap: mark separate ones")
        elif pair[0].seconds <= 0:
            self._warn("no data before this window: mark a second window")
        else:
            began = began_ms(self._time_travel.shown)
            self._context.app.push_screen(WindowsDialog(frames, pair, self._context.glyphs, began))

    def _warn(self, message: str) -> None:
        self._context.tell(self._context.with_keys(message), "warning")


class OverlayActions:
    """Switches a baseline overlay on and off.

    Args:
        context: The application.
    """

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._overlay_source = context.controls.overlays
        self._chosen: OverlayChoice | None = None
        self._watch: OverlayWatch | None = None

    def watch(self, frame: Frame | None) -> OverlayWatch | None:
        """Return the overlay that is on, with its place under that frame; None without."""
        if self._watch is not None:
            self._watch.overlay.follow(frame)
        return self._watch

    def begin(self) -> None:
        """Read the run that was asked for with the screen, if there is one."""
        if self._context.options.overlay is not None:
            self._take(OverlayChoice(self._context.options.overlay))

    def turn(self) -> None:
        """Switch the overlay off, or ask which run to draw."""
        if self._chosen is not None:
            self._chosen = self._watch = None
            self._context.repaint()
        elif self._overlay_source is not None:
            self._context.app.push_screen(OverlayDialog(self._overlay_source, self._context.glyphs), self._take)

    def _take(self, chosen: OverlayChoice | None) -> None:
        if chosen is None or self._overlay_source is None:
            return
        self._chosen, self._watch = chosen, None
        if chosen.path is None:
            from pgtop_tune.compare.overlay.curves import AgoOverlay, OverlayWatch

            self._watch = OverlayWatch(AgoOverlay(self._context.live, chosen.ago_s), reading=False)
            self._context.repaint()
        else:
            reading = self._read(self._overlay_source, chosen, chosen.path)
            self._context.app.run_worker(reading, group="overlay", exclusive=True)

    async def _read(self, overlay_source: OverlaySource, chosen: OverlayChoice, path: Path) -> None:
        from pgtop_tune.compare.overlay.curves import ClockOverlay, Overlay, OverlayWatch

        kind = ClockOverlay if chosen.by_clock else Overlay
        reading = overlay_source.read(path)
        overlay: Overlay | None = None
        step: asyncio.Future[OverlayCurves | None] | None = None
        try:
            while True:
                step = asyncio.ensure_future(asyncio.to_thread(next, reading, None))
                if (curves := await asyncio.shield(step)) is None:
                    break
                if self._chosen is not chosen:
                    return
                if overlay is None:
                    overlay = kind(curves)
                    self._watch = OverlayWatch(overlay, reading=True)
                overlay.baseline = curves
                self._context.repaint()
            if overlay is not None and self._watch is not None:
                self._watch = OverlayWatch(overlay, reading=False)
                self._context.repaint()
        except PgtopError as problem:
            if self._chosen is chosen:
                self._chosen = self._watch = None
            self._context.tell(f"no overlay: {problem}", "error")
        finally:
            # If this is cancelled, a thread is still in the generator, which nobody can close then.
            if step is not None:
                await asyncio.wait([step])
            await asyncio.to_thread(reading.close)


_TITLE: Final = "baseline overlay: an earlier run under the charts"
_NO_KEYS: Final = "a 10 min ago  h 1 h ago  Esc back"
_AGO_S: Final = {"a": 600.0, "h": 3600.0}
_FRAME_ROWS: Final = 2
_WHEN, _LENGTH, _TPS = 19, 8, 7
_MOVES: Final = {
    "up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10, "pagedown": 10, "home": -1_000, "end": 1_000,
}  # fmt: skip


class OverlayChoice(Struct, frozen=True):
    """The run that stands under the charts.

    Attributes:
        path: An earlier recording; None for this session itself.
        ago_s: How far behind that is.
        by_clock: Whether the recording moves along at its time of day, instead of from the start of the load.
    """

    path: Path | None = None
    ago_s: float = 0.0
    by_clock: bool = False


class OverlayDialog(Dialog[OverlayChoice]):
    """Lists what there is; the files are looked into beside the screen. Returns the choice.

    Args:
        overlay_source: What there is.
        glyphs: Characters of the drawing.
    """

    CELLS = 140
    KEYS = f"Enter draw  t by time of day  {_NO_KEYS}"

    def __init__(self, overlay_source: OverlaySource, glyphs: Glyphs) -> None:
        super().__init__(_TITLE, glyphs, keys=_NO_KEYS)
        self._overlay_source = overlay_source
        self._paths: Sequence[Path] | None = None
        self._entries: dict[Path, OverlayEntry] = {}
        self._at = 0
        self._first = 0

    def on_mount(self) -> None:
        """Begin to look."""
        self.run_worker(self._look(), group="overlay")

    async def _look(self) -> None:
        self._paths = await asyncio.to_thread(self._overlay_source.newest)
        if self._paths:
            self.captions(_TITLE, self.KEYS)
        self.repaint()
        for path in self._paths:
            self._entries[path] = await asyncio.to_thread(self._overlay_source.entry, path)
            self.repaint()

    def content(self, cells: int) -> list[Line]:
        """Return a line per file."""
        paths = self._paths
        if paths is None:
            return [((f"searching {self.glyphs.ellipsis}", "dim"),)]
        if not paths:
            message = "no recordings yet: start one, or give --ghost FILE: any recording or record of bench run"
            return wrapped(message, cells, "warning")
        room = max(self.app.size.height - _FRAME_ROWS - 1, 1)
        self._first = min(max(self._first, self._at - room + 1), self._at)
        name = max(cells - _WHEN - _LENGTH - _TPS - 30 - 8, 16)
        head = f"{'began':<{_WHEN}}  {'length':<{_LENGTH}}  {'tps':>{_TPS}}  {'name':<{name}}  target"
        visible_rows = range(self._first, min(self._first + room, len(paths)))
        return [((clip(head, cells), "title"),), *(self._line(at, name, cells) for at in visible_rows)]

    def _line(self, at: int, name: int, cells: int) -> Line:
        path = (self._paths or ())[at]
        entry = self._entries.get(path)
        if entry is None:
            figures, target = f"{'':<{_WHEN}}  {'':<{_LENGTH}}  {self.glyphs.ellipsis:>{_TPS}}", ""
        else:
            when = wall_moment(entry.began_ms) if entry.began_ms else ""
            length = "" if entry.problem else clock(entry.seconds)
            figures = f"{when:<{_WHEN}}  {length:<{_LENGTH}}  {count(entry.tps):>{_TPS}}"
            target = entry.problem or entry.target
        text = f"{figures}  {clip(one_line(path.name, name), name)}  {one_line(target, 80)}"
        broken = entry is not None and entry.problem
        style = "cursor" if at == self._at else "dim" if broken else PLAIN
        return padded(((ellipsized(text, cells, self.glyphs.ellipsis), style),), cells)

    async def pressed(self, key: str, character: str | None) -> bool:
        """Move and choose."""
        paths = self._paths or ()
        if key in _MOVES:
            self._at = min(max(self._at + _MOVES[key], 0), max(len(paths) - 1, 0))
        elif key in ("enter", "g", "t") and paths:
            self.dismiss(OverlayChoice(paths[self._at], by_clock=key == "t"))
        elif key in _AGO_S:
            self.dismiss(OverlayChoice(ago_s=_AGO_S[key]))
        else:
            return False
        return True
