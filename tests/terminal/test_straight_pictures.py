"""Pictures that go to the terminal past Textual's compositor are those that it would have painted."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import ROOT
from tests.support.servers import conninfo
from tests.terminal.screen import DEADLINE_S, Terminal, environment

_SCRIPT = """
import copy, pathlib, sys
from pgtop_tune.cli.app import main
from pgtop_tune.tui.scene import scene
told, *sys.argv[1:] = sys.argv[1:]
shown_straight = scene.shown_straight

def compared(screen, canvases, drawn):
    done = shown_straight(screen, canvases, drawn)
    if done:
        whole = screen._compositor.render_full_update().render_segments(screen.app.console)
        diff = copy.copy(screen.app._driver._diff)
        diff._rows = dict(diff._rows)
        with open(told, "a") as file:
            file.write(f"{type(screen).__name__} {diff.reduced(whole)!r}\\n")
    return done

scene.shown_straight = compared
main()
"""


def test_a_whole_picture_of_the_compositor_adds_nothing(server: Throwaway, tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.touch()
    command = (sys.executable, "-c", _SCRIPT, str(told), "--interval", "0.25", "-w", conninfo(server))
    with Terminal(command, {**environment(tmp_path), "PYTHONPATH": str(ROOT)}, 120, 40) as terminal:

        def until_straight(name: str) -> None:
            before, deadline = told.read_text().count(name), time.monotonic() + DEADLINE_S
            while told.read_text().count(name) < before + 2:
                assert terminal.read(), terminal.text()
                assert time.monotonic() < deadline, terminal.text()

        terminal.until(" primary")
        terminal.until_gone("diagnosing")
        until_straight("Dashboard ")
        for key, name in ("3", "PageScreen "), ("7", "PageScreen "), ("1", "Dashboard "):
            terminal.press(key)
            until_straight(name)
        terminal.press("?")
        terminal.until("Esc")
        terminal.press("\x1b")
        until_straight("Dashboard ")
        terminal.resize(80, 24)
        until_straight("Dashboard ")
        terminal.press("q")
        assert terminal.wait() == 0
    assert {line.partition(" ")[2] for line in told.read_text().splitlines()} == {"''"}
