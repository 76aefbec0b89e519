"""The size of the data: asked of the server once, or said why not."""

from __future__ import annotations

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.postgres import survey
from pgtop_tune.postgres.survey import data_bytes
from tests.postgres.conftest import place
from tests.support.servers import conninfo


async def test_it_is_the_sum_of_all_databases_or_the_grant_that_would_tell(
    server: Throwaway, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = database.partition("dbname=")[2].split()[0]
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        row = connection.execute("SELECT sum(pg_database_size(oid)) FROM pg_database WHERE datallowconn").fetchone()
        assert row is not None
        found = await data_bytes(place(server))
        assert isinstance(found, int)
        assert found == pytest.approx(int(row[0]), rel=0.05)
        connection.execute("CREATE ROLE sizeless LOGIN")
        try:
            connection.execute(f"REVOKE CONNECT ON DATABASE {name} FROM public".encode())
            closed = await data_bytes(place(server, user="sizeless"))
            assert isinstance(closed, Unavailable)
            assert (closed.reason, "GRANT" in closed.detail) == (Reason.NO_PERMISSION, True)
        finally:
            connection.execute("DROP ROLE sizeless")
    monkeypatch.setattr(survey, "_ASKED", "SELECT pg_sleep(30)::text::bigint, 0")
    monkeypatch.setattr(survey, "_LONGEST", "50ms")
    slow = await data_bytes(place(server))
    assert isinstance(slow, Unavailable)
    assert slow.reason is Reason.TOO_SLOW
