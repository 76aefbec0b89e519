"""What is found before a load touches pgbench's tables: nothing, somebody else's, empty ones, or ones without keys."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.datasets.pgbench_tables import initialise
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.cli.wiring import endpoint_of
from pgtop_tune.experiment.preflight import pgbench_ready
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.postgres.server.sql_session import open_sql_session


def ready(database: str) -> str:
    async def ask() -> str:
        sql_session = await open_sql_session(resolve(database))
        try:
            return await pgbench_ready(sql_session)
        finally:
            await sql_session.aclose()

    return asyncio.run(ask())


@pytest.fixture
def tables(database: str) -> str:
    """A database with pgbench's tables at scale 1."""
    asyncio.run(initialise(endpoint_of(resolve(database)), 1, find_pgbench()))
    return database


def test_tables_as_pgbench_makes_them_are_ready(tables: str) -> None:
    assert ready(tables) == ""


def test_no_tables_and_tables_of_somebody_else_are_refused(database: str) -> None:
    with pytest.raises(LoadProblem, match="it does not exist"):
        ready(database)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE pgbench_accounts (number int, owner text)")
    with pytest.raises(LoadProblem, match="is not pgbench's"):
        ready(database)


@pytest.mark.parametrize("emptied", ["pgbench_accounts", "pgbench_branches"])
def test_tables_that_hold_nothing_are_refused(tables: str, emptied: str) -> None:
    with psycopg.connect(tables, autocommit=True) as connection:
        connection.execute(f"TRUNCATE {emptied}".encode())
    with pytest.raises(LoadProblem, match="the tables are empty"):
        ready(tables)


def test_tables_without_keys_can_be_used_and_are_named_also_before_they_were_analysed(tables: str) -> None:
    with psycopg.connect(tables, autocommit=True) as connection:
        connection.execute("CREATE TABLE fresh AS SELECT * FROM pgbench_accounts")
        connection.execute("DROP TABLE pgbench_accounts")
        connection.execute("ALTER TABLE fresh RENAME TO pgbench_accounts")
    assert "no primary keys" in ready(tables)


def test_a_superuser_makes_no_load_on_tables_of_an_ordinary_role(tables: str) -> None:
    with psycopg.connect(tables, autocommit=True) as connection:
        connection.execute("CREATE ROLE tables_owner LOGIN")
        try:
            connection.execute("ALTER TABLE pgbench_history OWNER TO tables_owner")
            with pytest.raises(LoadProblem, match="belong to tables_owner"):
                ready(tables)
        finally:
            connection.execute("ALTER TABLE pgbench_history OWNER TO CURRENT_USER")
            connection.execute("DROP ROLE tables_owner")
    assert ready(tables) == ""
