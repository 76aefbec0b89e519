"""Commands that do not stay find a set whose program and revert watchdog were killed: it goes back at its time."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from pgtop_tune.changes.journal import JournalText, journals, read
from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import run
from tests.cli.test_set import shown
from tests.support.makers import leave_pending
from tests.support.processes import eventually
from tests.support.servers import conninfo


def journal_of(directory: Path) -> JournalText:
    (path,) = (path for path in journals(directory) if not path.name.startswith("host-"))
    return read(path)


def test_a_set_whose_program_is_gone_is_not_on_trial_by_that_program(fresh_server: Throwaway, tmp_path: Path) -> None:
    directory = tmp_path / ".local/state/pgtop-tune/journal"
    leave_pending(fresh_server, directory, "Terms(keep_within_s=600.0)")
    words = ("revert", "--overdue", "-d", conninfo(fresh_server))
    assert "which has ended: it reverts at " in run(*words, home=tmp_path).err
    again = run(*words, home=tmp_path)
    (owner,) = journal_of(directory).owners.values()
    assert owner.watchdog is not None
    os.kill(owner.watchdog.pid, signal.SIGKILL)
    assert "which has ended: its revert watchdog reverts it at " in again.err
    assert "pending confirmation by" not in again.err


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("set", "commit_siblings=6", "-d"), marks=pytest.mark.long),
        pytest.param(("revert", "--set", "another", "-d"), marks=pytest.mark.long),
        pytest.param(("check", "-d"), marks=pytest.mark.long),
        pytest.param(("record", "--seconds", "6", "-q", "-o", "run.jsonl", "-d"), marks=pytest.mark.long),
    ],
    ids=lambda words: words[0],
)
def test_it_gets_a_watchdog_that_outlives_the_command(
    fresh_server: Throwaway, tmp_path: Path, words: tuple[str, ...]
) -> None:
    directory = tmp_path / ".local/state/pgtop-tune/journal"
    leave_pending(fresh_server, directory, "Terms(keep_within_s=20.0)")
    ends_ms = journal_of(directory).in_force[0].until_ms
    assert ends_ms is not None
    words = tuple(str(tmp_path / word) if word.endswith(".jsonl") else word for word in words)
    ran = run(*words, conninfo(fresh_server), home=tmp_path)
    assert ran.err.count("work_mem 4MB→8MB; max_wal_size 1GB→4GB was left by ") == 1, ran.err
    assert "which has ended: it reverts at " in ran.err
    assert eventually(lambda: all(each.name == "commit_siblings" for each in journal_of(directory).in_force))
    assert time.time() * 1000 >= ends_ms
    assert (shown(fresh_server, "work_mem"), shown(fresh_server, "max_wal_size")) == ("4MB", "1GB")
