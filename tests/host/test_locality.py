"""Whether the server is here: proven on a real one, refused wherever one of the proofs is missing."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.host.process_files import local_postmaster, working_directory
from pgtop_tune.model.absence import Reason, Unavailable
from tests.support.servers import conninfo

BOOT_S = 1_794_000_000
TICKS = os.sysconf("SC_CLK_TCK")
START_MS = (BOOT_S + 500) * 1000
QUESTION = (
    "SELECT pid, (extract(epoch FROM backend_start) * 1000)::bigint FROM pg_stat_activity WHERE pid = pg_backend_pid()"
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A server with postmaster 40 and backend 77, started 500 s after the boot."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(f"cpu  1 1 1 1 1 1 1 1 1 1\nbtime {BOOT_S}\n")
    process(tmp_path, 40, "postgres", 1, 100)
    process(tmp_path, 77, "postgres", 40, 500)
    return tmp_path


def process(machine: Path, pid: int, name: str, parent: int, started_s: int) -> None:
    numbers = [parent, *range(5, 22), started_s * TICKS, *range(23, 53)]
    directory = machine / "proc" / str(pid)
    directory.mkdir(exist_ok=True)
    (directory / "stat").write_text(f"{pid} ({name}) S {' '.join(map(str, numbers))}\n")


def test_a_real_server_is_here(server: Throwaway) -> None:
    with psycopg.connect(conninfo(server)) as connection:
        row = connection.execute(QUESTION).fetchone()
        data_directory = connection.execute("SHOW data_directory").fetchone()
    assert row is not None
    assert data_directory is not None
    postmaster = int(Path(data_directory[0], "postmaster.pid").read_text().split()[0])
    # The connection is closed by now, but its process may linger: ask while it is open.
    with psycopg.connect(conninfo(server)) as connection:
        pid, started_ms = connection.execute(QUESTION).fetchone() or (0, 0)
        assert local_postmaster(pid, started_ms) == postmaster
        assert working_directory(postmaster) == os.path.realpath(data_directory[0])
        assert isinstance(local_postmaster(pid, started_ms - 60_000), Unavailable)


@pytest.mark.parametrize("name", ["postgres", "postmaster", "edb-postgres", ".postgres-wrapp"])
def test_by_whatever_name_it_goes(machine: Path, name: str) -> None:
    process(machine, 40, name, 1, 100)
    process(machine, 77, name, 40, 500)
    assert local_postmaster(77, START_MS + 400, machine) == 40


def reason(found: int | Unavailable) -> str:
    assert isinstance(found, Unavailable)
    assert found.reason is Reason.NOT_LOCAL
    assert "container" in found.detail
    return found.detail


def test_no_such_process(machine: Path) -> None:
    assert "no server process 78" in reason(local_postmaster(78, START_MS, machine))


def test_a_process_of_another_name(machine: Path) -> None:
    process(machine, 77, "bash", 40, 500)
    assert "not a PostgreSQL backend" in reason(local_postmaster(77, START_MS, machine))


def test_a_server_process_that_no_server_started(machine: Path) -> None:
    process(machine, 40, "bash", 1, 100)
    assert "not a PostgreSQL backend" in reason(local_postmaster(77, START_MS, machine))


@pytest.mark.parametrize("shift_s", [-3600, -30, 30, 3600])
def test_the_same_number_in_another_servers_hands(machine: Path, shift_s: int) -> None:
    assert "belongs to another server" in reason(local_postmaster(77, START_MS + shift_s * 1000, machine))


def test_where_there_is_no_proc(tmp_path: Path) -> None:
    reason(local_postmaster(77, START_MS, tmp_path))


def test_a_process_that_is_not_there_works_nowhere(machine: Path) -> None:
    assert working_directory(78, machine) is None
