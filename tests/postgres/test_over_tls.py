"""Certificates and channel binding: the sampler, the operator's hand and libpq give the same answer."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.server.conninfo import resolve
from tests.cli.runs import ROOT
from tests.support.certificates import Authority
from tests.support.servers import Servers
from tests.support.tls_server import tls_server
from tests.terminal.screen import Terminal, environment

PASSWORD = "hunter2"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def port(servers: Servers, authority: Authority) -> Iterator[int]:
    """Of a server on the loopback that is called db.internal, knows SCRAM, and asks `carrier` for a certificate."""
    statements = (
        "SET password_encryption = 'scram-sha-256'",
        f"CREATE ROLE bench LOGIN PASSWORD '{PASSWORD}' IN ROLE pg_monitor",
        "CREATE ROLE carrier LOGIN IN ROLE pg_monitor",
    )
    rules = ("hostssl all bench all scram-sha-256", "hostssl all carrier all cert")
    with tls_server(servers, authority, statements, *rules) as number:
        yield number


@pytest.fixture(autouse=True)
def nobodys_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


async def answers(words: str) -> list[str]:
    """What sampler, operator's hand and libpq itself say: "" when they are let in, else their message."""
    where = resolve(words)
    said = []
    reader, control = PostgresReader(where, time.monotonic), PostgresControl(where)
    for way in (reader.connect(), control.list(("work_mem",))):
        try:
            await way
            said.append("")
        except ConnectionProblem as problem:
            said.append(problem.message)
    await reader.aclose()
    await control.aclose()
    try:
        psycopg.connect(words).close()
        said.append("")
    except psycopg.OperationalError as problem:
        said.append(str(problem))
    return said


def words_of(port: int, more: str, user: str = "bench") -> str:
    return f"dbname=postgres user={user} password={PASSWORD} port={port} {more}"


@pytest.mark.parametrize(
    "more",
    [
        "host=127.0.0.1 sslmode=require",
        "host=127.0.0.1 sslmode=prefer",
        "host=127.0.0.1 sslmode=verify-ca sslrootcert={root}",
        "host=db.internal hostaddr=127.0.0.1 sslmode=verify-full sslrootcert={root}",
        "host=127.0.0.1 sslmode=require channel_binding=require",
        "host=127.0.0.1 sslmode=require require_auth=scram-sha-256",
        "host=127.0.0.1 sslmode=require sslcertmode=disable",
        "host=127.0.0.1 sslmode=require ssl_min_protocol_version=TLSv1.2 ssl_max_protocol_version=TLSv1.2",
        "host=127.0.0.1 sslmode=require sslsni=0 keepalives_idle=5 tcp_user_timeout=5000",
        "host=127.0.0.1 sslmode=prefer sslrootcert=/none",
        "host=127.0.0.1 sslmode=require sslcert=/none",
    ],
)
async def test_all_are_let_in(port: int, authority: Authority, more: str) -> None:
    assert await answers(words_of(port, more.format(root=authority.root))) == ["", "", ""]


def test_the_screen_which_loads_tls_late_is_let_in(port: int, tmp_path: Path) -> None:
    words = words_of(port, "host=127.0.0.1 sslmode=require")
    command = (sys.executable, "-m", "pgtop_tune", "top", words)
    with Terminal(command, {**environment(tmp_path), "PYTHONPATH": str(ROOT)}) as terminal:
        terminal.until("PostgreSQL 1")
        terminal.until_gone("diagnosing")
        with psycopg.connect(words_of(port, "host=127.0.0.1")) as watching:
            encrypted = watching.execute(
                "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
                "WHERE starts_with(application_name, 'pgtop-tune')"
            ).fetchone()
        assert encrypted == (True,)
        terminal.press("q")
        assert terminal.wait() == 0


@pytest.mark.parametrize(
    "more",
    [
        "host=other.internal hostaddr=127.0.0.1 sslmode=verify-full sslrootcert={root}",
        "host=127.0.0.1 sslmode=verify-full sslrootcert={root}",
        "host=127.0.0.1 sslmode=verify-full",
        "host=127.0.0.1 sslmode=verify-ca sslrootcert={stranger}",
        "host=db.internal hostaddr=127.0.0.1 sslmode=verify-full sslrootcert=system",
        "host=127.0.0.1 sslmode=disable channel_binding=require",
        "host=127.0.0.1 sslmode=require require_auth=md5",
        "host=127.0.0.1 sslmode=require sslcertmode=require sslcert={stranger}",
    ],
)
async def test_none_is_let_in(port: int, authority: Authority, tmp_path: Path, more: str) -> None:
    stranger = Authority(tmp_path).root
    said = await answers(words_of(port, more.format(root=authority.root, stranger=stranger)))
    assert all(said), said
    assert not any(PASSWORD in words for words in said)


async def test_a_certificate_lets_in_unless_it_is_not_to_be_shown(port: int, authority: Authority) -> None:
    certificate, key = authority.signed("carrier")
    words = words_of(port, f"host=127.0.0.1 sslmode=require sslcert={certificate} sslkey={key}", "carrier")
    assert await answers(words) == ["", "", ""]
    assert await answers(f"{words} sslcertmode=require") == ["", "", ""]
    assert all(await answers(f"{words} sslcertmode=disable"))


async def test_the_users_own_files_are_taken_as_libpq_takes_them(
    port: int, authority: Authority, tmp_path: Path
) -> None:
    own = tmp_path / ".postgresql"
    own.mkdir()
    certificate, key = authority.signed("carrier")
    shutil.copy(certificate, own / "postgresql.crt")
    shutil.copy(key, own / "postgresql.key")
    (own / "postgresql.key").chmod(0o600)
    words = words_of(port, "host=127.0.0.1", "carrier")
    assert await answers(f"{words} sslmode=require") == ["", "", ""]
    (own / "postgresql.key").chmod(0o644)
    assert all(await answers(f"{words} sslmode=require"))
    (own / "postgresql.key").chmod(0o600)
    shutil.copy(Authority(tmp_path).root, own / "root.crt")
    assert all(await answers(f"{words} sslmode=require")), "with a root certificate it is as verify-ca"
