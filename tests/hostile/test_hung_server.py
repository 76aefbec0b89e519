"""A server that hangs, on a real terminal: keys are answered, the screen says for how long, it comes back."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.servers import conninfo
from tests.terminal.screen import Terminal, environment

PROGRAM = (sys.executable, "-m", "pgtop_tune")
LONGER_THAN_WE_WAIT_S = 6
DEADLINE_S = 60.0


@pytest.fixture
def terminal(battered: Throwaway, tmp_path: Path) -> Iterator[Terminal]:
    with Terminal((*PROGRAM, conninfo(battered)), environment(tmp_path)) as terminal:
        terminal.until(" primary")
        yield terminal


def our_backends(server: Throwaway) -> list[int]:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pgtop-tune%'"
        ).fetchall()
    return [int(pid) for (pid,) in rows]


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def until(terminal: Terminal, found: Callable[[str], object]) -> str:
    """The screen as soon as it shows what is looked for."""
    deadline = time.monotonic() + DEADLINE_S
    while not found(terminal.text()):
        assert terminal.read(), terminal.text()
        assert time.monotonic() < deadline, terminal.text()
    return terminal.text()


def silent_for(seconds: int) -> Callable[[str], bool]:
    return lambda text: any(int(said) >= seconds for said in re.findall(r"no answer for (\d+) s", text))


def test_a_stopped_server_is_said_keys_are_answered_and_it_comes_back(battered: Throwaway, terminal: Terminal) -> None:
    with stopped([battered.postmaster_pid, *our_backends(battered)]):
        said = until(terminal, silent_for(LONGER_THAN_WE_WAIT_S))
        assert "trying again" in said
        assert " primary" not in said
        terminal.press("?")
        terminal.until("Home keys")
        terminal.press("\x1b")
        terminal.until_gone("Home keys")
        for page, title in (("2", "connections"), ("5", "statements"), ("8", "tables")):
            terminal.press(page)
            until(terminal, lambda text, title=title: title in text and silent_for(LONGER_THAN_WE_WAIT_S)(text))
        terminal.press("1")
    until(terminal, lambda text: " primary" in text and "no answer" not in text)
    with stopped([battered.postmaster_pid, *our_backends(battered)]):
        until(terminal, silent_for(2))
        terminal.press("q")
        assert terminal.wait() == 0


@pytest.mark.long
def test_only_our_backend_hangs_another_one_is_taken(battered: Throwaway, terminal: Terminal) -> None:
    with stopped(our_backends(battered)):
        until(terminal, silent_for(2))
        until(terminal, lambda text: " primary" in text and "no answer" not in text)


@pytest.mark.long
def test_an_address_that_takes_connections_and_never_answers(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        target = f"host=127.0.0.1 port={silent.getsockname()[1]} user=nobody dbname=nothing"
        with Terminal((*PROGRAM, target), environment(tmp_path)) as terminal:
            terminal.until("CPU")
            terminal.press("5")
            terminal.until("statements")
            terminal.until("no answer in time; trying again")
            terminal.press("q")
            assert terminal.wait() == 0
