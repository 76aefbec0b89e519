"""The session table: every backend with its process, auxiliary processes included; its columns, by the room
there is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import KB, UNKNOWN, age, count, percent, size
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import hidden_sessions
from pgtop_tune.metrics.blockers import CULPRIT_S, Blocking, blocking, longest_blocked_s
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric, Reading
from pgtop_tune.metrics.host import PROCESS_CPU, PROCESS_READ_BYTES, PROCESS_RSS, PROCESS_WRITE_BYTES
from pgtop_tune.metrics.host_details import PROCESS_RUN_DELAY
from pgtop_tune.metrics.server import ACTIVE, BLOCKED, IDLE_IN_TRANSACTION, SESSIONS
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import HIDDEN_QUERY, Backend
from pgtop_tune.model.waits import CPU, PREPARED_TRANSACTION
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.session_rows import (
    ALIKE,
    AUXILIARY,
    EVERYTHING,
    IDLE,
    ROOT,
    SessionRow,
    SessionsView,
    by_kind,
    cursor_of,
    scrolled,
    session_rows,
)
from pgtop_tune.tui.widgets.lines import GAP, PLAIN, Cell, Column, Glyphs, Line, ellipsized, table_lines, wrap
from pgtop_tune.tui.widgets.phrase import Phrase, absence, dot, fitting, head, labelled, lasting, padded, wait_style

# Columns of the session table: what stands in them, and which go first when the screen is narrow.

LEAST_QUERY: Final = 20
"""Cells the query keeps on the narrowest screen."""
_ROOMY: Final = 160
"""Cells from which on columns take their roomy width."""
_TEXT: Final = 300
"""Characters of a foreign text that are looked at: more than any column shows."""
_PAUSING: Final = "Activity"
"""The class of idle loops; its events name the process they belong to, the class says nothing more."""
_STATES: Final = {
    "idle in transaction": "idle tx",
    "idle in transaction (aborted)": "aborted",
    "fastpath function call": "call",
    "disabled": "off",
    "starting": "start",
}


def short_state(state: str) -> str:
    """Return a state of pg_stat_activity in few cells."""
    return _STATES.get(state, state)


class SessionColumn(Struct, frozen=True):
    """A column of the session table, on the dashboard and on the page of sessions.

    Attributes:
        id: Stable; the operator's choice of columns is remembered by it.
        title: Heading.
        width: Cells; of the query the least.
        rank: On the dashboard 0 is always shown; of the others the highest goes first when the query gets too narrow;
            None stands only on the page.
        cell: Text of a row; the style is added by `cells_of`.
        definition: Meaning of the column, for `?`.
        source: Where it comes from.
        value: Value that the page sorts by; None where it cannot be sorted by.
        align: Numbers stand right.
        roomy: Cells on a wide screen, when other than `width`.
        elastic: Takes what the others leave.
        visible: Whether the page shows it until the operator chooses otherwise.
        unit: As of `PageColumn`.
    """

    id: str
    title: str
    width: int
    rank: int | None
    cell: Callable[[SessionRow], str]
    definition: str
    source: str
    value: Callable[[SessionRow], float | int | str | None] | None = None
    align: Literal["left", "right"] = "left"
    roomy: int | None = None
    elastic: bool = False
    visible: bool = True
    unit: str = ""


@lru_cache(512)
def _shown(text: str) -> str:
    """Return a text on one line. Cached: hundreds of sessions have a few dozen names and statements."""
    return one_line(text, _TEXT)


def _text(text: str | None) -> str:
    return UNKNOWN if text is None else _shown(text)


_PID: Final = "pid"
_BELOW: Final = ">"
"""Before the pid of a session that waits for one above it."""
_CLIENT: Final = "client"
_WAIT: Final = "wait"
_STATE: Final = "state"
_STYLED: Final = frozenset({_PID, _WAIT, _STATE})
"""Columns that have a style of their own now and then."""
_LOCAL: Final = "[local]"


def _wait(row: SessionRow) -> str:
    backend = row.backend
    if backend.wait_event_type is None:
        return CPU if row.running else UNKNOWN
    if backend.wait_event_type == _PAUSING and backend.wait_event:
        return _shown(backend.wait_event)
    return _shown(f"{backend.wait_event_type}:{backend.wait_event or ''}")


def _pid(row: SessionRow) -> str:
    return f"{len(row.alike)}x" if row.alike else f"{_BELOW if row.below else ''}{row.backend.pid}"


def _blockers(backend: Backend) -> str:
    if not backend.blocked_by:
        return ""
    more = len(backend.blocked_by) - 1
    return f"{backend.blocked_by[0]}+{more}" if more else str(backend.blocked_by[0])


def _statement(row: SessionRow) -> str:
    """Return the statement; of several sessions with their application, which tells more."""
    name = row.backend.application_name
    return f"{_shown(name)}: {_query(row.backend)}" if row.alike and name else _query(row.backend)


_HIDDEN: Final = "hidden: GRANT pg_monitor shows it"


def _query(backend: Backend) -> str:
    if backend.query == HIDDEN_QUERY:
        return _HIDDEN
    return _shown(backend.query) if backend.query else backend.backend_type


def _kilobytes(value_bytes: float | None) -> str:
    """Return kB, the unit that stands in the heading, in at most five cells."""
    if value_bytes is None or 0 < value_bytes < 0.95 * KB:
        return UNKNOWN if value_bytes is None else f"{value_bytes / KB:.1f}"
    return count(round(value_bytes / KB))


def _of_process(
    id: str, title: str, width: int, rank: int | None, form: Callable[[float | None], str], metric: Keyed[int]
) -> SessionColumn:
    """Return the column of a figure of the session's process."""

    def value(row: SessionRow) -> float | None:
        return row.figure(metric)

    return SessionColumn(
        id=id, title=title, width=width, rank=rank, cell=lambda row: form(value(row)), definition=metric.definition,
        source=metric.source, value=value, align="right", unit=metric.unit,
    )  # fmt: skip


