"""PGPASSWORD goes to another address only after a yes on the terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.processes import eventually
from tests.support.rogue_server import on_loopback
from tests.support.servers import conninfo
from tests.terminal.screen import Terminal, environment

PASSWORD = "hunter2-of-the-variable"


@pytest.mark.parametrize(("answer", "sent"), [("y", [PASSWORD.encode() + b"\0"]), ("", [])])
def test_another_address_gets_the_variable_after_a_yes(
    server: Throwaway, tmp_path: Path, answer: str, sent: list[bytes]
) -> None:
    with on_loopback() as (rogue, port):
        words = ("bench", "run", "-c", "1", "-t", "1", "-q", "--housekeeping", "none", "--profile", "select-only")
        command = (sys.executable, "-m", "pgtop_tune", *words, "--endpoint", f"p=127.0.0.1:{port}", conninfo(server))
        with Terminal(command, {**environment(tmp_path), "PGPASSWORD": PASSWORD}) as terminal:
            terminal.until("PGPASSWORD is set: send it to")
            assert rogue.callers == 0
            terminal.press(f"{answer}\r")
            assert eventually(lambda: rogue.callers > 0 and (not sent or bool(rogue.answers)))
            assert terminal.wait() != 0
        assert set(rogue.answers) == set(sent)
