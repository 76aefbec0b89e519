"""Load on a real terminal: tables made from the screen, steps run, their table and knee read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.terminal.test_main_job import watch


@pytest.mark.long
def test_tables_are_made_and_two_steps_run_from_the_screen(fresh_server: Throwaway, tmp_path: Path) -> None:
    with watch(fresh_server, tmp_path, columns=80, lines=24) as terminal:
        terminal.until("sessions")
        # Before the first frame: the session begins all the same.
        terminal.press("b")
        terminal.until("needs the pgbench data set: i creates it")
        terminal.press("s")
        terminal.until("there are no tables of the pgbench data set")
        terminal.press("i")
        terminal.until("the tables need about")
        terminal.press("1\rs")
        terminal.until("created: scale 1")
        terminal.until("drop it?")
        terminal.press("\x1b")
        # What was found shows behind the open dialog too: an Escape is known as one only after a while.
        terminal.until_gone("drop it?")
        terminal.until("scale 1 (found)")
        terminal.press("n")
        terminal.until("1,2,4,8")
        terminal.press("1,2\x1b[B3\x1b[B\x1b[C")
        terminal.until("2 runs, 00:00:06")
        terminal.press("s")
        terminal.until("step 2 of 2: 2 clients")
        shown = terminal.until("no knee seen: needs 3 successful steps with different loads")
        found = [line.split() for line in shown.split("\n")]
        rows = [words for words in found if len(words) > 6 and words[1] in ("1", "2")]
        assert [row[1] for row in rows] == ["1", "2"]
        assert all(float(row[2]) > 0 for row in rows)
        terminal.press("\x1b")
        terminal.until_gone("no knee seen")
        terminal.press("q")
        assert terminal.wait() == 0
