"""Plans under A and B: what counts as another plan, in which words, and who may plan."""

from __future__ import annotations

import pytest

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.compare.statement_rows import SAME_MIX
from pgtop_tune.experiment.switchback.evaluation import evaluate
from pgtop_tune.experiment.switchback.plans import (
    PlanPair,
    StatementPlans,
    nodes_changed,
    plan_pairs,
    plan_remarks,
    plan_verdict,
)
from pgtop_tune.experiment.switchback.state import Ending, SwitchbackState, switchback_json
from pgtop_tune.experiment.switchback.words import headline, result_markdown, result_text
from pgtop_tune.model.backend_action import PlannedBy, PlanRisk, PlanShape, StatementPlan, StatementToPlan
from pgtop_tune.postgres.statements.explain import shape_of
from tests.experiment.switchback.simulated import PLAN
from tests.experiment.switchback.test_same_mix import LIGHT, TEXTS, pairs
from tests.support.statement_frames import HOSTILE

INDEX, SEQUENTIAL = "Index Scan using items_pkey on items", "Seq Scan on items"


def planned(*nodes: str) -> StatementPlan:
    return StatementPlan(PlanShape(nodes, "bench", generic=True))


def pair(a: StatementPlan, b: StatementPlan, times: float | None = 10.2, *, certain: bool = True) -> PlanPair:
    return PlanPair(id="1", text="SELECT filler FROM items", a=a, b=b, times=times, certain=certain)


def test_a_shape_has_nodes_indexes_and_the_order_of_joins_and_no_costs() -> None:
    inner = {"Node Type": "Index Scan", "Index Name": "b_pkey", "Relation Name": "b", "Index Cond": "(id = a.id)"}
    outer = {"Node Type": "Seq Scan", "Relation Name": "a", "Total Cost": 12.5, "Filter": "(x > $1)"}
    join = {"Node Type": "Nested Loop", "Join Type": "Left", "Plans": [outer, inner]}
    made = [{"Plan": {"Node Type": "Aggregate", "Strategy": "Hashed", "Partial Mode": "Simple", "Plans": [join]}}]
    assert shape_of(made) == (
        "Hashed Aggregate",
        "  Left Nested Loop",
        "    Seq Scan on a",
        "    Index Scan using b_pkey on b",
    )
    assert shape_of([{"Plan": {"Node Type": "ModifyTable", "Operation": "Update", "Relation Name": "a"}}]) == (
        "Update on a",
    )
    deep: dict[str, object] = {"Node Type": "Result"}
    for _ in range(3000):
        deep = {"Node Type": "Result", "Plans": [deep]}
    assert len(shape_of([{"Plan": deep}])) < 200
    for foreign in (None, [], "text", [{"Plan": 3}], [{"Plan": {"Plans": 3}}]):
        assert shape_of(foreign) == ()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (pair(planned(INDEX), planned(SEQUENTIAL)), "plan changed, 10x slower per call"),
        (pair(planned(INDEX), planned(SEQUENTIAL), 2.34), "plan changed, 2.3x slower per call"),
        (pair(planned(INDEX), planned(SEQUENTIAL), 0.2), "plan changed, 5.0x faster per call"),
        (pair(planned(INDEX), planned(SEQUENTIAL), 1.2), "plan changed, 20 % slower per call"),
        (
            pair(planned(INDEX), planned(SEQUENTIAL), 9.0, certain=False),
            "plan changed, no certain difference in time per call",
        ),
        (pair(planned(INDEX), planned(INDEX)), ""),
        (pair(planned(INDEX), StatementPlan(problem="no")), ""),
    ],
)
def test_a_change_is_told_with_what_a_call_takes_since(found: PlanPair, said: str) -> None:
    assert plan_verdict([found]).partition(":")[0] == said


def test_remarks_name_the_nodes_that_changed_and_why_there_is_no_plan() -> None:
    found = [
        pair(planned("Sort", f"  {INDEX}"), planned("Sort", f"  {SEQUENTIAL}")),
        pair(planned(INDEX), planned(INDEX)),
        pair(StatementPlan(problem=f"{HOSTILE} refused"), planned(INDEX)),
    ]
    changed, same, problem = plan_remarks(found)
    assert changed.endswith(f"SELECT filler FROM items: {INDEX} -> {SEQUENTIAL}")
    assert same == "plans that are identical under A and B: 1"
    assert problem.startswith("statements without a plan: 1 (SELECT")
    assert "\x1b" not in problem
    turned = pair(
        planned("Nested Loop", "  Seq Scan on a", "  Seq Scan on b"),
        planned("Nested Loop", "  Seq Scan on b", "  Seq Scan on a"),
    )
    assert turned.changed
    assert nodes_changed(turned) == "the same nodes in another order"


