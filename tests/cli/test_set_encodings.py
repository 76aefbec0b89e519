"""Values and names in databases whose encoding does not have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.changes.journal import journals, read
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve
from pgtop_tune.postgres.server.sql_session import open_sql_session
from tests.changes.server.test_control import auto_conf
from tests.cli.runs import run
from tests.support.servers import conninfo

ENCODINGS = ["LATIN1", "SQL_ASCII"]

CONFIRMED = ("--confirm", "search_path")


@pytest.fixture(params=[pytest.param(14, marks=pytest.mark.long), 18], ids=lambda major: f"pg{major}")
def of_encodings(request: pytest.FixtureRequest, server_for_major: Callable[[int], Throwaway]) -> Iterator[Throwaway]:
    """A server with a database of each."""
    server = server_for_major(request.param)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        for name in ENCODINGS:
            words = "CREATE DATABASE {} ENCODING {} LOCALE 'C' TEMPLATE template0"
            connection.execute(sql.SQL(words).format(sql.Identifier(name.lower()), sql.Literal(name)))
        yield server
        for name in ENCODINGS:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name.lower())))


def of(server: Throwaway, database: str) -> ConnInfo:
    return resolve(database, host=str(server.socket_dir), port=str(server.port), user=server.user)


def test_a_character_that_the_database_does_not_have_is_told(of_encodings: Throwaway, tmp_path: Path) -> None:
    before = auto_conf(of_encodings)
    latin = ("-d", conninfo(of_encodings, "latin1"))
    for words, status, told in (
        (
            ("set", "search_path=\N{GREEK CAPITAL LETTER OMEGA}", "--confirm", "search_path"),
            6,
            "pass a UTF8 database with -d",
        ),
        (("set", "work_mem=5MB", "--scope", "role=\N{GREEK CAPITAL LETTER OMEGA}"), 6, "pass a UTF8 database with -d"),
        (("set", "log_line_prefix=\udcff"), 2, "not text"),
        (("reset", "work_mem", "--scope", "role=\udcff"), 2, "not text"),
    ):
        ran = run(*words, *latin, home=tmp_path)
        assert "Traceback" not in ran.err
        assert (ran.status, told in ran.err) == (status, True), ran.err
    assert auto_conf(of_encodings) == before
    (path,) = journals(tmp_path / ".local/state/pgtop-tune/journal")
    assert read(path).in_force == ()


@pytest.mark.parametrize("database", ["latin1", "sql_ascii"])
def test_one_that_it_has_goes_there_and_back(of_encodings: Throwaway, tmp_path: Path, database: str) -> None:
    before, where = auto_conf(of_encodings), ("-d", conninfo(of_encodings, database))
    ran = run("set", "search_path=\N{LATIN SMALL LETTER E WITH ACUTE}", *CONFIRMED, *where, home=tmp_path)
    assert ran.status == 0, ran.err
    ran = run("revert", "--all", *where, home=tmp_path)
    assert (ran.status, "left alone" in ran.out) == (0, False), ran.err
    assert auto_conf(of_encodings) == before


@pytest.mark.parametrize("database", ["latin1", "sql_ascii"])
async def test_statements_of_data_sets_are_read_as_they_are_written(of_encodings: Throwaway, database: str) -> None:
    sql_session = await open_sql_session(of(of_encodings, database))
    try:
        assert await sql_session.rows("SELECT 'x', current_database()::text") == [("x", database)]
        await sql_session.execute('CREATE TABLE public."\N{LATIN SMALL LETTER E WITH ACUTE}" ()')
        rows = await sql_session.rows(
            "SELECT octet_length(relname::text::bytea) FROM pg_class WHERE relname = %s", ["\xe9"]
        )
        assert rows == [(1 if database == "latin1" else 2,)]
        if database == "latin1":
            with pytest.raises(ServerProblem, match="no equivalent"):
                await sql_session.execute("SELECT '\N{GREEK CAPITAL LETTER OMEGA}'")
        with pytest.raises(ServerProblem, match="not text"):
            await sql_session.execute("SELECT '\udcff'")
    finally:
        await sql_session.aclose()
