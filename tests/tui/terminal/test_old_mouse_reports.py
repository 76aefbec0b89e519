"""Reports of a terminal that has forgotten how it was asked for them: none of their bytes is a key."""

from __future__ import annotations

import codecs

import pytest
from textual import events
from textual._xterm_parser import XTermParser
from textual.message import Message

from pgtop_tune.tui.terminal.thrifty_driver import OldMouseReports


def messages(*reads: bytes) -> list[Message]:
    """What the application gets of bytes that come in so many reads."""
    parser, reports = XTermParser(), OldMouseReports()
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    texts = (decode(reports.replaced(read)) for read in reads)
    return [message for text in texts if text for message in parser.feed(text)]


def report(buttons: int, column: int, row: int) -> bytes:
    return b"\x1b[M" + bytes((32 + buttons, 32 + column, 32 + row))


@pytest.mark.parametrize("column", [1, 95, 96, 163, 223])
@pytest.mark.parametrize("row", [1, 96, 163])
def test_a_click_is_a_click_at_its_place_wherever_it_is(column: int, row: int) -> None:
    down, up, key = messages(report(0, column, row) + report(3, column, row) + b"j")
    assert isinstance(down, events.MouseDown)
    assert isinstance(up, events.MouseUp)
    assert (down.x, down.y, down.button) == (column - 1, row - 1, 1)
    assert isinstance(key, events.Key)
    assert key.key == "j"


def test_the_wheel_and_a_drag_are_what_they_are() -> None:
    kinds = [type(message) for message in messages(report(64, 150, 9), report(65, 150, 9), report(32, 150, 9))]
    assert kinds == [events.MouseScrollUp, events.MouseScrollDown, events.MouseMove]


@pytest.mark.parametrize("cut", [3, 4, 5])
def test_a_report_that_comes_in_two_reads_is_one(cut: int) -> None:
    whole = report(0, 200, 200)
    assert [type(message) for message in messages(whole[:cut], whole[cut:])] == [events.MouseDown]


def test_other_input_passes_as_it_came() -> None:
    for typed in (b"\x1b[A", b"\x1b[<0;10;10M", "é".encode(), b"\x1b", b"\x1b["):
        assert OldMouseReports().replaced(typed) == typed
