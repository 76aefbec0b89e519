"""Terminals that tell too little: without a size (a serial console, a container), or with stderr in a file."""

from __future__ import annotations

import sys
from pathlib import Path

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.servers import conninfo
from tests.terminal.screen import Terminal, environment


def test_a_terminal_without_a_size_is_taken_for_80_by_24(server: Throwaway, tmp_path: Path) -> None:
    words = (sys.executable, "-m", "pgtop_tune", "-w", conninfo(server))
    with Terminal(words, environment(tmp_path), 80, 24, tells_size=False) as terminal:
        assert "q quit" in terminal.until("q quit").split("\n")[-1]


def test_with_stderr_in_a_file_the_screen_stands_on_the_terminal_and_nothing_in_the_file(
    server: Throwaway, tmp_path: Path
) -> None:
    errors = tmp_path / "errors"
    program = (sys.executable, "-W", "default", "-m", "pgtop_tune", "-w", conninfo(server))
    with Terminal(("sh", "-c", 'exec "$@" 2>"$0"', str(errors), *program), environment(tmp_path), 80, 24) as terminal:
        terminal.until("sessions 0/")
        terminal.press("q")
        assert terminal.wait() == 0
    assert errors.read_text() == ""
