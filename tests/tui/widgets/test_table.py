"""Tables as pictures, and what holds for every table."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pgtop_tune.tui.widgets.lines import ASCII, UNICODE, Column, Row, column_widths, table_lines, text_of, width

COLUMNS = (Column("PID", 6, "right"), Column("user", 6), Column("query", 8, elastic=True))


def rows(count: int) -> list[Row]:
    return [((str(2200 + i), ""), ("bench", "dim"), (f"SELECT {i}", "")) for i in range(count)]


def picture(**other: object) -> list[str]:
    arguments: dict[str, object] = {"width": 30, "height": 4, "cursor": None, "top": 0, "glyphs": UNICODE}
    return [text_of(line) for line in table_lines(COLUMNS, rows(9), **(arguments | other))]  # type: ignore[arg-type]


def test_numbers_stand_right_and_the_elastic_column_takes_the_rest() -> None:
    assert picture() == [
        "   PID user   query           ",
        "  2200 bench  SELECT 0        ",
        "  2201 bench  SELECT 1        ",
        "  2202 bench  SELECT 2        ",
    ]


def test_the_first_row_shown_and_the_cursor_are_indices_into_all_rows() -> None:
    lines = table_lines(COLUMNS, rows(9), width=30, height=4, cursor=5, top=4, glyphs=UNICODE)
    assert [text_of(line)[2:6] for line in lines[1:]] == ["2204", "2205", "2206"]
    assert lines[2] == (("  2205 bench  SELECT 5        ", "cursor"),)
    assert "cursor" not in {style for line in (*lines[:2], lines[3]) for _, style in line}


def test_too_few_rows_are_followed_by_blank_lines() -> None:
    assert picture(top=8) == ["   PID user   query           ", "  2208 bench  SELECT 8        ", " " * 30, " " * 30]


def test_a_number_that_does_not_fit_says_so() -> None:
    columns = (Column("n", 4, "right"), Column("m", 4))
    row: Row = (("1234567", ""), ("7654321", ""))
    assert text_of(table_lines(columns, [row], width=9, height=2, cursor=None, top=0, glyphs=UNICODE)[1]) == "123… 765…"
    assert text_of(table_lines(columns, [row], width=9, height=2, cursor=None, top=0, glyphs=ASCII)[1]) == "123~ 765~"


def test_columns_behind_the_right_edge_are_left_out() -> None:
    assert picture(width=10)[:2] == ["   PID us…", "  2200 be…"]
    assert column_widths(COLUMNS, 5) == (5, 0, 0)


def test_several_elastic_columns_share_the_rest() -> None:
    columns = (Column("a", 2, elastic=True), Column("b", 3), Column("c", 2, elastic=True))
    assert column_widths(columns, 20) == (7, 3, 8)


def test_equal_styles_side_by_side_are_one_span() -> None:
    line = table_lines(COLUMNS, rows(1), width=30, height=2, cursor=None, top=0, glyphs=UNICODE)[1]
    assert [style for _, style in line] == ["", "dim", ""]


def test_foreign_text_cannot_break_out_of_its_cell() -> None:
    row: Row = (("1", ""), ("\x1b[31mx\n", ""), ("\x1b]52;c;aGk=\x07[red]漢字", ""))
    line = table_lines(COLUMNS, [row], width=40, height=2, cursor=None, top=0, glyphs=UNICODE)[1]
    assert width(line) == 40
    assert text_of(line).isprintable()


TEXTS = st.text(max_size=40) | st.sampled_from(
    ["漢字漢字漢字", "👩‍💻", "e\u0301e\u0301", "\u202eabc", "[bold", "\x1b[2J"]
)
STYLED = st.tuples(TEXTS, st.sampled_from(["", "dim", "strong", "wait-io"]))


@given(
    table=st.lists(st.tuples(STYLED, STYLED, STYLED), max_size=6),
    title=TEXTS,
    cells=st.integers(0, 60),
    height=st.integers(0, 8),
    cursor=st.none() | st.integers(0, 7),
    top=st.integers(0, 7),
)
@settings(max_examples=150, deadline=None)
def test_every_line_is_exactly_as_wide_as_asked(
    table: list[Row], title: str, cells: int, height: int, cursor: int | None, top: int
) -> None:
    columns = (Column("n", 5, "right"), Column(title, 9), Column("query", 8, elastic=True))
    lines = table_lines(columns, table, width=cells, height=height, cursor=cursor, top=top, glyphs=UNICODE)
    assert [width(line) for line in lines] == [cells] * height
