"""For whom a parameter can be changed."""

from __future__ import annotations

import psycopg
import pytest

from pgtop_tune.changes.model.change import Reach, choices, narrowest
from pgtop_tune.cluster.throwaway import Throwaway
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


@pytest.mark.parametrize(
    ("context", "can_load", "connected", "reach"),
    [
        ("user", True, False, Reach.LOAD),
        ("user", True, True, Reach.SYSTEM),
        ("user", False, False, Reach.SYSTEM),
        ("sighup", True, False, Reach.SYSTEM),
        ("postmaster", True, False, Reach.SYSTEM),
    ],
)
def test_the_default_is_the_narrowest_that_shows_the_effect(
    context: str, can_load: bool, connected: bool, reach: Reach
) -> None:
    found = narrowest(context, can_load=can_load, connected=connected)
    assert found is not None
    assert found.reach is reach
    assert narrowest("internal", can_load=can_load, connected=connected) is None