COLUMNS: Final[tuple[SessionColumn, ...]] = (
    SessionColumn(_PID, "PID", 7, 0, _pid,
        "Process id of the backend; > waits for the red one above it; 16x stands for 16 idle sessions that are alike.",
        "pg_stat_activity.pid", lambda row: row.backend.pid, "right"),
    _of_process("cpu", "CPU%", 4, 2, percent, PROCESS_CPU),
    _of_process("delay", "delay%", 6, None, percent, PROCESS_RUN_DELAY),
    _of_process("read", "RkB/s", 5, 4, _kilobytes, PROCESS_READ_BYTES),
    _of_process("write", "WkB/s", 5, 3, _kilobytes, PROCESS_WRITE_BYTES),
    _of_process("rss", "RES", 7, None, size, PROCESS_RSS),
    SessionColumn("user", "user", 10, 5, lambda row: _text(row.backend.usename),
        "Role of the session.", "pg_stat_activity.usename", lambda row: row.backend.usename),
    SessionColumn("database", "db", 10, 7, lambda row: _text(row.backend.datname),
        "Database of the session.", "pg_stat_activity.datname", lambda row: row.backend.datname),
    SessionColumn("application", "application", 16, 8, lambda row: _text(row.backend.application_name),
        "Name that the client gives itself.", "pg_stat_activity.application_name",
        lambda row: row.backend.application_name),
    SessionColumn(_CLIENT, "client", 15, 6,
        lambda row: _LOCAL if row.backend.client == "local" else _text(row.backend.client),
        "Address of the client; [local] is a Unix socket.", "pg_stat_activity.client_addr",
        lambda row: row.backend.client),
    SessionColumn("type", "type", 18, 11, lambda row: _text(row.backend.backend_type),
        "Kind of process.", "pg_stat_activity.backend_type", lambda row: row.backend.backend_type, visible=False),
    SessionColumn("state", "state", 7, 1, lambda row: short_state(row.backend.state or UNKNOWN),
        "State of the session: idle tx is idle in transaction, aborted is idle in transaction (aborted).",
        "pg_stat_activity.state", lambda row: row.backend.state),
    SessionColumn("wait", "wait", 18, 0, _wait,
        "Current wait, class:event; CPU is an active session without a wait event.",
        "pg_stat_activity.wait_event_type, wait_event", _wait, roomy=28),
    SessionColumn("blocker", "blocker", 9, 9, lambda row: _blockers(row.backend),
        "First process that holds the lock the session waits for, and the number of others; 0 is a prepared "
        "transaction.",
        "pg_blocking_pids(pid)", lambda row: row.backend.blocked_by[0] if row.backend.blocked_by else None, "right"),
    SessionColumn("xmin", "xmin", 6, 10, lambda row: count(row.backend.backend_xmin_age),
        "Age of the oldest transaction that the session can see, in transactions; it holds back vacuum.",
        "age(pg_stat_activity.backend_xmin)", lambda row: row.backend.backend_xmin_age, "right"),
    SessionColumn("xact", "xact s", 6, 1, lambda row: age(row.xact_s),
        "Age of its transaction, in seconds; from a minute on with its units.",
        "now − pg_stat_activity.xact_start", lambda row: row.xact_s, "right", unit="s"),
    SessionColumn("statement", "stmt s", 6, 1, lambda row: age(row.statement_s),
        "Age of the statement while the session is active, otherwise the time in its current state.",
        "now − pg_stat_activity.query_start, or state_change", lambda row: row.statement_s, "right", unit="s"),
    SessionColumn("in-state", "in st.", 6, None, lambda row: age(row.state_s),
        "Time in the current state.", "now − pg_stat_activity.state_change", lambda row: row.state_s, "right",
        unit="s"),
    SessionColumn("connected", "conn.", 6, None, lambda row: age(row.connected_s),
        "Time since the session connected.", "now − pg_stat_activity.backend_start",
        lambda row: row.connected_s, "right", visible=False, unit="s"),
    SessionColumn("query-id", "query id", 20, None, lambda row: str(row.backend.query_id or UNKNOWN),
        "Identifier of the statement, the same as in pg_stat_statements.", "pg_stat_activity.query_id",
        lambda row: row.backend.query_id, "right", visible=False),
    SessionColumn("query", "query", LEAST_QUERY, 0, _statement,
        "Statement of the session, or the last one if it is not active; for other processes their kind.",
        "pg_stat_activity.query", lambda row: row.backend.query, elastic=True),
)  # fmt: skip
"""From left to right on the dashboard."""
ON_DASHBOARD: Final = tuple(column for column in COLUMNS if column.rank is not None)


