"""pgbench -i: its words, and the tables it leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.datasets.pgbench_tables import Initialised, InitialiseProgress, initialise, parse_done, parse_step
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.postgres.server.sql_session import open_sql_session
from tests.bench.conftest import endpoint_of
from tests.support.processes import eventually

SAMPLES = Path(__file__).parent / "samples"


@pytest.mark.parametrize("major", [15, 18])
def test_words_of_a_real_run(major: int) -> None:
    lines = (SAMPLES / f"initialise_{major}.stderr").read_text().splitlines()
    step, seen = "", []
    for line in lines:
        progress = parse_step(line, step)
        if progress is not None:
            step = progress.step
            seen.append(progress)
    assert [each.done for each in seen if each.total] == [100_000, 200_000, 300_000, 400_000, 500_000]
    assert list(dict.fromkeys(each.step for each in seen)) == [
        "dropping old tables",
        "creating tables",
        "generating data (client-side)",
        "vacuuming",
        "creating primary keys",
    ]
    done = parse_done(lines[-1])
    assert done is not None
    names = [name for name, _ in done.steps_s]
    assert names == ["drop tables", "create tables", "client-side generate", "vacuum", "primary keys"]
    assert sum(seconds for _, seconds in done.steps_s) == pytest.approx(done.total_s, abs=0.05)


def test_done_without_steps() -> None:
    assert parse_done("done in 0.50 s.") == Initialised(0.5, ())


@given(st.text(max_size=200))
def test_no_text_upsets_the_parsers(text: str) -> None:
    assert parse_done(text) is None
    parse_step(text, "")


async def test_makes_tables_and_tells_how_far_it_is(database: str, server: Throwaway, pgbench: Pgbench) -> None:
    dbname = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    seen: list[InitialiseProgress] = []
    done = await initialise(endpoint_of(server, str(dbname)), 2, pgbench, seen.append)
    assert [(each.done, each.total) for each in seen if each.total][-1] == (200_000, 200_000)
    assert done.total_s > 0
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM pgbench_accounts").fetchone() == (200_000,)


async def test_a_failure_has_pgbenchs_own_words(tables: LoadEndpoint, pgbench: Pgbench) -> None:
    with pytest.raises(LoadProblem) as caught:
        await initialise(replace(tables, dbname="nowhere"), 1, pgbench)
    assert 'database "nowhere" does not exist' in caught.value.message
    assert "createdb" in caught.value.hint


async def test_cancelled_it_leaves_nothing(
    database: str, server: Throwaway, pgbench: Pgbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtop_tune.bench.datasets.pgbench_tables.base_directory", lambda: tmp_path)
    dbname = str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
    rows = asyncio.Event()
    task = asyncio.create_task(
        initialise(endpoint_of(server, dbname), 50, pgbench, lambda each: rows.set() if each.total else None)
    )
    async with asyncio.timeout(60):
        await rows.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(tmp_path.iterdir()) == []
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(database, autocommit=True) as connection:
        assert eventually(lambda: connection.execute(others).fetchone() == (0,))


async def test_limits_of_a_role_do_not_end_what_takes_long_on_purpose(
    database: str, server: Throwaway, pgbench: Pgbench
) -> None:
    """Making rows is one statement of seconds to hours; a role that serves an application has a limit of seconds."""
    dbname = str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
    limits = ("statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout")
    with psycopg.connect(database, autocommit=True) as connection:
        for name in limits:
            connection.execute(f"ALTER DATABASE \"{dbname}\" SET {name} = '1s'")
    sql_session = await open_sql_session(resolve(database))
    try:
        await initialise(endpoint_of(server, dbname), 5, pgbench, sql_session=sql_session)
        shown = [(await sql_session.rows("SELECT current_setting(%s)", [name]))[0][0] for name in limits]
    finally:
        await sql_session.aclose()
    assert shown == ["0", "0", "0"]
