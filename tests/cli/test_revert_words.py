"""What `revert` says: from what to what where that was done, and why not where it was not."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import run
from tests.support.servers import conninfo


def by_hand(server: Throwaway, text: str) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(text.encode())
        connection.execute("SELECT pg_reload_conf()")


def test_what_the_server_runs_with_until_a_restart_is_not_what_it_goes_back_to(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    target = conninfo(fresh_server)
    assert run("set", "wal_log_hints=on", "-d", target, home=tmp_path).status == 0
    never = run("revert", "-d", target, home=tmp_path)
    assert never.out == "wal_log_hints: on → off\n1 change reverted\n"
    assert run("set", "wal_log_hints=on", "-d", target, home=tmp_path).status == 0
    fresh_server.restart()
    ran = run("revert", "-d", target, home=tmp_path)
    assert ran.err == ""
    assert ran.out == (
        "wal_log_hints: on → off  (takes effect when the server is restarted; until then on)\n1 change reverted\n"
    )


def test_a_value_like_the_default_is_not_called_overridden(fresh_server: Throwaway, tmp_path: Path) -> None:
    by_hand(fresh_server, "ALTER SYSTEM SET max_worker_processes = '8'")
    assert run("set", "max_worker_processes=9", "-d", conninfo(fresh_server), home=tmp_path).status == 0
    ran = run("revert", "-d", conninfo(fresh_server), home=tmp_path)
    assert ran.out == "max_worker_processes: 9 → 8\n1 change reverted\n"


@pytest.mark.parametrize(
    ("since", "said"),
    [
        (
            "ALTER SYSTEM SET commit_delay = '9'",
            "commit_delay: left alone: another user has set it to 9 since\n1 left alone\n",
        ),
        (
            "ALTER SYSTEM RESET commit_delay",
            "commit_delay: it had its old value already: 0\n1 already had the old value\n",
        ),
    ],
)
def test_what_was_not_done_is_not_counted(fresh_server: Throwaway, tmp_path: Path, since: str, said: str) -> None:
    assert run("set", "commit_delay=7", "-d", conninfo(fresh_server), home=tmp_path).status == 0
    by_hand(fresh_server, since)
    assert run("revert", "-d", conninfo(fresh_server), home=tmp_path).out == said
    assert run("revert", "-d", conninfo(fresh_server), home=tmp_path).out == "nothing to revert\n"


def test_the_place_that_gives_another_value_now_is_named(fresh_server: Throwaway, tmp_path: Path) -> None:
    assert run("set", "commit_delay=7", "-d", conninfo(fresh_server), home=tmp_path).status == 0
    main = Path(str(fresh_server.data_dir)) / "postgresql.conf"
    with main.open("a") as file:
        file.write("commit_delay = 5\n")
    line = main.read_text().count("\n")
    ran = run("revert", "-d", conninfo(fresh_server), home=tmp_path)
    assert ran.out == (
        f"commit_delay: 7 → 5  ({main}:{line} sets it now; before the change it was 0)\n1 change reverted\n"
    )
