"""The Plackett-Burman screen."""

from __future__ import annotations

import numpy as np
import pytest

from pgtop_tune.tuning.plan import Dimension, Point, Space, TuningPlan
from pgtop_tune.tuning.racing import design, screen
from pgtop_tune.tuning.search import Favoured, Outcome, Search
from tests.support.tuning_surfaces import driven

LEVELS = tuple(str(2**power) for power in range(7))


def search_of(knobs: int, allowed: int = 6, *, restart: bool = False) -> Search:
    space = Space(tuple(Dimension(name=f"k{each}", levels=LEVELS, start=3, restart=restart) for each in range(knobs)))
    return Search(
        TuningPlan(space=space, budget=100.0), lambda values: all(int(each) <= 2**allowed for each in values.values())
    )


@pytest.mark.parametrize(("knobs", "rows"), [(2, 4), (3, 4), (4, 8), (7, 8), (8, 12), (11, 12)])
def test_every_two_columns_of_a_design_are_orthogonal_and_balanced(knobs: int, rows: int) -> None:
    matrix = np.array(design(knobs))
    assert matrix.shape == (rows, knobs)
    assert np.array_equal(matrix.T @ matrix, rows * np.eye(knobs))
    assert not matrix.sum(axis=0).any()


def screened(search: Search, slopes: list[float], stopped: int = -1) -> tuple[list[Favoured], int]:
    rows = 0

    def told(candidate: Point, against: Point) -> Outcome:
        nonlocal rows
        rows += 1
        effect = sum(slope * (a - b) for slope, a, b in zip(slopes, candidate, against, strict=True))
        return Outcome(effect=effect, stopped="TPS halved" if rows == stopped else "")

    found = driven(screen(search, range(len(slopes))), told)
    return list(found), rows


def test_the_effects_are_those_of_the_surface_and_the_largest_comes_first() -> None:
    slopes = [0.0, 0.01, -0.03, 0.0, 0.0, 0.02, 0.0, 0.0]
    found, rows = screened(search_of(8), slopes)
    assert rows == 12
    assert [each.axis for each in found[:3]] == [2, 5, 1]
    assert {each.axis: each.effect for each in found} == pytest.approx(
        {place: 2.0 * slope for place, slope in enumerate(slopes)}
    )


def test_a_row_that_is_stopped_is_left_out() -> None:
    found, rows = screened(search_of(8), [0.0] * 7 + [0.04], stopped=4)
    assert rows == 12
    assert found[0].axis == 7
    assert found[0].rows == 11


def test_rows_that_guards_forbid_come_nearer_and_without_any_there_is_no_screen() -> None:
    nearer, _ = screened(search_of(8, allowed=4), [0.01] * 8)
    assert all(each.effect == pytest.approx(0.01) for each in nearer)
    unknown, rows = screened(search_of(8, allowed=3), [0.01] * 8)
    assert rows == 0
    assert all(each.effect is None for each in unknown)


def test_where_each_row_takes_a_restart_the_smallest_design_is_used() -> None:
    assert screened(search_of(3, restart=True), [0.01] * 3)[1] == 4
    assert screened(search_of(3), [0.01] * 3)[1] == 12
