"""`advise --apply` and what waits for a restart, on real servers; the server of P2 on the kernel this runs on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.host.block_devices import ROOT
from pgtop_tune.host.sysctl_files import PATH as DROP_IN
from tests.cli.runs import Ran, run
from tests.support.by_pg_ctl import by_pg_ctl
from tests.support.kernel import kernel, kernel_of_our_own
from tests.support.servers import conninfo

BROKEN = {"max_connections": "1000", "work_mem": "32MB", "huge_pages": "try"}


def advise(server: Throwaway, home: Path, *words: str) -> Ran:
    ran = run("advise", "--seconds", "0", "--disk", "ssd", *words, conninfo(server), home=home)
    assert ran.status == 0, ran.err
    return ran


def test_what_waits_for_a_restart_is_what_advice_goes_by(fresh_server: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_connections = 37")
        connection.execute("ALTER SYSTEM SET wal_buffers = '3MB'")
        connection.execute("SELECT pg_reload_conf()")
    rows = {row["name"]: row for row in json.loads(advise(fresh_server, tmp_path, "--all", "--format", "json").out)}
    assert (rows["max_connections"]["pending"], rows["max_connections"]["advice"]["value"]) == ("37", "37")
    assert rows["max_connections"]["advice"]["differs"] is False
    assert rows["wal_buffers"]["pending"] == "3MB"
    shown = advise(fresh_server, tmp_path, "--apply", "--dry-run").out
    assert "max_connections" not in shown
    assert "(waits for a restart: 3MB) → " in shown


def test_a_script_for_the_server_alone_never_asks_for_huge_pages_that_are_not_there(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    """`advise --format sql`, applied and restarted, left a server that did not start."""
    for words in (("--format", "sql"), ("--format", "conf"), ("--apply", "--dry-run", "--group", "memory")):
        out = advise(fresh_server, tmp_path, *words).out
        assert not [line for line in out.splitlines() if "huge_pages" in line and line.rstrip("';").endswith("on")], out


def test_nothing_is_made_without_a_yes(fresh_server: Throwaway, tmp_path: Path) -> None:
    ran = run("advise", "--apply", "--group", "checkpoints", "--seconds", "0", conninfo(fresh_server), home=tmp_path)
    assert ran.status == 2
    assert "pass --yes without a terminal" in ran.err
    assert "max_wal_size: 1GB → 4GB" in ran.out
    ran = run("advise", "--yes", "--seconds", "0", conninfo(fresh_server), home=tmp_path)
    assert ran.status == 2
    assert "need --apply" in ran.err


def test_work_mem_for_fewer_connections_is_not_made_without_them(fresh_server: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_connections = 9000")
        connection.execute("SELECT pg_reload_conf()")
    words = ("advise", "--apply", "--yes", "--group", "memory", "--seconds", "0", conninfo(fresh_server))
    ran = run(*words, home=tmp_path)
    assert ran.status == 2
    assert "work_mem is advised for max_connections" in ran.err
    assert "work_mem assumes max_connections" in advise(fresh_server, tmp_path, "--format", "sql").out


def test_a_group_is_made_and_taken_back_to_the_byte(fresh_server: Throwaway, tmp_path: Path) -> None:
    file = Path(str(fresh_server.data_dir)) / "postgresql.auto.conf"
    before = file.read_bytes()
    advise(fresh_server, tmp_path, "--apply", "--yes", "--group", "checkpoints")
    assert b"max_wal_size = '4GB'" in file.read_bytes()
    again = advise(fresh_server, tmp_path, "--apply", "--yes", "--group", "checkpoints")
    assert "nothing to change" in again.err
    assert run("revert", "--last", "-d", conninfo(fresh_server), home=tmp_path).status == 0
    assert file.read_bytes() == before


def checked(server: Throwaway, home: Path) -> list[dict[str, Any]]:
    words = (
        "--select",
        "MEM",
        "--select",
        "HUGE",
        "--select",
        "operating system",
        "--select",
        "WAL",
        "--select",
        "CON",
    )
    report = json.loads(run("check", "--format", "json", *words, "-d", conninfo(server), home=home).out)
    return [each for each in report["findings"] if each["severity"] in ("critical", "high")]


@pytest.mark.root
@pytest.mark.long
def test_the_server_of_p2_is_made_fit_restarted_and_taken_back(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    """20GB of shared_buffers, 1000 connections with 32MB on 23.5 GiB; on another machine the same share of it."""
    ram_mb = psutil.virtual_memory().total // 2**20
    settings = {**BROKEN, "shared_buffers": f"{ram_mb * 85 // 100}MB"}
    with kernel_of_our_own() as before, by_pg_ctl(make_server(18), **settings) as server:
        file = Path(str(server.data_dir)) / "postgresql.auto.conf"
        stored, drop_in = file.read_bytes(), ROOT / DROP_IN
        assert {"MEM-01", "MEM-02"} <= {each["check"] for each in checked(server, tmp_path)}
        made = advise(server, tmp_path, "--apply", "--yes", "--restart")
        assert "vm.overcommit_memory is left unchanged: CommitLimit would be" in made.err
        assert "vm.nr_hugepages = " in drop_in.read_text()
        with psycopg.connect(conninfo(server)) as connection:
            now = connection.execute("SELECT current_setting('huge_pages_status'), current_setting('huge_pages')")
            assert now.fetchone() == ("on", "on")
        left = checked(server, tmp_path)
        assert [each for each in left if each["check"] != "HUGE-04"] == [], left
        # The server that ran had committed most of the memory: strict accounting fits only now.
        shown = [line.split(":")[0] for line in advise(server, tmp_path, "--apply", "--dry-run").out.splitlines()]
        assert {name for name in shown if " " not in name} <= {"vm.overcommit_ratio", "vm.overcommit_memory"}
        undone = run("revert", "--last", "--restart", "-d", conninfo(server), home=tmp_path)
        assert undone.status == 0, undone.err
        assert file.read_bytes() == stored
        assert not drop_in.exists()
        assert kernel() == before