def test_the_change_is_part_of_the_verdict_and_of_the_record() -> None:
    found = evaluate(pairs(6, LIGHT, LIGHT | {"heavy": (200, 50.0)}), SAME_MIX, final=True, text=lambda id: TEXTS[id])
    assert found.statements is not None
    made = plan_pairs(
        found.statements,
        {"heavy": planned(INDEX), "light": planned(INDEX)},
        {"heavy": planned(SEQUENTIAL), "light": planned(INDEX)},
    )
    state = SwitchbackState(evaluation=found, ending=Ending.WORSE, plans=made)
    said = headline(PLAN, state)
    assert "worse, statements, same mix +" in said
    assert "; plan changed, 10x slower per call: SELECT" in said
    assert f"{INDEX} -> {SEQUENTIAL}" in result_text(PLAN, state)
    told = switchback_json(PLAN, state, {})["plans"]
    assert [each["changed"] for each in told] == [True, False]
    assert told[0]["b"]["shape"]["nodes"] == [SEQUENTIAL]


def test_a_statement_of_a_stranger_is_no_markup_in_markdown() -> None:
    texts = {**TEXTS, "heavy": "SELECT 1 AS \"<img src=x>\", '[a](http://b) **c** | d'"}
    found = evaluate(pairs(6, LIGHT, LIGHT | {"heavy": (200, 50.0)}), SAME_MIX, final=True, text=lambda id: texts[id])
    assert found.statements is not None
    looked = ({"heavy": planned(INDEX)}, {"heavy": planned(f"{SEQUENTIAL}<b>")})
    state = SwitchbackState(evaluation=found, ending=Ending.WORSE, plans=plan_pairs(found.statements, *looked))
    said = result_markdown(PLAN, state)
    assert "plan changed, 10x slower per call: SELECT 1 AS" in said.splitlines()[0]
    for markup in ("<img", "<b>", "'[a](", "** | d"):
        assert markup not in said


RISK = PlanRisk(query="q", database="d", role="postgres", powers=("a superuser",), session_role="", not_as_session="")


@pytest.mark.parametrize(
    ("by", "asked", "planned_it"), [(PlannedBy.ORDINARY, [None], False), (PlannedBy.ANY, [None, RISK], True)]
)
async def test_a_powerful_role_plans_only_where_that_was_agreed_to(
    by: PlannedBy, asked: list[PlanRisk | None], planned_it: bool
) -> None:
    given: list[PlanRisk | None] = []

    async def explain(statement: StatementToPlan, agreed: PlanRisk | None) -> PlanShape | PlanRisk:
        given.append(agreed)
        return RISK if agreed is None else PlanShape((INDEX,), "postgres", generic=True)

    found = await StatementPlans(explain, by).look({"1": StatementToPlan("SELECT $1", "bench", "app")})
    assert given == asked
    assert (found["1"].shape is not None) is planned_it
    assert planned_it or found["1"].problem == "only postgres (a superuser) could plan it: pass --plans any"


async def test_a_statement_that_cannot_be_planned_does_not_hinder_the_others() -> None:
    async def explain(statement: StatementToPlan, agreed: PlanRisk | None) -> PlanShape | PlanRisk:
        if "broken" in statement.query:
            raise ServerProblem('relation "broken" does not exist')
        return PlanShape((INDEX,), "bench", generic=False)

    asked = {
        "broken": StatementToPlan("TABLE broken", "bench", "app"),
        "cut": StatementToPlan("x" * 4000, "bench", "app"),
        "gone": StatementToPlan("SELECT 1", "", "app"),
        "fine": StatementToPlan("SELECT 1", "bench", ""),
    }
    found = await StatementPlans(explain, PlannedBy.ORDINARY).look(asked)
    assert [found[id].problem for id in asked] == [
        'relation "broken" does not exist', "its full text is unknown", "its database no longer exists", "",
    ]  # fmt: skip
    assert found["fine"].shape is not None
