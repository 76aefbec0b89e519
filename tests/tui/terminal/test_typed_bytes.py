"""Bytes that a terminal sends: reports in an old form and pastes with control characters are never taken for keys."""

from __future__ import annotations

import codecs
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual._xterm_parser import XTermParser
from textual.message import Message

from pgtop_tune.tui.terminal.thrifty_driver import OldMouseReports, PastedText


def messages(*reads: bytes) -> list[Message]:
    """What the application gets of bytes that come in so many reads."""
    parser, reports, pastes = XTermParser(), OldMouseReports(), PastedText()
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    texts = (pastes.without_controls(decode(reports.replaced(read))) for read in reads)
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
        assert PastedText().without_controls(typed.decode()) == typed.decode()


PIECES = [
    "hello",
    "\x1b",
    "\x1b[A",
    "\x1b[",
    "\x1b[20",
    "q",
    "\x1a",
    "\x03",
    "\x1b]0;x\x07",
    "\x9b1m",
    "é",
    "\t",
    "\x1bOP",
    "\x1b[I",
]


@given(pieces=st.lists(st.sampled_from(PIECES)), cuts=st.lists(st.integers(1, 60)))
def test_a_paste_is_one_text_without_control_characters_whatever_is_in_it(pieces: list[str], cuts: list[int]) -> None:
    typed = f"j\x1b[200~{''.join(pieces)}\x1b[201~k".encode()
    places = [0, *sorted({cut for cut in cuts if cut < len(typed)}), len(typed)]
    got = messages(*(typed[begin:end] for begin, end in itertools.pairwise(places)))
    assert [message.key for message in got if isinstance(message, events.Key)] == ["j", "k"]
    (paste,) = (message for message in got if not isinstance(message, events.Key))
    assert isinstance(paste, events.Paste)
    assert paste.text == "".join(c for c in "".join(pieces) if c == "\t" or c.isprintable())
