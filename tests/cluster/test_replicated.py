"""Throwaway servers fail on purpose, come back with all that was committed, and are gone when we are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.binaries import Binaries
from pgtop_tune.cluster.replicated import ThrowawayServers
from tests.support.processes import alive, eventually
from tests.support.servers import MAJORS, Servers

ROOT = Path(__file__).resolve().parents[2]
STREAMS = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"

SCRIPT = """
import sys
from pathlib import Path
from pgtop_tune.cluster import replicated
from pgtop_tune.cluster.binaries import find_binaries
from pgtop_tune.cluster.throwaway import Throwaway
moment = sys.argv[2]
servers = replicated.ThrowawayServers.create(
    find_binaries(Path(sys.argv[1])), with_standby=moment.startswith("promote"), on_step=lambda step: None
)
def stand_still(self, *arguments):
    for server in servers._servers:
        print(server.work_dir, 0 if server._server is None else server._server.pid, flush=True)
    print("", flush=True)
    sys.stdin.read()
if moment == "kill, before the start":
    Throwaway._start = stand_still
    servers.kill()
if moment == "promote, the primary is stopped":
    replicated.ReplicatedServer.promote = stand_still
    servers.promote()
if moment == "promote, before the standby is made anew":
    servers.promote()
    replicated.ReplicatedServer._run_command = stand_still
    servers.restore()
stand_still(None)
"""


def one(conninfo: str, query: str) -> object:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        row = cursor.fetchone() if cursor.description else None
    return None if row is None else row[0]


@pytest.fixture
def programs(servers: Servers) -> Binaries:
    return servers.binaries(18)


@pytest.fixture(
    params=[
        pytest.param(major, marks=() if major in (MAJORS[0], MAJORS[-2]) else pytest.mark.long) for major in MAJORS[:-1]
    ]
)
def pair(request: pytest.FixtureRequest, servers: Servers) -> Iterator[ThrowawayServers]:
    """A primary with a standby."""
    with ThrowawayServers.create(servers.binaries(request.param), with_standby=True, on_step=lambda step: None) as made:
        yield made


def test_what_was_committed_is_there_after_each_outage_at_the_same_address(pair: ThrowawayServers) -> None:
    one(pair.conninfo, "CREATE TABLE kept AS SELECT 0 AS n")
    begun = set()
    for number, name in enumerate(("restart", "kill", "promote", "promote", "kill"), 1):
        assert eventually(lambda: one(pair.conninfo, STREAMS) == 1)
        began = one(pair.conninfo, "SELECT pg_postmaster_start_time()")
        assert one(pair.conninfo, f"INSERT INTO kept VALUES ({number}) RETURNING n") == number
        pair.actions[name]()
        assert one(pair.conninfo, "SELECT count(*) FROM kept") == number + 1, name
        assert one(pair.conninfo, "SELECT pg_postmaster_start_time()") != began
        begun.add(pair.primary)
        pair.restore()
        assert one(pair.conninfo, "SELECT pg_is_in_recovery()") is False
    assert len(begun) == 2


def test_a_killed_server_recovers_from_its_wal(programs: Binaries) -> None:
    with ThrowawayServers.create(programs, with_standby=False, on_step=lambda step: None) as servers:
        pid = servers.primary.postmaster_pid
        servers.kill()
        assert not alive(pid)
        assert "was not properly shut down" in Path(str(servers.primary.log_file)).read_text()
        work_dir = servers.primary.work_dir
        servers.restore()
    assert not work_dir.exists()


@pytest.mark.parametrize(
    "moment",
    [
        "both run",
        "kill, before the start",
        "promote, the primary is stopped",
        "promote, before the standby is made anew",
    ],
)
def test_nothing_is_left_when_the_program_is_killed_in_an_outage(programs: Binaries, moment: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(programs.bin_dir), moment],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        assert program.stdout is not None
        made = [line.split() for line in iter(lambda: program.stdout.readline().strip(), "")]
        assert made
        program.send_signal(signal.SIGKILL)
    assert eventually(lambda: not any(Path(work_dir).exists() for work_dir, _ in made)), moment
    assert eventually(lambda: not any(alive(int(pid)) for _, pid in made if pid != "0")), moment
