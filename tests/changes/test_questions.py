"""Questions before a change, at a real terminal: a signal is an answer, and nothing is changed then."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.makers import ROOT

_PATIENCE_S = 60.0
_UNLOCK = ("full_page_writes=off", "--for", "1m", "--allow-unsafe")


def asked(server: Throwaway, state: Path, *words: str) -> tuple[int, int]:
    """`set` in a terminal of its own, at its question; its process and the terminal."""
    argv = [sys.executable, "-m", "pgtop_tune", "set", *words, "-h", str(server.socket_dir), "-p", str(server.port)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ |= {"XDG_STATE_HOME": str(state)}
        os.execv(argv[0], [*argv, "-U", server.user, "-d", "postgres"])
    shown, deadline_s = b"", time.monotonic() + _PATIENCE_S
    while not shown.endswith((b"[y/N] ", b"to unlock it: ")):
        assert select.select([terminal], [], [], deadline_s - time.monotonic())[0], shown
        shown += os.read(terminal, 4096)
    return pid, terminal


def status_of(pid: int) -> int:
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 0


@pytest.mark.parametrize("words", [("shared_buffers=48MB", "--restart"), _UNLOCK])
@pytest.mark.parametrize("by", ["Ctrl-C", "SIGTERM", "a terminal that is gone"])
def test_a_signal_at_the_question_ends_the_command_and_nothing_is_changed(
    fresh_server: Throwaway, tmp_path: Path, words: tuple[str, ...], by: str
) -> None:
    before = (Path(str(fresh_server.data_dir)) / "postgresql.auto.conf").read_bytes()
    pid, terminal = asked(fresh_server, tmp_path, *words)
    if by == "Ctrl-C":
        os.write(terminal, b"\x03")
    elif by == "SIGTERM":
        os.kill(pid, signal.SIGTERM)
    else:
        os.close(terminal)
    number = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM}.get(by, signal.SIGHUP)
    assert status_of(pid) == 128 + number
    assert (Path(str(fresh_server.data_dir)) / "postgresql.auto.conf").read_bytes() == before
