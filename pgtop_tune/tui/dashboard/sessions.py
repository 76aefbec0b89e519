"""The session table: every backend with its process, auxiliary processes included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.blocking import Blocking, blocking
from pgtop_tune.metrics.catalogue import Interval, Metric, Reading
from pgtop_tune.metrics.hidden import hidden_sessions
from pgtop_tune.metrics.server import ACTIVE, BLOCKED, IDLE_IN_TRANSACTION, SESSIONS
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.waits import PREPARED_TRANSACTION
from pgtop_tune.runtime.session import Session
from pgtop_tune.safe_text import one_line
from pgtop_tune.tui.dashboard.session_columns import cells_of, columns_for, table_column
from pgtop_tune.tui.dashboard.session_rows import (
    EVERYTHING,
    IN_TRANSACTION,
    SessionRow,
    SessionsView,
    cursor_of,
    scrolled,
    session_rows,
)
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line
from pgtop_tune.tui.widgets.phrase import Phrase, absence, dot, fitting, head, labelled
from pgtop_tune.tui.widgets.table import table_lines
from pgtop_tune.units import UNKNOWN

HEAD_ROWS: Final = 2
"""Lines above the first session: the pane's head and the headings of the columns."""
_TITLE_SHARE: Final = 0.7
_FILTER: Final = 30
_SELDOM: Final = 1.8
"""Frames from one look to the next: above, it is said."""


def sessions_lines(
    session: Session,
    width: int,
    height: int,
    glyphs: Glyphs,
    *,
    view: SessionsView = EVERYTHING,
    rows: Sequence[SessionRow] | None = None,
) -> list[Line]:
    """A head with counts, headings, and as many sessions as fit.

    Args:
        session: What is known.
        width: Cells.
        height: Rows, head and headings included.
        glyphs: Characters.
        view: Order, filter and selection.
        rows: `session_rows(session, view)` when the caller has them already.
    """
    if rows is None:
        rows = session_rows(session, view)
    visible = max(height - HEAD_ROWS, 0)
    view = scrolled(view, rows, visible)
    columns = columns_for(width)
    cursor = cursor_of(rows, view)
    shown = [cells_of(row, columns) for row in rows[view.top : view.top + visible]]
    table = table_lines(
        [table_column(column, width) for column in columns],
        shown,
        width=width,
        height=max(height - 1, 0),
        cursor=None if cursor is None else cursor - view.top,
        top=0,
        glyphs=glyphs,
    )
    return [_head(session, width, glyphs, view, rows, visible), *table][:height]


def _head(
    session: Session, width: int, glyphs: Glyphs, view: SessionsView, rows: Sequence[SessionRow], visible: int
) -> Line:
    frame, interval = session.now, session.interval
    activity = NOT_YET if frame is None else sections.activity(frame)
    if frame is None or interval is None or isinstance(activity, Unavailable):
        reason = activity if isinstance(activity, Unavailable) else NOT_YET
        return head((("sessions  ", "title"), *absence(reason)), width, glyphs)
    server = sections.server(frame)
    most = "" if isinstance(server, Unavailable) else f"/{server.max_connections}"
    lingering = any(row.rank == IN_TRANSACTION for row in rows)
    counts = [
        Phrase(labelled("active", _whole(ACTIVE, interval)), 1),
        Phrase(labelled("idle in tx", _whole(IDLE_IN_TRANSACTION, interval), "warning" if lingering else PLAIN), 3),
        _blocked(interval, blocking(activity)),
    ]
    hidden = hidden_sessions(frame)
    title = [
        Phrase((("sessions ", "title"), (f"{_whole(SESSIONS, interval)}{most}", PLAIN))),
        *([_hidden(hidden)] if hidden is not None else counts),
        _seldom(interval),
    ]
    chosen = [
        Phrase(((f"/{one_line(view.filter, _FILTER)}", "key"),) if view.filter else (), 0),
        Phrase((("idle hidden", "key"),) if view.hide_idle else (), 3),
        _processes(interval, sections.processes(frame)),
        Phrase(((f"by {view.sort}", "label"),), 4),
        Phrase(((_range(view.top, visible, len(rows)), "label"),) if len(rows) > visible else (), 2),
    ]
    return head(fitting(title, int(width * _TITLE_SHARE), dot(glyphs)), width, glyphs, chosen)


def _hidden(why: Unavailable) -> Phrase:
    """In place of counts that would not be those of everybody."""
    return Phrase(absence(why), 1, (("others are hidden: GRANT pg_monitor", "warning"),))


def _seldom(interval: Interval | None) -> Phrase:
    """How often the sessions are looked at, where that is less often than frames are made: many are dear."""
    apart_s = _apart_s(interval, sections.activity)
    return Phrase(() if apart_s is None else ((f"looked at every {apart_s:.1f} s", "warning"),), 1)


def _apart_s(interval: Interval | None, section: Callable[[Frame], Reading | Unavailable]) -> float | None:
    """Seconds between two looks at a section, where that is clearly more than between two frames."""
    looks = None if interval is None else interval.pair(section)
    frames = None if interval is None else interval.pair(sections.footprint)
    if looks is None or frames is None:
        return None
    apart_s = looks[1].at_s - looks[0].at_s
    return apart_s if apart_s > _SELDOM * (frames[1].at_s - frames[0].at_s) else None


def _range(top: int, visible: int, found: int) -> str:
    return f"{top + 1}-{min(top + visible, found)} of {found}"


def _whole(metric: Metric, interval: Interval) -> str:
    value = metric(interval)
    return UNKNOWN if value is None else f"{value:.0f}"


def _blocked(interval: Interval, found: Blocking) -> Phrase:
    count = (("blocked ", "label"), (_whole(BLOCKED, interval), "wait-lock" if found.blocked else PLAIN))
    if found.root is None:
        return Phrase(count, 2)
    root = "prepared transaction" if found.root == PREPARED_TRANSACTION else str(found.root)
    others = f", {found.roots - 1} more" if found.roots > 1 else ""
    short = f" (root {root})"
    return Phrase((*count, (f" (root {root}{others})", "wait-lock")), 2, (*count, (short, "wait-lock")))


def _processes(interval: Interval | None, processes: object) -> Phrase:
    if isinstance(processes, Unavailable):
        return Phrase((("CPU, R/s, W/s: ", "label"), *absence(processes)), 6)
    apart_s = _apart_s(interval, sections.processes)
    return Phrase(() if apart_s is None else (("CPU, R/s, W/s ", "label"), (f"every {apart_s:.0f} s", PLAIN)), 6)
