"""Page 2: every session and auxiliary process, with all that is known of each; connections, and what limits them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from pgtop_tune.base.units import UNKNOWN, age, percent, wall_clock
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.connections import WatchedParameter, groups, limits, watched_parameters
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.events import LogLine
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.session_details import session_lines
from pgtop_tune.tui.dashboard.session_rows import (
    IDLE,
    SessionRow,
    searched_texts,
    session_rows,
    with_idle_folded,
)
from pgtop_tune.tui.dashboard.sessions import COLUMNS, SessionColumn, seen_before, seldom, style_of
from pgtop_tune.tui.pages.page import Page, PageColumn, PageTable, figure, foreign, section_rows, whole, word
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, fit
from pgtop_tune.tui.widgets.phrase import absence, lasting

# Tables about the server as a whole: connections and their limits (page 2), parameters that were set, its log (9).


_GROUP_COLUMNS: Final = (
    word("user", "user", 16, foreign(attrgetter("usename")), "Role.", "pg_stat_activity.usename"),
    word("database", "db", 16, foreign(attrgetter("datname")), "Database.", "pg_stat_activity.datname"),
    word("application", "application", 20, foreign(attrgetter("application_name")),
         "Name that the clients give themselves.", "pg_stat_activity.application_name"),
    word("client", "client", 16, foreign(lambda row: "[local]" if row.client == "local" else row.client),
         "Address; [local] is a Unix socket.", "pg_stat_activity.client_addr"),
    figure("sessions", "conns", 6, attrgetter("sessions"), whole, "Sessions of this kind.",
           "count of pg_stat_activity"),
    figure("active", "active", 6, attrgetter("active"), whole,
           "Running a statement.", "pg_stat_activity.state active, fastpath function call"),
    figure("in-transaction", "idle tx", 7, attrgetter("in_transaction"), whole,
           "Idle in a transaction, aborted ones included.", "pg_stat_activity.state idle in transaction…"),
    figure("idle", "idle", 6, attrgetter("idle"), whole, "Idle.", "pg_stat_activity.state idle"),
    figure("waiting", "lock", 6, attrgetter("waiting"), whole,
           "Waiting for a lock.", "pg_stat_activity.wait_event_type Lock"),
    figure("xact", "xact", 7, attrgetter("oldest_xact_s"), age,
           "Age of the oldest transaction among them.", "now − min(pg_stat_activity.xact_start)"),
    figure("session", "oldest", 7, attrgetter("oldest_session_s"), age,
           "Age of the oldest session among them.", "now − min(pg_stat_activity.backend_start)"),
)  # fmt: skip

_LIMIT_COLUMNS: Final = (
    word("scope", "limit of", 9, attrgetter("scope"), "Subject of the limit.",
         "max_connections, pg_database.datconnlimit, pg_roles.rolconnlimit"),
    word("name", "name", 24, foreign(attrgetter("name")),
         "Database or role; not reserved: the connections left for roles without reserved ones.",
         "max_connections − superuser_reserved_connections − reserved_connections (16+)"),
    figure("used", "used", 7, attrgetter("used"), whole, "Client sessions that count against it.",
           "count of pg_stat_activity, backend_type client backend; for the server with this tool's own"),
    figure("limit", "limit", 7, attrgetter("limit"), whole, "The limit.", "as in the first column"),
    figure("percent", "%", 5, attrgetter("percent"), percent, "Used of the limit.", "used / limit", critical=90.0),
)  # fmt: skip


def _changed(row: WatchedParameter) -> str:
    return "" if row.changed_ms is None else f"{wall_clock(row.changed_ms)} {row.change}"


_SETTING_COLUMNS: Final = (
    word("name", "parameter", 30, attrgetter("parameter.name"), "Name.", "pg_settings.name"),
    word("value", "value", 20, foreign(attrgetter("value")),
         "Value in force; unknown where this program's own connection has another one.", "current_setting(name)"),
    PageColumn("pending", "waits", 8, lambda row: "restart" if row.parameter.pending_restart else UNKNOWN,
               "restart: changed in the files, takes effect when the server is restarted.",
               "pg_settings.pending_restart", value=attrgetter("parameter.pending_restart"),
               style=lambda row: "warning" if row.parameter.pending_restart else "dim"),
    word("source", "source", 20, foreign(attrgetter("parameter.source")), "Source of the value.",
         "pg_settings.source"),
    word("changed", "changed", 30, foreign(_changed), "When and how it was changed since this session began.",
         "pg_settings, compared between samples"),
    word("file", "file", 14, foreign(attrgetter("parameter.sourcefile")),
         "File and line; - if the role may not see it, or without a file.",
         "pg_settings.sourcefile, sourceline", elastic=True),
)  # fmt: skip

_SEVERITIES: Final = {"WARNING": "warning", "ERROR": "critical", "FATAL": "critical", "PANIC": "critical"}


_LOG_COLUMNS: Final = (
    word("prefix", "log", 36, foreign(attrgetter("prefix")), "Text of log_line_prefix.", "the server's log"),
    PageColumn("severity", "level", 8, attrgetter("severity"),
               "WARNING and above, and LOG messages of the server about itself; never statements or connections.",
               "the server's log", value=attrgetter("severity"), largest_first=False,
               style=lambda row: _SEVERITIES.get(row.severity, PLAIN)),
    word("message", "message", 20, foreign(attrgetter("message")), "Message, with its DETAIL and HINT.",
         "the server's log", elastic=True),
)  # fmt: skip


def _log_rows(interval: Interval) -> list[LogLine]:
    tail = interval.now(sections.server_log)
    return [] if tail is None else list(reversed(tail.lines))


def _setting_rows(session: Session) -> Sequence[WatchedParameter] | Unavailable:
    frame, interval = session.now, session.interval
    if frame is None or interval is None:
        return NOT_YET
    parameters = sections.parameters(frame)
    if isinstance(parameters, Unavailable):
        return parameters
    return watched_parameters(interval, (event for _, event in session.events))


CONNECTIONS: Final = PageTable(
    id="connections",
    title="connections",
    columns=_GROUP_COLUMNS,
    rows=section_rows(sections.activity, groups),
    key_of=attrgetter("key"),
    sort="sessions",
    empty="no other session is connected",
)
LIMITS: Final = PageTable(
    id="limits",
    title="limits",
    columns=_LIMIT_COLUMNS,
    rows=section_rows(sections.activity, limits),
    key_of=lambda row: (row.scope, row.name),
    sort="percent",
)
SETTINGS: Final = PageTable(
    id="settings",
    title="settings",
    columns=_SETTING_COLUMNS,
    rows=_setting_rows,
    key_of=attrgetter("parameter.name"),
    sort="name",
    quiet=lambda row: not row.is_set,
    quiet_word="defaults",
    hides_quiet=True,
)
LOG: Final = PageTable(
    id="log",
    title="log",
    columns=_LOG_COLUMNS,
    rows=section_rows(sections.server_log, _log_rows),
    key_of=attrgetter("id"),
    copied=lambda row: f"{row.prefix} {row.severity}:  {row.message}",
    empty="no warning, error or message of the server about itself in the last 64 kB of its log",
    about="The newest messages, newest first: WARNING and above, checkpoints, crashes, out of memory.",
)


_ORDER: Final = (
    "pid", "cpu", "state", "wait", "xact", "statement", "blocker", "delay", "read", "write", "user", "database",
    "application", "client", "in-state", "xmin", "rss", "type", "connected", "query-id", "query",
)  # fmt: skip
"""What decides first: on a narrow screen the rest is reached with the arrows."""
_WIDTHS: Final = {"wait": 22}
"""Wider than on the dashboard, as far as a narrow screen still has room for the ages behind it."""
_NAMES: Final = ("user", "database", "application", "client", "type", "state", "wait", "query", "pid")
"""Columns whose first sort is from a to z."""


def _column(column: SessionColumn) -> PageColumn:
    return PageColumn(
        id=column.id,
        title=column.title,
        width=_WIDTHS.get(column.id, column.width),
        text=column.cell,
        definition=column.definition,
        source=column.source,
        value=column.value,
        largest_first=column.id not in _NAMES,
        style=lambda row: style_of(row, column),
        align=column.align,
        elastic=column.elastic,
        share=0.3 if column.elastic else 0.0,
        visible=column.visible,
        unit=column.unit,
        # Readers of JSON take large numbers for floats.
        raw=(lambda row: str(row.backend.query_id or "")) if column.id == "query-id" else None,
    )


def _rows(session: Session) -> Sequence[SessionRow] | Unavailable:
    frame = session.now
    activity = NOT_YET if frame is None else sections.activity(frame)
    return session_rows(session) or (activity if isinstance(activity, Unavailable) else [])


def _why_old(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return the reason why the list is not of now."""
    frame = session.now
    activity = None if frame is None else sections.activity(frame)
    if not isinstance(activity, Unavailable):
        often = seldom(session.interval).line
        return [fit((("  sessions ", "label"), *often), width)][:height] if often else []
    return [fit(((f"  sessions of {seen_before(session)}  ", "warning"), *absence(activity)), width)][:height]


