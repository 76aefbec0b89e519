"""The operator's password goes to his own server: not to an endpoint that a plan or an option names, not into /proc."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.cli.runs import Ran, run
from tests.support.by_pg_ctl import by_pg_ctl
from tests.support.poolers import number_of, reserved_port
from tests.support.quick_server import quick_server
from tests.support.rogue_server import CLEARTEXT, MD5, SCRAM, RogueServer, in_directory, on_address
from tests.support.servers import NotAvailable, Servers, conninfo

PASSWORD = "hunter2-of-ours"
SOURCES = ("PGPASSWORD", ".pgpass", "string", "service")
QUICK = ("-c", "1", "-t", "1", "-i", "0.2", "--housekeeping", "none", "--profile", "select-only", "-q", "-w")


@pytest.fixture(scope="module")
def port(servers: Servers) -> Iterator[int]:
    """Of a server on 127.0.0.1 that asks `bench` for a password."""
    try:
        made = quick_server(servers.binaries(18))
    except NotAvailable as problem:
        pytest.skip(str(problem))
    try:
        with psycopg.connect(conninfo(made), autocommit=True) as connection:
            connection.execute(f"CREATE ROLE bench LOGIN CREATEDB PASSWORD '{PASSWORD}' IN ROLE pg_monitor".encode())
        rules = Path(str(made.data_dir)) / "pg_hba.conf"
        rules.write_text(f"host all bench 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        with reserved_port() as reserved:
            number = number_of(reserved)
            with by_pg_ctl(made, listen_addresses="127.0.0.1", port=str(number)):
                yield number
    finally:
        made.stop("immediate")


@pytest.fixture
def rogues(port: int, tmp_path: Path) -> Iterator[dict[str, RogueServer]]:
    """Endpoints, in every form, and the server that lies in wait there."""
    (tmp_path / "socket").mkdir()
    with ExitStack() as stack:
        clear, at = stack.enter_context(on_address("127.0.0.1", 0, CLEARTEXT))
        other, _ = stack.enter_context(on_address("127.0.0.2", port, SCRAM))
        md5, third = stack.enter_context(on_address("127.0.0.1", 0, MD5))
        by_socket = stack.enter_context(in_directory(tmp_path / "socket"))
        yield {
            f"port=:{at}": clear,
            f"place=127.0.0.1:{third}/postgres": md5,
            f"name=localhost:{at}": clear,
            "host=127.0.0.2": other,
            f"directory={tmp_path}/socket:5432": by_socket,
            f"uri=postgresql://127.0.0.1:{third}/postgres": md5,
            f"user=postgresql://bench@127.0.0.2:{port}/postgres?sslmode=prefer": other,
            f"false-name=postgresql://bench@127.0.0.1:{port}/postgres?hostaddr=127.0.0.2": other,
            f"service=postgresql:///postgres?service=ours&host=127.0.0.2&port={port}": other,
        }


def words_of(source: str, port: int, home: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """Options and variables for our server, with its password from that source."""
    place = f"host=127.0.0.1\nport={port}\nuser=bench\ndbname=postgres\n"
    password = f"password={PASSWORD}\n" if source == "service" else ""
    (home / "services").write_text(f"[ours]\n{place}{password}")
    variables = {"PGSERVICEFILE": str(home / "services"), "PGPASSFILE": str(home / "pgpass")}
    line = f"127.0.0.1:{port}:*:bench:{PASSWORD}\n" if source == ".pgpass" else ""
    (home / "pgpass").write_text(line)
    (home / "pgpass").chmod(0o600)
    secret = f":{PASSWORD}" if source == "string" else ""
    if source == "PGPASSWORD":
        variables["PGPASSWORD"] = PASSWORD
    if source == "service":
        return (), {**variables, "PGSERVICE": "ours"}
    return ("-d", f"postgresql://bench{secret}@127.0.0.1:{port}/postgres"), variables


def bench_run(source: str, port: int, endpoints: dict[str, RogueServer], home: Path) -> Ran:
    target, variables = words_of(source, port, home)
    options = [word for endpoint in endpoints for word in ("--endpoint", endpoint)]
    return run("bench", "run", *QUICK, *options, *target, home=home, variables=variables)


def check_silent(rogues: dict[str, RogueServer], ran: Ran) -> None:
    assert {endpoint for endpoint, rogue in rogues.items() if rogue.answers} == set()
    assert PASSWORD not in ran.out + ran.err


def test_no_endpoint_of_a_load_gets_our_password(port: int, rogues: dict[str, RogueServer], tmp_path: Path) -> None:
    few = {endpoint: rogue for endpoint, rogue in rogues.items() if endpoint.startswith(("port=", "user=", "service="))}
    ran = bench_run("PGPASSWORD", port, few, tmp_path)
    assert ran.status == 4, ran.err
    check_silent(rogues, ran)
    assert all(rogue.callers for rogue in few.values())


def plan_of(endpoints: dict[str, RogueServer], directory: Path) -> Path:
    tables = "".join(
        f'[[endpoint]]\nname = "{name}"\naddress = "{address}"\n'
        for name, _, address in (endpoint.partition("=") for endpoint in endpoints)
    )
    plan = directory / "plan.toml"
    plan.write_text(
        'name = "strange"\nprofiles = ["select-only"]\nclients = [1]\nscales = [1]\ntime = "1s"\nseed = 1\n'
        f'housekeeping = ["checkpoint"]\n{tables}[[configuration]]\nname = "now"\n'
    )
    return plan


def test_no_endpoint_of_a_plan_gets_our_password(port: int, rogues: dict[str, RogueServer], tmp_path: Path) -> None:
    target, variables = words_of("string", port, tmp_path)
    plan = plan_of(rogues, tmp_path)
    ran = run("experiment", "check", str(plan), "-w", *target, home=tmp_path, variables=variables)
    check_silent(rogues, ran)
    assert any(rogue.callers for rogue in rogues.values()), ran.err


@pytest.mark.long
@pytest.mark.parametrize("source", SOURCES)
def test_whatever_the_command_and_the_source(
    port: int, rogues: dict[str, RogueServer], tmp_path: Path, source: str
) -> None:
    check_silent(rogues, bench_run(source, port, rogues, tmp_path))
    target, variables = words_of(source, port, tmp_path)
    plan = str(plan_of(rogues, tmp_path))
    for command in (("check", plan), ("run", plan)):
        ran = run("experiment", *command, "-w", *target, home=tmp_path, variables=variables, timeout_s=300)
        check_silent(rogues, ran)
