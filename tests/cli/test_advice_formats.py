"""What `advise` writes is fed back to the programs it is meant for. A server of our own is told what to change."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.host.sysctl_files import SysctlFiles
from tests.cli.runs import Ran, run
from tests.support.machine_tree import write
from tests.support.servers import conninfo

pytestmark = pytest.mark.long


@pytest.fixture
def advise(fresh_server: Throwaway, tmp_path: Path) -> Callable[..., Ran]:
    def ran(*words: str) -> Ran:
        done = run("advise", "--all", "--seconds", "0", "--disk", "ssd", *words, conninfo(fresh_server), home=tmp_path)
        assert done.status == 0, done.err
        return done

    return ran


def test_a_conf_file_is_read_by_the_server(advise: Callable[..., Ran], fresh_server: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(conninfo(fresh_server)) as connection:
        row = connection.execute("SHOW data_directory").fetchone()
    assert row is not None
    data = Path(str(row[0]))
    written = advise("--format", "conf").out
    own = tmp_path / "data"
    own.mkdir()
    (own / "PG_VERSION").write_text((data / "PG_VERSION").read_text())
    (own / "postgresql.conf").write_text(written)
    postgres = Path(os.readlink(f"/proc/{_postmaster(data)}/exe"))
    libraries = f"{postgres.parent.parent / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    for name in ("work_mem", "random_page_cost", "max_wal_size"):
        asked = subprocess.run(
            [postgres, "-C", name, "-D", own], env={**os.environ, "LD_LIBRARY_PATH": libraries},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert asked.returncode == 0, asked.stderr
        if name == "random_page_cost":
            assert asked.stdout.strip() == "1.1"


def _postmaster(data: Path) -> int:
    return int((data / "postmaster.pid").read_text().split("\n")[0])


def test_a_script_is_run_by_the_server_and_every_file_of_it_is_without_fault(
    advise: Callable[..., Ran], fresh_server: Throwaway
) -> None:
    script = advise("--format", "sql").out
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        statements = [line for line in script.splitlines() if line and not line.startswith("--")]
        assert len(statements) > 5
        for statement in statements:
            connection.execute(statement.encode())
        faults = connection.execute(
            "SELECT name, error FROM pg_file_settings WHERE error IS NOT NULL AND error <> "
            "'setting could not be applied'"
        ).fetchall()
        assert faults == []
        applied = connection.execute("SELECT current_setting('random_page_cost')").fetchone()
    assert applied == ("1.1",)


def test_a_sysctl_file_says_to_the_machine_what_the_json_says_to_people(
    advise: Callable[..., Ran], tmp_path: Path
) -> None:
    written = advise("--format", "sysctl").out
    write(tmp_path, {"etc/sysctl.d/90-advice.conf": written})
    files = SysctlFiles(tmp_path)
    rows = {row["name"]: row for row in json.loads(advise("--format", "json", "--group", "os").out)}
    differing = [name for name, row in rows.items() if row["advice"]["differs"] and "/" not in name]
    assert differing
    for name in differing:
        (assignment,) = files.of(name)
        assert assignment.value == rows[name]["advice"]["value"]


def test_as_text_it_says_what_it_stands_on_and_the_commands_for_the_machine(advise: Callable[..., Ran]) -> None:
    said = advise("--group", "os").out
    assert said.startswith("for PostgreSQL 18, memory ")
    assert "disk ssd, data " in said
    assert "sudo sysctl -w vm.dirty_bytes=" in said
    listed = advise("--format", "text", "--group", "memory", "--profile", "olap").out
    assert "\nworkload olap: as given\n" in listed
