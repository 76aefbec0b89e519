"""Knobs of the planner. Source: PostgreSQL documentation, "Query Planning" and "Just-in-Time Compilation"."""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.knobs.knob import Knob

_PLANS: Final = "Plans may change; pgbench's own queries do not depend on it."

KNOBS: Final[tuple[Knob, ...]] = (
    Knob(
        name="effective_cache_size",
        group="planner",
        why="Tells the planner the probable size of the cache; more makes index scans look cheaper.",
        trades=_PLANS + " It reserves nothing.",
        panes=("throughput", "latency"),
        moves_with=("shared_buffers",),
    ),
    Knob(
        name="random_page_cost",
        group="planner",
        why="On storage with fast random reads, a lower cost favours index scans.",
        trades=_PLANS,
        panes=("throughput", "latency"),
        steps=("1", "1.1", "1.25", "1.5", "2", "3", "4"),
        moves_with=("seq_page_cost", "effective_cache_size"),
    ),
    Knob(
        name="seq_page_cost",
        group="planner",
        why="The cost of a sequential page read: the unit of all other costs.",
        trades=_PLANS,
        panes=("throughput", "latency"),
        steps=("0.1", "0.25", "0.5", "1", "2"),
        moves_with=("random_page_cost",),
    ),
    Knob(
        name="cpu_tuple_cost",
        group="planner",
        why="The cost of handling a row; higher favours plans that touch fewer rows.",
        trades=_PLANS,
        panes=("throughput", "latency"),
        steps=("0.005", "0.01", "0.02", "0.03", "0.05"),
    ),
    Knob(
        name="default_statistics_target",
        group="planner",
        why="A larger sample improves row estimates of skewed columns, after the next ANALYZE.",
        trades="ANALYZE and planning take longer.",
        panes=("latency",),
        steps=("10", "50", "100", "200", "500", "1000"),
    ),
    Knob(
        name="jit",
        group="planner",
        why="Compiles expressions of expensive queries; off spares short queries with too high an estimate.",
        trades="Long analytical queries may run slower without it.",
        panes=("latency", "host"),
        moves_with=("jit_above_cost",),
    ),
    Knob(
        name="jit_above_cost",
        group="planner",
        why="Estimated cost from which queries are compiled; raise it if compiling takes longer than it saves.",
        trades="Long analytical queries may run slower.",
        panes=("latency", "host"),
        steps=("-1", "100000", "500000", "1000000", "5000000"),
        special=(("-1", "never"),),
        moves_with=("jit",),
    ),
    Knob(
        name="plan_cache_mode",
        group="planner",
        why="Prepared statements may switch to a generic plan after five calls; this forces one kind of plan.",
        trades="Custom plans cost planning at every call; a generic one may fit some values badly.",
        panes=("throughput", "latency"),
        steps=("auto", "force_generic_plan", "force_custom_plan"),
    ),
    Knob(
        name="join_collapse_limit",
        group="planner",
        why="Number of explicit joins up to which the planner tries every order.",
        trades="Planning time grows steeply with it.",
        panes=("latency",),
        steps=("1", "4", "8", "10", "12", "16"),
        special=(("1", "joins stay in the order written"),),
        moves_with=("from_collapse_limit",),
    ),
    Knob(
        name="from_collapse_limit",
        group="planner",
        why="Number of FROM items up to which subqueries are merged into the outer query.",
        trades="Planning time grows steeply with it.",
        panes=("latency",),
        steps=("1", "4", "8", "10", "12", "16"),
        moves_with=("join_collapse_limit",),
    ),
)
