"""The machinery of every table: order, filter, selection, tags, sideways scrolling, and lines that fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from pgtop_tune.base.units import size
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.tui.actions import all_pages
from pgtop_tune.tui.pages import listing
from pgtop_tune.tui.pages.listing import HEAD_ROWS, ListingView, RowBeside, first_view, listing_lines
from pgtop_tune.tui.pages.page import Page, PageColumn, PageTable, figure
from pgtop_tune.tui.widgets.lines import ASCII, STYLES, UNICODE, plain_text, width
from tests.support.frames import session_of


class Thing(NamedTuple):
    key: int
    name: str
    size: float | None


def column(name: str, cells: int, **other: Any) -> PageColumn:
    values: dict[str, Any] = {"text": lambda row: name, "definition": f"what {name} says", "source": "made up"}
    return PageColumn(name, name, cells, **(values | other))


KEY = column("key", 5, text=lambda row: str(row.key), value=lambda row: row.key, align="right")
NAME = column("name", 8, text=lambda row: row.name, value=lambda row: row.name, largest_first=False)
SIZE = column("size", 6, text=lambda row: str(row.size), value=lambda row: row.size, align="right")
MORE = tuple(column(f"more-{number}", 9) for number in range(6))
LAST = column("text", 20, text=lambda row: row.name * 9, elastic=True)


def table_of(*columns: PageColumn, sort: str = "", **other: Any) -> PageTable:
    return PageTable(
        "things", "things", columns, rows=lambda session: [], key_of=lambda row: row.key, sort=sort, **other
    )


TABLE = table_of(KEY, NAME, SIZE, *MORE, LAST)
THINGS = [Thing(1, "b", 5.0), Thing(2, "a", None), Thing(3, "B", 5.0), Thing(4, "c", 9.0), Thing(5, "", math.nan)]


def keys(table: PageTable, view: ListingView, rows: Sequence[Thing] = THINGS) -> list[int]:
    return [row.key for row in listing.ordered(table, view, rows)]


def lines(view: ListingView, cells: int, height: int, rows: Sequence[Thing] | Unavailable = THINGS) -> list[str]:
    return [plain_text(line) for line in listing_lines((TABLE,), TABLE, view, rows, cells, height, UNICODE)]


def test_a_table_begins_as_it_says() -> None:
    assert first_view(TABLE) == ListingView(columns=frozenset(each.id for each in TABLE.columns))
    by_size = first_view(table_of(KEY, replace(SIZE, visible=False), NAME, sort="size"))
    assert (by_size.sort, by_size.descending, by_size.columns) == ("size", True, {"key", "name"})


def test_sorting_is_by_values_stable_and_unknown_stands_last_either_way() -> None:
    by_size = ListingView(sort="size", descending=True)
    assert keys(TABLE, by_size) == [4, 1, 3, 2, 5]
    assert keys(TABLE, replace(by_size, descending=False)) == [1, 3, 4, 2, 5]
    assert keys(TABLE, ListingView(sort="name")) == [5, 2, 1, 3, 4]
    assert keys(TABLE, ListingView()) == [1, 2, 3, 4, 5]


def test_words_and_numbers_in_one_column_do_not_meet() -> None:
    mixed = table_of(KEY, replace(NAME, value=lambda row: row.key if row.key % 2 else row.name))
    assert keys(mixed, ListingView(sort="name")) == [1, 3, 5, 2, 4]


def test_the_filter_looks_into_shown_cells_or_where_the_table_says() -> None:
    assert keys(TABLE, replace(first_view(TABLE), filter="B")) == [1, 3]
    assert keys(TABLE, replace(first_view(TABLE), filter="9.0")) == [4]
    hidden = replace(first_view(TABLE), columns=frozenset({"key"}), filter="9.0")
    assert keys(TABLE, hidden) == []
    elsewhere = table_of(KEY, searched=lambda row: [f"thing {row.key}"])
    assert keys(elsewhere, replace(first_view(elsewhere), filter="THING 3")) == [3]


def test_rows_at_rest_are_hidden_where_the_table_knows_such() -> None:
    table = table_of(KEY, quiet=lambda row: row.key > 2)
    assert keys(table, replace(first_view(table), hide_quiet=True)) == [1, 2]
    assert keys(TABLE, replace(first_view(TABLE), hide_quiet=True)) == [1, 2, 3, 4, 5]


def test_the_next_sort_goes_through_what_can_be_sorted_and_is_shown() -> None:
    view = first_view(TABLE)
    seen = []
    for _ in range(5):
        seen.append((view.sort, view.descending))
        view = listing.sorted_by_next(TABLE, view, 1)
    assert seen == [("", False), ("key", True), ("name", False), ("size", True), ("", False)]
    assert listing.sorted_by_next(TABLE, first_view(TABLE), -1).sort == "size"
    without = replace(first_view(TABLE), columns=frozenset({"key", "name"}))
    assert listing.sorted_by_next(TABLE, without, -1).sort == "name"
    view = first_view(TABLE)
    assert listing.turned_round(view) == view, "a table's own order cannot be turned round"


def test_hiding_the_column_sorted_by_goes_back_to_the_first_order() -> None:
    view = listing.with_columns(TABLE, ListingView(sort="size", scrolled_past=3), frozenset({"name"}))
    assert (view.sort, view.columns, view.scrolled_past) == ("", {"key", "name"}, 0)


THING = st.builds(Thing, st.integers(0, 30), st.text(max_size=12), st.none() | st.floats(allow_nan=True))
ROWS = st.lists(THING, max_size=25, unique_by=lambda row: row.key)
VIEW = st.builds(
    ListingView,
    sort=st.sampled_from(["", "key", "name", "size", "gone"]),
    descending=st.booleans(),
    filter=st.sampled_from(["", "a", "1"]),
    selected=st.none() | st.integers(0, 30),
    tagged=st.frozensets(st.integers(0, 30), max_size=4),
    top=st.integers(0, 40),
    scrolled_past=st.integers(0, 12),
    columns=st.frozensets(st.sampled_from([each.id for each in TABLE.columns])),
)


@given(view=VIEW, rows=ROWS, again=ROWS, visible=st.integers(1, 10), steps=st.lists(st.integers(-12, 12), max_size=6))
def test_the_selection_stays_with_its_row_however_rows_come_and_go(
    view: ListingView, rows: list[Thing], again: list[Thing], visible: int, steps: list[int]
) -> None:
    found = listing.ordered(TABLE, view, rows)
    for step in steps:
        view = listing.cursor_moved(TABLE, view, found, step, visible)
    chosen = view.selected
    for other in (found, listing.ordered(TABLE, replace(view, sort="size"), rows), listing.ordered(TABLE, view, again)):
        view = listing.scrolled(TABLE, view, other, visible)
        assert view.selected == chosen
        cursor = listing.cursor_of(TABLE, view, other)
        if cursor is None:
            assert chosen not in [row.key for row in other]
        else:
            assert other[cursor].key == chosen
            assert view.top <= cursor < view.top + visible
        assert 0 <= view.top <= max(len(other) - visible, 0) or cursor is not None


@given(
    view=VIEW,
    rows=ROWS,
    cells=st.integers(20, 220),
    height=st.integers(1, 30),
    glyphs=st.sampled_from([UNICODE, ASCII]),
)
def test_every_line_is_exactly_as_wide_as_asked_whatever_stands_in_it(
    view: ListingView, rows: list[Thing], cells: int, height: int, glyphs: Any
) -> None:
    found = listing.ordered(TABLE, view, rows)
    view = listing.sideways(TABLE, listing.scrolled(TABLE, view, found, max(height - HEAD_ROWS, 0)), 0, cells)
    drawn = listing_lines((TABLE, table_of(KEY)), TABLE, view, found, cells, height, glyphs)
    assert len(drawn) == height
    for line in drawn:
        assert width(line) == cells
        assert all(style in ("", *STYLES) for _, style in line)
        assert all(character >= " " for character in plain_text(line))


@given(view=VIEW, cells=st.integers(40, 200), steps=st.lists(st.sampled_from([-1, 1]), max_size=12))
def test_sideways_the_key_and_the_elastic_last_column_stay_and_every_other_can_be_reached(
    view: ListingView, cells: int, steps: list[int]
) -> None:
    view = replace(view, scrolled_past=0)
    wanted = listing.shown_columns(TABLE, view)
    reached = set()
    for step in [1] * len(wanted) + steps:
        there, before, behind = listing.placed(TABLE, view, cells)
        reached |= set(there)
        assert there[0] is KEY
        assert (there[-1] is LAST) == (LAST in wanted)
        assert before + behind + len(there) == len(wanted)
        view = listing.sideways(TABLE, view, step, cells)
        assert 0 <= view.scrolled_past <= len(wanted)
    assert reached == set(wanted)
    for _ in wanted:
        view = listing.sideways(TABLE, view, -1, cells)
    assert view.scrolled_past == 0


@given(cells=st.integers(40, 200), left=st.integers(0, 9), sort=st.sampled_from(["key", "name", "size"]))
def test_the_column_sorted_by_comes_into_sight(cells: int, left: int, sort: str) -> None:
    view = listing.sideways(TABLE, replace(first_view(TABLE), sort=sort, scrolled_past=left), 0, cells)
    view = listing.sort_in_sight(TABLE, view, cells)
    assert sort in [each.id for each in listing.placed(TABLE, view, cells)[0]]


def test_a_column_grows_only_where_all_have_room() -> None:
    table = table_of(column("key", 6, most=20), column("middle", 6), column("last", 6))
    view = first_view(table)
    widths = {cells: [each.width for each in listing.placed(table, view, cells)[0]] for cells in (15, 30, 80)}
    assert widths[15] == [6, 6]
    assert widths[30][0] in range(7, 20)
    assert widths[80] == [20, 6, 6]


def test_tags_are_marks_beside_the_key_and_move_on() -> None:
    view = first_view(TABLE)
    for _ in range(3):
        view = listing.tag_turned(TABLE, view, THINGS, 10)
    assert (view.tagged, view.selected) == ({1, 2}, 3)
    drawn = lines(view, 80, 8)
    assert "2 tagged" in drawn[0]
    assert [line[0] for line in drawn[2:7]] == ["●", "●", " ", " ", " "]
    view = listing.tag_turned(TABLE, replace(view, selected=1), THINGS, 10)
    assert view.tagged == {2}


def test_the_head_says_what_is_seen_of_how_much() -> None:
    view = replace(first_view(TABLE), sort="size", descending=True, filter="x\x1b[2Jy")
    head, headings, first, *_ = lines(view, 60, 5)
    assert "/x␛[2Jy" in head
    assert "by size" in head
    assert "columns 5▸" in head
    assert "1-3 of 5" in head
    assert "size▼" in headings
    assert first.split()[:2] == ["1", "b"]
    assert "size▲" in lines(replace(view, descending=False), 60, 5)[1]
    assert "◂1 4▸" in lines(replace(view, scrolled_past=1), 60, 5)[0]


def test_a_reason_stands_where_the_table_would_and_is_wrapped() -> None:
    reason = Unavailable(
        Reason.NO_EXTENSION, "pg_stat_statements: not loaded " + "(needs shared_preload_libraries) " * 3
    )
    drawn = lines(first_view(TABLE), 60, 8, reason)
    assert len(drawn) == 8
    assert "pg_stat_statements: not loaded" in drawn[2]
    assert "".join(drawn).count("shared_preload_libraries") == 3


def test_no_rows_and_no_match_are_different_sentences() -> None:
    assert "no data to show" in lines(first_view(TABLE), 60, 5, [])[2]
    assert 'no row contains "zz"' in lines(replace(first_view(TABLE), filter="zz"), 60, 5, [])[2]


def test_a_source_with_more_rows_than_are_listed_says_how_many() -> None:
    drawn = listing_lines((TABLE,), TABLE, first_view(TABLE), THINGS, 100, 5, UNICODE, left_out=312)
    assert "312 more not listed" in plain_text(drawn[0])


@pytest.mark.parametrize("cells", [60, 80, 120])
def test_wide_characters_do_not_move_the_columns(cells: int) -> None:
    rows = [Thing(1, "漢字漢字漢字", 1.0), Thing(2, "plain", 2.0)]
    first, second = lines(first_view(TABLE), cells, 4, rows)[2:]
    assert cell_len(first[: first.index("1.0")]) == cell_len(second[: second.index("2.0")])


def test_a_row_without_a_key_of_its_own_can_be_selected() -> None:
    table = PageTable("t", "t", (KEY,), rows=lambda session: [], key_of=lambda row: row.size)
    view = listing.cursor_moved(table, first_view(table), THINGS[1:2], 1, 5)
    assert listing.cursor_of(table, view, THINGS[1:2]) == 0


def test_the_tag_of_a_row_that_is_gone_goes_with_it() -> None:
    view = replace(first_view(TABLE), tagged=frozenset({1, 4}))
    assert listing.without_gone_tags(TABLE, view, THINGS[:2]).tagged == {1}
    assert listing.without_gone_tags(TABLE, view, Unavailable(Reason.NO_ANSWER)).tagged == {1, 4}


@pytest.mark.parametrize("cells", [60, 80, 160])
def test_every_heading_is_whole_also_with_the_arrow_of_the_sort(cells: int) -> None:
    for table in (table for page in all_pages() for table in page.tables):
        for by in (column for column in table.columns if column.value is not None):
            view = replace(first_view(table), sort=by.id, columns=frozenset(each.id for each in table.columns))
            view = listing.sort_in_sight(table, view, cells)
            shown, _, _ = listing.placed(table, view, cells)
            heading = plain_text(listing_lines((table,), table, view, [], cells, 3, UNICODE)[1])
            for each in shown[:-1]:
                arrow = (UNICODE.up, UNICODE.down)[view.descending] if each is by or each.id == by.id else ""
                assert f"{each.title}{arrow}" in heading, (table.id, by.id, each.id, heading)


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: page.id)
def test_what_a_table_is_sorted_by_is_in_sight_from_the_start(page: Page) -> None:
    for table in page.tables:
        view = first_view(table)
        shown, _, _ = listing.placed(table, view, 80)
        assert not view.sort or view.sort in {column.id for column in shown}, table.id


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: page.id)
def test_a_wide_screen_shows_every_column_a_table_begins_with(page: Page) -> None:
    for table in page.tables:
        assert listing.placed(table, first_view(table), 250)[2] == 0, table.id


def test_sorting_by_a_column_that_has_no_room_leaves_the_view_where_it_is() -> None:
    wide = column("wide", 50, value=lambda row: row.size)
    table = table_of(KEY, NAME, wide, LAST)
    view = replace(first_view(table), sort="wide", scrolled_past=1)
    assert listing.sort_in_sight(table, view, 60) == view


def test_tables_that_have_no_room_in_the_head_are_counted() -> None:
    tables = [replace(TABLE, id=name, title=name) for name in ("first one", "second one", "third one", "fourth one")]

    def head_of(at: int, cells: int) -> str:
        return plain_text(listing_lines(tables, tables[at], first_view(TABLE), [], cells, 3, UNICODE)[0])

    assert "first one · second one · third one · fourth one ─" in head_of(0, 120)
    assert "first one · second one · 2▸ ─" in head_of(0, 60)
    assert "first one · second one · 2▸ ─" in head_of(1, 60)
    assert "◂1 · second one · third one · 1▸ ─" in head_of(2, 60)
    assert "◂2 · third one · fourth one ─" in head_of(3, 60)
    assert "◂3 · fourth one" in head_of(3, 20)


def test_the_history_of_bytes_has_round_steps_in_their_unit() -> None:
    """A row of 2.74 MB/s had its peak at 2.87M, on an axis to 4M."""
    rate = figure("bytes", "B/s", 7, lambda row: row.size, size, "Bytes per second.", "made up")
    table = PageTable(
        id="made-up", title="made up", columns=(KEY, rate), rows=lambda session: (), key_of=lambda row: row.key,
        sort="bytes",
    )  # fmt: skip
    lines = RowBeside().lines(table, first_view(table), Thing(1, "x", 2.74 * 2**20), session_of(1), 60, 24, UNICODE)
    drawn = "\n".join(map(plain_text, lines))
    assert "B/s  2.74 MB" in drawn
    assert "in MB · since" in drawn
    assert "2.74▼" in drawn
    assert "\n    3 ┤" in drawn


def test_the_room_that_a_table_leaves_has_the_other_tables_of_its_page() -> None:
    """Two thirds of a page were empty under a short table."""
    session, things = session_of(2), [Thing(1, "one", 1.0)]

    def rows_of(table: PageTable) -> Sequence[Any] | Unavailable:
        return table.rows(session)

    full = replace(table_of(KEY, NAME), title="full", rows=lambda session: things * 3)
    empty = replace(full, title="empty", rows=lambda session: [])
    silent = replace(full, title="silent", rows=lambda session: Unavailable(Reason.NOT_YET))
    main = table_of(KEY, NAME)
    lines = listing_lines((main,), main, first_view(main), things, 40, 12, UNICODE)
    both = listing.with_others(lines, (empty, silent, full), rows_of, first_view, 40, UNICODE)
    titles = [(number, text) for number, line in enumerate(both) if "\u2500" in (text := plain_text(line).strip())]
    assert [(number, text.split()[1]) for number, text in titles] == [(0, "things"), (4, "full")]
    assert [width(line) for line in both] == [40] * 12
    more = listing_lines((main,), main, first_view(main), things * 2, 40, 12, UNICODE)
    moved = listing.with_others(more, (full,), rows_of, first_view, 40, UNICODE)
    assert plain_text(moved[8]).startswith("\u2500 full"), "by steps: it does not follow each row"
    tall = listing_lines((main,), main, first_view(main), things * 9, 40, 12, UNICODE)
    assert listing.with_others(tall, (full,), rows_of, first_view, 40, UNICODE) == tall
