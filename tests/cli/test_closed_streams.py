"""Whoever starts us may have closed stdin, stdout or stderr: a scheduler, a daemon, a runner of tasks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.servers import conninfo

SCRIPT = """
import os, sys
from pgtop_tune.cli.output import fill_closed_streams

fill_closed_streams()
with open(sys.argv[1], "w") as file:
    print("a line of ours")
    print("a word beside it", file=sys.stderr)
    os.system("echo a line of a child; echo a word of a child >&2")
    assert sys.stdin.read() == ""
    file.write("kept")
"""
CLOSED = ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"]


@pytest.mark.parametrize("closed", CLOSED)
def test_what_is_printed_never_lands_in_a_file_of_ours(closed: str, tmp_path: Path) -> None:
    file = tmp_path / "kept"
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", SCRIPT, str(file)]
    assert subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=60).returncode == 0
    assert file.read_text() == "kept"


def test_a_check_without_stdout_is_a_check(server: Throwaway) -> None:
    words = [sys.executable, "-m", "pgtop_tune", "check", "--select", "LOG-01", "-w", "-d", conninfo(server)]
    ended = subprocess.run(["sh", "-c", 'exec "$@" 1>&-', "sh", *words], capture_output=True, text=True, timeout=100)
    assert (ended.returncode, ended.stderr) == (0, "")
