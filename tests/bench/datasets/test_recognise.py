"""pgbench's tables that are there: known for what they are, also half-made ones, and somebody else's left alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.datasets.pgbench_tables import InitialiseProgress, PgbenchShape, estimated_bytes, initialise
from pgtop_tune.bench.datasets.recognise import found_variables, recognise_bus, recognise_pgbench
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.postgres.server.sql_session import PsycopgSession, open_sql_session
from tests.support.servers import conninfo


@pytest.fixture
async def sql_session(database: str) -> AsyncIterator[PsycopgSession]:
    opened = await open_sql_session(resolve(database))
    yield opened
    await opened.aclose()


@pytest.fixture
def endpoint(database: str, server: Throwaway) -> LoadEndpoint:
    dbname = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    return LoadEndpoint(str(server.socket_dir), server.port, server.user, str(dbname))


async def test_an_empty_database_has_none(sql_session: PsycopgSession) -> None:
    assert await recognise_pgbench(sql_session) is None
    assert await recognise_bus(sql_session) is None
    assert await found_variables(sql_session, "") == {}
    with pytest.raises(LoadProblem, match="this database has no pgbench data set") as caught:
        await found_variables(sql_session, "pgbench")
    assert "pgtop-tune bench init --dataset pgbench" in caught.value.hint


@pytest.mark.ends_of_majors
async def test_what_was_asked_of_pgbench_is_found_again(all_servers: Throwaway) -> None:
    name = "recognised"
    shape = PgbenchShape(steps="dtGvpf", fillfactor=80, partitions=3, partition_method="hash")
    endpoint = LoadEndpoint(str(all_servers.socket_dir), all_servers.port, all_servers.user, name)
    with psycopg.connect(conninfo(all_servers), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            sql_session = await open_sql_session(resolve(conninfo(all_servers, name)))
            done = await initialise(endpoint, 1, find_pgbench(), shape=shape)
            facts = await recognise_pgbench(sql_session)
            await sql_session.aclose()
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    assert [step for step, _ in done.steps_s] == [
        "drop tables", "create tables", "server-side generate", "vacuum", "primary keys", "foreign keys",
    ]  # fmt: skip
    assert facts is not None
    assert (facts.schema, facts.scale, facts.rows, facts.fillfactor) == ("public", 1, 100_000, 80)
    assert (facts.partitions, facts.partition_method) == (3, "hash")
    assert facts.primary_keys
    assert facts.foreign_keys
    assert not facts.unlogged
    assert facts.incomplete == ""
    assert facts.size_bytes == pytest.approx(estimated_bytes(1, shape), rel=0.05)
    assert facts.variables() == {"scale": "1", "accounts": "100000"}


async def test_plain_and_unlogged_tables(sql_session: PsycopgSession, endpoint: LoadEndpoint) -> None:
    await initialise(endpoint, 2, find_pgbench(), shape=PgbenchShape(unlogged=True))
    facts = await recognise_pgbench(sql_session)
    assert facts is not None
    assert facts.describe().startswith("scale 2, 200k accounts, ")
    assert facts.describe().endswith(", unlogged: no WAL, not representative")
    assert (facts.fillfactor, facts.partitions, facts.foreign_keys) == (100, 0, False)
    assert facts.size_bytes == pytest.approx(estimated_bytes(2, PgbenchShape()), rel=0.05)


@pytest.mark.parametrize(
    ("steps", "then", "says", "empty"),
    [
        ("dt", "", "the tables are empty", True),
        ("dtgv", "", "no primary keys", False),
        ("dtgvp", "DROP TABLE public.pgbench_history", "no pgbench_history", False),
        ("dtgvp", "DROP TABLE public.pgbench_accounts", "no pgbench_accounts", False),
        ("dtgvp", "DELETE FROM public.pgbench_accounts WHERE aid > 70000", "70.0k of 100k accounts", False),
    ],
)
async def test_half_made_tables_are_named_so(
    steps: str, then: str, says: str, empty: bool, sql_session: PsycopgSession, endpoint: LoadEndpoint
) -> None:
    await initialise(endpoint, 1, find_pgbench(), shape=PgbenchShape(steps=steps))
    if then:
        await sql_session.execute(then)
    facts = await recognise_pgbench(sql_session)
    assert facts is not None
    assert says in facts.incomplete
    assert says in facts.describe()
    assert facts.empty is empty


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE public.pgbench_accounts (id bigint, customer text)",
        "CREATE VIEW public.pgbench_branches AS SELECT 1 AS bid, 0 AS bbalance, '' AS filler",
    ],
)
async def test_somebody_elses_tables_of_the_same_names_are_told_apart(made: str, sql_session: PsycopgSession) -> None:
    await sql_session.execute(made)
    with pytest.raises(LoadProblem, match=r"has a table public\.pgbench_\w+ that is not pgbench's") as caught:
        await recognise_pgbench(sql_session)
    assert "use another database" in caught.value.hint


async def test_steps_of_which_pgbench_says_nothing_are_asked_of_the_server(
    sql_session: PsycopgSession, endpoint: LoadEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtop_tune.bench.datasets.pgbench_tables.LOOK_EVERY_S", 0.01)
    told: list[InitialiseProgress] = []
    await initialise(endpoint, 5, find_pgbench(), told.append, PgbenchShape(steps="dtGvp"), sql_session)
    made = [each for each in told if each.step == "generating data (server-side)" and each.total]
    assert all(each.estimated and each.total == 500_000 for each in made)
    assert any(0 < each.done < 500_000 for each in made)
    assert [each.done for each in made] == sorted(each.done for each in made)
    for step in ("vacuuming", "creating primary keys"):
        blocks = [each for each in told if each.step == step and each.total]
        assert blocks
        assert all(each.unit == "blocks" and each.done <= each.total for each in blocks)
    assert await sql_session.rows("SELECT 1") == [(1,)]


@pytest.mark.parametrize(
    "trap",
    [
        "INDEX ON pgbench_branches ((bid + trap(1)))",
        "STATISTICS st ON (bid + trap(1)), bid FROM pgbench_branches",
    ],
)
async def test_a_superuser_does_not_read_tables_of_an_ordinary_role(
    database: str, sql_session: PsycopgSession, server: Throwaway, trap: str
) -> None:
    """Planning `SELECT count(*)` executes functions in expressions of indexes and statistics."""
    marker = Path(str(server.data_dir)) / "executed"
    marker.unlink(missing_ok=True)
    with psycopg.connect(database, autocommit=True) as superuser:
        superuser.execute("CREATE ROLE mallory LOGIN; GRANT CREATE ON SCHEMA public TO mallory")
        superuser.execute("SET SESSION AUTHORIZATION mallory")
        superuser.execute(
            "CREATE FUNCTION act() RETURNS void LANGUAGE plpgsql AS $act$ BEGIN"
            f" EXECUTE $$COPY (SELECT 1) TO PROGRAM 'cat >> {marker}'$$;"
            " EXCEPTION WHEN insufficient_privilege THEN NULL; END $act$;"
            " CREATE FUNCTION trap(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM public.act(); RETURN 1; END $$;"
            " CREATE TABLE pgbench_branches (bid int, bbalance int, filler text);"
            f" CREATE {trap}".encode()
        )
        try:
            found = await recognise_pgbench(sql_session)
            assert found is not None
            assert (found.stranger, found.scale) == ("mallory", 0)
            assert not marker.exists()
            theirs = await open_sql_session(resolve(database.replace(f"user={server.user}", "user=mallory")))
            assert await recognise_pgbench(theirs) is not None
            await theirs.aclose()
        finally:
            superuser.execute("RESET SESSION AUTHORIZATION")
            superuser.execute("DROP OWNED BY mallory; DROP ROLE mallory")
