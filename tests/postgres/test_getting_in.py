"""Why there is no connection: each reason a sentence of its own, from both drivers, and no password in it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import ConnectionProblem, NotLetIn, PasswordNeeded, WrongPassword
from pgtop_tune.base.secret import Secret
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve
from pgtop_tune.postgres.server.failures import refused_in_other_words
from pgtop_tune.postgres.server.read_only_connection import refusal
from pgtop_tune.postgres.server.sql_session import open_sql_session
from tests.postgres.conftest import place
from tests.support.locked_server import ask_for_password
from tests.support.quick_server import quick_server
from tests.support.servers import Servers, conninfo

PASSWORD = "hunter2 \\'\" ☃"


@pytest.fixture(scope="module")
def guarded_server(servers: Servers) -> Iterator[Throwaway]:
    """A server that asks the role `bench` for a password (scram) and does not let `stranger` in."""
    server = quick_server(servers.binaries(18))
    try:
        ask_for_password(server, "bench", PASSWORD, "local all stranger reject")
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            connection.execute("CREATE ROLE sleeper NOLOGIN")
            connection.execute("CREATE ROLE stranger LOGIN")
        yield server
    finally:
        server.stop("immediate")


@pytest.fixture(autouse=True)
def no_password_from_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))


async def refused(where: ConnInfo) -> list[ConnectionProblem]:
    """What reader and control say about the same connection."""
    reader, control = PostgresReader(where, time.monotonic), PostgresControl(where)
    with pytest.raises(ConnectionProblem) as read:
        await reader.connect()
    with pytest.raises(ConnectionProblem) as controlled:
        await control.list(("work_mem",))
    problems = [read.value, controlled.value]
    for problem in problems:
        assert "hunter2" not in str(problem)
        assert "\n" not in problem.message
        assert problem.__cause__ is None
        assert problem.__suppress_context__
    assert reader.own.pids == set()
    return problems


@asynccontextmanager
async def over_tcp(server: Throwaway) -> AsyncIterator[int]:
    """A loopback port that leads to the server's socket."""

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
        target.close()

    writers: list[asyncio.StreamWriter] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = str(Path(str(server.socket_dir)) / f".s.PGSQL.{server.port}")
        back, forth = await asyncio.open_unix_connection(path)
        writers.extend((writer, forth))
        await asyncio.gather(pump(reader, forth), pump(back, writer), return_exceptions=True)

    listener = await asyncio.start_server(carry, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


async def test_a_password_is_asked_for_when_there_is_none(guarded_server: Throwaway) -> None:
    for problem in await refused(place(guarded_server, user="bench")):
        assert isinstance(problem, PasswordNeeded)


async def test_a_wrong_password_is_said(guarded_server: Throwaway) -> None:
    where = place(guarded_server, user="bench").with_password(Secret("hunter2 wrong"))
    reader_s, control_s = await refused(where)
    assert isinstance(reader_s, NotLetIn)
    assert "PGPASSWORD" in reader_s.hint
    for problem in (reader_s, control_s):
        assert not isinstance(problem, PasswordNeeded)
        assert 'password authentication failed for user "bench"' in problem.message


async def test_through_libpq_a_password_is_asked_for_and_a_wrong_one_is_told_apart(guarded_server: Throwaway) -> None:
    where = place(guarded_server, "dbname=postgres require_auth=scram-sha-256", "bench")
    for problem in await refused(where):
        assert isinstance(problem, PasswordNeeded)
    for problem in await refused(where.with_password(Secret("hunter2 wrong"))):
        assert isinstance(problem, WrongPassword)
    reader = PostgresReader(where.with_password(Secret(PASSWORD)), time.monotonic)
    assert (await reader.connect()).user == "bench"
    await reader.aclose()


@pytest.mark.parametrize("source", ["typed", "variable", "file"])
async def test_the_right_password_lets_both_drivers_in(
    guarded_server: Throwaway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    if source == "variable":
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
    if source == "file":
        escaped = PASSWORD.replace("\\", "\\\\").replace(":", "\\:")
        (tmp_path / "pgpass").write_text(f"*:*:*:bench:{escaped}\n")
        (tmp_path / "pgpass").chmod(0o600)
    where = place(guarded_server, user="bench")
    if source == "typed":
        where = where.with_password(Secret(PASSWORD))
    reader, control = PostgresReader(where, time.monotonic), PostgresControl(where)
    assert (await reader.connect()).user == "bench"
    assert [parameter.name for parameter in await control.list(("work_mem",))] == ["work_mem"]
    await reader.aclose()
    await control.aclose()


@pytest.mark.parametrize(
    ("user", "database", "words"),
    [
        ("nobody at all", "postgres", 'role "nobody at all" does not exist'),
        ("sleeper", "postgres", 'role "sleeper" is not permitted to log in'),
        ("stranger", "postgres", "pg_hba.conf rejects connection"),
        ("postgres", "no such database", 'database "no such database" does not exist'),
    ],
)
async def test_a_server_that_says_no_is_quoted_and_not_asked_again(
    guarded_server: Throwaway, user: str, database: str, words: str
) -> None:
    for problem in await refused(place(guarded_server, f"dbname='{database}'", user)):
        assert isinstance(problem, NotLetIn)
        assert problem.hint
        assert words in problem.message


@pytest.mark.parametrize(("host", "words"), [("no such host", "unknown host name"), ("a..b", "invalid host name")])
async def test_a_host_nobody_knows(host: str, words: str) -> None:
    # Names that are refused without asking a name server, which a test must not depend on.
    reader_s, control_s = await refused(resolve(f"host='{host}' dbname=postgres user=u"))
    assert reader_s.message == f"u@{host}:5432/postgres: {words}"
    assert reader_s.hint
    assert host in control_s.message


async def test_a_port_nobody_listens_on() -> None:
    # Bound and not listening: nobody else takes the port meanwhile.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
        reader_s, control_s = await refused(resolve("postgres", host="127.0.0.1", port=port, user="u"))
    assert "nothing is listening on this port" in reader_s.message
    assert "check that the server runs" in reader_s.hint
    assert str(control_s) == str(reader_s)


async def test_a_directory_without_a_socket(tmp_path: Path) -> None:
    reader_s, control_s = await refused(resolve("postgres", host=str(tmp_path), user="u"))
    assert "nothing is listening on this socket" in reader_s.message
    assert str(control_s) == str(reader_s)


async def test_of_several_places_without_a_server_the_last_is_spoken_of_once(tmp_path: Path) -> None:
    reader_s, control_s = await refused(resolve("postgres", host=f"{tmp_path},{tmp_path / 'other'}", user="u"))
    assert str(control_s) == str(reader_s)
    assert control_s.hint


async def test_something_that_is_no_server() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n")
        writer.close()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with listener:
        port = str(listener.sockets[0].getsockname()[1])
        await refused(resolve("postgres", host="127.0.0.1", port=port, user="u"))


async def test_somebody_who_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgtop_tune.postgres.server.read_only_connection.CONNECT_TIMEOUT_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = str(silent.getsockname()[1])
        with pytest.raises(ConnectionProblem, match="no answer in time") as caught:
            await PostgresReader(resolve("d", host="127.0.0.1", port=port, user="u"), time.monotonic).connect()
    assert "firewall" not in caught.value.hint


async def test_an_address_that_takes_no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgtop_tune.postgres.server.read_only_connection.CONNECT_TIMEOUT_S", 0.2)
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for each in (first, second):
            # The kernel drops the packets of further clients.
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        port = str(full.getsockname()[1])
        with pytest.raises(ConnectionProblem, match="no answer in time") as caught:
            await PostgresReader(resolve("d", host="127.0.0.1", port=port, user="u"), time.monotonic).connect()
    assert "firewall" in caught.value.hint


async def test_a_server_that_waits_for_a_lock_is_not_taken_for_a_firewall(
    guarded_server: Throwaway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtop_tune.postgres.server.read_only_connection.CONNECT_TIMEOUT_S", 0.5)
    monkeypatch.setattr("pgtop_tune.postgres.server.libpq.CONNECT_TIMEOUT_S", 2)
    with psycopg.connect(conninfo(guarded_server)) as holder:
        holder.execute("LOCK TABLE pg_authid IN ACCESS EXCLUSIVE MODE")
        problems = await refused(place(guarded_server))
        with pytest.raises(ConnectionProblem) as caught:
            await open_sql_session(place(guarded_server))
    for problem in (*problems, caught.value):
        assert "no answer in time" in problem.message
        assert "waits for a lock" in problem.hint


async def test_the_second_host_is_taken_when_the_first_is_not_there(guarded_server: Throwaway, tmp_path: Path) -> None:
    where = resolve(
        "postgres", host=f"{tmp_path},{guarded_server.socket_dir}", port=str(guarded_server.port), user="postgres"
    )
    reader, control = PostgresReader(where, time.monotonic), PostgresControl(where)
    assert (await reader.connect()).endpoint == f"{guarded_server.socket_dir}:{guarded_server.port}"
    assert await control.list(("work_mem",))
    await reader.aclose()
    await control.aclose()


async def test_over_tcp_with_options_and_attributes(guarded_server: Throwaway) -> None:
    async with over_tcp(guarded_server) as port:
        target = (
            f"postgresql://postgres@127.0.0.1:{port}/postgres?target_session_attrs=primary&options=-cwork_mem%3D9MB"
        )
        reader, control = PostgresReader(resolve(target), time.monotonic), PostgresControl(resolve(target))
        assert (await reader.connect()).endpoint == f"127.0.0.1:{port}"
        sample = await reader.read(sections.parameters)
        assert not isinstance(sample, Unavailable)
        assert [each.shown for each in sample.parameters if each.name == "work_mem"] == ["9MB"]
        assert (await control.list(("work_mem",)))[0].shown == "9MB"
        await reader.aclose()
        await control.aclose()


async def test_a_server_without_tls_is_refused_when_tls_is_required(guarded_server: Throwaway) -> None:
    async with over_tcp(guarded_server) as port:
        for problem in await refused(resolve(f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=require")):
            assert "SSL" in problem.message


async def test_a_server_with_no_place_left(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(
        max_connections="4", superuser_reserved_connections="0", max_wal_senders="0", reserved_connections="0"
    )
    taken = [psycopg.connect(conninfo(server)) for _ in range(4)]
    try:
        for problem in await refused(place(server)):
            assert "too many clients" in problem.message
            assert not isinstance(problem, NotLetIn), "it may let us in later"
    finally:
        for connection in taken:
            connection.close()


async def test_the_sqlstate_of_a_refusal_is_found_out(guarded_server: Throwaway, tmp_path: Path) -> None:
    assert await refusal(place(guarded_server, "no such database")) == "3D000"
    assert await refusal(place(guarded_server, user="sleeper")) == "28000"
    assert await refusal(place(guarded_server)) == ""
    assert await refusal(resolve("postgres", host=str(tmp_path), user="u")) == ""


@pytest.mark.parametrize(
    ("said", "other"),
    [
        ('connection to server on socket "/s" failed: ВАЖНО:  база данных "nix" не существует', True),
        ('connection to server on socket "/s" failed: FATAL:  Datenbank »nix« existiert nicht', True),
        ('connection to server on socket "/s" failed: FATAL:  database "nix" does not exist', False),
        ('connection to server at "127.0.0.1", port 1 failed: Connection refused\n\tIs the server running?', False),
    ],
)
def test_what_a_server_says_in_another_language_is_told_from_a_network_that_fails(said: str, other: bool) -> None:
    assert refused_in_other_words(psycopg.OperationalError(f"connection failed: {said}")) is other


async def test_a_role_at_its_own_limit_is_not_told_of_max_connections_alone(
    make_server: Callable[..., Throwaway],
) -> None:
    server = make_server()
    with psycopg.connect(conninfo(server), autocommit=True) as session:
        session.execute("CREATE ROLE narrow LOGIN CONNECTION LIMIT 0")
    for problem in await refused(resolve(f"{conninfo(server)} user=narrow")):
        assert "too many connections for role" in problem.message
        assert "CONNECTION LIMIT" in problem.hint
