"""A revert watchdog that meets another server, or a journal that is not to be used, does not give its set up."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.changes.journal import journals, read
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.watchdogs import LAST_ATTEMPT
from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import run
from tests.cli.test_set import shown
from tests.postgres.conftest import place
from tests.support.makers import leave_pending
from tests.support.servers import conninfo

JOURNALS = ".local/state/pgtop-tune/journal"


def overdue_set(server: Throwaway, directory: Path) -> str:
    leave_pending(server, directory, "Terms(keep_within_s=1.0, set_id='left')")
    (path,) = journals(directory)
    change = read(path).in_force[0]
    assert change.until_ms is not None
    time.sleep(max(change.until_ms / 1000 - time.time(), 0) + 0.1)
    return change.set_id


@pytest.mark.parametrize("overdue", [(), pytest.param(("--overdue",), marks=pytest.mark.long)])
def test_another_cluster_at_the_endpoint_is_no_end_of_a_trial(
    make_server: Callable[..., Throwaway], tmp_path: Path, overdue: tuple[str, ...]
) -> None:
    server, other = make_server(), make_server()
    set_id = overdue_set(server, tmp_path / JOURNALS)
    (path,) = journals(tmp_path / JOURNALS)
    # Of another machine, so that nobody knows where it is.
    path.write_bytes(b"".join(line for line in path.read_bytes().splitlines(True) if b'"data_directory"' not in line))
    words = ("revert", "--set", set_id, *overdue, "--no-password")
    for more in ((), (LAST_ATTEMPT,)):
        missed = run(*words, *more, "-d", conninfo(other), home=tmp_path)
        assert (missed.status, missed.out) == (6, "nothing to revert\n"), missed.err
        there = f"work_mem was changed on another server, postgres@{server.socket_dir}:5432/postgres"
        assert there in missed.err
    assert "gave up" in run("revert", "--list", home=tmp_path).out
    with pytest.raises(ServerProblem, match="work_mem was changed on another server"):
        asyncio.run(PostgresControl(place(other), directory=tmp_path / JOURNALS).revert_set(set_id))
    done = run(*words, "-d", conninfo(server), home=tmp_path)
    assert (done.status, shown(server, "work_mem")) == (0, "4MB"), done.err
    # Taken back by now: nobody has to be asked again.
    assert run(*words, "-d", conninfo(other), home=tmp_path).status == 0


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/hosts")], ids=["fifo", "link"])
def test_a_journal_that_is_not_used_keeps_no_trial_from_its_end(
    fresh_server: Throwaway, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    set_id = overdue_set(fresh_server, tmp_path / JOURNALS)
    make(tmp_path / JOURNALS / "1-0123456789abc.jsonl")
    nowhere = run("revert", "--set", set_id, LAST_ATTEMPT, "-h", "127.0.0.1", "-p", "1", home=tmp_path)
    assert (nowhere.status, "gave up" in run("revert", "--list", home=tmp_path).out) == (3, True), nowhere.err
    ran = run("revert", "--set", set_id, "--overdue", "-d", conninfo(fresh_server), home=tmp_path)
    assert (ran.status, shown(fresh_server, "work_mem")) == (0, "4MB"), ran.err
