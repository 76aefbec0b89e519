"""The recorder's unit and its settings: systemd finds no fault in it, and its words are those of the program."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer.main

from pgtop_tune.cli.app import program
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.recording.files import parse_rotation
from tests.cli.runs import PROGRAM, ROOT, environment
from tests.support.packaging_step import PACKAGING
from tests.support.processes import eventually
from tests.support.servers import conninfo

UNIT = PACKAGING / "pgtop-tune-record@.service"
SETTINGS = PACKAGING / "main.conf"


def _unit(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)


def _settings() -> dict[str, str]:
    lines = SETTINGS.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def _command(state_directory: Path, settings: dict[str, str]) -> list[str]:
    """The words of ExecStart as systemd makes them: a variable in braces is one word, one without is split."""
    (line,) = _unit("ExecStart")
    line = line.replace("%i", "main").replace("${STATE_DIRECTORY}", str(state_directory))
    return shlex.split(line.replace("$RECORD_OPTIONS", settings["RECORD_OPTIONS"]))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path) -> None:
    directory = tmp_path / "usr/lib/systemd/system"
    directory.mkdir(parents=True)
    instance = directory / "pgtop-tune-record@main.service"
    started = tmp_path / "pgtop-tune"
    started.write_text("#!/bin/sh\n", encoding="utf-8")
    started.chmod(0o755)
    text = UNIT.read_text(encoding="utf-8").replace("/usr/bin/pgtop-tune", str(started))
    assert text.count(str(started)) == 1
    instance.write_text(text, encoding="utf-8")
    looked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(instance)], capture_output=True,
        text=True, check=False, env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )  # fmt: skip
    assert (looked.returncode, looked.stderr, looked.stdout) == (0, "", "")


def test_the_command_of_the_unit_and_its_settings_parse(tmp_path: Path) -> None:
    settings = _settings()
    _, name, *words = _command(tmp_path, settings)
    group: Any = typer.main.get_command(program())
    parsed = group.commands[name].make_context(name, words, resilient_parsing=False).params
    assert Path(parsed["output"]) == tmp_path / "main.jsonl.gz"
    assert parse_rotation(parsed["rotate"], parsed["keep"]) is not None
    assert set(settings) == {"PGHOST", "PGDATABASE", "RECORD_OPTIONS"}


SAMPLED = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgtop-tune' AND age(now(), backend_start) > '3 s'"
)


def test_stopping_the_unit_is_no_failure_and_a_mistake_in_the_settings_is_one_that_stays(
    server: Throwaway, tmp_path: Path
) -> None:
    assert _unit("RestartPreventExitStatus") == [str(ExitCode.USAGE.value)]
    words = _command(tmp_path, _settings())[1:]
    where = {"PGHOST": str(server.socket_dir), "PGPORT": str(server.port), "PGUSER": "postgres"}
    recorder = subprocess.Popen(
        [*PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT,
        env=environment(tmp_path, PGDATABASE="postgres", **where),
    )  # fmt: skip
    try:
        with psycopg.connect(conninfo(server), autocommit=True) as watching:
            # A recorder that has seen no server ends with another status.
            assert eventually(lambda: watching.execute(SAMPLED).fetchall() != [(0,)])
        recorder.send_signal(signal.SIGTERM)
        assert str(recorder.wait(60)) in ("0", *_unit("SuccessExitStatus"))
    finally:
        recorder.kill()
        recorder.wait()
