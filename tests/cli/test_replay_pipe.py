"""`pgtop-tune replay -`: a recording from a pipe, on the screen with keys from the terminal, and as lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pgtop_tune.cli.headless import LinePrinter
from pgtop_tune.runtime.ports import Step
from tests.cli.runs import PROGRAM, ROOT, environment
from tests.recording.test_recording_roundtrip import realistic, write
from tests.terminal.screen import Terminal

REPLAY = (sys.executable, "-m", "pgtop_tune", "replay")


def test_lines_from_a_pipe_are_those_of_the_file(tmp_path: Path) -> None:
    frames = realistic(40)
    path = write(tmp_path / "a.jsonl.gz", frames)
    expected: list[str] = []
    printer = LinePrinter(expected.append)
    printer.accept(Step(tuple(frames)))
    expected.append(printer.summary())
    with path.open("rb") as data:
        piped = subprocess.run([*REPLAY, "-", "--lines"], stdin=data, capture_output=True, check=True)
    assert piped.stdout.decode().splitlines() == "\n".join(expected).splitlines()
    assert len(expected) > 40
    assert piped.stderr == b""


def test_something_else_in_the_pipe_is_told_in_one_sentence() -> None:
    refused = subprocess.run([*REPLAY, "-"], input=b"hello\n", capture_output=True, check=False)
    assert refused.returncode != 0
    assert b"this is not a recording of pgtop-tune" in refused.stderr
    assert b"Traceback" not in refused.stderr


def test_on_a_terminal_the_keys_come_from_the_terminal(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", realistic(40))
    command = ("sh", "-c", 'cat "$0" | "$@"', str(path), *REPLAY, "-", "--start", "20")
    with Terminal(command, {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}) as screen:
        screen.until("playing")
        screen.press(" ")
        screen.until("paused")
        screen.press("z")
        screen.until("00:00:39 / 00:00:39")
        screen.press("q")
        assert screen.wait() == 0


def test_a_full_stdout_ends_the_lines_with_one_sentence(tmp_path: Path) -> None:
    words = [*PROGRAM, "replay", "--lines", "tests/recording/goldens/columns.jsonl.gz"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            words, env=environment(tmp_path), cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "pgtop-tune: stdout cannot be written: No space left on device"
    assert "Traceback" not in done.stderr
