"""Doubts about a result whose causes are real: a server where they happen while pgbench runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.cli.test_bench_run import QUICK, with_tables
from tests.support.processes import eventually
from tests.support.servers import conninfo

REPEATABLE = """BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT bbalance FROM pgbench_branches WHERE bid = 1;
UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;
COMMIT;
"""


def doubts(target: str, *words: str, home: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit status and doubts of a run, by their ids."""
    ran = run("bench", "run", *words, *QUICK, "--format", "json", target, home=home, timeout_s=180)
    record = json.loads(ran.out)
    return ran.status, {doubt["id"]: doubt for doubt in record["validity"]["doubts"]}


@pytest.mark.long
def test_autovacuum_at_work_on_a_table_of_the_load_is_seen_and_named(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server(
        # So slow that no look can miss it.
        autovacuum_naptime="1s", autovacuum_vacuum_cost_delay="20ms", autovacuum_vacuum_cost_limit="20",
    )  # fmt: skip
    target = with_tables(conninfo(server))
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute(
            "ALTER TABLE pgbench_accounts SET (autovacuum_vacuum_threshold = 10, autovacuum_vacuum_scale_factor = 0)"
        )
    _, found = doubts(target, "--profile", "simple-update", "-c", "2", "-T", "10", home=tmp_path)
    assert found["AUTOVACUUM"]["verdict"] == "suspect"
    assert "pgbench_accounts in " in found["AUTOVACUUM"]["reason"]


@pytest.mark.long
def test_transactions_that_cannot_be_serialized_are_counted_and_tried_again_they_do_not_fail(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    target = with_tables(conninfo(make_server()))
    script = tmp_path / "repeatable.sql"
    script.write_text(REPEATABLE)
    status, found = doubts(target, "-f", str(script), "-c", "4", "-t", "200", home=tmp_path)
    assert status == 4
    assert found["FAILED-TRANSACTIONS"]["verdict"] == "invalid"
    assert " serialization)" in found["FAILED-TRANSACTIONS"]["reason"]
    status, found = doubts(target, "-f", str(script), "-c", "4", "-T", "3", "--max-tries", "0", home=tmp_path)
    assert found.get("FAILED-TRANSACTIONS", {"verdict": "note"})["verdict"] != "invalid"
    assert status == 0


@pytest.mark.long
def test_a_parameter_that_another_session_changes_two_seconds_into_a_run_is_told(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    target = with_tables(conninfo(make_server()))
    words = ("bench", "run", "--profile", "select-only", "-c", "2", "-T", "12", *QUICK, "--format", "json", target)
    with (
        psycopg.connect(target, autocommit=True) as session,
        subprocess.Popen([*PROGRAM, *words], env=environment(tmp_path), cwd=ROOT, stdout=subprocess.PIPE) as running,
    ):
        load = "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgbench'"
        assert eventually(
            lambda: bool(session.execute(f"{load} AND now() - backend_start > interval '2 s'".encode()).fetchall())
        )
        session.execute("ALTER SYSTEM SET work_mem = '9MB'")
        session.execute("SELECT pg_reload_conf()")
        out, _ = running.communicate(timeout=180)
    found = {doubt["id"]: doubt for doubt in json.loads(out)["validity"]["doubts"]}
    assert found["PARAMETER-CHANGED"]["reason"] == "work_mem was changed from 4MB to 9MB"
