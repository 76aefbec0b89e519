"""A start is tried without the cluster, and without being led to files of others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.cluster.dry_start import StartText, dry_start
from pgtop_tune.model.instance import ServerPlace
from tests.support.processes import eventually


def cluster(home: Path) -> ServerPlace:
    """A data directory with an echo for a server."""
    (home / "global").mkdir(parents=True)
    (home / "PG_VERSION").write_text("17\n")
    (home / "global/pg_control").write_bytes(b"control")
    return ServerPlace("", str(home), "", uid=os.geteuid(), gid=os.getegid(), program="/bin/echo")


def test_a_server_that_says_nothing_of_numbers_refuses_nothing(tmp_path: Path) -> None:
    found = dry_start(cluster(tmp_path / "data"), StartText(""), 17)
    assert (found.refusal, found.shared_memory_bytes, found.huge_pages) == ("", None, None)


def test_a_program_that_fails_has_the_last_word(tmp_path: Path) -> None:
    place = cluster(tmp_path / "data")
    failing = ServerPlace("", place.data_directory, "", uid=place.uid, gid=place.gid, program="/bin/false")
    assert "/bin/false" in dry_start(failing, StartText(""), 17).refusal


def test_no_link_in_the_data_directory_is_followed(tmp_path: Path) -> None:
    place = cluster(tmp_path / "data")
    (tmp_path / "shadow").write_text("secret")
    (tmp_path / "data/PG_VERSION").unlink()
    os.symlink(tmp_path / "shadow", tmp_path / "data/PG_VERSION")
    with pytest.raises(ClusterProblem, match="cannot be read"):
        dry_start(place, StartText(""), 17)


def test_a_file_of_another_user_is_not_copied(tmp_path: Path) -> None:
    place = cluster(tmp_path / "data")
    other = ServerPlace("", place.data_directory, "", uid=os.geteuid() + 1, program="/bin/echo")
    with pytest.raises(ClusterProblem, match="is not the server's user"):
        dry_start(other, StartText(""), 17)


def test_what_a_killed_program_left_goes_with_the_next_trial_and_what_is_in_use_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials, waiting = tmp_path / "trials", tmp_path / "postgres"
    trials.mkdir()
    # A child between fork and exec still holds the lock of a killed program: the script says that it is past that.
    waiting.write_text('#!/bin/sh\n: >"$2/started"\nwhile [ -d "$2" ]; do sleep 0.05; done\n')
    waiting.chmod(0o755)
    place = cluster(tmp_path / "data")
    script = (
        "import msgspec, sys; from pgtop_tune.cluster.dry_start import *; "
        "dry_start(msgspec.json.decode(sys.argv[1], type=ServerPlace), StartText(''), 17)"
    )
    asked = msgspec.json.encode(msgspec.structs.replace(place, program=str(waiting))).decode()
    environment = {**os.environ, "TMPDIR": str(trials)}
    programs = [subprocess.Popen([sys.executable, "-c", script, asked], env=environment) for _ in range(2)]
    try:
        assert eventually(lambda: len(list(trials.glob("*/cluster/started"))) == 2)
        killed, running = programs
        killed.kill()
        killed.wait()
        for directory in trials.iterdir():
            os.utime(directory, (0, 0))
        monkeypatch.setattr(tempfile, "tempdir", str(trials))
        assert not dry_start(place, StartText(""), 17).refusal
        assert len(list(trials.iterdir())) == 1
        running.kill()
        running.wait()
        assert not dry_start(place, StartText(""), 17).refusal
        assert not list(trials.iterdir())
    finally:
        for program in programs:
            program.kill()
            program.wait()
        shutil.rmtree(trials)
