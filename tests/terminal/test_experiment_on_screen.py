"""An experiment on a real terminal: staged in `p`, begun with `x`, stopped; all is put back, and the load goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.servers import conninfo
from tests.terminal.screen import Terminal, environment
from tests.terminal.test_main_job import PROGRAM, auto_conf, setting


@pytest.mark.long
def test_staged_is_compared_under_the_load_and_stopping_puts_everything_back(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    before = auto_conf(fresh_server)
    words = (*PROGRAM, conninfo(fresh_server))
    with Terminal(words, environment(tmp_path), 80, 24) as terminal:
        terminal.until(" primary ")
        terminal.press("b")
        terminal.until("needs the pgbench data set: i creates it")
        terminal.press("i")
        terminal.until("the tables need about")
        terminal.press("1\rs")
        terminal.until("created: scale 1")
        terminal.press("\x1b")
        terminal.until("scale 1 (found)")
        terminal.press("s")
        # The dialog closes by itself with the first second of the load.
        terminal.until("y copy command")
        terminal.until_gone("y copy command")
        terminal.press("p")
        terminal.until("▸ max_wal_size")
        terminal.press("/")
        terminal.press("work_mem\r")
        terminal.until("▸ work_mem")
        terminal.press("+")
        terminal.until("1 staged")
        terminal.press("\x1b")
        terminal.until_gone("/work_mem")
        terminal.press("\x1b")
        terminal.until_gone("1 staged")
        terminal.press("x")
        terminal.until("work_mem                      4MB               8MB")
        terminal.until("clients, running")
        terminal.press("\r")
        terminal.until("warming up")
        shown = terminal.until("pair  1  measuring")
        assert [line for line in shown.split("\n") if "A/B A" in line or "A/B B" in line]
        terminal.press("x")
        terminal.until("s stop")
        terminal.press("s")
        terminal.until("The original values are restored")
        terminal.press("y")
        terminal.until("A/B interrupted")
        assert setting(fresh_server, "work_mem") == "4MB"
        assert auto_conf(fresh_server) == before
        terminal.press("\x1b")
        terminal.until_gone("Esc close")
        terminal.press("q")
        terminal.until("A load is running")
        terminal.press("y")
        assert terminal.wait() == 0
