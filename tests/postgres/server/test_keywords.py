"""Which driver takes which keyword of libpq; and a server that a keyword shuts out, which is sent nothing secret."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from psycopg import pq

from pgtop_tune.base.errors import ConnectionProblem, NotLetIn, PgtopError, UsageProblem
from pgtop_tune.bench.argv import endpoint_words
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.ports import environment as pgbench_environment
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cli.connections import pooler_addresses
from pgtop_tune.cli.wiring import endpoint_of
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.backend_action import BackendAct
from pgtop_tune.pooler.console import open_console
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.server.conninfo import ANY, KEYWORDS, ConnInfo, beyond_asyncpg, from_json, resolve
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.read_only_connection import refusal
from pgtop_tune.postgres.server.sql_session import open_sql_session
from pgtop_tune.postgres.statements.backend_acts import BackendActs
from pgtop_tune.process import handed_on
from tests.cli.runs import ROOT, environment, run
from tests.postgres.conftest import place
from tests.support.processes import eventually
from tests.support.rogue_server import CLEARTEXT, MD5, SCRAM, in_directory, on_loopback
from tests.terminal.screen import Terminal

PASSWORD = "hunter2"

DOCUMENTED = {
    "host", "hostaddr", "port", "dbname", "user", "password", "passfile", "require_auth", "channel_binding",
    "connect_timeout", "client_encoding", "options", "application_name", "fallback_application_name", "keepalives",
    "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout", "replication", "gssencmode",
    "sslmode", "sslnegotiation", "sslcompression", "sslcert", "sslkey", "sslkeylogfile", "sslpassword",
    "sslcertmode", "sslrootcert", "sslcrl", "sslcrldir", "sslsni", "requirepeer", "ssl_min_protocol_version",
    "ssl_max_protocol_version", "min_protocol_version", "max_protocol_version", "krbsrvname", "gsslib",
    "gssdelegation", "scram_client_key", "scram_server_key", "service", "target_session_attrs",
    "load_balance_hosts", "oauth_issuer", "oauth_client_id", "oauth_client_secret", "oauth_scope",
}  # fmt: skip
"""Chapter "Parameter Key Words" of the manuals of 14 to 18, together."""

BY_ASYNCPG = [
    "", "sslmode=disable", "sslmode=allow", "sslmode=prefer", "sslmode=require", "channel_binding=disable",
    "channel_binding=prefer", "sslcertmode=allow", "sslnegotiation=postgres", "sslsni=1", "sslcompression=0",
    "gssencmode=disable", "gssencmode=prefer", "krbsrvname=postgres", "gssdelegation=0", "tcp_user_timeout=0",
    "ssl_min_protocol_version=TLSv1.2", "min_protocol_version=3.0", "max_protocol_version=3.0", "replication=false",
    "connect_timeout=9", "options='-c work_mem=8MB'", "client_encoding=LATIN1", "application_name=me",
    "fallback_application_name=me", "passfile=/none", "password=secret", "target_session_attrs=read-write",
    "load_balance_hosts=random", "hostaddr=127.0.0.2 sslmode=disable", "hostaddr=127.0.0.1",
]  # fmt: skip

BY_LIBPQ = [
    "require_auth=scram-sha-256", "require_auth=!password", "channel_binding=require sslmode=require",
    "requirepeer=postgres", "sslmode=verify-ca", "sslmode=verify-full", "sslmode=verify-full sslrootcert=system",
    "sslrootcert=/none", "sslcert=/none", "sslkey=/none", "sslpassword=x", "sslcertmode=disable", "sslcrl=/none",
    "sslcrldir=/none", "sslsni=0", "sslcompression=1", "sslkeylogfile=/none", "sslmode=require sslnegotiation=direct",
    "ssl_min_protocol_version=TLSv1.3", "ssl_max_protocol_version=TLSv1.3", "max_protocol_version=3.2",
    "min_protocol_version=3.2 max_protocol_version=latest", "krbsrvname=other", "gsslib=gssapi", "gssdelegation=1",
    "keepalives=0", "keepalives_idle=5", "keepalives_interval=5", "keepalives_count=5", "tcp_user_timeout=5000",
    f"scram_client_key={'A' * 43}=", f"scram_server_key={'A' * 43}=",
    "oauth_issuer=https://a.invalid oauth_client_id=x", "oauth_client_secret=x", "oauth_scope=x",
    "hostaddr=127.0.0.2", "host=@abstract",
]  # fmt: skip


@pytest.fixture(autouse=True)
def nobodys_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))


def meant(words: str) -> ConnInfo:
    host = "" if "host=" in words.split("hostaddr")[0] else "host=127.0.0.1 "
    return resolve(f"{host}user=u dbname=d {words}")


def test_every_keyword_of_this_libpq_and_of_the_manuals_is_in_the_table() -> None:
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    assert (known | DOCUMENTED) - KEYWORDS.keys() == set()
    assert KEYWORDS.keys() - known - DOCUMENTED == {"servicefile"}


def test_every_keyword_is_tried_below() -> None:
    tried = {word.partition("=")[0] for words in (*BY_ASYNCPG, *BY_LIBPQ) for word in words.split()}
    resolved = {"service", "servicefile", "port", "dbname", "user"}
    assert KEYWORDS.keys() - tried == resolved
    assert all(KEYWORDS[name].asyncpg is ANY for name in resolved)


@pytest.mark.parametrize("words", BY_ASYNCPG)
def test_what_asyncpg_does_as_libpq_stays_with_it(words: str) -> None:
    assert beyond_asyncpg(meant(words)) == ()


@pytest.mark.parametrize("words", BY_LIBPQ)
def test_what_asyncpg_does_otherwise_goes_through_libpq(words: str) -> None:
    assert beyond_asyncpg(meant(words)) != ()


@pytest.mark.parametrize("value", ["database", "true", "on", "1", "t"])
def test_a_walsender_is_refused(value: str) -> None:
    with pytest.raises(UsageProblem, match="replication"):
        meant(f"replication={value}")


@pytest.mark.parametrize("words", ["nothing_like_it=1", "require_auth=nothing", "sslmode=verify", "servicefile=/none"])
def test_what_libpq_does_not_know_is_refused(words: str) -> None:
    with pytest.raises(UsageProblem):
        meant(words)


def test_a_variable_and_a_service_count_as_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PGREQUIREAUTH", "scram-sha-256")
    assert beyond_asyncpg(meant("")) == ("require_auth",)
    monkeypatch.delenv("PGREQUIREAUTH")
    (tmp_path / "services").write_text("[prod]\nchannel_binding=require\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    assert beyond_asyncpg(meant("service=prod")) == ("channel_binding",)
    monkeypatch.setenv("PGSERVICE", "prod")
    assert beyond_asyncpg(meant("")) == ("channel_binding",)


@pytest.mark.parametrize("name", ["root.crt", "root.crl", "postgresql.crt", "postgresql.key"])
def test_files_of_the_users_own_count(tmp_path: Path, name: str) -> None:
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql" / name).touch()
    assert beyond_asyncpg(meant("")) == (name,)
    assert beyond_asyncpg(meant("sslmode=disable")) == ()
    assert beyond_asyncpg(resolve("d", host="/tmp", user="u")) == ()


def test_hosts_in_random_order_are_the_same_for_every_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [f"10.0.0.{number}" for number in range(1, 30)]
    where = resolve(f"host={','.join(hosts)} user=u dbname=d load_balance_hosts=random")
    order = [endpoint.host for endpoint in where.endpoints]
    assert sorted(order) == sorted(hosts)
    assert order != hosts
    assert where.as_psycopg()["host"].split(",") == order
    assert where.as_psycopg()["load_balance_hosts"] == "disable"
    assert where.for_pgbench()["PGLOADBALANCEHOSTS"] == "disable"
    monkeypatch.setenv("PGLOADBALANCEHOSTS", "random")
    varied = resolve(f"host={','.join(hosts)} user=u dbname=d")
    assert [endpoint.host for endpoint in varied.endpoints] != hosts
    monkeypatch.delenv("PGLOADBALANCEHOSTS")
    plain = resolve(f"host={','.join(hosts)} user=u dbname=d")
    assert [endpoint.host for endpoint in plain.endpoints] == hosts
    with pytest.raises(UsageProblem, match="load_balance_hosts"):
        resolve("host=a,b user=u dbname=d load_balance_hosts=sometimes")


def test_pgbench_gets_what_no_variable_says(server: Throwaway) -> None:
    words = "require_auth=none keepalives_idle=7 requirepeer=nobody sslpassword=secret"
    endpoint = endpoint_of(resolve(words, host=str(server.socket_dir), port=str(server.port), user="u"))
    given = psycopg.conninfo.conninfo_to_dict(endpoint_words(endpoint)[-1])
    assert given == {"dbname": "u", "require_auth": "none", "keepalives_idle": "7"}
    assert endpoint.env["PGREQUIREPEER"] == "nobody"
    assert endpoint_words(endpoint_of(meant("")))[-1] == "d"


FORBIDDING = [
    ("require_auth=scram-sha-256", CLEARTEXT), ("require_auth=scram-sha-256", MD5),
    ("require_auth=!password,!md5", MD5), ("require_auth=none", CLEARTEXT),
    ("require_auth=scram-sha-256 channel_binding=require", SCRAM),
    ("channel_binding=require", CLEARTEXT), ("channel_binding=require", MD5), ("channel_binding=require", SCRAM),
    ("sslmode=require", CLEARTEXT), ("sslmode=verify-full sslrootcert=system", CLEARTEXT),
    pytest.param("sslmode=require sslnegotiation=direct", CLEARTEXT, marks=pytest.mark.long),
    ("sslmode=require sslcertmode=require", CLEARTEXT),
]  # fmt: skip


async def knock(where: ConnInfo) -> list[PgtopError]:
    """Every way to the server that there is in the program; what each of them said."""
    reader, control = PostgresReader(where, time.monotonic), PostgresControl(where)
    acts = BackendActs(conninfo=where, our_sessions=OwnSessions())
    said = []
    for way in (
        reader.connect(),
        control.list(("work_mem",)),
        acts.signal(BackendAct.CANCEL, ((1, 1),)),
        open_sql_session(where),
    ):
        with pytest.raises(PgtopError) as refused:
            await way
        said.append(refused.value)
    assert await refusal(where) == ""
    return said


@pytest.mark.parametrize(("words", "asks"), FORBIDDING, ids=lambda value: value if isinstance(value, str) else "")
async def test_a_server_that_is_shut_out_gets_nothing(words: str, asks: bytes) -> None:
    with on_loopback(asks) as (rogue, port):
        problems = await knock(resolve(f"{words} host=127.0.0.1 port={port} user=u dbname=d password={PASSWORD}"))
        assert eventually(lambda: rogue.callers >= 4)
        assert rogue.answers == []
    for problem in problems:
        assert isinstance(problem, ConnectionProblem)
        assert PASSWORD not in str(problem)


async def test_a_console_that_is_shut_out_gets_nothing() -> None:
    with on_loopback() as (rogue, port):
        uri = f"bouncer=postgresql://u:{PASSWORD}@127.0.0.1:{port}/pgbouncer?require_auth=scram-sha-256"
        (address,) = pooler_addresses([uri])
        with pytest.raises(ConnectionProblem, match="authentication method requirement"):
            await open_console(address, "console")
        assert eventually(lambda: bool(rogue.callers))
        assert rogue.answers == []


async def test_without_a_keyword_the_same_server_is_believed_as_psql_believes_it() -> None:
    with on_loopback() as (rogue, port):
        where = resolve(f"host=127.0.0.1 port={port} user=u dbname=d password={PASSWORD}")
        with pytest.raises(ConnectionProblem):
            await PostgresReader(where, time.monotonic).connect()
        assert set(rogue.answers) == {PASSWORD.encode() + b"\0"}


async def test_a_server_that_is_shut_out_is_not_tried_again() -> None:
    with on_loopback() as (_, port):
        where = resolve(f"require_auth=scram-sha-256 host=127.0.0.1 port={port} user=u dbname=d password={PASSWORD}")
        with pytest.raises(NotLetIn, match="authentication method requirement") as refused:
            await PostgresReader(where, time.monotonic).connect()
        assert refused.value.hint


async def test_the_owner_of_a_socket_is_looked_at(tmp_path: Path) -> None:
    with in_directory(tmp_path) as rogue:
        where = f"host={tmp_path} user=u dbname=d password={PASSWORD}"
        await knock(resolve(f"{where} requirepeer=nobody"))
        assert eventually(lambda: bool(rogue.callers))
        assert rogue.answers == []
        with pytest.raises(ConnectionProblem):
            await PostgresReader(resolve(f"{where} requirepeer={getpass.getuser()}"), time.monotonic).connect()
        assert set(rogue.answers) == {PASSWORD.encode() + b"\0"}


async def test_the_right_owner_lets_us_in(server: Throwaway) -> None:
    owner = Path(str(server.socket_dir), f".s.PGSQL.{server.port}").owner()
    where = place(server, f"requirepeer={owner} dbname=postgres")
    reader = PostgresReader(where, time.monotonic)
    assert (await reader.connect()).user == "postgres"
    await reader.aclose()


COMMANDS = [
    ("record", "--seconds", "1", "-o", "run.jsonl"), ("check",), ("parameters",), ("advise",), ("set", "work_mem=8MB"),
    ("reset", "work_mem"), ("revert",), ("diff", "dbname=d", "dbname=e"), ("bench", "init", "-s", "1"),
    ("bench", "run", "-c", "1", "-T", "1"),
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "_".join(words[:2]))
def test_no_command_gives_the_password_away(tmp_path: Path, words: tuple[str, ...]) -> None:
    with on_loopback() as (rogue, port):
        variables = {"PGHOST": "127.0.0.1", "PGPORT": port, "PGUSER": "u", "PGDATABASE": "d", "PGPASSWORD": PASSWORD}
        words = tuple(str(tmp_path / word) if word.endswith(".jsonl") else word for word in words)
        ran = run(*words, home=tmp_path, variables={**variables, "PGREQUIREAUTH": "scram-sha-256"})
        assert ran.status != 0
        assert eventually(lambda: bool(rogue.callers))
        assert rogue.answers == []
        assert PASSWORD not in ran.out + ran.err


def test_the_screen_does_not_either(tmp_path: Path) -> None:
    with on_loopback() as (rogue, port):
        target = f"host=127.0.0.1 port={port} user=u dbname=d require_auth=scram-sha-256"
        command = (sys.executable, "-m", "pgtop_tune", "top", "-w", target)
        with Terminal(command, {**environment(tmp_path), "PGPASSWORD": PASSWORD}) as terminal:
            terminal.until("authentication method requirement")
        assert rogue.answers == []


def test_a_process_of_ours_finds_the_same_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What takes a change back when we are gone has the keywords that are no variables, and no other service."""
    (tmp_path / "services").write_text("[prod]\nhost=prod.invalid\nsslmode=disable\nkeepalives_idle=9\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.setenv("PGSERVICE", "prod")
    where = resolve(
        "dbname=d sslmode=require sslpassword='it\\'s \\\\ secret' require_auth=none", host="127.0.0.1", user="u"
    )
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    asks = "from pgtop_tune.process import handed_on; from pgtop_tune.postgres.server.conninfo import resolve"
    script = f"{asks}; import json; handed_on.take_over(); print(json.dumps(resolve().as_json()))"
    with handed_on.descriptor(connection=where.as_json()) as secrets:
        told = subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, handed_on.VARIABLE: str(secrets)},
            pass_fds=(secrets,), cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
    assert from_json(json.loads(told.stdout)) == where


def test_a_service_does_not_win_over_words_in_pgbenchs_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "services").write_text("[prod]\nhost=prod.invalid\nsslmode=disable\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.setenv("PGSERVICE", "prod")
    endpoint = endpoint_of(resolve("dbname=d sslmode=require", host="127.0.0.1", user="u"))
    variables = pgbench_environment(endpoint, find_pgbench(), None)
    assert variables["PGSSLMODE"] == "require"
    assert "PGSERVICE" not in variables
