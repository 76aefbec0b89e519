"""Bars and heat strips."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.tui.widgets.lines import ASCII, UNICODE, bar, heat_strip, plain_text, width


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(0, "    "), (None, "    "), (0.5, "██  "), (0.6, "██▍ "), (1, "████"), (7, "████"), (-1, "    "), (1e-9, "▏   ")],
)
def test_bars(share: float | None, drawn: str) -> None:
    assert bar(share, 4, UNICODE) == drawn


def test_a_bar_in_ascii() -> None:
    assert bar(0.6, 10, ASCII) == "######    "


@given(st.none() | st.floats(-2, 3, allow_nan=False), st.integers(0, 80))
def test_a_bar_is_exactly_as_wide_as_asked(share: float | None, cells: int) -> None:
    assert len(bar(share, cells, UNICODE)) == cells


def test_one_cell_per_core_in_the_style_of_its_heat() -> None:
    assert heat_strip([0.0, 0.5, 0.95, None, 1.0], 8, UNICODE) == (
        ("▁", "heat-0"),
        ("▄", "heat-2"),
        ("█", "heat-4"),
        ("·", "dim"),
        ("█", "heat-4"),
    )


def test_equal_neighbours_share_a_span() -> None:
    assert heat_strip([0.1] * 6, 8, UNICODE) == (("▁▁▁▁▁▁", "heat-0"),)


def test_a_saturated_core_survives_folding() -> None:
    shares = [0.0] * 128
    shares[77] = 1.0
    strip = heat_strip(shares, 16, UNICODE)
    assert width(strip) == 16
    assert plain_text(strip).count("█") == 1


@given(st.lists(st.none() | st.floats(0, 1), max_size=300), st.integers(1, 64))
def test_a_strip_never_exceeds_its_cells(shares: list[float | None], cells: int) -> None:
    assert width(heat_strip(shares, cells, UNICODE)) == min(cells, len(shares))