@lru_cache(8)
def columns_for(width: int) -> tuple[SessionColumn, ...]:
    """Return the columns that fit into so many cells and leave the query a fifth of them, at least 20."""
    least = max(LEAST_QUERY, width // 5)
    kept = list(ON_DASHBOARD)
    while len(kept) > 1:
        needed = sum(least if column.elastic else cells_wide(column, width) for column in kept) + GAP * (len(kept) - 1)
        last = max(kept, key=lambda column: column.rank or 0)
        if needed <= width or not last.rank:
            break
        kept.remove(last)
    return tuple(kept)


def cells_wide(column: SessionColumn, width: int) -> int:
    """Return cells of a column on a screen of that width."""
    return column.roomy if column.roomy is not None and width >= _ROOMY else column.width


def table_column(column: SessionColumn, width: int) -> Column:
    """Return the column as the table widget takes it."""
    return Column(title=column.title, width=cells_wide(column, width), align=column.align, elastic=column.elastic)


def cells_of(row: SessionRow, columns: tuple[SessionColumn, ...]) -> tuple[Cell, ...]:
    """Return the texts of a row with their styles."""
    dim = is_dim(row)
    return tuple(
        [
            (column.cell(row), "dim" if dim else style_of(row, column) if column.id in _STYLED else PLAIN)
            for column in columns
        ]
    )


def is_dim(row: SessionRow) -> bool:
    """Return whether the row matters least: idle, an auxiliary process in its loop, or not of now."""
    return row.stale or row.rank == IDLE or (row.rank == AUXILIARY and row.backend.wait_event_type in (_PAUSING, None))


def style_of(row: SessionRow, column: SessionColumn) -> str:
    """Return an idle row is dim throughout, otherwise wait and state stand out, and a session that holds up others is
    red.
    """
    if is_dim(row):
        return "dim"
    if column.id == _WAIT:
        return wait_style(row.backend.wait_event_type or (CPU if row.running else ""))
    if column.id == _PID and row.rank == ROOT:
        return "critical"
    if column.id == _STATE and row.lingers:
        return "critical" if row.rank == ROOT else "warning"
    return PLAIN


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
    background: Line = (),
) -> list[Line]:
    """Return a head with counts, headings, and as many sessions as fit.

    Args:
        session: The session that is shown.
        width: Cells.
        height: Rows, head and headings included.
        glyphs: Characters.
        view: Order, filter and selection.
        rows: `session_rows(session, view)` when the caller has them already.
        background: The last line, for processes that are not among the rows.
    """
    if background:
        height -= 1
    if rows is None:
        rows = session_rows(session, view)
    if not rows and (lines := _no_sessions(session, width)):
        # The room of the headings and rows says why there are none.
        blank: Line = ((" " * width, PLAIN),)
        lines = [_head(session, width, glyphs, view, rows, 0), blank, *lines, *[blank] * height][:height]
        return [*lines, background] if background else lines
    visible = max(height - HEAD_ROWS, 0)
    view = scrolled(view, rows, visible)
    columns = columns_for(width)
    cursor = cursor_of(rows, view)
    cells = [cells_of(row, columns) for row in rows[view.top : view.top + visible]]
    table = table_lines(
        _headings(columns, rows, width),
        cells,
        width=width,
        height=max(height - 1, 0),
        cursor=None if cursor is None else cursor - view.top,
        glyphs=glyphs,
    )
    lines = [_head(session, width, glyphs, view, rows, visible), *table][:height]
    return [*lines, background] if background else lines


