"""Plans of the statements with most time, under A and under B: which of them changed, and what a call takes since."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.compare.sides.material import StatementsSeen
from pgtop_tune.compare.statement_rows import StatementComparison, StatementRow
from pgtop_tune.experiment.switchback.arms import Arm, Arms
from pgtop_tune.model.backend_action import PlannedBy, PlanRisk, PlanShape, StatementPlan, StatementToPlan

MOST_PLANNED: Final = 10
LONGEST_S: Final = 60.0
_LATE_S: Final = 15.0
"""A busy machine answers late."""
_CUT_AT: Final = 4000
"""Characters of a text that are read: a longer one is not whole."""
_NAME: Final = 60
_NODES_NAMED: Final = 2
_TIMES: Final = 1.5
"""Ratio from which on a change is told as so many times."""
_MANY: Final = 9.95


Explain = Callable[[StatementToPlan, PlanRisk | None], Awaitable[PlanShape | PlanRisk]]
"""The signature of `PostgresBackends.plan_shape`."""


class PlanPair(Struct, frozen=True):
    """The plans of a statement.

    Attributes:
        text: Foreign.
        a, b: Under the arms.
        times: Time of a call under B by that under A; None where one is not known.
        certain: Whether the time per call differs for certain.
    """

    id: str
    text: str
    a: StatementPlan
    b: StatementPlan
    times: float | None
    certain: bool

    @property
    def changed(self) -> bool:
        """Return whether both plans are known and differ."""
        return self.a.shape is not None and self.b.shape is not None and self.a.shape.nodes != self.b.shape.nodes

    @property
    def problem(self) -> str:
        """Return why one plan is not known; "" where both are."""
        return self.a.problem or self.b.problem


class StatementPlans(Struct, frozen=True):
    """Plans statements.

    Attributes:
        explain: The door to the server.
        by: Roles that may.
    """

    explain: Explain
    by: PlannedBy

    async def look(self, statements: Mapping[str, StatementToPlan]) -> dict[str, StatementPlan]:
        """Return the plans with the settings in force, within a minute."""
        plans = {}
        ends_s = asyncio.get_running_loop().time() + LONGEST_S
        for id, statement in statements.items():
            try:
                async with asyncio.timeout_at(ends_s):
                    plans[id] = await self._plan(statement)
            except PgtopError as problem:
                plans[id] = StatementPlan(problem=problem.message)
            except TimeoutError:
                plans[id] = StatementPlan(problem=f"not planned within {LONGEST_S:.0f} s")
        return plans

    async def _plan(self, statement: StatementToPlan) -> StatementPlan:
        if not statement.query or len(statement.query) >= _CUT_AT:
            return StatementPlan(problem="its full text is unknown")
        if not statement.datname:
            return StatementPlan(problem="its database no longer exists")
        answer = await self.explain(statement, None)
        if isinstance(answer, PlanRisk) and self.by is PlannedBy.ANY:
            answer = await self.explain(statement, answer)
        if isinstance(answer, PlanRisk):
            return StatementPlan(
                problem=f"only {answer.role} ({', '.join(answer.powers)}) could plan it: pass --plans any"
            )
        return StatementPlan(shape=answer)


def to_plan(comparison: StatementComparison, names_seen: StatementsSeen) -> dict[str, StatementToPlan]:
    """Return those of the fixed set with most time on the server, under either arm."""
    rows = sorted((row for row in comparison.rows if row.fixed), key=_total_ms, reverse=True)
    named = [(row, names_seen.names[row.id]) for row in rows[:MOST_PLANNED] if row.id in names_seen.names]
    return {row.id: StatementToPlan(row.text, name.datname or "", name.usename or "") for row, name in named}


def _total_ms(row: StatementRow) -> float:
    return row.calls_a * (row.a_ms or 0.0) + row.calls_b * (row.b_ms or 0.0)


def plan_pairs(
    comparison: StatementComparison, a: Mapping[str, StatementPlan], b: Mapping[str, StatementPlan]
) -> tuple[PlanPair, ...]:
    """Return plans of both arms; changed plans with the largest effect first."""
    pairs = [
        PlanPair(
            id=row.id,
            text=row.text,
            a=a[row.id],
            b=b[row.id],
            times=row.b_ms / row.a_ms if row.a_ms and row.b_ms else None,
            certain=not row.below_noise,
        )
        for row in comparison.rows
        if row.id in a and row.id in b
    ]
    return tuple(sorted(pairs, key=lambda pair: not pair.changed))


async def look_under_both(
    plans: StatementPlans, arms: Arms, comparison: StatementComparison, statements_seen: StatementsSeen
) -> tuple[PlanPair, ...]:
    """Put both arms into force again, the one that is first. Raises as `Arms.to` and `StatementPlans.look`."""
    statements = to_plan(comparison, statements_seen)
    looked: dict[Arm, dict[str, StatementPlan]] = {}
    for arm in (Arm.B, Arm.A) if arms.arm is Arm.B else Arm:
        await arms.to(arm, _LATE_S + LONGEST_S)
        looked[arm] = await plans.look(statements)
    return plan_pairs(comparison, looked[Arm.A], looked[Arm.B])


# In words.


def plan_verdict(pairs: Sequence[PlanPair]) -> str:
    """Return the first change, for the line of the verdict; "" without one."""
    changed = [pair for pair in pairs if pair.changed]
    if not changed:
        return ""
    more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
    return f"{_change(changed[0])}: {one_line(changed[0].text, _NAME)}{more}"


def plan_remarks(pairs: Sequence[PlanPair]) -> list[str]:
    """Return each change with its nodes, how many plans are the same, and why there is none of others."""
    lines = [
        f"{_change(pair)}: {one_line(pair.text, _NAME)}: {one_line(nodes_changed(pair), 200)}"
        for pair in pairs
        if pair.changed
    ]
    if same := sum(not pair.changed and not pair.problem for pair in pairs):
        lines.append(f"plans that are identical under A and B: {same}")
    problems = Counter(pair.problem for pair in pairs if pair.problem)
    return lines + [
        f"statements without a plan: {count} ({one_line(reason, 200)})" for reason, count in problems.items()
    ]


def _change(pair: PlanPair) -> str:
    if pair.times is None or not pair.certain:
        return "plan changed, no certain difference in time per call"
    word, times = ("slower", pair.times) if pair.times > 1.0 else ("faster", 1.0 / pair.times)
    if times < _TIMES:
        return f"plan changed, {100.0 * abs(pair.times - 1.0):.0f} % {word} per call"
    return f"plan changed, {times:.{0 if times >= _MANY else 1}f}x {word} per call"


def nodes_changed(pair: PlanPair) -> str:
    """Return nodes of one plan only, A's before B's."""
    if pair.a.shape is None or pair.b.shape is None:
        return ""
    a, b = ([line.strip() for line in shape.nodes] for shape in (pair.a.shape, pair.b.shape))
    only_a, only_b = ([line for line in one if line not in other_nodes] for one, other_nodes in ((a, b), (b, a)))
    if not only_a and not only_b:
        return "the same nodes in another order"
    return " -> ".join(", ".join(only[:_NODES_NAMED]) or "no other nodes" for only in (only_a, only_b))
