"""The owner of a database cannot slip tables of his own under a load that a superuser makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import run
from tests.support.servers import conninfo
from tests.support.traps import SPRUNG

TRAPS = """
CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84));
CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(88));
CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84));
CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
INSERT INTO pgbench_branches VALUES (1, 0);
CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE LOG 'TRAP SPRUNG: as %', session_user;
    RETURN NULL;
END $$;
CREATE TRIGGER t BEFORE INSERT ON pgbench_history FOR EACH ROW EXECUTE FUNCTION act();
CREATE TRIGGER u BEFORE TRUNCATE ON pgbench_history FOR EACH STATEMENT EXECUTE FUNCTION act();
"""


@pytest.fixture(params=[14, 18])
def theirs(request: pytest.FixtureRequest, make_server: Callable[..., Throwaway]) -> Throwaway:
    """A server with a database of eva's, whose public schema is as the server made it."""
    server = make_server(request.param)
    with psycopg.connect(conninfo(server), autocommit=True) as root:
        root.execute("CREATE ROLE eva LOGIN")
        root.execute("CREATE DATABASE shop OWNER eva")
    return server


def where(server: Throwaway, role: str = "") -> str:
    return conninfo(server, "shop").replace(f"user={server.user}", f"user={role or server.user}")


def sprung(server: Throwaway) -> list[str]:
    return [
        trap for trap in SPRUNG.findall(Path(str(server.log_file)).read_text(errors="replace")) if "as eva" not in trap
    ]


def bench(server: Throwaway, home: Path, *words: str) -> tuple[int, str]:
    done = run("bench", *words, "-w", "-d", where(server), home=home)
    return done.status, done.out + done.err


def test_tables_in_a_schema_that_comes_first_are_not_used(theirs: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(where(theirs), autocommit=True) as root:
        root.execute(f"ALTER SCHEMA public OWNER TO {theirs.user}".encode())
    status, words = bench(theirs, tmp_path, "init", "-s", "1")
    assert status == 0, words
    with psycopg.connect(where(theirs, "eva"), autocommit=True) as eva:
        # "$user" comes before public.
        eva.execute(f"CREATE SCHEMA {theirs.user}; SET search_path = {theirs.user}".encode())
        eva.execute(TRAPS.encode())
        eva.execute(f"GRANT USAGE ON SCHEMA {theirs.user} TO PUBLIC".encode())
    status, words = bench(theirs, tmp_path, "run", "-c", "1", "-t", "10", "--housekeeping", "truncate-history")
    assert status != 0
    assert "belong to eva" in words
    status, words = bench(theirs, tmp_path, "init", "-s", "1", "--force")
    assert status == 0, words
    with psycopg.connect(where(theirs), autocommit=True) as root:
        assert root.execute("SELECT count(*) FROM public.pgbench_accounts").fetchone() == (100_000,)
    assert sprung(theirs) == []


def test_without_a_schema_of_our_own_nothing_is_made(theirs: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(where(theirs), autocommit=True) as root:
        root.execute("ALTER SCHEMA public OWNER TO eva")
    for words in (("init", "-s", "1"), ("run", "-c", "1", "-t", "10", "--housekeeping", "none")):
        status, said = bench(theirs, tmp_path, *words)
        assert status != 0
        assert "connect as eva" in said or "no tables of the pgbench data set" in said
    with psycopg.connect(where(theirs, "eva"), autocommit=True) as eva:
        eva.execute("CREATE SCHEMA bus")
    status, said = bench(theirs, tmp_path, "init", "--dataset", "bus", "--size", "2000")
    assert status != 0
    assert "schema bus belongs to eva" in said
    assert sprung(theirs) == []
