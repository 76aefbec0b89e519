"""A set that nobody confirmed goes back at its time, although its program and its revert watchdog were killed."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from pgtop_tune.changes.journal import JournalText, journals, read
from pgtop_tune.changes.model.change import ChangeState
from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.makers import kill_with_watchdogs, leave_pending
from tests.support.processes import eventually
from tests.terminal.test_main_job import setting, watch


def journal(home: Path) -> JournalText:
    (path,) = journals(home / ".local/state/pgtop-tune/journal")
    return read(path)


@pytest.mark.long
def test_screen_and_watchdog_killed_and_started_again_the_change_goes_back_at_its_time(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    with watch(fresh_server, tmp_path) as terminal:
        terminal.until(" primary")
        terminal.press("p")
        terminal.until("▸ max_wal_size")
        terminal.press("o")
        terminal.until("terms of a change")
        terminal.press("\t")
        terminal.press("\x7f\x7f15\r")
        terminal.until_gone("terms of a change")
        terminal.press("+")
        terminal.until("reverts after 15 s")
        terminal.press("a")
        terminal.until("max_wal_size is now 2GB")
        assert eventually(lambda: all(each.state is ChangeState.APPLIED for each in journal(tmp_path).changes))
        kill_with_watchdogs(terminal.pid)
        assert terminal.wait() == -signal.SIGKILL
    (change,) = journal(tmp_path).in_force
    assert change.until_ms is not None
    assert setting(fresh_server, "max_wal_size") == "2GB"
    with watch(fresh_server, tmp_path, columns=160) as terminal:
        terminal.until("auto-revert in")
        assert f"adopted from {change.by}" in terminal.text()
        assert setting(fresh_server, "max_wal_size") == "2GB"
        terminal.until("reverted, not confirmed in time")
        assert time.time() * 1000 >= change.until_ms
        assert setting(fresh_server, "max_wal_size") == "1GB"
        assert journal(tmp_path).in_force == ()
        terminal.press("q")
        assert terminal.wait() == 0


def test_an_adopted_set_is_kept_and_undone_with_the_keys_of_our_own(fresh_server: Throwaway, tmp_path: Path) -> None:
    leave_pending(fresh_server, tmp_path / ".local/state/pgtop-tune/journal", "Terms(keep_within_s=600.0)")
    with watch(fresh_server, tmp_path, columns=160) as terminal:
        terminal.until("adopted from")
        terminal.press("Y")
        terminal.until("confirmed: work_mem 4MB→8MB; max_wal_size 1GB→4GB")
        terminal.until_gone("auto-revert in")
        assert [(change.kept, change.until_ms) for change in journal(tmp_path).in_force] == [(True, None)] * 2
        terminal.press("u")
        terminal.until("undo 2 changes")
        terminal.press("y")
        terminal.until("work_mem is 4MB again")
        terminal.press("q")
        assert terminal.wait() == 0
    leave_pending(fresh_server, tmp_path / ".local/state/pgtop-tune/journal", "Terms(keep_within_s=600.0)")
    with watch(fresh_server, tmp_path, columns=160) as terminal:
        terminal.until("adopted from")
        terminal.press("q")
        terminal.until("Pending confirmation; leaving reverts it:")
        terminal.press("l")
        assert terminal.wait() == 0
    assert journal(tmp_path).in_force == ()
    assert setting(fresh_server, "work_mem") == "4MB"
