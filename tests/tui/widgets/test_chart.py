"""Charts as pictures, and what holds for every chart."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from pgtop_tune.base import units
from pgtop_tune.runtime.history import SeriesPoint
from pgtop_tune.tui.widgets.chart import (
    GUTTER,
    ChartMark,
    ChartSeries,
    chart_lines,
    column_of,
    nice_ceiling,
    spark,
    window,
)
from pgtop_tune.tui.widgets.glyphs import ASCII, UNICODE, Glyphs
from pgtop_tune.tui.widgets.lines import STYLES, Line, text_of, width


def curve(*values: float | None, every_s: float = 1.0) -> list[SeriesPoint]:
    return [SeriesPoint(index * every_s, value) for index, value in enumerate(values)]


def chart(*series: ChartSeries, height: int = 4, glyphs: Glyphs = UNICODE, **other: object) -> list[Line]:
    return chart_lines(
        series, width=27, height=height, since_s=0, until_s=20, unit_format=units.count, glyphs=glyphs, **other
    )  # type: ignore[arg-type]


def picture(lines: list[Line]) -> list[str]:
    return [text_of(line).rstrip() for line in lines]


def test_a_ramp_in_braille() -> None:
    ramp = ChartSeries(curve(*(10.0 * i for i in range(20))), "series-1")
    assert picture(chart(ramp)) == [
        "  200 ┤                ⣀⡤⠖⠂",
        "      ┤          ⣀⣀⡤⠖⠒⠋⠁",
        "      ┤     ⣀⣀⡤⠖⠋⠁",
        "    0 ┤⣀⡤⠖⠒⠋⠁",
    ]


def test_a_ramp_in_ascii() -> None:
    ramp = ChartSeries(curve(*(10.0 * i for i in range(20))), "series-1")
    lines = picture(chart(ramp, glyphs=ASCII))
    assert lines == [
        "  200 |                ...:",
        "      |          ...:'''",
        "      |     ...:''",
        "    0 |..:'''",
    ]
    assert all(line.isascii() for line in lines)


def test_unknown_values_leave_a_gap_and_are_never_zero() -> None:
    gap = ChartSeries(curve(*[100.0] * 5, *[None] * 5, *[100.0] * 10), "series-1")
    assert picture(chart(gap, height=3)) == [
        "  100 ┤⠉⠉⠉⠉⠁     ⠉⠉⠉⠉⠉⠉⠉⠉⠉⠁",
        "      ┤",
        "    0 ┤",
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_a_gap_like_any_unknown_value(value: float) -> None:
    broken = ChartSeries(curve(*[100.0] * 5, value, *[100.0] * 4), "series-1")
    unknown = ChartSeries(curve(*[100.0] * 5, None, *[100.0] * 4), "series-1")
    for height in (1, 3):
        assert chart(broken, height=height) == chart(unknown, height=height)
    assert spark([1.0, value, 2.0], 3, UNICODE) == spark([1.0, None, 2.0], 3, UNICODE)


def test_seconds_that_were_never_sampled_are_not_bridged() -> None:
    stalled = ChartSeries([*curve(*[100.0] * 5), SeriesPoint(15.0, 100.0), SeriesPoint(16.0, 100.0)], "series-1")
    assert picture(chart(stalled, height=2))[0] == "  100 ┤⠉⠉⠉⠉⠁          ⠉⠁"


def test_a_long_silence_between_few_points_is_not_bridged() -> None:
    few = ChartSeries([*curve(10.0, 10.0, 10.0), SeriesPoint(18.0, 100.0)], "series-1")
    assert picture(chart(few, height=2))[1].rstrip() == "    0 ┤⠤⠤⠄"
    for points in (
        [SeriesPoint(0.0, 10.0), SeriesPoint(17.0, 100.0), SeriesPoint(18.0, 100.0)],
        [SeriesPoint(0.0, 10.0), SeriesPoint(17.0, 100.0)],
    ):
        assert picture(chart(ChartSeries(points, "series-1"), height=2))[1].rstrip() == "    0 ┤⠄"


def test_one_sample_in_two_hundred_still_shows() -> None:
    values = [1000.0 if i == 77 else 10.0 for i in range(200)]
    assert picture(chart(ChartSeries(curve(*values, every_s=0.1), "series-1"))) == [
        "1.00k ┤       ⢸",
        "      ┤       ⢸",
        "      ┤       ⢸",
        "    0 ┤⣀⣀⣀⣀⣀⣀⣀⣸⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀",
    ]


def test_marks_and_cursor_stand_in_their_columns_and_do_not_hide_the_curve() -> None:
    lines = picture(
        chart(
            ChartSeries(curve(*[50.0] * 12), "series-1"), height=3, marks=[ChartMark(10.0)], cursor_s=15.0, maximum=100
        )
    )
    assert lines == [
        "  100 ┤          ┊    │",
        "      ┤⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠂   │",
        "    0 ┤          ┊    │",
    ]


def test_a_ghost_never_covers_a_live_curve() -> None:
    live = ChartSeries(curve(*[50.0] * 10), "series-1")
    baseline = ChartSeries(curve(*[50.0] * 20), "series-2", dim=True)
    for order in ((live, baseline), (baseline, live)):
        row = chart(*order, height=2, maximum=100)[0]
        assert [style for text, style in row[1:] if text.strip()] == ["series-1", "dim"]


def test_later_series_are_drawn_over_earlier_ones() -> None:
    first, second = (ChartSeries(curve(*[50.0] * 20), style) for style in ("series-1", "series-2"))
    assert "series-1" not in {style for line in chart(first, second, maximum=100) for _, style in line}


def test_one_row_is_a_spark_on_the_same_columns() -> None:
    ramp = ChartSeries(curve(*(10.0 * i for i in range(16))), "series-1")
    assert picture(chart(ramp, height=1)) == ["  150 ┤▁▁▁▂▂▃▃▄▄▅▅▆▆▇▇█"]


def test_the_scale_begins_at_zero_and_has_a_middle_when_there_is_room() -> None:
    lines = picture(chart(ChartSeries(curve(990.0, 1010.0), "series-1"), height=7))
    assert [line[:5] for line in lines] == ["1.50k", "     ", "     ", "  750", "     ", "     ", "    0"]


def test_only_the_window_decides_the_scale() -> None:
    points = [SeriesPoint(-5.0, 1e9), SeriesPoint(1.0, 40.0), SeriesPoint(25.0, 1e9)]
    assert picture(chart(ChartSeries(points, "series-1")))[0].startswith("   40")


def test_no_points_draw_an_empty_frame() -> None:
    assert picture(chart(ChartSeries([], "series-1"), height=2)) == ["    1 ┤", "    0 ┤"]


POINTS = st.lists(st.builds(SeriesPoint, st.floats(-5, 30), st.none() | st.floats()), max_size=60).map(
    lambda points: sorted(points, key=lambda point: point.at_s)
)


@given(
    first=POINTS,
    second=POINTS,
    columns=st.integers(0, 60),
    height=st.integers(0, 12),
    glyphs=st.sampled_from([UNICODE, ASCII]),
    cursor=st.none() | st.floats(-5, 30),
)
@settings(max_examples=120, deadline=None)
def test_every_line_is_exactly_as_wide_as_asked_and_uses_known_styles(
    first: list[SeriesPoint], second: list[SeriesPoint], columns: int, height: int, glyphs: Glyphs, cursor: float | None
) -> None:
    lines = chart_lines(
        [ChartSeries(first, "series-1"), ChartSeries(second, "series-2", dim=True)],
        width=columns,
        height=height,
        since_s=0,
        until_s=20,
        unit_format=units.count,
        glyphs=glyphs,
        marks=[ChartMark(3.0, "warning")],
        cursor_s=cursor,
    )
    assert [width(line) for line in lines] == [columns] * height
    assert {style for line in lines for _, style in line} <= {*STYLES, ""}


@given(now_s=st.floats(0, 1e6), columns=st.integers(1, 300), s_per_column=st.sampled_from([0.5, 1.0, 2.0, 10.0]))
def test_now_is_always_in_the_window_and_the_last_half_of_it_too(
    now_s: float, columns: int, s_per_column: float
) -> None:
    since_s, until_s = window(now_s, columns, s_per_column)
    span_s = columns * s_per_column
    assert since_s <= now_s < until_s
    assert until_s - since_s == pytest.approx(span_s)
    assert now_s - since_s >= min(now_s, span_s * 0.5) - 1e-6 or columns < 4


def test_the_window_stands_still_until_it_is_full_and_then_moves_on_by_a_sixteenth() -> None:
    windows = [window(float(now_s), 100) for now_s in range(115)]
    assert [windows.index(one) for one in sorted(set(windows))] == [0, 100, 106, 112]
    assert windows[100] == (6.0, 106.0)


def test_a_tick_changes_one_column_of_a_chart() -> None:
    values = [500 + 300 * math.sin(i / 3) for i in range(20)]
    before = picture(chart(ChartSeries(curve(*values[:11]), "series-1"), maximum=1000))
    after = picture(chart(ChartSeries(curve(*values[:12]), "series-1"), maximum=1000))
    blank = " " * 27
    changed = {
        column
        for old, new in zip(before, after, strict=True)
        for column in range(27)
        if (old + blank)[column] != (new + blank)[column]
    }
    assert changed <= {GUTTER + 10, GUTTER + 11}


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
    assert spark([0, 1, 2, None, 4], 8, UNICODE, maximum=8) == "▁▁▂ ▄   "
    assert spark([0, 0], 3, UNICODE) == "▁▁ "
    assert spark([1, 9, 1, 1], 2, UNICODE) == "█▁"


@given(st.lists(st.none() | st.floats(), max_size=300), st.integers(0, 100))
def test_a_spark_is_exactly_as_wide_as_asked(values: list[float | None], cells: int) -> None:
    assert cell_len(spark(values, cells, UNICODE)) == cells
