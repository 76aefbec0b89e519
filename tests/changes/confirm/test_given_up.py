"""A revert watchdog whose server is gone for good ends, and the journal says so."""

from __future__ import annotations

from pathlib import Path

from pgtop_tune.changes.journal import journals, read
from pgtop_tune.changes.watchdogs import LAST_ATTEMPT
from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import run
from tests.support.makers import leave_pending


def test_the_last_attempt_writes_why_the_change_is_still_in_force(fresh_server: Throwaway, tmp_path: Path) -> None:
    directory = tmp_path / ".local/state/pgtop-tune/journal"
    leave_pending(fresh_server, directory, "Terms(keep_within_s=600.0, set_id='gone')")
    nowhere = ("-h", "127.0.0.1", "-p", "1", "--no-password", "-d", "postgres")
    for words, noted in (((), False), ((LAST_ATTEMPT,), True)):
        ran = run("revert", "--set", "gone", *nowhere, *words, home=tmp_path)
        assert ran.status == 3
        (path,) = journals(directory)
        assert [("gave up" in change.message) for change in read(path).in_force] == [noted, noted]
    for set_id, status in (("gone", 3), ("another", 6)):
        # A set that no journal has takes no server, and may be in force.
        assert run("revert", "--set", set_id, "--overdue", *nowhere, home=tmp_path).status == status
    listed = run("revert", "--list", home=tmp_path).out
    assert listed.count("the revert watchdog gave up at ") == 2
    assert "--set gone" in listed
    assert LAST_ATTEMPT not in run("revert", "--help", home=tmp_path).out
