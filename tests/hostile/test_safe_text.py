"""The door to the terminal: no character passes it that is obeyed, unseen, or drawn at a width nobody agrees on."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pgtop_tune.base.safe_text import one_line, pasteable, printable

OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_nothing_in_unicode_that_is_obeyed_or_unseen_passes() -> None:
    everything = "".join(chr(code) for code in range(sys.maxunicode + 1))
    passed = set(printable(everything, len(everything)))
    assert {unicodedata.category(character) for character in passed}.isdisjoint(OBEYED)
    assert passed.isdisjoint("\u034f\u115f\u1160\u17b4\u180b\u2065\u3164\ufe0f\uffa0\ufff0\U000e0100\U000e0fff")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SELECT '\x1b]0;owned\x07'", "SELECT '␛]0;owned␇'"),
        ("\x9b31m", "·31m"),
        ("admin\u202enimda", "admin·nimda"),
        ("\U0001f1e9\U0001f1ea ❤\ufe0f \U0001f44d\U0001f3fd", "DE ❤ \U0001f44d·"),
        ("\U0001f468\u200d\U0001f469", "\U0001f468·\U0001f469"),
        ("漢字 é", "漢字 é"),
    ],
)
def test_what_a_stranger_writes_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(max_size=200))
def test_the_width_of_a_text_is_the_sum_of_its_characters(text: str) -> None:
    shown = one_line(text)
    assert cell_len(shown) == sum(cell_len(character) for character in shown)
    assert printable(shown) == shown


def test_nothing_that_a_paste_obeys_is_copied_and_all_of_it_is_counted() -> None:
    everything = "".join(chr(code) for code in range(sys.maxunicode + 1))
    kept, left_out = pasteable(everything)
    assert len(kept) + left_out == len(everything)
    passed = set(kept)
    categories = {unicodedata.category(character) for character in passed - set("\t\n")}
    assert categories.isdisjoint({"Cc", "Cs", "Zl", "Zp"})
    bidirectional = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert {unicodedata.bidirectional(character) for character in passed}.isdisjoint(bidirectional)
    assert passed.isdisjoint("\u061c\u200e\u200f")
    assert pasteable("SELECT 'é',\n\t'漢' 👍") == ("SELECT 'é',\n\t'漢' 👍", 0)
