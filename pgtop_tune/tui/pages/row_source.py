"""Where the rows of a table come from: a section of the newest frame and what a metric makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.hidden import hidden_sessions
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.session import Session
from pgtop_tune.safe_text import one_line

TEXT: Final = 300
"""Characters of a foreign text that are looked at: more than any column shows."""


def rows_of(
    section: Callable[[Frame], Any], rates: Callable[[Interval], Sequence[Any]]
) -> Callable[[Session], Sequence[Any] | Unavailable]:
    """Rows, or why the section they depend on is not there."""

    def rows(session: Session) -> Sequence[Any] | Unavailable:
        frame, interval = session.now, session.interval
        if frame is None or interval is None:
            return NOT_YET
        found = section(frame)
        return found if isinstance(found, Unavailable) else rates(interval)

    return rows


def unless_hidden(
    rows: Callable[[Session], Sequence[Any] | Unavailable],
) -> Callable[[Session], Sequence[Any] | Unavailable]:
    """The same rows about sessions; where there are none and this role may not see everybody's, the GRANT instead."""

    def shown(session: Session) -> Sequence[Any] | Unavailable:
        found = rows(session)
        if found or session.now is None:
            return found
        return hidden_sessions(session.now) or found

    return shown


def foreign(text: Callable[[Any], str | None]) -> Callable[[Any], str]:
    """A name or other words of a stranger, on one line; "" without."""

    def safe(row: Any) -> str:
        return one_line(text(row) or "", TEXT)

    return safe
