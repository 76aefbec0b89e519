"""Changes of level over many runs: found where there is one, seldom where there is none."""

from __future__ import annotations

import random

import pytest

from pgtop_tune.compare.baselines import change_points


def level(chance: random.Random, mean: float, count: int) -> list[float]:
    return [chance.gauss(mean, 0.02 * mean) for _ in range(count)]


def test_runs_of_one_level_seldom_show_a_change() -> None:
    chance = random.Random("one level")
    assert sum(bool(change_points(level(chance, 1000.0, 20))) for _ in range(200)) <= 10


def test_seven_figures_together_seldom_show_a_change() -> None:
    chance = random.Random("seven figures")
    found = [[change_points(level(chance, 1000.0, 12), 7) for _ in range(7)] for _ in range(100)]
    assert sum(any(each) for each in found) <= 4


def test_three_runs_are_no_level() -> None:
    assert change_points([100, 101, 99, 100, 101, 80, 81, 79]) == ()


def test_five_per_cent_less_is_found_and_where() -> None:
    chance = random.Random("two levels")
    found = [change_points([*level(chance, 1000.0, 10), *level(chance, 950.0, 10)]) for _ in range(200)]
    near = [points[0] for points in found if len(points) == 1 and abs(points[0].at - 10) <= 1]
    assert len(near) >= 0.8 * 200
    assert sum(point.relative for point in near) / len(near) == pytest.approx(-0.05, abs=0.01)


def test_down_and_up_again_are_two_changes() -> None:
    points = change_points([100, 101, 99, 100, 80, 81, 79, 80, 100, 99, 101, 100])
    assert [point.at for point in points] == [4, 8]
    assert [round(point.relative, 2) for point in points] == [-0.2, 0.25]


@pytest.mark.parametrize("values", [[], [1.0] * 5, [100.0] * 20, [1.0, 2.0, 0.0, 3.0, 4.0, 5.0, 6.0]])
def test_too_little_or_nothing_to_see_is_no_change(values: list[float]) -> None:
    assert change_points(values) == ()


def test_one_bad_run_is_no_new_level() -> None:
    assert change_points([100, 101, 99, 100, 60, 100, 99, 101, 100, 100]) == ()
