"""Ctrl-Z, bg, fg, and a SIGSTOP, with a real shell's job control."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.processes import alive, children, eventually
from tests.support.servers import conninfo
from tests.terminal.screen import Terminal, environment


def test_the_shell_gets_its_terminal_back_and_fg_draws_the_whole_screen(server: Throwaway, tmp_path: Path) -> None:
    shell = Terminal(("bash", "--norc", "-i"), {**environment(tmp_path), "PS1": "shell> "}, 120, 30)
    with shell as terminal:
        terminal.until("shell>")
        before = terminal.settings()
        terminal.press(f"{sys.executable} -m pgtop_tune -w '{conninfo(server)}'\r")
        terminal.until("sessions")
        for round in "ab":
            terminal.press("\x1a")
            terminal.until("Stopped")
            # The shell says so before it prepares the terminal for its next line.
            assert eventually(lambda: terminal.settings() == before)
            terminal.press(f"echo typed-''{round}\r")
            terminal.until(f"typed-{round}")
            terminal.press("bg; wait; clear; jobs\r")
            terminal.until_gone(f"typed-{round}")
            terminal.until("Stopped")
            terminal.press("fg\r")
            terminal.until("PostgreSQL 18")
            terminal.until_gone("shell>")
            terminal.until("q quit")
            terminal.press("?")
            terminal.until("redraw the whole screen")
            terminal.press("\x1b")
            terminal.until_gone("redraw the whole screen")
        (program,) = (
            pid for pid in children(terminal.pid) if b"pgtop_tune" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(program, signal.SIGSTOP)
        terminal.until("Stopped")
        terminal.press("fg\r")
        terminal.until_gone("shell>")
        terminal.until("q quit")
        terminal.press("q")
        terminal.until("shell>")
        assert eventually(lambda: not alive(program))
        terminal.press("echo left-$?\r")
        terminal.until("left-0")
        assert eventually(lambda: terminal.settings() == before)
        terminal.press("exit\r")
        assert terminal.wait() == 0
