"""Actions on sessions, statements and prepared transactions of the server; and their results."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from pgtop_tune.base.sql_quoting import literal

BackendKey = tuple[int, int | None]
"""pid and backend_start_ms: a pid alone may belong to another session by the time a key is pressed."""


class BackendAct(StrEnum):
    """A signal to a session."""

    CANCEL = "cancel"
    """Ends its statement."""
    TERMINATE = "terminate"
    """Ends the session."""


class BackendOutcome(StrEnum):
    """Outcome of a signal."""

    DONE = "done"
    """The signal was sent; the session acts on it when it next checks for interrupts."""
    GONE = "gone already"
    """The session had ended; a new session with its pid was not signalled."""
    NOT_PERMITTED = "not permitted"
    REFUSED = "refused"


class BackendResult(Struct, frozen=True, gc=False):
    """Result of a signal to one session.

    Attributes:
        backend: The session.
        outcome: The outcome.
        detail: Reason for a refusal, and the GRANT as a remedy. May hold foreign text.
    """

    backend: BackendKey
    outcome: BackendOutcome
    detail: str = ""


class PreparedAct(StrEnum):
    """End of a prepared transaction."""

    ROLLBACK = "roll back"
    COMMIT = "commit"


class PreparedKey(Struct, frozen=True, gc=False):
    """A prepared transaction: its name alone may belong to another one by the time a key is pressed.

    Attributes:
        gid: Its name. Foreign text.
        database: Database in which it has to be ended. Foreign text.
        prepared_ms: When it was prepared, milliseconds since the epoch.
    """

    gid: str
    database: str
    prepared_ms: int


_ENDS = {PreparedAct.ROLLBACK: "ROLLBACK PREPARED", PreparedAct.COMMIT: "COMMIT PREPARED"}


def prepared_statement(act: PreparedAct, gid: str) -> str:
    """Return the statement that ends a prepared transaction."""
    return f"{_ENDS[act]} {literal(gid)};"


class QueryPlan(Struct, frozen=True, gc=False):
    """Plan of a session's statement.

    Attributes:
        lines: Lines of the server. Foreign text.
        statement: The full EXPLAIN that was run.
        database: Its database.
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
    """Risk of planning a statement: planning runs functions of it, and only a powerful role could plan it.

    As an argument of `BackendControl.explain`, it is the operator's agreement: to this statement, planned by this role.

    Attributes:
        query: The full statement. Foreign text.
        database: Database in which it would be planned.
        role: The role that would plan it.
        powers: Rights of that role that no foreign code should have, in words.
        session_role: The role of the session itself.
        not_as_session: Reason why the session's own role does not plan it; "" where it does. Foreign text.
    """

    query: str
    database: str
    role: str
    powers: tuple[str, ...]
    session_role: str
    not_as_session: str


class StatementToPlan(Struct, frozen=True, gc=False):
    """A statement of pg_stat_statements. Foreign texts.

    Attributes:
        query: Its text, normalized: placeholders stand for constants, also where the grammar wants a constant.
        datname, role: Its database, and its role ("" where it was dropped).
        sampled: Whole text with which a session runs it; "" where none is known.
    """

    query: str
    datname: str
    role: str
    sampled: str = ""


class PlanShape(Struct, frozen=True, gc=False):
    """A plan without its costs.

    Attributes:
        nodes: A line for each node, indented by its depth: operation, index and table. Foreign names.
        role: Role that planned it.
        generic: Whether it is the plan for any parameters.
    """

    nodes: tuple[str, ...]
    role: str
    generic: bool


class StatementPlan(Struct, frozen=True, gc=False):
    """Result of planning a statement.

    Attributes:
        shape: The shape; None without a plan.
        problem: Reason why there is no plan. May hold foreign text.
    """

    shape: PlanShape | None = None
    problem: str = ""


class PlannedBy(StrEnum):
    """Roles that may plan statements of other roles, because planning executes functions in them."""

    NOBODY = "no"
    ORDINARY = "ordinary"
    """The statement's own role, or ours, without rights that foreign code should not have."""
    ANY = "any"
    """Any role, including a superuser."""
