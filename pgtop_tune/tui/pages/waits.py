"""Page 3: what sessions wait for, over time and by event, statement, database, user and backend type."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct
from rich.cells import cell_len, set_cell_size

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import UNKNOWN, count, mean, ms, percent
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import SessionActivity, activity_of, is_active
from pgtop_tune.metrics.budget import latency_budget
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.statements import query_texts
from pgtop_tune.metrics.tail import FEWEST, TailCause, by_statement
from pgtop_tune.metrics.waits import (
    WaitGroup,
    by_database,
    by_event,
    by_query,
    by_type,
    by_user,
    label_of,
    wait_groups,
)
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.waits import WaitCount
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.latency import behind, known_tail, tail_phrases_in_full
from pgtop_tune.tui.dashboard.waits import stacked_waits, waits_axis, waits_needs, waits_rows
from pgtop_tune.tui.pages.page import Page, PageColumn, PageTable, figure, section_rows, unless_hidden, word
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, wrapped
from pgtop_tune.tui.widgets.lines import labelled as labelled_lines
from pgtop_tune.tui.widgets.phrase import padded, summed, wait_style

# The tail's table on page 3: waits, blockers and statements of the slowest transactions alone.

_OF_TAIL: Final = "pg_stat_activity.xact_start, wait_event and query_id in every sample; metrics/tail has the formula"


class TailCauseRow(Struct, frozen=True):
    """A cause beside the tail it is of.

    Attributes:
        cause: Wait, statement and root.
        error: Standard error of its share, per cent points.
        query: Text of the statement, "" where it is not known.
    """

    cause: TailCause
    error: float
    query: str


def _tail_rows(interval: Interval) -> Sequence[TailCauseRow]:
    slow_tail = known_tail(interval)
    if slow_tail is None:
        return ()
    texts = query_texts(interval, (cause.query_id for cause in slow_tail.causes))
    return [
        TailCauseRow(cause, slow_tail.error(cause.share), texts.get(cause.query_id, ""))
        for cause in by_statement(slow_tail.causes)
    ]


TAIL: Final = PageTable(
    id="waits-tail",
    title="tail",
    columns=(
        PageColumn(
            id="name", title="wait of the tail", width=24, text=attrgetter("cause.label"),
            definition="Class and event of the wait. The tail: transactions longer than the p99 of the load, or than "
            "1 s without a load; no other transaction counts here. The line above says where it begins.",
            source=_OF_TAIL, value=attrgetter("cause.label"), largest_first=False,
            style=lambda row: wait_style(row.cause.wait_event_type),
        ),
        figure("share", "share", 6, attrgetter("cause.share"), percent,
               "Per cent of the tail: every transaction counts once, divided among the waits that its samples show. "
               "Samples meet long transactions more often; this bias is removed.", _OF_TAIL),
        word("behind", "behind", 22, lambda row: behind(row.cause),
             "Session at the root of the lock queue when a transaction was first seen waiting, and the first word "
             "of its statement; the root of most of these transactions.",
             "pg_blocking_pids(), pg_stat_activity.query"),
        figure("error", "±", 4, attrgetter("error"), percent,
               "Standard error of the share, per cent points: √(share · (1 - share) / transactions).", _OF_TAIL),
        figure("transactions", "tx", 6, attrgetter("cause.transactions"), mean,
               "Transactions of the tail over 60 s; fractions are parts of a transaction's time.", _OF_TAIL),
        figure("looks", "samples", 7, attrgetter("cause.looks"), count, "Samples that show such a wait.", _OF_TAIL),
        PageColumn(
            "query", "query", 20, lambda row: one_line(row.query, _TEXT) or "-",
            "Statement that waits.", "pg_stat_statements.query, pg_stat_activity.query",
            value=attrgetter("query"), largest_first=False, elastic=True,
        ),
    ),
    rows=section_rows(sections.tail, _tail_rows),
    key_of=lambda row: (row.cause.wait_event_type, row.cause.wait_event, row.cause.query_id),
    sort="share",
    copied=lambda row: row.query or row.cause.label,
    empty=f"fewer than {FEWEST} transactions of the tail were seen in 60 s",
)  # fmt: skip


By = Callable[[WaitCount], Hashable]
_SOURCE: Final = "pg_stat_activity sampled several times a second (observations / samples), or pg_wait_sampling_profile"
_TEXT: Final = 1_000
BURST_KEY: Final = "F"
_MOST: Final = 8
"""Rows of a drill-down."""


class WaitGroupRow(Struct, frozen=True):
    """A group of sessions, beside all that are at work.

    Attributes:
        group: The sessions.
        name: The name that they have in common, as shown.
        share: Per cent of the active sessions over 10 s; None for sessions beside them.
        share_long: Over 60 s.
        ms_per_transaction: Their part of the latency budget; None where they have none, and without transactions.
        query: Text of the statement, "" where it is not known.
    """

    group: WaitGroup
    name: str
    share: float | None
    share_long: float | None
    ms_per_transaction: float | None
    query: str = ""

    @property
    def largest(self) -> str:
        """The wait with most of its sessions."""
        wait = self.group.largest
        return UNKNOWN if wait is None else label_of(*wait)


class _Dimension(Struct, frozen=True):
    """A way to tell sessions apart.

    Attributes:
        title: Title of its table.
        by: What a group has in common.
        name: How a group is called.
        counts: Whether its table has a session.
    """

    title: str
    by: By
    name: Callable[[Any], str]
    counts: Callable[[WaitCount], bool] = is_active


_BESIDE: Final = (SessionActivity.PACING, SessionActivity.BACKGROUND, SessionActivity.IO_WORKER)


def _event_name(key: Any) -> str:
    kind, event = key
    if kind not in _BESIDE:
        return label_of(kind, event)
    return event if event.startswith(kind) else f"{kind} {event}"


def _name(key: Any) -> str:
    return UNKNOWN if key is None else one_line(key, _TEXT)


EVENTS: Final = _Dimension(title="events", by=by_event, name=_event_name, counts=lambda count: True)
QUERIES: Final = _Dimension("statements", by_query, lambda key: str(key or UNKNOWN))
DATABASES: Final = _Dimension("databases", by_database, _name)
USERS: Final = _Dimension("users", by_user, _name)
TYPES: Final = _Dimension(
    "backend types", by_type, _name,
    lambda count: activity_of(count) in (SessionActivity.ACTIVE, SessionActivity.BACKGROUND),
)  # fmt: skip
_DIMENSIONS: Final = (EVENTS, QUERIES, DATABASES, USERS, TYPES)


def _rows(dimension: _Dimension) -> Callable[[Session], Sequence[WaitGroupRow] | Unavailable]:
    def rows(interval: Interval) -> Sequence[WaitGroupRow]:
        budget = latency_budget(interval)
        if budget is None:
            groups = wait_groups(interval, dimension.by, dimension.counts)
        else:
            groups = wait_groups(interval, dimension.by, dimension.counts, budget.ms_of, budget.window_s)
        total = sum(group.sessions for group in groups if not group.beside)
        whole_long = sum(group.sessions_long for group in groups if not group.beside)
        texts = query_texts(interval, (group.key for group in groups)) if dimension is QUERIES else {}
        return [
            WaitGroupRow(
                group=group,
                name=dimension.name(group.key),
                share=None if group.beside or not total else 100.0 * group.sessions / total,
                share_long=None if group.beside or not whole_long else 100.0 * group.sessions_long / whole_long,
                ms_per_transaction=group.ms or None,
                query=texts.get(group.key, ""),
            )
            for group in groups
        ]

    return section_rows(sections.waits, rows)


def _key_column(title: str, width: int, definition: str, source: str, most: int = 0) -> PageColumn:
    return PageColumn(
        id="name", title=title, width=width, most=most, text=attrgetter("name"), definition=definition, source=source,
        value=attrgetter("name"), largest_first=False, style=_name_style,
    )  # fmt: skip


def _name_style(row: Any) -> str:
    key = row.group.key
    return wait_style(key[0]) if isinstance(key, tuple) else PLAIN


_NUMBERS: Final = (
    figure("sessions", "in 10 s", 7, attrgetter("group.sessions"), mean,
           "Mean number of sessions over the last 10 s.", _SOURCE),
    figure("share", "%10s", 4, attrgetter("share"), percent,
           "Share of the active sessions over the last 10 s; none for other sessions.", _SOURCE),
    figure("sessions-long", "in 60 s", 7, attrgetter("group.sessions_long"), mean,
           "Mean number of sessions over the last 60 s.", _SOURCE),
    figure("share-long", "%60s", 4, attrgetter("share_long"), percent,
           "Share of the active sessions over the last 60 s; none for other sessions.", _SOURCE),
    figure("ms", "ms/tx", 7, attrgetter("ms_per_transaction"), ms,
           "Milliseconds per transaction: mean sessions over 10 s divided by transactions per second. For auxiliary "
           "processes this time is not part of transactions.",
           f"{_SOURCE}; tps of pgbench's progress lines, else of pg_stat_database"),
)  # fmt: skip
_PEAKS: Final = (
    figure("peak", "peak", 5, attrgetter("group.peak"), count,
           "Most sessions that one sample showed in this wait within 60 s: a herd of 200 ms vanishes in a mean.",
           "pg_stat_activity sampled several times a second: max(observations of a sample)"),
    figure("burst", "burst", 5, attrgetter("group.burst"), count,
           "Peak divided by the mean of 60 s: 1 is a steady wait, 20 a herd that comes and goes.",
           "pg_stat_activity sampled several times a second: max / mean"),
)  # fmt: skip
_LARGEST: Final = PageColumn(
    "largest", "largest wait", 24, attrgetter("largest"), "Most frequent wait of these sessions, over 60 s.",
    _SOURCE, value=attrgetter("largest"), largest_first=False,
    style=lambda row: PLAIN if row.group.largest is None else wait_style(row.group.largest[0]),
)  # fmt: skip
_WITHOUT_ID: Final = "(without an id: commits and other utility statements)"


def _query(row: Any) -> str:
    return _WITHOUT_ID if row.group.key is None else one_line(row.query, _TEXT) or UNKNOWN


_QUERY: Final = PageColumn(
    "query", "query", 20, _query,
    "Text of the statement from pg_stat_statements, otherwise from a session that ran it in the last minute. The "
    "server assigns no id to many utility statements, such as COMMIT in the prepared protocol.",
    "pg_stat_statements.query, pg_stat_activity.query", value=attrgetter("query"), largest_first=False,
    style=lambda row: "dim" if row.group.key is None else PLAIN, elastic=True,
)  # fmt: skip


def _details(dimension: _Dimension) -> Callable[[Session, Any, int, Glyphs], list[Line]]:
    def lines(session: Session, row: Any, cells: int, glyphs: Glyphs) -> list[Line]:
        interval = session.interval
        if interval is None:
            return []
        key = row.group.key
        details = labelled_lines(dimension.title, row.name, cells, _name_style(row))
        if row.query:
            details += [(), *wrapped(row.query, cells)]
        for second in _DIMENSIONS:
            if second is not dimension:
                groups = wait_groups(
                    interval, second.by, lambda count: dimension.by(count) == key and dimension.counts(count)
                )
                details += [(), ((f"{second.title}", "title"), ("  mean sessions over 60 s", "dim"))]
                details += _drilled(interval, second, groups, cells, glyphs)
        return details

    return lines


def _drilled(
    interval: Interval, dimension: _Dimension, groups: list[WaitGroup], cells: int, glyphs: Glyphs
) -> list[Line]:
    groups = sorted(groups, key=lambda group: -group.sessions_long)
    first_groups = groups[:_MOST]
    texts = query_texts(interval, (group.key for group in first_groups)) if dimension is QUERIES else {}
    lines: list[Line] = []
    for group in first_groups:
        without_id = dimension is QUERIES and group.key is None
        name = _WITHOUT_ID if without_id else one_line(texts.get(group.key, ""), cells) or dimension.name(group.key)
        room = max(cells - 10, 1)
        shown_name = name if cell_len(name) <= room else set_cell_size(name, room - 1) + glyphs.ellipsis
        lines.append(((mean(group.sessions_long).rjust(8) + "  ", PLAIN), (shown_name, PLAIN)))
    if len(groups) > _MOST:
        lines.append(((" " * 10 + f"and {len(groups) - _MOST} more", "dim"),))
    return lines


def _table(id: str, dimension: _Dimension, columns: tuple[PageColumn, ...]) -> PageTable:
    return PageTable(
        id=f"waits-{id}",
        title=dimension.title,
        columns=columns,
        rows=unless_hidden(_rows(dimension)),
        key_of=attrgetter("group.key"),
        details=_details(dimension),
        copied=lambda row: row.query or row.name,
        empty="no session was active in the last minute",
    )


# Above the tables: the map of the wait classes over time, and why the tail is slow.


def _has_tail(session: Session) -> bool:
    return session.now is not None and not isinstance(sections.tail(session.now), Unavailable)


def _summary(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    if height < 2 or not _has_tail(session):
        return stacked_waits(session, width, height, glyphs)
    tail = padded(summed(tail_phrases_in_full(session, BURST_KEY), width, glyphs), width)
    return [*stacked_waits(session, width, height - 1, glyphs), tail]


def _moment_at(session: Session, size: tuple[int, int], at: tuple[int, int]) -> float | None:
    charted = size[1] - (size[1] >= 2 and _has_tail(session))
    return waits_axis(session, size[0]).moment_of(at[0]) if at[1] < charted else None


PAGE: Final = Page(
    key="3",
    id="waits",
    title="waits",
    tables=(
        _table("events", EVENTS, (
            _key_column("wait", 28, "Class and event of the wait. CPU: active without a wait event. CPU queue: "
                "run-queue wait. Beside the active sessions: Client:think, idle in transaction for less than a "
                "second; Client:idle, pgbench between two transactions; pacing, intended sleeps; "
                "background processes; io worker.",
                "pg_stat_activity.wait_event_type, wait_event; /proc/PID/schedstat", most=52),
            *_NUMBERS, *_PEAKS,
        )),
        _table("queries", QUERIES, (
            _key_column("query id", 20, "Identifier of the statement; - if there was none or it is unknown.",
                "pg_stat_activity.query_id"),
            *_NUMBERS, _LARGEST, _QUERY,
        )),
        _table("databases", DATABASES, (
            _key_column("database", 20, "Database of the sessions; - for processes without one.",
                "pg_stat_activity.datid"),
            *_NUMBERS, _LARGEST,
        )),
        _table("users", USERS, (
            _key_column("user", 20, "Role of the sessions; - for processes without one.", "pg_stat_activity.usesysid"),
            *_NUMBERS, _LARGEST,
        )),
        _table("types", TYPES, (
            _key_column("backend type", 24, "Kind of process.", "pg_stat_activity.backend_type"),
            *_NUMBERS, _LARGEST,
        )),
        TAIL,
    ),
    summary=_summary,
    summary_rows=lambda width, height: waits_rows(width, height) + 1,
    summary_needs=lambda session, width: waits_needs(session, width) + _has_tail(session),
    moment_at=_moment_at,
)  # fmt: skip
