"""Nothing converts between UTF-8 and MULE_INTERNAL: sessions of psycopg get in all the same."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from pgtop_tune.changes.model.change import Terms, WantedParameter
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.postgres.server.sql_session import open_sql_session
from tests.support.servers import conninfo
from tests.support.undoing import undo_all


@pytest.fixture
def mule(fresh_server: Throwaway) -> str:
    """Connection string of a database.

    The server is its own: pg_stat_statements keeps statements of the database, and nobody can read any then.
    """
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as superuser:
        superuser.execute(
            "CREATE DATABASE mule TEMPLATE template0 ENCODING 'MULE_INTERNAL' LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    return conninfo(fresh_server, "mule")


async def test_a_database_in_mule_internal_is_changed_and_measured(mule: str, tmp_path: Path) -> None:
    control = PostgresControl(resolve(mule), directory=tmp_path)
    await control.apply_set([WantedParameter("work_mem", "5MB")], Terms())
    assert {change.name for change in await control.in_force()} == {"work_mem"}
    await undo_all(control)
    await control.aclose()
    session = await open_sql_session(resolve(mule))
    assert await session.rows("SELECT current_database()::text, chr(65)") == [("mule", "A")]
    await session.aclose()
