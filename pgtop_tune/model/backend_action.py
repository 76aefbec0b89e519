"""What an operator may do with a session of the server: cancel, terminate, EXPLAIN; and what came of it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

BackendKey = tuple[int, int | None]
"""pid and backend_start_ms: a pid alone may be somebody else by the time a key is pressed."""


class BackendAct(StrEnum):
    """A signal to a session."""

    CANCEL = "cancel"
    """Ends its statement."""
    TERMINATE = "terminate"
    """Ends the session."""


class Outcome(StrEnum):
    """What came of it."""

    DONE = "done"
    """The signal was sent; the server acts on it when it next looks."""
    GONE = "gone already"
    """The session had ended; perhaps another one has its pid by now, which was left alone."""
    NOT_PERMITTED = "not permitted"
    REFUSED = "refused"


class BackendResult(Struct, frozen=True):
    """What came of a signal to one session.

    Attributes:
        backend: Which session.
        detail: Why not, and the GRANT that would open it. May hold foreign text.
    """

    backend: BackendKey
    outcome: Outcome
    detail: str = ""


class QueryPlan(Struct, frozen=True):
    """What EXPLAIN says of a session's statement.

    Attributes:
        lines: As the server wrote them. Foreign text.
        statement: The EXPLAIN that was run, whole.
        database: Where it was run.
        user: As whom.
        generic: Whether it is the plan for any parameters.
    """

    lines: tuple[str, ...]
    statement: str
    database: str
    user: str
    generic: bool
