"""A statement of pg_stat_statements to be planned, and the shape of its plan."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


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
