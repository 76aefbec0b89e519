"""Filled charts and their columns: what is drawn where, and that nothing unknown looks like a number."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgtop_tune.base import units
from pgtop_tune.runtime.history import SeriesPoint
from pgtop_tune.tui.widgets import chart
from pgtop_tune.tui.widgets.chart import (
    LEGEND,
    Area,
    ArmBand,
    ChartMark,
    CurveEnd,
    Level,
    Peak,
    TimeAxis,
    filled_lines,
    mean_columns,
    worst_columns,
)
from pgtop_tune.tui.widgets.lines import ASCII, ELSE, ON, SHADE, STYLES, UNICODE, Glyphs, Line, on, plain_text, width


def drawn(
    *areas: Area,
    levels: tuple[Level, ...] = (),
    height: int = 2,
    columns: int = 4,
    top: float = 8.0,
    marks: tuple[ChartMark, ...] = (),
    bands: tuple[ArmBand, ...] = (),
    glyphs: Glyphs = UNICODE,
    beside: int = 0,
    ends: tuple[CurveEnd, ...] = (),
    peak: Peak | None = None,
) -> list[Line]:
    return filled_lines(
        areas, levels, axis=TimeAxis(0.0, float(columns), 7 + columns, beside), height=height, top=top,
        unit_format=units.count, glyphs=glyphs, marks=marks, bands=bands, ends=ends, peak=peak,
    )  # fmt: skip


def picture(lines: list[Line]) -> list[str]:
    return [plain_text(line)[7:] for line in lines]


def test_heights_are_in_eighths_and_a_known_zero_is_no_gap() -> None:
    assert picture(drawn(Area([0.0, 2.0, 5.0, None], "series-1"))) == ["┈┈▂┈", "▁▄█ "]


def test_no_gridline_at_zero_looks_like_a_curve() -> None:
    """Areas stand on the lower edge of the last row; a line through its middle would be above their foot."""
    assert picture(drawn(Area([None] * 4, "series-1"), height=3)) == ["┈┈┈┈", "    ", "    "]


def test_an_area_has_one_colour() -> None:
    lines = drawn(Area([8.0, 7.0, 8.0, 8.0], "series-1"), height=4)
    assert {style for line in lines for _, style in line[1:]} == {"series-1"}


def test_the_highest_column_is_marked_with_its_value_above_it() -> None:
    peak = Peak([1.0, 5.0, None, 5.0, 2.0, 1.0], units.count)
    lines = picture(drawn(Area(peak.values, "series-1"), height=3, columns=6, top=12.0, peak=peak))
    assert lines == ["┈▼5┈┈┈", " ▂ ▂  ", "▂█ █▄▂"]
    high = Peak([1.0, 8.0, 2.0, 1.0, 1.0, 8.0], units.count)
    assert picture(drawn(Area(high.values, "series-1"), columns=6, peak=high)) == ["┈▼8┈┈█", "▂█▄▂▂█"]
    last = Peak([1.0, 1.0, 1.0, 8.0], units.count)
    assert picture(drawn(Area(last.values, "series-1"), peak=last))[0] == "┈┈8▼", "within the chart"
    for nothing in ([None] * 4, [0.0] * 4):
        assert "▼" not in "".join(picture(drawn(Area(nothing, "series-1"), peak=Peak(nothing, units.count))))


def test_the_end_of_each_curve_has_its_name_and_value_beside_it_in_a_row_of_its_own() -> None:
    ends = (
        CurveEnd("p50", "3", "series-3", [2.0] * 4, 1),
        CurveEnd("p95", "4", "series-4", [None, 4.0, 4.0, None], 2),
        CurveEnd("p99", "12", "series-5", [11.0] * 4),
    )
    lines = drawn(Area([2.0] * 4, "series-3"), height=6, top=12.0, beside=9, ends=ends)
    assert [plain_text(line)[-9:].rstrip() for line in lines] == [" p99  12", "", "", "", " p95   4", " p50   3"]
    assert [line[-1][1] for line in lines if line[-1][0].strip()] == ["series-5", "series-4", "series-3"]
    low = drawn(Area([0.0] * 4, "series-3"), height=2, top=12.0, beside=9, ends=ends)
    assert [plain_text(line)[-9:] for line in low] == [" p99  12 ", " p50   3 "], "the first ranks, where rows are few"


def test_a_mark_stands_on_the_colour_of_the_area_and_leaves_no_gap_in_it() -> None:
    areas = Area([8.0] * 4, "series-3"), Area([8.0] * 4, "series-4", 1)
    (_, *spans) = drawn(*areas, marks=(ChartMark(2.0),))[0]
    assert spans == [("██", "series-3"), ("┊", on("dim", "series-3")), ("█", "series-3")]


def test_the_foremost_area_hides_those_behind_it_up_to_its_height() -> None:
    front, back = Area([4.0] * 4, "series-3"), Area([8.0] * 4, "series-4", 1)
    assert picture(drawn(front, back)) == ["▓▓▓▓", "████"]
    assert [line[1][1] for line in drawn(front, back)] == [on("series-4", "series-4"), "series-3"]


def test_an_alarm_has_one_colour_from_foot_to_edge() -> None:
    """A column of one series was yellow with a red top, as if two were stacked."""
    lines = drawn(Area([5.0, 5.0, 8.0, 5.0], "series-1", alarms={1, 2}))
    assert [list(spans[1:]) for spans in lines] == [
        [("▂", "series-1"), ("▂█", "critical"), ("▂", "series-1")],
        [("█", "series-1"), ("██", "critical"), ("█", "series-1")],
    ]


def test_the_legend_keeps_all_digits_of_its_value() -> None:
    """At 12,345 transactions a second the dashboard said "client 12 34"."""
    for value in (9.0, 1218.0, 12_345.0, 1.2e6):
        end = CurveEnd("client", units.count(value), "series-1", [value])
        rows = drawn(Area([value], "series-1"), columns=1, beside=LEGEND, ends=(end,), top=value)
        assert any(plain_text(row).endswith(f" {units.count(value)} ") for row in rows)


def test_a_zero_while_a_load_runs_is_red() -> None:
    (_, *spans) = drawn(Area([4.0, 0.0, 0.0, 4.0], "series-1", alarms={1, 2}))[1]
    assert spans == [("█", "series-1"), ("▁▁", "critical"), ("█", "series-1")]


def test_a_second_curve_stands_only_where_it_differs() -> None:
    server = Level([8.0, 4.2, 8.0, None], "series-2", apart=True)
    assert picture(drawn(Area([4.0] * 4, "series-1"), levels=(server,))) == ["━┈━┈", "████"]


def test_the_speck_of_the_slowest_does_not_hide_a_low_area() -> None:
    """Where one peak made the scale, the percentiles of all other seconds were gone behind the dots of their maxima."""
    low, high = Area([1.0] * 4, "series-3"), [3.0, 3.0, 7.0, None]
    assert picture(drawn(low, levels=(Level(high, "dim", "·", yields=True),), top=8.0)) == ["┈┈·┈", "▂▂▂▂"]
    assert picture(drawn(Area([8.0] * 4, "series-3"), levels=(Level(high, "dim", "·", yields=True),)))[1] == "··██"


def test_a_mark_goes_through_the_inside_and_leaves_the_edge() -> None:
    lines = drawn(Area([5.0] * 4, "series-1"), marks=(ChartMark(2.0),), height=3, top=12.0)
    assert picture(lines) == ["┈┈┊┈", "▂▂▂▂", "██┊█"]


def test_arms_of_an_experiment_shade_the_area_and_their_letters_stand_at_its_foot() -> None:
    bands = (ArmBand(0.0, 2.0, "A"), ArmBand(2.0, 4.0, "B"))
    assert picture(drawn(Area([8.0] * 4, "series-1"), bands=bands)) == ["··░░", "A·B░"]


def test_the_area_keeps_its_colour_under_the_arms() -> None:
    """Shades of one colour hid the curve: they lie on the area's own."""
    bands = (ArmBand(0.0, 2.0, "A"), ArmBand(2.0, 4.0, "B"))
    (_, *spans) = drawn(Area([8.0] * 4, "series-1"), bands=bands)[0]
    assert spans == [("··", on("arm-a", "series-1")), ("░░", on("arm-b", "series-1"))]
    (_, *spans) = drawn(Area([8.0] * 4, "series-1"), levels=(Level([8.0] * 4, "strong"),), bands=bands)[0]
    assert {style for _, style in spans} == {on("strong", "series-1")}


