"""Exit statuses that a pipeline goes by: a crash, a reader that has gone, a question without an answer; any locale."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.support.servers import conninfo
from tests.terminal.screen import Terminal

OWN_PROFILE = """\
title = "Own"
description = "Schnee ☃ 雪"
builtin = "select-only"
dataset = "pgbench"
protocol = "prepared"
clients_per_core = 4
log_class = "lookups"
"""


def test_a_crash_is_no_finding(tmp_path: Path) -> None:
    broken = (
        "import sys, pgtop_tune.cli.app as app; sys.argv = ['pgtop-tune', 'check']; app._run_command = 1; app.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", broken], capture_output=True, text=True, timeout=60, cwd=ROOT, env=environment(tmp_path)
    )
    assert "TypeError: the first argument must be callable" in done.stderr
    assert done.returncode == 70


@pytest.mark.parametrize(
    ("words", "with_errors"), [(("--help",), True), (("bench", "list"), False), (("record",), False)]
)
def test_a_reader_that_has_gone_is_sigpipe(
    words: tuple[str, ...], with_errors: bool, server: Throwaway, tmp_path: Path
) -> None:
    more = ("-i", "0.2", "-o", str(tmp_path / "a.jsonl"), conninfo(server)) if words == ("record",) else ()
    reading, writing = os.pipe()
    os.close(reading)
    errors = tmp_path / "errors"
    try:
        with errors.open("wb") as beside:
            done = subprocess.run(
                [*PROGRAM, *words, *more],
                stdin=subprocess.DEVNULL, stdout=writing, stderr=writing if with_errors else beside, timeout=90,
                cwd=ROOT, env=environment(tmp_path),
            )  # fmt: skip
    finally:
        os.close(writing)
    assert done.returncode == 128 + signal.SIGPIPE
    assert errors.read_bytes() == b""


@pytest.mark.parametrize("words", [("--help",), ("bench", "list")])
def test_a_terminal_that_has_gone_is_a_hang_up(words: tuple[str, ...], tmp_path: Path) -> None:
    master, slave = pty.openpty()
    os.close(master)
    done = subprocess.run(
        [*PROGRAM, *words], stdout=slave, stderr=subprocess.PIPE, timeout=60, cwd=ROOT, env=environment(tmp_path)
    )
    os.close(slave)
    assert (done.returncode, done.stderr) == (128 + signal.SIGHUP, b"")


@pytest.mark.parametrize("words", [("--help",), ("bench", "--help"), ("bench", "list"), ("--show-completion", "bash")])
def test_a_stdout_without_room_is_one_sentence(words: tuple[str, ...], tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, cwd=ROOT,
            env=environment(tmp_path, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"),
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "pgtop-tune: stdout cannot be written: No space left on device",
        "hint: redirect it to a disk with free space",
    ]


def test_a_stderr_without_room_is_no_crash(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, "diff"], stdout=subprocess.PIPE, stderr=full, timeout=60, cwd=ROOT, env=environment(tmp_path)
        )
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_question_that_nobody_answers_is_no_finding(tmp_path: Path) -> None:
    asking = (
        "import sys, typer, pgtop_tune.cli.app as app\n"
        "def ask(function, request): typer.confirm('Measure it anyway?', err=True)\n"
        "app._run_command = ask; sys.argv = ['pgtop-tune', 'check']; app.main()\n"
    )
    with Terminal((sys.executable, "-c", asking), environment(tmp_path)) as terminal:
        terminal.until("Measure it anyway?")
        terminal.press("\x04")
        assert terminal.wait() == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("encoding", "words"), [("latin-1", ("check", "--help")), ("ascii", ("--help",)), ("ascii", ("bench", "list"))]
)
def test_a_locale_that_lacks_our_signs_gets_others_for_them(
    encoding: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    done = subprocess.run(
        [*PROGRAM, *words], capture_output=True, timeout=60, cwd=ROOT,
        env=environment(tmp_path, PYTHONIOENCODING=encoding),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode(encoding)


def test_signs_keep_their_width_and_json_its_letters_in_every_locale(server: Throwaway, tmp_path: Path) -> None:
    target = conninfo(server, "snow_☃_雪")
    refused = run("check", target, home=tmp_path, variables={"PYTHONIOENCODING": "latin-1"})
    assert 'database "snow_?_??" does not exist' in refused.err
    (tmp_path / "own.toml").write_text(OWN_PROFILE, encoding="utf-8")
    done = subprocess.run(
        [*PROGRAM, "bench", "list", "--format", "json", "--profiles", str(tmp_path)],
        capture_output=True, timeout=60, cwd=ROOT, env=environment(tmp_path, PYTHONIOENCODING="ascii"),
    )  # fmt: skip
    told = {each["name"]: each["description"] for each in json.loads(done.stdout.decode("utf-8"))}
    assert told["own"] == "Schnee ☃ 雪"