_KINDS: Final = 2
_ALIKE_QUERY: Final = 40


def alike_phrases(rows: Sequence[SessionRow], glyphs: Glyphs) -> list[Phrase]:
    """Return how many sessions are out of view below, and the largest kinds among them: "31 on IO:WALSync: END;".

    Sessions are of a kind that share state, wait, role, database, application and statement.
    """
    largest = sorted((alike for alike in by_kind(rows) if len(alike) >= ALIKE), key=lambda alike: -len(alike))
    return [
        Phrase(((f"{len(rows)} more", "label"),) if rows else (), 1),
        *(_alike(alike, rank, glyphs) for rank, alike in enumerate(largest[:_KINDS], 1)),
    ]


def _alike(rows: Sequence[SessionRow], rank: int, glyphs: Glyphs) -> Phrase:
    row, backend = rows[0], rows[0].backend
    if backend.query == HIDDEN_QUERY:
        return Phrase(((f"{len(rows)} hidden", "warning"),), rank)
    doing = f"on {_wait(row)}" if row.running else short_state(backend.state or backend.backend_type)
    name = f" ({_shown(backend.application_name)})" if backend.application_name else ""
    short = (f"{len(rows)} {doing}{name}", "label")
    query = ellipsized(_query(backend), _ALIKE_QUERY, glyphs.ellipsis).rstrip()
    return Phrase((short, (f": {query}", "dim")), rank, (short,))


def _no_sessions(session: Session, width: int) -> list[Line]:
    """Return the whole reason why the server does not answer, and the remedy, each on lines of its own."""
    silent = None if session.now is None else session.now.postgres
    if not isinstance(silent, Unavailable):
        return []
    parts = silent.detail.split("; ") if silent.detail else []
    styles = itertools.chain(("critical",), itertools.repeat("label"))
    lines = ((line, style) for part, style in zip(parts, styles, strict=False) for line in wrap(part, width - 3))
    return [padded((("  ", PLAIN), (line, style)), width) for line, style in lines]


def _headings(columns: Sequence[SessionColumn], rows: Sequence[SessionRow], width: int) -> list[Column]:
    """Return the query takes what no address of a client needs."""
    longest = max([len(client or "") for client in {row.backend.client for row in rows}], default=0)
    return [
        replace(heading, width=min(max(longest, len(_LOCAL)), heading.width)) if column.id == _CLIENT else heading
        for column, heading in ((column, table_column(column, width)) for column in columns)
    ]


