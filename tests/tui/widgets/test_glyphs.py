"""Every character of a glyph set is one cell wide, or nothing on the screen would line up."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from pgtop_tune.tui.widgets.lines import ASCII, UNICODE, Glyphs


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda glyphs: glyphs.name)
def test_characters_are_one_cell_wide(glyphs: Glyphs) -> None:
    for name in glyphs.__struct_fields__:
        value = getattr(glyphs, name)
        if name != "name" and isinstance(value, str):
            assert all(cell_len(char) == 1 for char in value), name
            assert len(value) == 1 or name in ("rising", "growing", "density", "densities")


def test_the_ascii_set_is_ascii() -> None:
    assert all(str(getattr(ASCII, name)).isascii() for name in ASCII.__struct_fields__)


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda glyphs: glyphs.name)
def test_blocks_begin_empty_and_end_full(glyphs: Glyphs) -> None:
    for blocks in (glyphs.rising, glyphs.growing):
        assert blocks[0] == " "
        assert blocks[-1] == glyphs.full
        assert len(set(blocks)) == len(blocks)
