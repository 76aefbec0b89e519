"""A server that a keyword shuts out gets no password from pgbench, however old its libpq is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pgtop_tune.bench.argv import endpoint_words
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.ports import environment
from pgtop_tune.cli.wiring import endpoint_of
from pgtop_tune.postgres.server.conninfo import resolve
from tests.support.processes import eventually
from tests.support.rogue_server import in_directory, on_loopback

PASSWORD = "hunter2"


def one_transaction(where: str, pgbench: Pgbench) -> int:
    endpoint = endpoint_of(resolve(f"{where} user=u dbname=d"))
    return subprocess.run(
        [str(pgbench.path), "-n", "-t", "1", *endpoint_words(endpoint)],
        env={**environment(endpoint, pgbench, None), "PGPASSWORD": PASSWORD},
        capture_output=True, timeout=60, check=False,
    ).returncode  # fmt: skip


@pytest.mark.parametrize(
    "words",
    ["require_auth=scram-sha-256", "require_auth=!password", "channel_binding=require", "sslmode=require",
     "sslmode=require sslnegotiation=direct"],
)  # fmt: skip
def test_on_a_port(pgbench: Pgbench, words: str) -> None:
    with on_loopback() as (rogue, port):
        assert one_transaction(f"host=127.0.0.1 port={port} {words}", pgbench) != 0
        assert rogue.answers == []


def test_on_a_socket_of_somebody_else(pgbench: Pgbench, tmp_path: Path) -> None:
    with in_directory(tmp_path) as rogue:
        assert one_transaction(f"host={tmp_path} requirepeer=nobody", pgbench) != 0
        assert eventually(lambda: bool(rogue.callers))
        assert rogue.answers == []


def test_without_a_keyword_it_does(pgbench: Pgbench) -> None:
    with on_loopback() as (rogue, port):
        assert one_transaction(f"host=127.0.0.1 port={port}", pgbench) != 0
        assert rogue.answers == [PASSWORD.encode() + b"\0"]
