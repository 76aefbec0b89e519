"""Ctrl-Z, bg, fg, and a SIGSTOP, with a real shell's job control."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.processes import alive, children, eventually
from tests.support.servers import conninfo
from tests.terminal.screen import DEADLINE_S, Terminal, environment


def insist(terminal: Terminal, key: str, so: Callable[[str], bool]) -> None:
    """Presses a key until the screen is so: a terminal that is just being taken over drops what is typed."""
    deadline = time.monotonic() + DEADLINE_S
    while not so(terminal.text()):
        assert time.monotonic() < deadline, terminal.text()
        terminal.press(key)
        again_at = time.monotonic() + 3.0
        while not so(terminal.text()) and time.monotonic() < again_at:
            assert terminal.read(), terminal.text()


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
            terminal.until(" primary")
            terminal.until_gone("shell>")
            terminal.until("q quit")
            terminal.press("?")
            terminal.until("Home keys")
            terminal.press("\x1b")
            terminal.until_gone("Home keys")
        (program,) = (
            pid for pid in children(terminal.pid) if b"pgtop_tune" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(program, signal.SIGSTOP)
        terminal.until("Stopped")
        # Before the shell's prompt there is nothing whose going tells that the program has drawn anew.
        terminal.until("shell>")
        terminal.press("fg\r")
        terminal.until_gone("shell>")
        terminal.until("q quit")
        insist(terminal, "q", lambda _: not alive(program))
        terminal.press("\x15echo left-$?\r")
        terminal.until("left-0")
        assert eventually(lambda: terminal.settings() == before)
        terminal.press("exit\r")
        assert terminal.wait() == 0


CONTINUED_WITHIN_A_WRITE = """
import os, queue, signal
from tests.support import screen_program

put, times = queue.Queue._put, []

def interrupted(self, item):
    put(self, item)
    if isinstance(item, str) and "sessions" in item and len(times) < 3:
        times.append(os.kill(os.getpid(), signal.SIGCONT))

queue.Queue._put = interrupted
screen_program.main()
"""
"""The queue of output is locked at that moment."""


def test_a_signal_within_a_write_does_not_hang_the_screen(tmp_path: Path) -> None:
    """A program that was stopped and went on at such a moment survived its terminal and SIGTERM."""
    command = (sys.executable, "-c", CONTINUED_WITHIN_A_WRITE, str(tmp_path / "report.json"), "0.05")
    with Terminal(command, {**os.environ, **environment(tmp_path)}, 120, 40) as terminal:
        for _ in range(3):
            terminal.until("q quit")
            insist(terminal, "?", lambda text: "Home keys" in text)
            insist(terminal, "\x1b", lambda text: "Home keys" not in text)
        terminal.kill(signal.SIGTERM)
        assert terminal.wait() == 128 + signal.SIGTERM
