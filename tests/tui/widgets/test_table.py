"""Tables as pictures, and what holds for every table."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pgtop_tune.tui.widgets.lines import (
    ASCII,
    UNICODE,
    Column,
    Row,
    clauses,
    column_widths,
    first_in_view,
    next_row,
    plain_text,
    table_lines,
    width,
)

COLUMNS = (Column("PID", 6, "right"), Column("user", 6), Column("query", 8, elastic=True))


def rows(count: int) -> list[Row]:
    return [((str(2200 + i), ""), ("bench", "dim"), (f"SELECT {i}", "")) for i in range(count)]


def picture(**other: object) -> list[str]:
    arguments: dict[str, object] = {"width": 30, "height": 4, "glyphs": UNICODE}
    return [plain_text(line) for line in table_lines(COLUMNS, rows(9), **(arguments | other))]  # type: ignore[arg-type]


def test_numbers_stand_right_and_the_elastic_column_takes_the_rest() -> None:
    assert picture() == [
        "   PID user   query           ",
        "  2200 bench  SELECT 0        ",
        "  2201 bench  SELECT 1        ",
        "  2202 bench  SELECT 2        ",
    ]


def test_the_row_at_the_cursor_has_one_style() -> None:
    lines = table_lines(COLUMNS, rows(9), width=30, height=4, cursor=1, glyphs=UNICODE)
    assert [plain_text(line)[2:6] for line in lines[1:]] == ["2200", "2201", "2202"]
    assert lines[2] == (("  2201 bench  SELECT 1        ", "cursor"),)
    assert "cursor" not in {style for line in (*lines[:2], lines[3]) for _, style in line}


def test_too_few_rows_are_followed_by_blank_lines() -> None:
    lines = [plain_text(line) for line in table_lines(COLUMNS, rows(1), width=30, height=4, glyphs=UNICODE)]
    assert lines == ["   PID user   query           ", "  2200 bench  SELECT 0        ", " " * 30, " " * 30]


def test_a_number_that_does_not_fit_says_so() -> None:
    columns = (Column("n", 4, "right"), Column("m", 4))
    row: Row = (("1234567", ""), ("7654321", ""))
    assert plain_text(table_lines(columns, [row], width=9, height=2, glyphs=UNICODE)[1]) == "123… 765…"
    assert plain_text(table_lines(columns, [row], width=9, height=2, glyphs=ASCII)[1]) == "123~ 765~"


def test_a_sentence_that_does_not_fit_ends_with_a_clause() -> None:
    text = "Share of WAL over the last 10 s: high after a checkpoint; lower (much) later"
    assert [clauses(text, cells, "…") for cells in (99, 70, 60, 40, 30, 12)] == [
        text, "Share of WAL over the last 10 s: high after a checkpoint; lower",
        "Share of WAL over the last 10 s: high after a checkpoint", "Share of WAL over the last 10 s",
        "Share of WAL over the last…", "Share of…",
    ]  # fmt: skip
    row: Row = (("a clause; and another", ""),)
    (_, line) = table_lines((Column("m", 12, prose=True),), [row], width=12, height=2, glyphs=UNICODE)
    assert plain_text(line).strip() == "a clause"


def test_columns_behind_the_right_edge_are_left_out() -> None:
    assert picture(width=10)[:2] == ["   PID us…", "  2200 be…"]
    assert column_widths(COLUMNS, 5) == (5, 0, 0)


def test_several_elastic_columns_share_the_rest() -> None:
    columns = (Column("a", 2, elastic=True), Column("b", 3), Column("c", 2, elastic=True))
    assert column_widths(columns, 20) == (7, 3, 8)


def test_equal_styles_side_by_side_are_one_span() -> None:
    line = table_lines(COLUMNS, rows(1), width=30, height=2, glyphs=UNICODE)[1]
    assert [style for _, style in line] == ["", "dim", ""]


def test_foreign_text_cannot_break_out_of_its_cell() -> None:
    row: Row = (("1", ""), ("\x1b[31mx\n", ""), ("\x1b]52;c;aGk=\x07[red]漢字", ""))
    line = table_lines(COLUMNS, [row], width=40, height=2, glyphs=UNICODE)[1]
    assert width(line) == 40
    assert plain_text(line).isprintable()


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
)
@settings(max_examples=150, deadline=None)
def test_every_line_is_exactly_as_wide_as_asked(
    table: list[Row], title: str, cells: int, height: int, cursor: int | None
) -> None:
    columns = (Column("n", 5, "right"), Column(title, 9), Column("query", 8, elastic=True))
    lines = table_lines(columns, table, width=cells, height=height, cursor=cursor, glyphs=UNICODE)
    assert [width(line) for line in lines] == [cells] * height


def test_the_row_at_the_cursor_is_in_view_and_no_line_is_empty() -> None:
    assert first_in_view(0, 9, count=20, visible=4) == 6
    assert first_in_view(9, 2, count=20, visible=4) == 2
    assert first_in_view(19, None, count=20, visible=4) == 16
    assert first_in_view(3, None, count=2, visible=4) == 0


def test_a_step_without_a_cursor_selects_the_first_or_the_last_visible_row() -> None:
    assert next_row(5, None, 1, count=20, visible=4) == 5
    assert next_row(5, None, -1, count=20, visible=4) == 8
    assert next_row(5, 19, 1, count=20, visible=4) == 19
