"""Page 2: every session and auxiliary process, with all that is known of each; connections, and what limits them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.backend_action import BackendKey
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.session_columns import COLUMNS, SessionColumn, style_of
from pgtop_tune.tui.dashboard.session_details import details_lines
from pgtop_tune.tui.dashboard.session_rows import IDLE, SessionRow, searched_texts, session_rows
from pgtop_tune.tui.pages.connections import CONNECTIONS, LIMITS
from pgtop_tune.tui.pages.page import Page, PageColumn, PageTable
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line

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
        style=partial(_style, column),
        align=column.align,
        elastic=column.elastic,
        shown=column.shown,
    )


def _style(column: SessionColumn, row: Any) -> str:
    return style_of(row, column)


def _rows(session: Session) -> Sequence[SessionRow] | Unavailable:
    frame = session.now
    activity = NOT_YET if frame is None else sections.activity(frame)
    return activity if isinstance(activity, Unavailable) else session_rows(session)


def _details(session: Session, row: Any, cells: int, glyphs: Glyphs) -> list[Line]:
    return details_lines(session, row.key, cells)


def _key(row: Any) -> BackendKey:
    key: BackendKey = row.key
    return key


def _copied(row: Any) -> str:
    query: str | None = row.backend.query
    return query or ""


_BY_ID: Final = {column.id: column for column in COLUMNS}

TABLE: Final = PageTable(
    id="sessions",
    title="sessions",
    columns=tuple(_column(_BY_ID[name]) for name in _ORDER),
    rows=_rows,
    key_of=_key,
    searched=searched_texts,
    details=_details,
    copied=_copied,
    backend_of=_key,
    empty="no sessions except our own",
    quiet=lambda row: row.rank == IDLE,
)

PAGE: Final = Page(key="2", id="sessions", title="sessions", tables=(TABLE, CONNECTIONS, LIMITS))