def _details(session: Session, row: SessionRow, cells: int, glyphs: Glyphs) -> list[Line]:
    """Return everything known of a session; of several that are alike the pid and the age of each."""
    if not row.alike:
        return session_lines(session, row.key, cells)
    title = ((f"{len(row.alike)} idle sessions that are alike; ", PLAIN), ("i", "key"), (" lists them as rows", PLAIN))
    return [
        title,
        (),
        *(
            ((f"{one.backend.pid:>8}", "label"), (f"  idle {lasting(one.statement_s)}", PLAIN),
             (f", connected {lasting(one.connected_s)}", "dim"))
            for one in row.alike
        ),
    ]  # fmt: skip


_BY_ID: Final = {column.id: column for column in COLUMNS}

TABLE: Final = PageTable(
    id="sessions",
    title="sessions",
    columns=tuple(_column(_BY_ID[name]) for name in _ORDER),
    rows=_rows,
    key_of=attrgetter("key"),
    searched=lambda row: searched_texts(row.backend),
    details=_details,
    copied=lambda row: row.backend.query or "",
    backend_of=lambda row: None if row.alike else row.key,
    empty="no sessions except our own",
    about="A row per session and background process. Watching sessions of pgtop-tune are left out.",
    quiet=lambda row: row.rank == IDLE,
    hides_quiet=True,
    folded=with_idle_folded,
)

PAGE: Final = Page(
    key="2",
    id="sessions",
    title="sessions",
    tables=(TABLE, CONNECTIONS, LIMITS),
    summary=_why_old,
    summary_rows=lambda width, height: 1,
    summary_needs=lambda session, width: int(bool(seen_before(session) or seldom(session.interval).line)),
)