def _head(
    session: Session, width: int, glyphs: Glyphs, view: SessionsView, rows: Sequence[SessionRow], visible: int
) -> Line:
    frame, interval = session.now, session.interval
    activity = NOT_YET if frame is None else sections.activity(frame)
    if frame is None or interval is None or isinstance(activity, Unavailable):
        reason = activity if isinstance(activity, Unavailable) else NOT_YET
        old = seen_before(session)
        of_then: Line = ((f"of {old}  ", "warning"),) if old else ((" ", PLAIN),)
        return head((("sessions ", "title"), *of_then, *absence(reason)), width, glyphs)
    server = sections.server(frame)
    most = "" if isinstance(server, Unavailable) else f"/{server.max_connections}"
    lingering = any(row.lingers for row in rows)
    counts = [
        Phrase(labelled("active", _whole(ACTIVE, interval)), 1),
        Phrase(labelled("idle in tx", _whole(IDLE_IN_TRANSACTION, interval), "warning" if lingering else PLAIN), 3),
        _blocked(interval, blocking(activity), longest_blocked_s(activity)),
    ]
    hidden = hidden_sessions(frame)
    title = [
        Phrase((("sessions ", "title"), (f"{_whole(SESSIONS, interval)}{most}", PLAIN))),
        *([_hidden(hidden)] if hidden is not None else counts),
        seldom(interval),
    ]
    in_sight = f"{view.top + 1}-{min(view.top + visible, len(rows))} of {len(rows)}" if len(rows) > visible > 0 else ""
    chosen = [
        Phrase(((f"/{one_line(view.filter, _FILTER)}", "key"),) if view.filter else (), 0),
        Phrase((("idle hidden", "key"),) if view.hide_idle else (), 3),
        _processes(interval, sections.processes(frame)),
        Phrase(((f"by {view.sort}", "label"),), 4),
        Phrase(((in_sight, "label"),) if in_sight else (), 2),
    ]
    return head(fitting(title, int(width * _TITLE_SHARE), dot(glyphs)), width, glyphs, chosen)


def seen_before(session: Session) -> str:
    """Return the age of the list while the server does not answer: "42 s ago"; "" for a list of now."""
    now, seen_frame = session.now, session.sessions_seen
    return (
        ""
        if now is None or seen_frame is None or seen_frame is now
        else f"{lasting(now.elapsed_s - seen_frame.elapsed_s)} ago"
    )


def _hidden(reason: Unavailable) -> Phrase:
    """Return the reason in place of counts that would not include every session."""
    return Phrase(absence(reason), 1, (("others are hidden: GRANT pg_monitor", "warning"),))


def seldom(interval: Interval | None) -> Phrase:
    """Return the interval at which sessions are sampled, where it is longer than that of frames: many sessions are
    costly.
    """
    apart_s = _apart_s(interval, sections.activity)
    return Phrase(() if apart_s is None else ((f"sampled every {apart_s:.1f} s", "warning"),), 1)


def _apart_s(interval: Interval | None, section: Callable[[Frame], Reading | Unavailable]) -> float | None:
    """Return seconds between two looks at a section, where that is clearly more than between two frames."""
    looks = None if interval is None else interval.pair(section)
    frames = None if interval is None else interval.pair(sections.footprint)
    if looks is None or frames is None:
        return None
    apart_s = looks[1].at_s - looks[0].at_s
    return apart_s if apart_s > _SELDOM * (frames[1].at_s - frames[0].at_s) else None


def _whole(metric: Metric, interval: Interval) -> str:
    value = metric(interval)
    return UNKNOWN if value is None else f"{value:.0f}"


def _blocked(interval: Interval, blocked: Blocking, longest_s: float) -> Phrase:
    count = (("blocked ", "label"), (_whole(BLOCKED, interval), "wait-lock" if blocked.blocked else PLAIN))
    if blocked.root is None:
        return Phrase(count, 2)
    root = "prepared transaction" if blocked.root == PREPARED_TRANSACTION else str(blocked.root)
    more = f", {blocked.roots - 1} more" if blocked.roots > 1 else ""
    style = "critical" if longest_s >= CULPRIT_S else "label"
    return Phrase((*count, (f" (root {root}{more})", style)), 2, (*count, (f" (root {root})", style)))


def _processes(interval: Interval | None, processes: object) -> Phrase:
    if isinstance(processes, Unavailable):
        return Phrase((("CPU, R/s, W/s: ", "label"), *absence(processes)), 6)
    apart_s = _apart_s(interval, sections.processes)
    return Phrase(() if apart_s is None else (("CPU, R/s, W/s ", "label"), (f"every {apart_s:.0f} s", PLAIN)), 6)
