"""The tail's table on page 3: waits, blockers and statements of the slowest transactions alone."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.tail import FEWEST, Tail, TailCause, by_statement
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.runtime.session import Session
from pgtop_tune.safe_text import one_line
from pgtop_tune.tui.dashboard.tail_line import behind, known_tail
from pgtop_tune.tui.pages.page import PageColumn, PageTable, number, word
from pgtop_tune.tui.pages.query_texts import query_texts
from pgtop_tune.tui.widgets.wait_style import wait_style
from pgtop_tune.units import count, mean, percent

_SOURCE: Final = "pg_stat_activity.xact_start, wait_event and query_id in every look; metrics/tail has the formula"
_TEXT: Final = 1_000


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


def _rows(session: Session) -> Sequence[TailCauseRow] | Unavailable:
    interval, frame = session.interval, session.now
    sample = NOT_YET if frame is None else sections.tail(frame)
    if interval is None or isinstance(sample, Unavailable):
        return sample if isinstance(sample, Unavailable) else NOT_YET
    found: Tail | None = known_tail(session)
    if found is None:
        return ()
    texts = query_texts(interval, (cause.query_id for cause in found.causes))
    return [
        TailCauseRow(each, found.error(each.share), texts.get(each.query_id, "")) for each in by_statement(found.causes)
    ]


def _key(row: TailCauseRow) -> tuple[object, ...]:
    cause = row.cause
    return cause.wait_event_type, cause.wait_event, cause.query_id


def _wait_style(row: Any) -> str:
    return wait_style(row.cause.wait_event_type)


TAIL: Final = PageTable(
    id="waits-tail",
    title="tail",
    columns=(
        PageColumn(
            id="name", title="wait of the tail", width=24, text=attrgetter("cause.label"),
            definition="Class and event of the wait. The tail: transactions longer than the p99 of the load, or than "
            "1 s without a load; no other transaction counts here. The line above says where it begins.",
            source=_SOURCE, value=attrgetter("cause.label"), largest_first=False, style=_wait_style,
        ),
        number("share", "share", 6, attrgetter("cause.share"), percent,
               "Per cent of the tail: every transaction counts once, divided by what its looks saw. Looks see long "
               "transactions more often; that bias is taken out.", _SOURCE),
        word("behind", "behind", 22, lambda row: behind(row.cause),
             "Session at the root of the queue for a lock when a transaction was first seen waiting; the first word "
             "of its statement: that behind which most of these waited.",
             "pg_blocking_pids(), pg_stat_activity.query"),
        number("error", "±", 4, attrgetter("error"), percent,
               "Standard error of the share, per cent points: √(share · (1 - share) / transactions).", _SOURCE),
        number("transactions", "tx", 6, attrgetter("cause.transactions"), mean,
               "Transactions of the tail over 60 s; fractions are parts of a transaction's time.", _SOURCE),
        number("looks", "looks", 6, attrgetter("cause.looks"), count, "Looks that saw such a wait.", _SOURCE),
        PageColumn(
            "query", "query", 20, lambda row: one_line(row.query, _TEXT) or "-",
            "Statement that waits.", "pg_stat_statements.query, pg_stat_activity.query",
            value=attrgetter("query"), largest_first=False, elastic=True,
        ),
    ),
    rows=_rows,
    key_of=_key,
    sort="share",
    copied=lambda row: row.query or row.cause.label,
    empty=f"fewer than {FEWEST} transactions of the tail were seen in 60 s",
)  # fmt: skip
