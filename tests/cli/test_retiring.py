"""Journals that are damaged or of others: `revert` tells of them, and there is a way to be rid of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgtop_tune.changes.journal import Journal, journals
from pgtop_tune.changes.machine.control import machine
from pgtop_tune.changes.model.change import ChangeState, HostChange
from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import run
from tests.cli.test_set import shown
from tests.support.servers import conninfo

JOURNALS = ".local/state/pgtop-tune/journal"


def test_a_damaged_line_is_told_by_revert_which_follows_the_rest(server: Throwaway, tmp_path: Path) -> None:
    assert run("set", "commit_delay=7", "-d", conninfo(server), home=tmp_path).status == 0
    (journal,) = journals(tmp_path / JOURNALS)
    with journal.open("ab") as file:
        file.write(b"not a line\n")
    number = journal.read_bytes().count(b"\n")
    ran = run("revert", "-d", conninfo(server), home=tmp_path)
    assert (ran.status, ran.out) == (0, "commit_delay: 7 → 0\n1 change reverted\n")
    assert f"{journal}: line {number} is damaged" in ran.err
    assert f"`pgtop-tune revert --retire {journal}` retires the journal" in ran.err


def test_a_journal_is_retired_after_a_yes_and_nothing_is_changed(server: Throwaway, tmp_path: Path) -> None:
    assert run("set", "commit_delay=7", "-d", conninfo(server), home=tmp_path).status == 0
    (journal,) = journals(tmp_path / JOURNALS)
    asked = run("revert", "--retire", journal.name, home=tmp_path)
    assert (asked.status, "commit_delay: 0 → 7" in asked.out, "--yes" in asked.err) == (2, True, True)
    assert journals(tmp_path / JOURNALS) == (journal,)
    ran = run("revert", "--retire", str(journal), "--yes", home=tmp_path)
    assert (ran.status, ran.out.splitlines()[-1]) == (0, f"retired: {journal.with_suffix('.retired')}")
    assert shown(server, "commit_delay") == "7"
    assert run("revert", "-d", conninfo(server), home=tmp_path).out == "nothing to revert\n"
    assert run("revert", "--retire", journal.name, "--yes", home=tmp_path).status == 2
    assert run("reset", "commit_delay", "-d", conninfo(server), home=tmp_path).status == 0


@pytest.mark.root
def test_root_does_not_obey_the_journal_of_another_user(tmp_path: Path) -> None:
    directory, victim = tmp_path / JOURNALS, tmp_path / "victim"
    victim.write_text("precious")
    forged = HostChange("a", 1, "vm.swappiness", str(victim), "60", "evil", ChangeState.APPLIED)
    with Journal(machine(), directory) as journal:
        journal.write(forged)
    for path in (directory, journal.path):
        os.chown(path, 65534, 65534)
    for words in (("--machine",), ("--list",)):
        ran = run("revert", *words, home=tmp_path)
        assert (ran.status, "Traceback" in ran.err) == (6, False)
        assert "belongs to nobody, but this process runs as root" in ran.err
        assert "sudo -u nobody" in ran.err
    os.chown(directory, 0, 0)
    os.chown(journal.path, 0, 0)
    ran = run("revert", "--machine", home=tmp_path)
    assert (ran.status, "cannot have made" in ran.err) == (6, True), ran.err
    assert victim.read_text() == "precious"


def test_a_pipe_is_no_recording_and_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "run.jsonl"
    os.mkfifo(pipe)
    for words in (("replay", str(pipe), "--lines"), ("compare", str(pipe), str(pipe))):
        ran = run(*words, home=tmp_path, timeout_s=30)
        assert (ran.status, "it is not a regular file" in ran.err) == (5, True), ran.err


def test_a_journal_of_this_cluster_that_cannot_be_followed_does_not_pass_for_an_empty_one(
    server: Throwaway, tmp_path: Path
) -> None:
    assert run("set", "commit_delay=7", "-d", conninfo(server), home=tmp_path).status == 0
    (journal,) = journals(tmp_path / JOURNALS)
    journal.chmod(0o666)
    ran = run("revert", "-d", conninfo(server), home=tmp_path)
    assert (ran.status, "is writable by others" in ran.err, "nothing to revert" in ran.out) == (6, True, False)
    journal.chmod(0o600)
    assert run("revert", "-d", conninfo(server), home=tmp_path).out == "commit_delay: 7 → 0\n1 change reverted\n"
