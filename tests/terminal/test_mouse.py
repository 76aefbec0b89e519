"""The mouse in a real terminal: only clicks, drags and the wheel are reported, and a key gives it back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.servers import conninfo
from tests.terminal.screen import Terminal, environment


@pytest.mark.long
def test_a_click_on_a_key_of_the_footer_is_that_key_and_a_key_gives_the_mouse_back(
    server: Throwaway, tmp_path: Path
) -> None:
    words = (sys.executable, "-m", "pgtop_tune", "-w", conninfo(server))
    with Terminal(words, {**environment(tmp_path), "SSH_CONNECTION": "a 1 b 2"}, 120, 30) as terminal:
        shown = terminal.until("q quit")
        line = next(number for number, text in enumerate(shown.split("\n"), 1) if "q quit" in text)
        x = shown.split("\n")[line - 1].index("? help") + 1
        terminal.press(f"\x1b[<0;{x};{line}M\x1b[<0;{x};{line}m")
        terminal.until("Home keys")
        terminal.press("\x1b")
        terminal.until_gone("Home keys")
        assert terminal.modes() & {1000, 1002, 1003, 1006} == {1000, 1002, 1006}
        terminal.press("M")
        terminal.until("mouse off: the terminal selects text")
        assert not terminal.modes() & {1000, 1002, 1003, 1006}
        terminal.press("q")
        assert terminal.wait() == 0


def test_a_terminal_that_forgot_our_form_of_reports_and_half_a_character_take_no_key_away(
    server: Throwaway, tmp_path: Path
) -> None:
    words = (sys.executable, "-m", "pgtop_tune", "-w", conninfo(server))
    with Terminal(words, environment(tmp_path), 200, 120) as terminal:
        terminal.until("q quit")
        for buttons in (0, 3):
            # Column and row become one character of two bytes, and what is before them keys: M gives the mouse back.
            terminal.send(b"\x1b[M" + bytes((32 + buttons, 32 + 180, 32 + 110)))
        terminal.send("é".encode()[:1])
        terminal.press("?")
        terminal.until("Home keys")
        assert 1006 in terminal.modes()
