"""The sampler through libpq: the same rows, errors and limits as through its own driver, on every major."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import asyncpg
import psycopg
import pytest

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.base.start_options import with_settings
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.postgres.queries import inventory, sql
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.server.connection import ReadConnection
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.libpq_connection import LibpqConnection
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.read_only_connection import open_connection
from tests.postgres.conftest import by_libpq, place
from tests.support.processes import eventually
from tests.support.servers import conninfo

EVERY_TYPE = """
SELECT true AS yes, 7::int4 AS four, -7::int8 AS eight, 1.5::float8 AS float, 4294967295::oid AS oid, '3'::xid AS xid,
       'snow ☃ \\ "quoted"'::text AS words, '\\x00ff'::bytea AS bytes, NULL::text AS nothing, NULL::bytea AS no_bytes,
       ARRAY['a', NULL, 'b"\\,{}']::text[] AS list, '{}'::text[] AS none, ARRAY['x']::text[] AS one,
       'NaN'::float8::text AS nan, '-infinity'::float8 AS infinite
"""
_ARGUMENTS: dict[str, object] = {
    "text[]": ["1", "2"], "oid[]": [1, 1259], "oid": 1259, "int4": 1, "int8": 1, "text": "log/none", "name": "postgres"
}  # fmt: skip


async def opened(where: ConnInfo, patience_s: float = 60.0) -> ReadConnection:
    return await open_connection(where, OwnSessions(), patience_s)


def raw(connection: ReadConnection) -> Any:
    return connection._raw


def shape(rows: Sequence[Any]) -> dict[str, set[str]]:
    """Types of what stands in each column."""
    found: dict[str, set[str]] = {}
    for row in rows:
        for name in row.keys():  # noqa: SIM118 (a row is no mapping to those who iterate)
            found.setdefault(name, set()).add(kind(row[name]))
    return {name: kinds - {"NoneType"} for name, kinds in found.items()}


def kind(value: object) -> str:
    if isinstance(value, list):
        return f"list[{', '.join(sorted({kind(each) for each in value} - {'NoneType'}))}]"
    return type(value).__name__


def alike(ours: dict[str, set[str]], theirs: dict[str, set[str]]) -> bool:
    """Columns in the same order, and no type where both have values that the other does not have."""
    if list(ours) != list(theirs):
        return not ours or not theirs
    return all(
        {each for each in mine if each != "list[]"} == {each for each in theirs[name] if each != "list[]"}
        or not mine
        or not theirs[name]
        or "list[]" in mine | theirs[name]
        for name, mine in ours.items()
    )


async def test_every_query_gives_the_same_columns_and_types(all_servers: Throwaway) -> None:
    with psycopg.connect(conninfo(all_servers), autocommit=True) as superuser:
        superuser.execute("CREATE TABLE IF NOT EXISTS driven (id int PRIMARY KEY, words text)")
        major = superuser.info.server_version // 10_000
    where = place(all_servers)
    own, libpq = await opened(where), await opened(by_libpq(where))
    assert not isinstance(raw(own), LibpqConnection)
    assert isinstance(raw(libpq), LibpqConnection)
    asked = 0
    for name in inventory():
        try:
            text = sql(name, major)
        except LookupError:
            continue
        if "{schema}" in text:
            continue
        text = text.replace("{identifier}", "''")
        statement = await raw(own).prepare(text)
        arguments = [_ARGUMENTS[each.name] for each in statement.get_parameters()]
        there = await own.fetch(text, *arguments)
        here = await libpq.fetch(text, *arguments)
        assert alike(shape(here), shape(there)), name
        asked += bool(there)
    assert asked > 30
    await own.aclose()
    await libpq.aclose()


async def test_the_queries_of_extensions_give_the_same(make_server: Any) -> None:
    server = make_server(shared_preload_libraries="pg_stat_statements")
    own, libpq = await opened(place(server)), await opened(by_libpq(place(server)))
    for name in ("statements", "statement_texts"):
        text = sql(name, 18).format(schema='"public"')
        parameters = (await raw(own).prepare(text)).get_parameters()
        queryids = [str(row["queryid"]) for row in await own.fetch("SELECT queryid FROM public.pg_stat_statements")]
        arguments = [queryids] if parameters else []
        there, here = await own.fetch(text, *arguments), await libpq.fetch(text, *arguments)
        assert there
        assert here
        assert alike(shape(here), shape(there)), name
    await own.aclose()
    await libpq.aclose()


async def test_values_are_those_of_the_other_driver(all_servers: Throwaway) -> None:
    own, libpq = await opened(place(all_servers)), await opened(by_libpq(place(all_servers)))
    (there,), (here,) = await own.fetch(EVERY_TYPE), await libpq.fetch(EVERY_TYPE)
    assert tuple(here) == tuple(there)
    assert [kind(value) for value in here] == [kind(value) for value in there]
    assert dict(here) == dict(there)
    assert {**here} == {**there}
    assert list(here.keys()) == list(there.keys())
    assert here["words"] == there[6]
    assert here[0:2] == (True, 7)
    (again,) = await libpq.fetch(EVERY_TYPE)
    assert again == here
    await own.aclose()
    await libpq.aclose()


@pytest.mark.parametrize("element", ["plain", 'a "b" \\c\\', "{x,y}", "NULL", "", " ", "☃\n"])
async def test_elements_of_a_list_arrive_as_they_are(server: Throwaway, element: str) -> None:
    libpq = await opened(by_libpq(place(server)))
    assert (await libpq.fetch("SELECT $1::text[]", [element, "x"]))[0][0] == [element, "x"]
    assert (await libpq.fetch("SELECT $1::text", element))[0][0] == element
    await libpq.aclose()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SELECT 1/0", asyncpg.DivisionByZeroError),
        ("SELECT * FROM nothing_like_it", asyncpg.UndefinedTableError),
        ("SELECT nothing_like_it()", asyncpg.UndefinedFunctionError),
        ("CREATE TABLE forbidden ()", asyncpg.ReadOnlySQLTransactionError),
        ("SELECT pg_sleep(30)", asyncpg.QueryCanceledError),
    ],
)
async def test_refusals_are_those_of_the_other_driver(
    server: Throwaway, text: str, error: type[asyncpg.PostgresError]
) -> None:
    for where in (place(server), by_libpq(place(server))):
        connection = await opened(where)
        with pytest.raises(error) as refused:
            await connection.fetch(text)
        assert type(refused.value) is error
        assert (await connection.fetch("SELECT 1"))[0][0] == 1
        await connection.aclose()


async def test_a_statement_whose_table_has_changed_is_prepared_anew(server: Throwaway) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as superuser:
        superuser.execute("DROP TABLE IF EXISTS changing")
        superuser.execute("CREATE TABLE changing (a int)")
        superuser.execute("INSERT INTO changing VALUES (1)")
        libpq = await opened(by_libpq(place(server)))
        assert dict((await libpq.fetch("SELECT * FROM public.changing"))[0]) == {"a": 1}
        superuser.execute("ALTER TABLE changing ADD b text DEFAULT 'new'")
        assert dict((await libpq.fetch("SELECT * FROM public.changing"))[0]) == {"a": 1, "b": "new"}
        await libpq.aclose()
        superuser.execute("DROP TABLE changing")


async def test_statements_stay_prepared(server: Throwaway) -> None:
    libpq = await opened(by_libpq(place(server)))
    for _ in range(3):
        await libpq.fetch("SELECT 4711 AS number")
    found = await libpq.fetch("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%4711 AS number'")
    assert found[0][0] == 1
    await libpq.aclose()


def sessions(server: Throwaway, pid: int) -> int:
    with psycopg.connect(conninfo(server), autocommit=True) as superuser:
        row = superuser.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone()
    assert row is not None
    return int(str(row[0]))


async def test_a_server_that_does_not_answer_is_given_up(server: Throwaway) -> None:
    connection = await opened(by_libpq(place(server)), patience_s=0.2)
    os.kill(connection.backend_pid, signal.SIGSTOP)
    try:
        with pytest.raises(ConnectionProblem, match="no answer in time"):
            await connection.fetch("SELECT 1")
        assert connection.is_closed
    finally:
        os.kill(connection.backend_pid, signal.SIGCONT)


async def test_a_cancelled_look_leaves_nothing_behind(server: Throwaway) -> None:
    connection = await opened(by_libpq(place(server)))
    look = asyncio.ensure_future(connection.fetch("SELECT pg_sleep(0.9)"))
    while not raw(connection)._busy:
        await asyncio.sleep(0)
    look.cancel()
    with pytest.raises(asyncio.CancelledError):
        await look
    connection.terminate()
    assert await asyncio.to_thread(eventually, lambda: sessions(server, connection.backend_pid) == 0)


async def test_a_connection_dropped_under_a_statement_ends_it(server: Throwaway) -> None:
    connection = await opened(by_libpq(place(server)))
    look = asyncio.ensure_future(connection.fetch("SELECT pg_sleep(0.9)"))
    while not raw(connection)._busy:
        await asyncio.sleep(0)
    connection.terminate()
    with pytest.raises(ConnectionProblem):
        await look
    assert connection.is_closed


async def test_a_session_that_was_ended_is_told_of_as_lost(server: Throwaway) -> None:
    connection = await opened(by_libpq(place(server)))
    with psycopg.connect(conninfo(server), autocommit=True) as superuser:
        superuser.execute("SELECT pg_terminate_backend(%s)", (connection.backend_pid,))
    with pytest.raises(ConnectionProblem):
        await connection.fetch("SELECT 1")
    assert connection.is_closed


def test_settings_stand_behind_the_users_options() -> None:
    assert with_settings("-c work_mem=8MB", {"search_path": "pg_catalog"}) == (
        "-c work_mem=8MB -c search_path=pg_catalog"
    )
    assert with_settings("", {"a.b": "two words\\"}) == "-c a.b=two\\ words\\\\"
    assert with_settings("", {}) == ""


async def test_settings_of_the_session_arrive(server: Throwaway) -> None:
    from pgtop_tune.postgres.server import libpq_connection

    where = by_libpq(place(server, "dbname=postgres options='-c work_mem=9MB'"))
    settings = {"application_name": "it is me", "client_encoding": "UTF8", "my.words": "a 'b' \\c"}
    libpq = await libpq_connection.connect(where.as_libpq()[0], settings, where, 5.0, 5.0)
    for name, value in {**settings, "work_mem": "9MB"}.items():
        assert await libpq.fetchval(f"SELECT current_setting('{name}')") == value
    await libpq.close(timeout=1.0)


async def test_a_database_of_any_encoding_is_read(make_server: Any) -> None:
    server = make_server()
    with psycopg.connect(conninfo(server), autocommit=True) as superuser:
        superuser.execute("CREATE DATABASE bytes ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    for where in (place(server, "bytes"), by_libpq(place(server, "bytes"))):
        connection = await opened(where)
        assert (await connection.fetch("SELECT E'caf\\xe9'::text AS words"))[0]["words"] == "caf�"
        if isinstance(raw(connection), LibpqConnection):
            assert (await connection.fetch("SELECT ARRAY[E'\\xe9']::text[]"))[0][0] == ["�"]
        await connection.aclose()


async def test_five_looks_have_the_same_sections(make_server: Any) -> None:
    server = make_server(shared_preload_libraries="pg_stat_statements")
    with psycopg.connect(conninfo(server), autocommit=True) as superuser:
        superuser.execute("CREATE TABLE sampled (id int)")
        superuser.execute("INSERT INTO sampled SELECT generate_series(1, 1000)")
    found = []
    for where in (place(server), by_libpq(place(server))):
        reader = PostgresReader(where, time.monotonic)
        await reader.connect()
        looks = []
        for _ in range(5):
            others = (reader.facts, reader.exact_waits, reader.places)
            look: dict[str, object] = {read.__name__: await read() for read in others}
            look |= {"waits": await reader.waits(60_000), "blockers": await reader.blockers([1])}
            looks.append(look | {section.name: await reader.read(section) for section in sections.READ})
        files = await reader.server_files(["/proc/loadavg", "/proc/no such file"])
        assert isinstance(files, list)
        assert isinstance(files[0], bytes)
        assert files[1] is None
        found.append([{name: said(section) for name, section in look.items()} for look in looks])
        await reader.aclose()
    assert found[0] == found[1]


def said(section: object) -> str:
    return str(section) if isinstance(section, Unavailable) else type(section).__name__