def test_labels_stand_at_round_values() -> None:
    lines = drawn(Area([1.0] * 4, "series-1"), height=8, top=40.0)
    assert [plain_text(line)[:5].strip() for line in lines] == ["40", "", "30", "", "20", "", "10", "0"]
    assert "13" not in "".join(plain_text(line)[:5] for line in drawn(Area([], "cpu"), height=6, top=40.0))


@pytest.mark.parametrize("top", [8.0, 40.0, 3.0, 100.0])
def test_a_curve_at_the_value_of_a_gridline_lies_on_it(top: float) -> None:
    for height in range(2, 60):
        labels = [plain_text(line)[:5].strip() for line in drawn(Area([], "cpu"), height=height, top=top)]
        values = {row: float(label) for row, label in enumerate(labels) if label not in ("", "0")}
        assert values[0] == top
        for row, value in values.items():
            lines = picture(drawn(levels=(Level([value] * 4, "series-1"),), height=height, top=top))
            assert [at for at, line in enumerate(lines) if UNICODE.level in line] == [row], height


VALUES = st.lists(st.none() | st.floats(0, 1e9), max_size=70)


@given(
    first=VALUES, second=VALUES, columns=st.integers(-3, 60), height=st.integers(0, 12),
    glyphs=st.sampled_from([UNICODE, ASCII]), top=st.floats(0, 1e9),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_every_line_is_exactly_as_wide_as_asked(
    first: list[float | None], second: list[float | None], columns: int, height: int, glyphs: Glyphs, top: float
) -> None:
    levels = (Level(second[:columns], "dim"),) if columns > 0 else ()
    lines = drawn(
        Area(first, "series-1"), Area(second, "series-2", 2), levels=levels,
        columns=columns, height=height, top=top, glyphs=glyphs, marks=(ChartMark(3.0, "warning", "^83"),),
    )  # fmt: skip
    assert [width(line) for line in lines] == [max(columns + 7, 0)] * height
    names = [name for line in lines for _, style in line for name in style.partition(ELSE)[0].split(ON)]
    used = {name.partition(SHADE)[0] for name in names}
    assert used <= {*STYLES, ""}
    assert glyphs is UNICODE or all(plain_text(line).isascii() for line in lines)


def points(*values: float | None, every_s: float = 1.0) -> list[SeriesPoint]:
    return [SeriesPoint((index + 1) * every_s, value) for index, value in enumerate(values)]


def test_a_mean_is_weighted_by_the_time_each_value_speaks_for() -> None:
    uneven = [SeriesPoint(1.0, 10.0), SeriesPoint(2.0, 10.0), SeriesPoint(4.0, 40.0)]
    assert mean_columns(uneven, 0.0, 4.0, 1) == [pytest.approx(25.0)]


def test_an_outage_is_a_gap() -> None:
    seen = points(*[5.0] * 4, *[None] * 4, *[5.0] * 4)
    assert mean_columns(seen, 0.0, 12.0, 12) == [5.0] * 4 + [None] * 4 + [5.0] * 4
    assert mean_columns([*points(1.0, 1.0, 1.0), SeriesPoint(60.0, 1.0)], 0.0, 80.0, 80)[4:58] == [None] * 54


def test_of_the_newest_column_a_part_is_enough() -> None:
    assert mean_columns(points(*[6.0] * 5), 0.0, 12.0, 3) == [6.0, 6.0, None]
    assert mean_columns(points(*[6.0] * 5, None, None, None, 6.0), 0.0, 12.0, 3) == [6.0, None, 6.0]
    assert worst_columns(points(*[6.0] * 5), 0.0, 12.0, 3) == [6.0, 6.0, None]


def test_the_worst_second_of_a_column_is_not_averaged_away() -> None:
    assert worst_columns(points(1.0, 90.0, 2.0, 3.0), 0.5, 8.5, 2) == [90.0, None]


@given(st.lists(st.none() | st.floats(0, 1e6), max_size=80), st.integers(1, 40), st.sampled_from([0.2, 1.0, 5.0]))
def test_means_lie_between_their_values_and_gaps_have_none(
    values: list[float | None], columns: int, every_s: float
) -> None:
    found = mean_columns(points(*values, every_s=every_s), 0.0, 60.0, columns)
    known = [value for value in values if value is not None]
    assert len(found) == columns
    assert all(min(known) - 1e-6 <= value <= max(known) + 1e-6 for value in found if value is not None)
    assert known or found == [None] * columns
    assert mean_columns([SeriesPoint(1.0, math.nan)], 0.0, 4.0, 4) == [None] * 4


def test_a_cell_of_two_areas_has_the_edge_of_the_lower_one_on_the_colour_of_the_other() -> None:
    front, back = Area([1.0, 3.0], "series-3"), Area([8.0, 8.0], "series-4", 1)
    lines = drawn(front, back, columns=2)
    assert picture(lines) == ["▓▓", "▂▆"]
    spans = [span for span in lines[1] if span[0] in ("▂", "▆")]
    assert spans == [("▂", on("series-3", "series-4", "▓")), ("▆", on("series-3", "series-4", "█"))]


def test_a_gap_behind_an_area_on_another_s_colour_is_plain() -> None:
    front, back = Area([1.0, None], "series-3"), Area([8.0, None], "series-4", 1)
    (last, style), *_ = reversed(drawn(front, back, columns=2, height=3)[1])
    assert (last.strip(), style) == ("", "")


def test_a_line_through_an_area_leaves_its_colour_around_it() -> None:
    lines = drawn(Area([8.0, None], "series-1"), levels=(Level([3.0, 3.0], "dim", "·"),), columns=2)
    assert [span for span in lines[1] if span[0] == "·"] == [("·", on("dim", "series-1")), ("·", "dim")]


SERIES = st.lists(st.one_of(st.none(), st.floats(0.0, 12.0)), min_size=9, max_size=9)


@given(st.lists(st.tuples(SERIES, SERIES, SERIES, st.integers(0, 9), st.sampled_from([8.0, 10.0])), max_size=4))
def test_what_was_drawn_before_never_shows(
    frames: list[tuple[list[float | None], list[float | None], list[float | None], int, float]],
) -> None:
    """Columns and rows that are as before are not drawn again; the picture is that of a chart drawn anew."""
    for first, second, line, at, top in frames:
        areas = Area(first, "series-1", alarms=set(range(at))), Area(second, "series-2", 1)
        levels = (Level(line, "strong", apart=True),)
        marks = (ChartMark(float(at), label="▲9"),)
        bands = (ArmBand(float(at), at + 3.0, "A"), ArmBand(at + 3.0, at + 5.0, "B"))

        def once_more() -> list[Line]:
            return drawn(*areas, levels=levels, columns=9, height=3, top=top, marks=marks, bands=bands)  # noqa: B023

        again = once_more()
        chart._drawing.cache_clear()
        assert again == once_more()


def _drawing() -> chart._Drawing:
    return chart._Drawing((("cpu", 0),), (), 6, 300.0, (UNICODE.rising, UNICODE.densities, UNICODE.shades))


@pytest.mark.parametrize("moved_by", [0, 1, 7])
def test_a_full_chart_that_moves_on_draws_its_new_columns_alone(moved_by: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    column = chart._Drawing._column
    contents: list[chart._Content] = [((float(second),), (), "", False) for second in range(300)]
    moving = _drawing()
    moving.rows(contents[:190])
    with monkeypatch.context() as counted:
        counted.setattr(chart._Drawing, "_column", lambda self, *of: made.append(of) or column(self, *of))
        rows = moving.rows(contents[moved_by : moved_by + 190])
    assert len(made) == moved_by
    assert rows == _drawing().rows(contents[moved_by : moved_by + 190])
