"""Whether a load can run on the tables that are there, before anything is done to them."""

from __future__ import annotations

from pgtop_tune.bench.datasets.recognise import PgbenchFacts, recognise_pgbench
from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.errors import LoadProblem, ServerProblem


async def pgbench_ready(hand: SqlSession) -> str:
    """What is missing of pgbench's tables that a load can do without, at a price; "" when nothing is.

    Raises:
        LoadProblem: They are not there, empty, those of an ordinary role where ours is a superuser, or other tables
            have their names.
        ConnectionProblem: The connection is gone.
    """
    try:
        facts = await recognise_pgbench(hand)
    except ServerProblem:
        # Who may not read them is told so by pgbench.
        return ""
    if facts is None or _nothing_in(facts):
        missing = "it does not exist" if facts is None else facts.incomplete
        raise LoadProblem(
            f"the pgbench data set cannot be used: {missing}", "create it: pgtop-tune bench init --dataset pgbench"
        )
    if facts.stranger:
        raise LoadProblem(
            f"pgbench's tables belong to {facts.stranger}: their triggers and expressions would run as a superuser",
            f"connect as {facts.stranger}, or take ownership: ALTER TABLE … OWNER TO",
        )
    return f"the pgbench data set is incomplete: {facts.incomplete}" if facts.incomplete else ""


def _nothing_in(facts: PgbenchFacts) -> bool:
    # Without a primary key the number of rows is an estimate, 0 before the first ANALYZE.
    return facts.scale == 0 or facts.size_bytes == 0 or (facts.primary_keys and facts.rows == 0)
