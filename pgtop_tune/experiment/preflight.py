"""Checks before a run: whether its tables exist, and whether there is room for its clients."""

from __future__ import annotations

from typing import Final

from pgtop_tune.bench.datasets.recognise import PgbenchFacts, recognise_pgbench
from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.errors import LoadProblem, ServerProblem
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import client_backends, number
from pgtop_tune.model.absence import Unavailable

PGBENCH_FILES: Final = 3
"""stdin, stdout, stderr: pgbench wants clients + 3 open files (its own check)."""


def shows_connections(interval: Interval) -> bool:
    """Whether the newest frame has what `connection_room` is computed from."""
    return not isinstance(sections.server(interval.newest), Unavailable) and interval.now(sections.activity) is not None


def connection_room(interval: Interval, clients: int) -> str:
    """Why the clients will not all get a connection of this server, with numbers; "" when they will, or who knows.

    Source: max_connections less superuser_reserved_connections and reserved_connections (16), neither of which binds
    a superuser, and the second no member of pg_use_reserved_connections, less the sessions that are there.
    """
    server, activity = sections.server(interval.newest), interval.now(sections.activity)
    if isinstance(server, Unavailable) or activity is None:
        return ""
    names = ["superuser_reserved_connections", *([] if server.may_use_reserved else ["reserved_connections"])]
    reserved = 0 if server.superuser else int(sum(number(interval, name) or 0 for name in names))
    there = len(client_backends(activity)) + activity.own_backends
    room = server.max_connections - reserved - there
    if clients <= room:
        return ""
    words = f", {reserved} of them reserved" if reserved else ""
    return (
        f"{clients} clients will not fit: max_connections is {server.max_connections}{words}, and {there} sessions "
        f"are connected already, which leaves {max(room, 0)}"
    )


def file_room(limit: int, clients: int) -> str:
    """Why pgbench cannot open so many connections, with numbers; "" when it can.

    Args:
        limit: RLIMIT_NOFILE (ulimit -n), the soft one; negative is no limit.
    """
    needed = clients + PGBENCH_FILES
    if limit < 0 or needed <= limit:
        return ""
    return f"{clients} clients need {needed} open files and pgbench may have {limit}: raise the limit with ulimit -n"


# Whether a load can run on the tables that are there, before anything is done to them.


async def pgbench_ready(sql_session: SqlSession) -> str:
    """What is missing of pgbench's tables that a load can do without, at a price; "" when nothing is.

    Raises:
        LoadProblem: They are not there, empty, those of an ordinary role where ours is a superuser, or other tables
            have their names.
        ConnectionProblem: The connection is gone.
    """
    try:
        facts = await recognise_pgbench(sql_session)
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
