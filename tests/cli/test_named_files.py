"""Files that an operator names, and that are none: each ends the command at once, with a sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import run
from tests.support.servers import conninfo

NOBODY = ("-w", "-h", "127.0.0.1", "-p", "1")
NAMED = {
    "a list of servers": lambda path: (("check", "--servers", path), 2),
    "wishes for checks": lambda path: (("check", "--config", path, *NOBODY), 2),
    "an earlier report": lambda path: (("check", "--against", path, *NOBODY), 2),
    "a plan": lambda path: (("experiment", "run", path, *NOBODY), 2),
    "a recording": lambda path: (("baseline", "save", "x", path), 5),
}


@pytest.mark.parametrize("kind", NAMED)
def test_a_pipe_and_a_device_are_no_file(kind: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/zero"):
        words, status = NAMED[kind](path)
        ended = run(*words, home=tmp_path)
        assert ended.status == status, ended.err
        assert "it is not a regular file" in ended.err
        assert len(ended.err.splitlines()) <= 2


def test_a_script_that_is_no_file_is_refused_before_a_run(server: Throwaway, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.sql"
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/zero"):
        ended = run("bench", "run", "-f", path, "-w", "-d", conninfo(server), home=tmp_path)
        assert ended.status == 4
        assert f"the script {path} cannot be read: it is not a regular file" in ended.err


@pytest.mark.parametrize("place", ["pipe", "device", "endless"])
def test_a_configuration_that_is_no_file_ends_the_program_at_once(place: str, tmp_path: Path) -> None:
    config = tmp_path / ".config/pgtop-tune/config.toml"
    config.parent.mkdir(parents=True)
    if place == "pipe":
        os.mkfifo(config)
    elif place == "device":
        config.symlink_to("/dev/zero")
    else:
        with config.open("wb") as file:
            file.truncate(1 << 40)
    ended = run("record", "-o", str(tmp_path / "a.jsonl"), *NOBODY, home=tmp_path)
    assert ended.status == 2
    why = "it is larger than 1 MB" if place == "endless" else "it is not a regular file"
    assert f"config.toml cannot be read: {why}" in ended.err
