"""`record --openmetrics`: a real server, a real scrape, beside what the server's own views say."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.commands.recordings.recording import scraping
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.export.openmetrics import Syntax
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.export.pages import values
from tests.support.servers import conninfo

DEADLINE_S = 60.0
HOSTILE = '=cmd|" /C calc"\\ {x="1"} 数'
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@contextmanager
def scraped(home: Path, *words: str) -> Iterator[Callable[[], Values]]:
    """Runs `record` and gives a function that scrapes it."""
    started = subprocess.Popen(
        [*PROGRAM, "record", "-q", "--openmetrics", "0", "-i", "0.5", *words],
        stderr=subprocess.PIPE, text=True, env=environment(home), cwd=ROOT,
    )  # fmt: skip
    try:
        assert started.stderr is not None
        url = started.stderr.readline().split(": ", 1)[1].strip()

        def scrape() -> Values:
            asked = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text"})
            with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
                assert answer.headers["Content-Type"] == Syntax.OPENMETRICS.value
                return values(answer.read().decode())

        yield scrape
        assert not list(home.rglob("*.jsonl*"))
    finally:
        started.terminate()
        started.communicate(timeout=DEADLINE_S)
    assert started.returncode == 0


def until(scrape: Callable[[], Values], holds: Callable[[Values], bool]) -> Values:
    deadline_s = time.monotonic() + DEADLINE_S
    while not holds(found := scrape()):
        assert time.monotonic() < deadline_s, sorted(found.items())
        time.sleep(0.1)
    return found


def of_view(connection: psycopg.Connection, column: str, view: str, name: str | None = None) -> float:
    statement = SQL("SELECT {}::float8 FROM {}").format(Identifier(column), Identifier(view))
    if name is not None:
        statement += SQL(" WHERE datname = {}").format(name)
    row = connection.execute(statement).fetchone()
    assert row is not None
    return float(row[0])


def test_a_scrape_says_what_the_views_say_also_after_a_reset_and_nothing_when_the_server_is_away(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server(autovacuum="off")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(HOSTILE)))
        with psycopg.connect(conninfo(server), dbname=HOSTILE, autocommit=True) as inside:
            inside.execute("CREATE TABLE t AS SELECT generate_series(1, 1234) AS i")
            inside.execute("CHECKPOINT")
        of_database = (("datname", HOSTILE),)
        with scraped(tmp_path, conninfo(server)) as scrape:
            inserted = ("pgtop_stat_database_tup_inserted_total", of_database)
            found = until(scrape, lambda now: now.get(inserted, 0) >= 1234)
            assert found["pgtop_up", ()] == 1
            assert found[inserted] == of_view(connection, "tup_inserted", "pg_stat_database", HOSTILE)
            for column in ("blks_read", "tup_updated", "sessions", "deadlocks"):
                mine = found[f"pgtop_stat_database_{column}_total", of_database]
                assert mine == of_view(connection, column, "pg_stat_database", HOSTILE)
            for column, view in (
                ("wal_records", "pg_stat_wal"),
                ("wal_fpi", "pg_stat_wal"),
                ("num_requested", "pg_stat_checkpointer"),
                ("buffers_alloc", "pg_stat_bgwriter"),
            ):
                name = f"pgtop_{view.removeprefix('pg_')}_{column}_total"
                until(scrape, lambda now, name=name, at=(column, view): now.get((name, ())) == of_view(connection, *at))
            assert found["pgtop_server_max_connections", ()] == float(
                (connection.execute("SHOW max_connections").fetchone() or ("",))[0]
            )
            records = ("pgtop_stat_wal_wal_records_total", ())
            connection.execute("SELECT pg_stat_reset_shared('wal')")
            until(scrape, lambda now: now.get(records, found[records]) < found[records])
            connection.close()
            server.stop("immediate")
            away = until(scrape, lambda now: now["pgtop_up", ()] == 0)
            assert not [name for name, _ in away if name.startswith(("pgtop_stat", "pgtop_server"))]


def test_words_that_are_no_address_are_refused_in_one_sentence(tmp_path: Path) -> None:
    done = run("record", "--openmetrics", "127.0.0.1", home=tmp_path)
    assert done.status == 2
    assert done.err.startswith("pgtop-tune: 127.0.0.1 is not an address to listen on\nhint: use 127.0.0.1:19432")


def test_statements_without_an_address_are_refused() -> None:
    with pytest.raises(UsageProblem, match="--statements needs --openmetrics"), scraping("", 5, 1.0):
        pass
