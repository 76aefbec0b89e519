"""Grids and points."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgtop_tune.tuning.plan import Dimension, Space, log_grid

NUMBERS = st.floats(0.001, 1e9)


@example(a=345526550.2, b=345526550.0, c=345526551.0, whole=True, factor=1.2)  # an end beside the start
@given(NUMBERS, NUMBERS, NUMBERS, st.booleans(), st.sampled_from((1.2, 2.0, 10.0)))
def test_a_grid_rises_within_its_ends_and_has_the_start(
    a: float, b: float, c: float, whole: bool, factor: float
) -> None:
    low, start, high = sorted((a, b, c))
    numbers, place = log_grid(start, low, high, factor=factor, integer=whole)
    assert numbers[place] == start
    assert all(one < other for one, other in pairwise(numbers))
    assert low <= numbers[0]
    assert numbers[-1] <= high


def test_a_log_grid_doubles_and_is_cut_at_a_bound() -> None:
    assert log_grid(64, 10, 300) == ([10.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0], 3)


def test_small_whole_numbers_stand_once() -> None:
    numbers, place = log_grid(2, 1, 8, factor=1.3)
    assert numbers == [1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0]
    assert numbers[place] == 2


@pytest.mark.parametrize("levels", [("1",), ("1", "1", "2")])
def test_a_knob_without_a_choice_is_refused(levels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="work_mem"):
        Dimension(name="work_mem", levels=levels, start=0)


def test_going_between_two_points_takes_a_restart_only_if_such_a_knob_differs() -> None:
    space = Space(
        (
            Dimension(name="shared_buffers", levels=("1GB", "2GB"), start=0, restart=True),
            Dimension(name="work_mem", levels=("4MB", "8MB"), start=0),
        )
    )
    assert space.restarts((0, 0), (1, 0))
    assert not space.restarts((1, 0), (1, 1))
    assert space.values((1, 1)) == {"shared_buffers": "2GB", "work_mem": "8MB"}
    with pytest.raises(ValueError, match="each name once"):
        Space((space.dimensions[0], space.dimensions[0]))
