"""A primary is lost and its standby promoted, under one connection string with both hosts: nobody watching ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli import runs
from tests.support.processes import eventually
from tests.support.servers import Servers, conninfo
from tests.support.standby import standby_of
from tests.terminal.screen import Terminal, environment

PROGRAM = (sys.executable, "-m", "pgtop_tune")


@pytest.fixture
def pair(make_server: Callable[..., Throwaway], servers: Servers) -> tuple[Throwaway, Throwaway]:
    """A primary and its standby."""
    primary = make_server(18)
    return primary, standby_of(primary, make_server, "pair", servers.binaries(18))


def test_recordings_and_the_screen_outlive_a_failover(pair: tuple[Throwaway, Throwaway], tmp_path: Path) -> None:
    primary, standby = pair
    both = (
        f"host={primary.socket_dir},{standby.socket_dir} port={primary.port},{standby.port} user={primary.user} "
        "dbname=postgres target_session_attrs=read-write"
    )
    # The second one takes libpq (see postgres/keywords).
    targets = {
        tmp_path / "asyncpg.jsonl": (both, "no server at this address is read-write"),
        tmp_path / "libpq.jsonl": (f"{both} keepalives=1", "session is read-only"),
    }
    errors = tmp_path / "stderr"
    with errors.open("w") as stderr:
        recordings = [
            subprocess.Popen(
                [*PROGRAM, "record", "-q", "-w", "-i", "0.2", "-o", str(path), target],
                stdin=subprocess.DEVNULL, stderr=stderr, env=runs.environment(tmp_path), cwd=runs.ROOT,
            )
            for path, (target, _) in targets.items()
        ]  # fmt: skip

    def all_say(words: str = "") -> bool:
        ended = [process.returncode for process in recordings if process.poll() is not None]
        assert not ended, errors.read_text()
        return all(path.exists() and (words or nobody) in path.read_text() for path, (_, nobody) in targets.items())

    try:
        with Terminal((*PROGRAM, "-w", both), environment(tmp_path), 160, 40) as terminal:
            terminal.until("PostgreSQL 18")
            assert eventually(lambda: all_say('"activity"'))
            primary.stop("immediate")
            assert eventually(lambda: all_say())
            terminal.until("no answer")
            with psycopg.connect(conninfo(standby), autocommit=True) as connection:
                connection.execute("SELECT pg_promote()")
            assert eventually(lambda: all_say("server restarted"))
            terminal.until(f"postgres@{standby.socket_dir}:")
            terminal.press("q")
            assert terminal.wait() == 0
        for process in recordings:
            process.terminate()
            assert process.wait(60) == 0, errors.read_text()
    finally:
        for process in recordings:
            process.kill()
            process.wait()
    assert "Traceback" not in errors.read_text()
