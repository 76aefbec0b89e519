"""`pgtop-tune replay -`: a recording from a pipe, on the screen with keys from the terminal, and as lines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from pgtop_tune.cli.headless import LinePrinter
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import TPS
from pgtop_tune.model.absence import Unavailable
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


def test_the_tps_of_the_server_is_one_expression_of_jq(tmp_path: Path) -> None:
    frames = realistic(12)
    path = write(tmp_path / "a.jsonl.gz", frames)
    words = [*REPLAY, str(path), "--jsonl"]
    written = subprocess.run(words, capture_output=True, check=True).stdout
    expected = [TPS(Interval(frames[: count + 1])) for count in range(len(frames))]
    head, *lines = map(json.loads, written.splitlines())
    assert (head["schema"], head["units"]["server.tps"]) == ("pgtop-tune.frames/1", "1/s")
    assert [line["metrics"]["server.tps"] for line in lines] == expected
    assert lines[0]["unavailable"]["server.tps"]
    assert lines[-1]["frame"]["sequence"] == frames[-1].sequence
    assert {line["frame"]["postgres"]["activity"]["now_ms"] for line in lines} == {
        frame.postgres.activity.now_ms
        for frame in frames
        if not isinstance(frame.postgres, Unavailable) and not isinstance(frame.postgres.activity, Unavailable)
    }
    if shutil.which("jq"):
        query = ["jq", '.metrics["server.tps"] // empty']
        answer = subprocess.run(query, input=written, capture_output=True, check=True).stdout
        assert [float(line) for line in answer.split()] == [value for value in expected if value is not None]
    refused = subprocess.run([*words, "--lines"], capture_output=True, check=False)
    assert (refused.returncode, b"contradict" in refused.stderr) == (2, True)


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
