"""Charts as pictures, and what holds for every chart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pgtop_tune.tui.widgets.chart import column_of, nice_ceiling, spark, window
from pgtop_tune.tui.widgets.lines import UNICODE


@given(now_s=st.floats(0, 1e6), columns=st.integers(1, 300), s_per_column=st.sampled_from([0.5, 1.0, 2.0, 10.0]))
def test_now_is_always_in_the_last_column(now_s: float, columns: int, s_per_column: float) -> None:
    since_s, until_s = window(now_s, columns, s_per_column)
    assert until_s - since_s == pytest.approx(columns * s_per_column)
    # A frame that comes a moment late belongs to the second before.
    assert until_s - s_per_column - 1e-6 <= now_s - 0.3 <= until_s + 1e-6


def test_the_window_moves_on_by_a_column_a_second_from_the_first_one_on_also_where_frames_are_late() -> None:
    late_s = [0.0, 0.02, -0.01, 0.2, 0.0, -0.3]
    windows = [window(second + late_s[second % 6], 100) for second in range(1, 130)]
    assert windows == [(second - 100.0, float(second)) for second in range(1, 130)]


@pytest.mark.parametrize(
    ("value", "top"),
    [(0, 1), (-3, 1), (2e-309, 1), (0.0007, 0.0008), (1, 1), (1.01, 1.5), (7, 8), (8.5, 10), (1234, 1500)],
)
def test_nice_ceilings(value: float, top: float) -> None:
    assert nice_ceiling(value) == pytest.approx(top)


@given(st.floats(1e-6, 1e15))
def test_a_nice_ceiling_is_never_below_nor_far_above(value: float) -> None:
    assert value * (1 - 1e-8) <= nice_ceiling(value) <= value * 1.51


def test_columns_of_moments() -> None:
    assert [column_of(at_s, 10, 20, 10) for at_s in (9.99, 10, 10.5, 19.99, 20)] == [None, 0, 0, 9, None]


@pytest.mark.parametrize("column_s", [1.0, 5.0, 30.0])
def test_a_whole_minute_stands_in_its_own_column_at_every_width(column_s: float) -> None:
    for columns in range(1, 244):
        since_s, until_s = 600.0, 600.0 + columns * column_s
        begins = [since_s + column * column_s for column in range(columns)]
        assert [column_of(at_s, since_s, until_s, columns) for at_s in begins] == [*range(columns)]


def test_sparks() -> None:
    assert spark([0, 1, 2, None, 4], 8, UNICODE) == "▁▂▄ █   "
    assert spark([0, 0], 3, UNICODE) == "▁▁ "
    assert spark([1, 9, 1, 1], 2, UNICODE) == "█▁"


@given(st.lists(st.none() | st.floats(), max_size=300), st.integers(0, 100))
def test_a_spark_is_exactly_as_wide_as_asked(values: list[float | None], cells: int) -> None:
    assert cell_len(spark(values, cells, UNICODE)) == cells
