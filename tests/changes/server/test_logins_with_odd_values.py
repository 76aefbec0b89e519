"""No value that the table of risks calls safe ends a new session, whatever its scope: every setting at its ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql

from pgtop_tune.changes.statements import is_unwritable_empty
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics.setting_risks import risk_of
from pgtop_tune.postgres.server import own_sessions
from tests.support.processes import eventually
from tests.support.servers import conninfo

SETTINGS = """
SELECT name, vartype, min_val, max_val, enumvals FROM pg_settings
 WHERE context IN ('user', 'superuser', 'backend', 'superuser-backend', 'sighup') AND name !~ '^transaction_(d|i|r)'
 ORDER BY name
"""
TEXTS = ("", "nope", "/nope", "*", "1", "LATIN1", "UTC", "C", "view", "german")
SCOPES = ("ALTER SYSTEM", "ALTER ROLE postgres", "ALTER DATABASE postgres")

Connection = psycopg.Connection[tuple[object, ...]]


def odd_values(kind: str, least: str | None, most: str | None, choices: list[str] | None) -> Iterator[str]:
    """The ends of a setting, and what is odd between them."""
    if kind == "bool":
        yield from ("on", "off")
    elif kind == "enum":
        yield from choices or ()
    elif kind == "string":
        yield from TEXTS
    else:
        yield from dict.fromkeys((str(least), str(most), "-1", "0", "1"))


def reloaded(connection: Connection) -> None:
    before = connection.execute("SELECT pg_conf_load_time()::text").fetchone()
    connection.execute("SELECT pg_reload_conf()")
    assert eventually(lambda: connection.execute("SELECT pg_conf_load_time()::text").fetchone() != before)


def refusal(server: Throwaway) -> str:
    """Why a new session is not let in; what ends it later is no lock-out."""
    try:
        psycopg.connect(conninfo(server), connect_timeout=10).close()
    except psycopg.OperationalError as error:
        return str(error)
    return ""


@pytest.mark.long
@pytest.mark.parametrize("major", [14, 18])
def test_no_safe_value_keeps_a_new_session_out(make_server: Callable[..., Throwaway], major: int) -> None:
    server, refusals = make_server(major, autovacuum="off"), []
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(own_sessions.lifting(own_sessions.of_major(major)).encode())
        for name, kind, least, most, choices in connection.execute(SETTINGS.encode()).fetchall():
            for value in odd_values(str(kind), least, most, choices):
                safe = risk_of(str(name), value) is None and not is_unwritable_empty(str(name), value)
                for scope in SCOPES if safe else ():
                    parameter = sql.Identifier(*str(name).split("."))
                    try:
                        change = sql.SQL("{} SET {} = {}").format(sql.SQL(scope), parameter, sql.Literal(value))
                        connection.execute(change)
                    except psycopg.Error:
                        continue
                    if scope == SCOPES[0]:
                        reloaded(connection)
                    refusals += [(name, value, scope, refused) for refused in [refusal(server)] if refused]
                    connection.execute(sql.SQL("{} RESET {}").format(sql.SQL(scope), parameter))
                    if scope == SCOPES[0]:
                        reloaded(connection)
    assert refusals == []
