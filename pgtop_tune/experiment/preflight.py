"""Checks before a run: its tables, and room for its clients. Nothing is changed."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.errors import LoadProblem, ServerProblem
from pgtop_tune.bench.datasets.recognise import recognise_pgbench
from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import client_backends, number
from pgtop_tune.model.absence import Unavailable

PGBENCH_FILES: Final = 3
"""stdin, stdout, stderr: pgbench wants clients + 3 open files (its own check)."""


def shows_connections(interval: Interval) -> bool:
    """Return whether the newest frame has the sections from which `connection_room` is computed."""
    return not isinstance(sections.server(interval.newest), Unavailable) and interval.now(sections.activity) is not None


def connection_room(interval: Interval, clients: int, *, alone: bool = False) -> str:
    """Return why some clients will get no connection, with numbers; "" if all fit, or if that is not known.

    Args:
        interval: The newest frames.
        clients: The clients to come.
        alone: Whether the sessions that are there may end before.

    Source: max_connections less superuser_reserved_connections and reserved_connections (16), neither of which binds
    a superuser, and the second no member of pg_use_reserved_connections, less the sessions that are there.
    """
    server, activity = sections.server(interval.newest), interval.now(sections.activity)
    if isinstance(server, Unavailable) or activity is None:
        return ""
    names = ["superuser_reserved_connections", *([] if server.may_use_reserved else ["reserved_connections"])]
    reserved = 0 if server.superuser else int(sum(number(interval, name) or 0 for name in names))
    there = 0 if alone else len(client_backends(activity)) + activity.own_backends
    room = server.max_connections - reserved - there
    if clients <= room:
        return ""
    reserved_words = f", {reserved} of them reserved" if reserved else ""
    reason = f"{clients} clients will not fit: max_connections is {server.max_connections}{reserved_words}"
    connected = f", and {there} sessions are connected already, which leaves {max(room, 0)}"
    return reason + ("" if alone else connected)


def file_room(limit: int, clients: int, threads: int = 1) -> str:
    """Return why pgbench cannot open so many connections, with numbers; "" if it can.

    Args:
        limit: RLIMIT_NOFILE (ulimit -n), the soft one; negative is no limit. pgbench 18 raises it, but only by the
            files of its own check, and its logs take the last ones from the clients.
        clients: The clients.
        threads: Threads of pgbench; each has a log.
    """
    needed = clients + threads + PGBENCH_FILES
    if limit < 0 or needed <= limit:
        return ""
    return (
        f"{clients} clients need {needed} open files, but pgbench may open only {limit}: raise the limit with ulimit -n"
    )


async def pgbench_ready(sql_session: SqlSession) -> str:
    """Return the parts of pgbench's tables that are missing and that a load can do without, at a price; "" for none.

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
    # Without a primary key the number of rows is an estimate, 0 before the first ANALYZE.
    if facts is None or facts.scale == 0 or facts.size_bytes == 0 or (facts.primary_keys and facts.rows == 0):
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
