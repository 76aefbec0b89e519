"""Signals that a parent ignores or blocks: a stop still reaches the run, a hang-up under nohup does not."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.cli.test_set import until
from tests.support.servers import conninfo

IGNORING = "import os, signal, sys; {}; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
IGNORED = IGNORING.format("[signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGCHLD)]")
BLOCKED = IGNORING.format("signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGALRM))")
HUNG_UP = IGNORING.format("signal.signal(signal.SIGHUP, signal.SIG_IGN)")


@contextmanager
def speechless() -> Iterator[socket.socket]:
    """A server that accepts connections and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield listener


def at(listener: socket.socket) -> tuple[str, ...]:
    return ("-w", "-h", "127.0.0.1", "-p", str(listener.getsockname()[1]))


def started(how: str, home: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", how, *PROGRAM[1:], *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=environment(home), cwd=ROOT,
    )  # fmt: skip


def test_a_detached_run_is_stopped_early_also_where_its_parent_ignored_the_signal(tmp_path: Path) -> None:
    with speechless() as listener:
        # It does not end by itself, however slow the machine is.
        words = ["ab", "work_mem=4MB,8MB", "--detach", "-d", "connect_timeout=600", *at(listener)]
        with started(IGNORED, tmp_path, *words) as starter:
            name, failed = starter.communicate(timeout=60)
        assert starter.returncode == 0, failed
        stopped = run("experiment", "stop", name.split()[0], home=tmp_path)
        assert (stopped.status, stopped.out) == (0, "")
        waiting, *_, ended = stopped.err.splitlines()
        assert waiting.startswith(f"waiting for {name.split()[0]}, process ")
        assert ended == f"{name.split()[0]} has ended"
    lines = run("experiment", "attach", name.split()[0], home=tmp_path).out
    assert "did not answer" not in lines
    assert "Traceback" not in lines


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_blocked_signal_ends_a_command_that_waits_for_a_server(number: signal.Signals, tmp_path: Path) -> None:
    with speechless() as listener, started(BLOCKED, tmp_path, "parameters", *at(listener)) as program:
        listener.settimeout(60)
        caller, _ = listener.accept()
        with caller:
            program.send_signal(number)
            _, told = program.communicate(timeout=60)
    assert (program.returncode, told) == (128 + number, "")


def test_nohup_keeps_a_recording_from_a_hang_up_and_not_from_ctrl_c(server: Throwaway, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    words = ["record", "-o", str(kept), "-w", "-d", conninfo(server), "--interval", "0.2"]
    with started(HUNG_UP, tmp_path, *words) as program:
        until(lambda: kept.exists() and kept.stat().st_size > 0)
        for _ in range(3):
            program.send_signal(signal.SIGHUP)
            size = kept.stat().st_size
            until(lambda: kept.stat().st_size > size)  # noqa: B023
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=60)
    assert program.returncode == 0


INTERRUPTED: Final = """
    import runpy, sys

    class Interrupted:
        def find_spec(self, name, path, target=None):
            if name == "pgtop_tune.cli.app":
                raise KeyboardInterrupt

    sys.meta_path.insert(0, Interrupted())
    runpy.run_module("pgtop_tune", run_name="__main__")
"""


def test_a_program_that_is_stopped_while_it_begins_says_nothing(tmp_path: Path) -> None:
    """A detached run that was stopped at once had a traceback in its words."""
    argv = [sys.executable, "-c", textwrap.dedent(INTERRUPTED)]
    ended = subprocess.run(argv, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
