"""With several hosts in one connection string, a load goes to the server of our session and to no other."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, Ran, environment, run
from tests.support.processes import eventually
from tests.support.quick_server import quick_server
from tests.support.servers import NotAvailable, Servers, conninfo
from tests.support.standby import standby_of

QUICK = ("-c", "1", "-t", "20", "-i", "0.2", "--housekeeping", "none", "-q", "-w", "--format", "json")
TO_STANDBY = ("standby", "prefer-standby", "read-only")


@pytest.fixture(scope="module")
def pair(servers: Servers) -> Iterator[tuple[Throwaway, Throwaway]]:
    """A primary with pgbench's tables, and its standby."""
    made: list[Throwaway] = []

    def make(major: int) -> Throwaway:
        made.append(quick_server(servers.binaries(major)))
        return made[-1]

    try:
        primary = make(18)
    except NotAvailable as problem:
        pytest.skip(str(problem))
    try:
        standby = standby_of(primary, make, "pair", servers.binaries(18))
        yield primary, standby
    finally:
        for server in made:
            server.stop("immediate")


@pytest.fixture
def tables(pair: tuple[Throwaway, Throwaway], tmp_path: Path) -> tuple[Throwaway, Throwaway]:
    """The same with new tables."""
    primary, standby = pair
    ran = run("bench", "init", "-s", "1", "-w", "--force", "-d", conninfo(primary), home=tmp_path)
    assert ran.status == 0, ran.err
    with psycopg.connect(conninfo(primary), autocommit=True) as connection:
        written = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
    with psycopg.connect(conninfo(standby), autocommit=True) as connection:
        for _ in range(600):
            done = connection.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", written).fetchone()
            if done == (True,):
                break
            connection.execute("SELECT pg_sleep(0.1)")
    return pair


def both(first: Throwaway, second: Throwaway, attributes: str) -> str:
    return (
        f"host={first.socket_dir},{second.socket_dir} port={first.port},{second.port} user={first.user} "
        f"dbname=postgres target_session_attrs={attributes}"
    )


def load(home: Path, target: str, profile: str) -> Ran:
    return run("bench", "run", *QUICK, "--profile", profile, target, home=home)


def rows_written(server: Throwaway) -> int:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        row = connection.execute("SELECT count(*) FROM pgbench_history").fetchone()
    assert row is not None
    return int(row[0])


def sessions_of_pgbench(server: Throwaway) -> int:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'").fetchone()
    assert row is not None
    return int(row[0])


def doubts(ran: Ran) -> set[str]:
    return {doubt["id"] for doubt in json.loads(ran.out)["validity"]["doubts"]}


def test_a_load_for_the_standby_writes_nothing_on_the_primary(
    tables: tuple[Throwaway, Throwaway], tmp_path: Path
) -> None:
    primary, standby = tables
    target = both(primary, standby, "prefer-standby")
    writing = load(tmp_path, target, "tpcb-like")
    assert "read-only transaction" in json.loads(writing.out)["message"], writing.err
    assert rows_written(primary) == 0
    reading = load(tmp_path, target, "select-only")
    result = json.loads(reading.out)
    assert result["endpoint"] == f"{standby.socket_dir}:{standby.port}"
    assert not {"SERVER-UNPROVEN", "OTHER-SERVER"} & doubts(reading)
    elsewhere = run(
        *("bench", "run", *QUICK, "--profile", "select-only", "--endpoint"),
        *(f"replica={standby.socket_dir}:{standby.port}", conninfo(primary)),
        home=tmp_path,
    )
    assert {"SERVER-UNPROVEN", "OTHER-SERVER"} & doubts(elsewhere) == {"OTHER-SERVER"}, elsewhere.err


@pytest.mark.long
@pytest.mark.parametrize("attributes", ["read-write", "primary", *TO_STANDBY])
@pytest.mark.parametrize("primary_first", [True, False])
def test_every_command_with_every_attribute_in_both_orders(
    tables: tuple[Throwaway, Throwaway], tmp_path: Path, attributes: str, primary_first: bool
) -> None:
    primary, standby = tables
    target = both(*(tables if primary_first else tables[::-1]), attributes)
    wanted = standby if attributes in TO_STANDBY else primary
    place = f"{wanted.socket_dir}:{wanted.port}"
    for profile in ("select-only", "tpcb-like"):
        ran = load(tmp_path, target, profile)
        assert json.loads(ran.out)["endpoint"] == place, ran.err
    assert (rows_written(primary) > 0) == (wanted is primary)
    made = run("bench", "init", "-s", "1", "-w", "--force", "-d", target, home=tmp_path)
    assert (made.status == 0) == (wanted is primary), made.err
    other = primary if wanted is standby else standby
    words = ("ab", "work_mem=4MB,8MB", "--profile", "select-only", "-c", "1", "--for", "5m", "-w", "-d", target)
    program = subprocess.Popen([*PROGRAM, *words], stdin=subprocess.DEVNULL, env=environment(tmp_path), cwd=ROOT)
    try:
        assert eventually(lambda: sessions_of_pgbench(wanted) > 0)
        assert sessions_of_pgbench(other) == 0
    finally:
        program.send_signal(signal.SIGINT)
        program.wait(120)
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'name = "p"\nprofiles = ["tpcb-like"]\nclients = [1]\nscales = [1]\ntime = "1s"\nseed = 1\n'
        'housekeeping = ["checkpoint"]\n[[configuration]]\nname = "now"\n'
    )
    ran = run("experiment", "run", str(plan), "-w", "-d", target, home=tmp_path, timeout_s=300)
    if wanted is standby:
        assert "the server is a standby" in ran.err
    else:
        assert ran.status == 0, ran.err
