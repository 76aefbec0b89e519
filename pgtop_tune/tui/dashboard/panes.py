"""All panes of the dashboard at once: the one call the screen makes per tick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.overlay.curves import OverlayWatch
from pgtop_tune.runtime.load_control import LoadState
from pgtop_tune.runtime.ports import RecordingState
from pgtop_tune.runtime.session import Session
from pgtop_tune.runtime.window import Marks
from pgtop_tune.tui.dashboard.budget import budget_lines
from pgtop_tune.tui.dashboard.host import host_lines
from pgtop_tune.tui.dashboard.latency import latency_lines
from pgtop_tune.tui.dashboard.session_rows import SessionRow, SessionsView
from pgtop_tune.tui.dashboard.sessions import sessions_lines
from pgtop_tune.tui.dashboard.tape import tape_lines
from pgtop_tune.tui.dashboard.throughput import throughput_lines
from pgtop_tune.tui.dashboard.wal import wal_lines
from pgtop_tune.tui.scene.header import NO_PAGES, PageNames, footer_lines, header_lines
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line

_LOAD: Final = "load"
"""The word in the footer beside the key that starts one."""


class Look(Struct, frozen=True):
    """What the screen knows beyond the frames.

    Attributes:
        view: Order, filter and selection of the sessions.
        rows: The sessions, when the caller has them already (`session_rows(session, view)`).
        keys: (key, word) rows of the footer.
        recording: Whether frames are being written; None where they cannot be.
        offset_s: How far the moment shown lies before the newest one; None at the newest.
        target: Who was asked for, shown while no server has answered yet.
        pages: Named in the footer.
        load: What of it goes on that frames do not show.
        marks: Windows that are marked.
        baseline: An earlier run under the charts.
    """

    view: SessionsView = SessionsView()
    rows: Sequence[SessionRow] | None = None
    keys: Sequence[tuple[str, str]] = ()
    recording: RecordingState | None = None
    offset_s: float | None = None
    target: str = ""
    pages: PageNames = NO_PAGES
    load: LoadState | None = None
    marks: Marks = Marks()
    baseline: OverlayWatch | None = None


Layout = Sequence[tuple[str, int]]
_Draw = Callable[[Session, int, int, Glyphs, Look, Layout], list[Line]]


def _tape(session: Session, width: int, height: int, glyphs: Glyphs, look: Look, layout: Layout) -> list[Line]:
    rows = dict(layout).get("throughput", 1)
    return tape_lines(session, width, height, glyphs, chart_rows=rows, marks=look.marks.moments)


def _header(session: Session, width: int, height: int, glyphs: Glyphs, look: Look, layout: Layout) -> list[Line]:
    return header_lines(
        session, width, height, glyphs, recording=look.recording, offset_s=look.offset_s, target=look.target,
        load=look.load,
    )  # fmt: skip


def _sessions(session: Session, width: int, height: int, glyphs: Glyphs, look: Look, layout: Layout) -> list[Line]:
    return sessions_lines(session, width, height, glyphs, view=look.view, rows=look.rows)


def _plain(draw: Callable[[Session, int, int, Glyphs], list[Line]]) -> _Draw:
    def drawn(session: Session, width: int, height: int, glyphs: Glyphs, look: Look, layout: Layout) -> list[Line]:
        return draw(session, width, height, glyphs)

    return drawn


def _with_baseline(draw: Callable[[Session, int, int, Glyphs, OverlayWatch | None], list[Line]]) -> _Draw:
    def drawn(session: Session, width: int, height: int, glyphs: Glyphs, look: Look, layout: Layout) -> list[Line]:
        return draw(session, width, height, glyphs, look.baseline)

    return drawn


def _latency(session: Session, width: int, height: int, glyphs: Glyphs, look: Look, layout: Layout) -> list[Line]:
    load_key = next((key for key, word in look.keys if word == _LOAD), "")
    return latency_lines(session, width, height, glyphs, look.baseline, load_key)


_PANES: Final[dict[str, _Draw]] = {
    "header": _header,
    "host": _plain(host_lines),
    "throughput": _with_baseline(throughput_lines),
    "latency": _latency,
    "tape": _tape,
    "budget": _plain(budget_lines),
    "wal": _plain(wal_lines),
    "sessions": _sessions,
    "footer": lambda session, width, height, glyphs, look, layout: footer_lines(
        look.keys, width, height, glyphs, look.pages
    ),
}


_PLAIN_LOOK: Final = Look()


def dashboard_lines(
    session: Session,
    layout: Layout,
    width: int,
    glyphs: Glyphs,
    look: Look = _PLAIN_LOOK,
) -> dict[str, list[Line]]:
    """Lines of every pane of a layout; each pane gets exactly its rows, each line exactly so many cells.

    Args:
        session: What is known.
        layout: As `dashboard_layout` gives it.
        width: Cells of the screen.
        glyphs: Characters.
        look: What the screen knows beyond the frames.
    """
    return {pane: _PANES[pane](session, width, rows, glyphs, look, layout) for pane, rows in layout}
