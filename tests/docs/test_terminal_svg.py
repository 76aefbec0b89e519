"""The picture of a terminal: cells at their places with any font, drawn characters as shapes, hostile text as text."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.terminal_svg import CELL_HEIGHT, CELL_WIDTH, Cell, svg

NAMESPACE = "{http://www.w3.org/2000/svg}"
PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "dashboard.svg"


def _cells(text: str, colour: str = "#ffffff") -> list[Cell]:
    return [Cell(character, colour) for character in text]


def _texts(picture: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(picture).iter(f"{NAMESPACE}text"))


def test_each_run_of_words_stands_at_its_own_cell_and_is_as_wide_as_its_cells() -> None:
    first, second = _texts(svg([_cells("ab c    d")], "#000000", "title"))
    assert (first.text, second.text) == ("ab c", "d")
    assert float(second.attrib["x"]) - float(first.attrib["x"]) == pytest.approx(8 * CELL_WIDTH, abs=0.1)
    assert float(first.attrib["textLength"]) == pytest.approx(4 * CELL_WIDTH, abs=0.1)


def test_a_change_of_colour_begins_a_new_run() -> None:
    found = _texts(svg([[*_cells("ab", "#111111"), *_cells("cd", "#222222")]], "#000000", "title"))
    assert [(each.text, each.attrib["fill"]) for each in found] == [("ab", "#111111"), ("cd", "#222222")]


@pytest.mark.parametrize(("character", "boxes"), [("⣿", 8), ("⠁", 1), ("─", 2), ("┤", 3), ("█", 1), ("▃", 1), ("▍", 1)])
def test_characters_that_fonts_disagree_about_are_drawn(character: str, boxes: int) -> None:
    picture = svg([_cells(character)], "#000000", "title")
    path = ElementTree.fromstring(picture).find(f"{NAMESPACE}path")
    assert path is not None
    assert path.attrib["d"].count("M") == boxes
    assert _texts(picture) == []


def test_a_background_lies_below_what_is_drawn_on_it() -> None:
    picture = svg([[Cell("█", "#aaaaaa"), Cell("x", "#ffffff", "#bbbbbb")]], "#000000", "title")
    assert picture.index("#bbbbbb") < picture.index("#aaaaaa")
    assert f"v{CELL_HEIGHT:g}" in picture


def test_markup_in_a_query_is_text() -> None:
    (found,) = _texts(svg([_cells("<script>&amp;")], "#000000", "<b>"))
    assert found.text == "<script>&amp;"


def test_the_picture_of_the_readme_is_complete_in_itself() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert not re.search(r"<script|<image|href|url\(|@import", text)
    assert "max_wal_size" in text
