"""For whom a parameter can be changed."""

from __future__ import annotations

import psycopg

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.tuning.scoping import Reach, choices
from tests.support.servers import conninfo


def test_the_narrowest_way_that_the_server_takes_comes_first(server: Throwaway) -> None:
    with psycopg.connect(conninfo(server)) as connection:
        rows = connection.execute("SELECT DISTINCT ON (context) context, name, setting FROM pg_settings").fetchall()
    assert {context for context, _, _ in rows} >= {"internal", "postmaster", "sighup", "backend", "superuser", "user"}
    for context, name, setting in rows:
        reaches = [choice.reach for choice in choices(context)]
        assert (Reach.LOAD in reaches) == _taken(server, f"-c {name}={setting or '0'}"), name
        assert Reach.LOAD not in reaches[1:]
        assert not reaches or reaches[-1] is Reach.SYSTEM


def test_what_happens_to_connected_sessions_is_said() -> None:
    said = {context: choices(context)[-1].connected for context in ("user", "sighup", "postmaster", "backend")}
    assert len(set(said.values())) == 4
    assert "restarted" in said["postmaster"]


def _taken(server: Throwaway, options: str) -> bool:
    """Whether a session can begin with these words in PGOPTIONS."""
    try:
        psycopg.connect(conninfo(server), options=options).close()
    except psycopg.OperationalError:
        return False
    return True
