"""The owner of the schema an extension is in can put it aside and functions of his own in its place, at any time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.postgres import StatementTotals
from pgtop_tune.model.statements import StatementSample
from pgtop_tune.postgres.server.conninfo import resolve
from tests.postgres.reading import reading
from tests.support.servers import conninfo
from tests.support.traps import SPRUNG

OWNER, MONITOR, SIGNALLER = "trudy", "looker", "ender"
SWAP = """
ALTER SCHEMA ext RENAME TO aside;
CREATE SCHEMA ext;
GRANT USAGE ON SCHEMA ext TO PUBLIC;
CREATE FUNCTION ext.pg_stat_statements(boolean) RETURNS SETOF aside.pg_stat_statements LANGUAGE plpgsql AS $$
BEGIN
    RAISE LOG 'TRAP SPRUNG: as %', session_user;
END $$;
CREATE VIEW ext.pg_stat_statements_info AS SELECT 0::bigint AS dealloc, now() AS stats_reset
"""


@pytest.fixture(params=[14, 18])
def theirs(request: pytest.FixtureRequest, make_server: Callable[..., Throwaway]) -> Throwaway:
    """A server with the database `shop`, whose owner has the schema of pg_stat_statements, too."""
    server = make_server(request.param, shared_preload_libraries="pg_stat_statements", log_min_messages="log")
    with psycopg.connect(conninfo(server), autocommit=True) as root:
        root.execute(f"CREATE ROLE {OWNER} LOGIN".encode())
        root.execute(f"CREATE ROLE {MONITOR} LOGIN IN ROLE pg_monitor".encode())
        root.execute(f"CREATE ROLE {SIGNALLER} LOGIN IN ROLE pg_monitor, pg_signal_backend".encode())
        root.execute(f"CREATE DATABASE shop OWNER {OWNER}".encode())
    with psycopg.connect(conninfo(server, "shop"), autocommit=True) as root:
        root.execute("DROP EXTENSION IF EXISTS pg_stat_statements")
        root.execute(f"CREATE SCHEMA ext AUTHORIZATION {OWNER}".encode())
        root.execute("GRANT USAGE ON SCHEMA ext TO PUBLIC")
        root.execute("CREATE EXTENSION pg_stat_statements SCHEMA ext")
    return server


def as_role(server: Throwaway, role: str) -> str:
    return conninfo(server, "shop").replace(f"user={server.user}", f"user={role}")


async def test_a_powerful_role_calls_nothing_there(theirs: Throwaway) -> None:
    for role in (theirs.user, SIGNALLER):
        async with reading(resolve(as_role(theirs, role))) as reader:
            await reader.facts()
            await reader.read(sections.statements)
            await reader.read(sections.statement_counters)
            with psycopg.connect(as_role(theirs, OWNER)) as owner:
                owner.execute(SWAP.encode())
            looks = (
                await reader.read(sections.statements),
                await reader.read(sections.statement_counters),
                await reader.read(sections.statement_texts),
            )
            with psycopg.connect(as_role(theirs, OWNER)) as owner:
                owner.execute("DROP SCHEMA ext CASCADE")
                owner.execute("ALTER SCHEMA aside RENAME TO ext")
        assert SPRUNG.findall(Path(str(theirs.log_file)).read_text(errors="replace")) == []
        for look in looks:
            assert isinstance(look, Unavailable)
            assert look.reason is Reason.NO_PERMISSION
            assert f'schema "ext" belongs to "{OWNER}"' in look.detail


async def test_a_role_that_only_watches_reads_it_and_so_does_any_where_the_schema_is_a_superuser_s(
    theirs: Throwaway,
) -> None:
    async with reading(resolve(as_role(theirs, MONITOR))) as reader:
        await reader.facts()
        assert isinstance(await reader.read(sections.statements), StatementTotals)
    with psycopg.connect(conninfo(theirs, "shop"), autocommit=True) as root:
        root.execute(f"ALTER SCHEMA ext OWNER TO {theirs.user}".encode())
    async with reading(resolve(conninfo(theirs, "shop"))) as reader:
        await reader.facts()
        assert isinstance(await reader.read(sections.statements), StatementTotals)
        assert isinstance(await reader.read(sections.statement_counters), StatementSample)
