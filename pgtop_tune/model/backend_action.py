"""Actions of an operator on a session of the server: cancel, terminate, EXPLAIN; and their outcomes."""

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


class BackendOutcome(StrEnum):
    """What came of it."""

    DONE = "done"
    """The signal was sent; the server acts on it when it next looks."""
    GONE = "gone already"
    """The session had ended; perhaps another one has its pid by now, which was left alone."""
    NOT_PERMITTED = "not permitted"
    REFUSED = "refused"


class BackendResult(Struct, frozen=True, gc=False):
    """What came of a signal to one session.

    Attributes:
        backend: Which session.
        detail: Why not, and the GRANT that would open it. May hold foreign text.
    """

    backend: BackendKey
    outcome: BackendOutcome
    detail: str = ""


class QueryPlan(Struct, frozen=True, gc=False):
    """What EXPLAIN says of a session's statement.

    Attributes:
        lines: As the server wrote them. Foreign text.
        statement: The EXPLAIN that was run, whole.
        database: Where it was run.
        user: The role that planned it.
        session_role: The role of the session itself.
        generic: Whether it is the plan for any parameters.
    """

    lines: tuple[str, ...]
    statement: str
    database: str
    user: str
    session_role: str
    generic: bool


class PlanRisk(Struct, frozen=True, gc=False):
    """Why a statement was not planned yet: planning runs functions of it, and only a powerful role could plan it.

    Given back to `BackendControl.explain` it is the operator's agreement: to this statement, planned by this role.

    Attributes:
        query: The statement, whole. Foreign text.
        database: Where it would be planned.
        role: The role that would plan it.
        powers: Rights of that role that no foreign code should have, in words.
        session_role: The role of the session itself.
        not_as_session: Why the session's own role does not plan it; "" where it is the one. Foreign text.
    """

    query: str
    database: str
    role: str
    powers: tuple[str, ...]
    session_role: str
    not_as_session: str


class StatementToPlan(Struct, frozen=True, gc=False):
    """A statement, where it was run, and the role that ran it ("" where it was dropped). All of it is foreign."""

    query: str
    datname: str
    role: str


class PlanShape(Struct, frozen=True, gc=False):
    """A plan without its costs.

    Attributes:
        nodes: A line for each, indented by its depth: what it does, with which index, on which table. Foreign names.
        role: That planned it.
        generic: Whether it is the plan for any parameters.
    """

    nodes: tuple[str, ...]
    role: str
    generic: bool


class StatementPlan(Struct, frozen=True, gc=False):
    """What planning a statement gave.

    Attributes:
        shape: None where there is none.
        problem: Why. May hold foreign text.
    """

    shape: PlanShape | None = None
    problem: str = ""


class PlannedBy(StrEnum):
    """Roles that may plan statements of others: planning executes functions in them."""

    NOBODY = "no"
    ORDINARY = "ordinary"
    """The statement's own role, or ours; neither with rights that foreign code should not have."""
    ANY = "any"
    """Any role, a superuser, too."""
