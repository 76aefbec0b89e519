"""Columns of a chart that grow point by point are those of all points at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.metrics.catalogue import Interval, Metric
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.history import ColumnMeans, History, SeriesPoint, usual_s
from pgtop_tune.tui.widgets.chart import mean_columns

MOMENTS = st.lists(st.floats(0.05, 9.0), max_size=40)
VALUES = st.lists(st.one_of(st.none(), st.floats(0.0, 1e6)), min_size=40, max_size=40)


def at_moments(steps_s: Sequence[float], values: Sequence[float | None]) -> list[SeriesPoint]:
    at_s, found = 0.0, []
    for step_s, value in zip(steps_s, values, strict=False):
        at_s += step_s
        found.append(SeriesPoint(at_s, value))
    return found


@given(MOMENTS, VALUES, st.integers(1, 30), st.floats(0.0, 20.0))
def test_point_by_point_and_at_once_are_the_same(
    steps_s: list[float], values: list[float | None], columns: int, since_s: float
) -> None:
    points = at_moments(steps_s, values)
    grown = ColumnMeans(since_s, since_s + 60.0, columns, usual_s([point.at_s for point in points]))
    for point in points:
        grown.take([(point.at_s, point.value)])
    assert grown.means == mean_columns(points, since_s, since_s + 60.0, columns)


@given(MOMENTS, VALUES, st.integers(1, 30), st.sampled_from((1.0, 2.0, 5.0)))
def test_a_window_that_goes_on_by_whole_columns_is_one_of_its_own(
    steps_s: list[float], values: list[float | None], columns: int, column_s: float
) -> None:
    points = at_moments(steps_s, values)
    usual = usual_s([point.at_s for point in points])
    moving, kept = None, 0
    for count, point in enumerate(points, 1):
        until_s = column_s * (point.at_s // column_s + 1.0)
        window = until_s - columns * column_s, until_s, columns, usual
        if moving is None or not moving.moved(window):
            moving = ColumnMeans(*window)
            moving.take((each.at_s, each.value) for each in points[: count - 1])
        else:
            kept += 1
        moving.take([(point.at_s, point.value)])
        fresh = ColumnMeans(*window)
        fresh.take((each.at_s, each.value) for each in points[:count])
        assert moving.means == pytest.approx(fresh.means)
    assert kept or columns < 20 or len(points) < 2


def test_the_usual_distance_stays_while_moments_jitter() -> None:
    assert usual_s([0.0, 1.003, 2.001, 2.999]) == usual_s([0.0, 0.998, 2.001, 3.003]) == 1.0
    assert usual_s([0.0, 0.2, 0.41]) == pytest.approx(0.2)
    assert usual_s([5.0]) == 0.0


@given(MOMENTS | st.lists(st.just(1.0), max_size=40), VALUES, st.integers(1, 200), st.floats(0.0, 100.0))
def test_a_history_draws_what_its_series_says_however_it_came_about(
    steps_s: list[float], values: list[float | None], columns: int, until_s: float
) -> None:
    points = at_moments(steps_s, values)
    told = {point.at_s: point.value for point in points}
    metric = Metric("made", "made", "", "", "", lambda interval: told[interval.newest.elapsed_s])
    history = History([metric])
    half = len(points) // 2
    window = 0.0, until_s + 1.0, columns
    for more, again in ((0.0, points), (1.0, points[half:])):
        told |= {point.at_s: None if point.value is None else point.value + more for point in again}
        for point in again:
            history.append(Interval([Frame(0, 0, point.at_s)]))
            series = history.series(metric, -window[1] / columns, window[1])
            assert history.means(metric, *window) == mean_columns(series, *window)
        # What came after was taken back, and something else comes.
        history.cut(points[half - 1].at_s if half else -1.0)
