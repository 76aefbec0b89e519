"""The reduced output leads a terminal to the same picture as the full one, whatever was there before."""

from __future__ import annotations

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgtop_tune.tui.terminal.line_diff import ScreenDiff

COLUMNS, ROWS = 24, 4
CODES = (
    "", "1", "7", "1;7", "7;1", "4;32", "31", "91", "44", "1;31;44", "1;38;5;221", "38;5;81", "38;5;81;48;5;16",
    "39;49", "1;39;49", "38;2;1;2;3;48;2;9;9;9", "31;1", "100;36",
)  # fmt: skip
TEXTS = st.text(alphabet=st.sampled_from(list("ab01  .─⣀█▏…漢字é→")), min_size=1, max_size=9)
SEGMENTS = st.lists(st.tuples(TEXTS, st.sampled_from(CODES)), min_size=1, max_size=6)


def cells(text: str) -> int:
    return sum(2 if char in "漢字" else 1 for char in text)


def stroke(y: int, x: int, segments: list[tuple[str, str]]) -> str:
    """A row as Textual writes it: a move, then every segment in its sequence and a reset; cut at the right edge."""
    out = [f"\x1b[{y + 1};{x + 1}H"]
    left = COLUMNS - x
    for text, codes in segments:
        while cells(text) > left:
            text = text[:-1]
        left -= cells(text)
        if text:
            out.append(f"\x1b[{codes}m{text}\x1b[0m" if codes else text)
    return "".join(out)


def cut(segments: list[tuple[str, str]]) -> list[tuple[str, str | None]]:
    """A row as it is drawn, exactly as wide as the terminal; no style is None."""
    found: list[tuple[str, str | None]] = []
    left = COLUMNS
    for text, codes in [*segments, (" " * COLUMNS, "")]:
        while cells(text) > left:
            text = text[:-1]
        left -= cells(text)
        if text:
            found.append((text, codes or None))
    return found


def full_rows(rows: list[list[tuple[str, str]]]) -> str:
    return "\n".join(stroke(y, 0, [*segments, (" " * COLUMNS, "")]) for y, segments in enumerate(rows[:ROWS]))


class Terminal:
    """A terminal that shows what it was sent."""

    def __init__(self) -> None:
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self.screen.reset_mode(pyte.modes.DECAWM)
        self.stream = pyte.Stream(self.screen)

    def picture(self) -> list[list[tuple[object, ...]]]:
        """Cells as they look: the colour of ink does not matter where there is none."""
        return [[self._cell(self.screen.buffer[y][x]) for x in range(COLUMNS)] for y in range(ROWS)]

    @staticmethod
    def _cell(cell: pyte.screens.Char) -> tuple[object, ...]:
        paper = (cell.bg, cell.reverse, cell.underscore, cell.strikethrough)
        if cell.data == " " and not cell.reverse and not cell.underscore:
            return (" ", *paper)
        return (cell.data, cell.fg, cell.bold, *paper)


UPDATES = st.lists(
    st.one_of(
        st.lists(SEGMENTS, min_size=ROWS, max_size=ROWS).map(full_rows),
        st.builds(stroke, st.integers(0, ROWS - 1), st.integers(0, COLUMNS - 1), SEGMENTS),
    ),
    min_size=1,
    max_size=6,
)


@given(first=st.lists(SEGMENTS, min_size=ROWS, max_size=ROWS), updates=UPDATES, known_size=st.booleans())
@settings(max_examples=50, deadline=None)
def test_reduced_output_paints_the_same_picture(
    first: list[list[tuple[str, str]]], updates: list[str], known_size: bool
) -> None:
    honest, thrifty = Terminal(), Terminal()
    diff = ScreenDiff((COLUMNS, ROWS) if known_size else None)
    for data in [full_rows(first), *updates]:
        honest.stream.feed(data)
        thrifty.stream.feed(diff.reduced(data))
        assert thrifty.picture() == honest.picture()


@pytest.mark.parametrize(
    "updates",
    [
        pytest.param([stroke(0, 0, [("漢aaaaaa1", "")]), stroke(0, 0, [("字aaaaaa2", "")])], id="wide then a jump"),
        pytest.param([stroke(0, 0, [("漢b", "")]), stroke(0, 1, [("x", "")]), stroke(0, 0, [("漢b", "")])], id="half"),
        pytest.param(
            [stroke(0, 4, [("old text", ""), ("|keep", "")]), stroke(0, 4, [("        ", "")])], id="inner blanks"
        ),
        pytest.param(["\x1b[1;1H\x1b[1m\x1b[31mboth\x1b[0m plain"], id="styles add up until a reset"),
        pytest.param(
            [stroke(0, 0, [("abc", "")]), stroke(0, 0, [("👩‍💻", "")]), stroke(0, 0, [("abc", "")])], id="disputed"
        ),
    ],
)
def test_awkward_updates_paint_the_same_picture(updates: list[str]) -> None:
    honest, thrifty = Terminal(), Terminal()
    diff = ScreenDiff((COLUMNS, ROWS))
    for data in updates:
        honest.stream.feed(data)
        thrifty.stream.feed(diff.reduced(data))
        assert thrifty.picture() == honest.picture()


@given(pictures=st.lists(st.lists(SEGMENTS, min_size=ROWS, max_size=ROWS), min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_rows_that_come_straight_are_those_that_textual_would_write(
    pictures: list[list[list[tuple[str, str]]]],
) -> None:
    through_textual, straight = ScreenDiff((COLUMNS, ROWS)), ScreenDiff((COLUMNS, ROWS))
    for rows in pictures:
        written = through_textual.reduced(full_rows(rows))
        assert straight.painted(enumerate(map(cut, rows)), str) == written
        assert straight.reduced(full_rows(rows)) == through_textual.reduced(full_rows(rows)) == ""


EDGES = st.lists(st.tuples(st.sampled_from("▁▃▅█ ┈"), st.sampled_from(CODES)), min_size=40, max_size=40)


def moving(edges: list[tuple[str, str]], by: int, beside: str) -> list[tuple[str, str]]:
    """A row of a chart that has moved by so many columns, something left and right of it."""
    return [("12 |", "2"), *edges[by : by + 16], (beside, "1")]


@given(edges=EDGES, moves=st.lists(st.integers(0, 3), max_size=6), besides=st.lists(TEXTS, min_size=7, max_size=7))
@settings(max_examples=60, deadline=None)
def test_a_chart_that_moves_on_is_moved_on_the_terminal(
    edges: list[tuple[str, str]], moves: list[int], besides: list[str]
) -> None:
    honest, thrifty, fixed = Terminal(), Terminal(), Terminal()
    diffs = ScreenDiff((COLUMNS, ROWS)), ScreenDiff((COLUMNS, ROWS), moves=False)
    at = 0
    for by, beside in zip([0, *moves], besides, strict=False):
        at += by
        row = cut(moving(edges, at, beside))
        honest.stream.feed(full_rows([moving(edges, at, beside)]))
        for terminal, diff in zip((thrifty, fixed), diffs, strict=True):
            terminal.stream.feed(diff.painted([(0, row)], str))
            assert terminal.picture()[0] == honest.picture()[0]


def test_a_column_more_costs_a_few_bytes_and_on_a_terminal_without_moves_the_whole_row() -> None:
    edges = [("▁▂▃▄▅▆▇█"[at * 5 % 8], "36") for at in range(40)]
    written = {}
    for moves in (True, False):
        diff = ScreenDiff((COLUMNS, ROWS), moves=moves)
        diff.painted([(0, cut(moving(edges, 0, " 12")))], str)
        written[moves] = diff.painted([(0, cut(moving(edges, 1, " 13")))], str)
    assert written[True] == "\x1b[1;5H\x1b[P\x1b[15C\x1b[@\x1b[36m▁ \x1b[0;1m13\x1b[m"
    assert len(written[False]) > len(written[True])
    assert not any(final in written[False] for final in "P@")


CHANGES = st.lists(
    st.tuples(st.integers(0, ROWS - 1), st.integers(0, 6), st.sampled_from(("grow", "text", "style", "drop")), TEXTS),
    min_size=1,
    max_size=12,
)


@given(first=st.lists(SEGMENTS, min_size=ROWS, max_size=ROWS), changes=CHANGES)
@settings(max_examples=300, deadline=None)
def test_rows_that_change_little_are_written_as_if_they_were_looked_at_whole(
    first: list[list[tuple[str, str]]], changes: list[tuple[int, int, str, str]]
) -> None:
    whole, straight = ScreenDiff((COLUMNS, ROWS)), ScreenDiff((COLUMNS, ROWS))
    honest, thrifty = Terminal(), Terminal()
    rows = [list(row) for row in first]
    for y, place, what, text in [(0, 0, "", ""), *changes]:
        at = place % len(rows[y])
        old, codes = rows[y][at]
        rows[y][at : at + 1] = {
            "": [(old, codes)], "grow": [(old + text[:2], codes)], "text": [(text, codes)],
            "drop": [(old[:-1] or "x", codes)], "style": [(old, "31" if codes != "31" else "")],
        }[what]  # fmt: skip
        written = whole.reduced(full_rows(rows))
        assert straight.painted(enumerate(map(cut, rows)), str) == written
        honest.stream.feed(full_rows(rows))
        thrifty.stream.feed(written)
        assert thrifty.picture() == honest.picture()
    assert straight.reduced(full_rows(rows)) == ""


def test_what_textual_wrote_over_a_row_is_no_part_of_it_any_more() -> None:
    diff = ScreenDiff((COLUMNS, ROWS))
    row = cut([("abc", ""), ("def", "31")])
    diff.painted([(0, row)], str)
    diff.reduced(stroke(0, 1, [("xx", "")]))
    assert "bc" in diff.painted([(0, row)], str)


def test_the_same_picture_again_writes_nothing() -> None:
    diff = ScreenDiff((COLUMNS, ROWS))
    rows = full_rows([[("abc", "1"), ("漢字", "31")]] * ROWS)
    assert diff.reduced(rows)
    assert diff.reduced(rows) == ""


def test_one_changed_digit_costs_a_move_and_a_digit() -> None:
    diff = ScreenDiff((COLUMNS, ROWS))
    diff.reduced(stroke(2, 0, [("tps ", "1"), ("1204", "")]))
    assert diff.reduced(stroke(2, 0, [("tps ", "1"), ("1209", "")])) == "\x1b[3;8H9"


@pytest.mark.parametrize(("before", "after"), [("a", "š"), ("─", "⠀"), ("Ā", "\u2800"), ("a", "b")])
def test_characters_whose_codes_share_bytes_are_told_apart(before: str, after: str) -> None:
    diff = ScreenDiff()
    diff.reduced(stroke(0, 0, [(f"x{before}y", "")]))
    assert after in diff.reduced(stroke(0, 0, [(f"x{after}y", "")]))
    assert diff.reduced(stroke(0, 0, [(f"x{after}y", "")])) == ""


def test_distant_changes_on_a_row_are_joined_by_a_short_jump() -> None:
    diff = ScreenDiff((COLUMNS, ROWS))
    diff.reduced(stroke(0, 0, [("1 same same 1", "")]))
    assert diff.reduced(stroke(0, 0, [("2 same same 2", "")])) == "\x1b[1H2\x1b[11C2"


def test_a_style_is_set_once_for_neighbours_and_reset_once_at_the_end() -> None:
    diff = ScreenDiff((COLUMNS, ROWS))
    reduced = diff.reduced(stroke(0, 0, [("ab", "38;5;81"), ("cd", "38;5;81"), ("ef", "38;5;203")]))
    assert reduced == "\x1b[1H\x1b[38;5;81mabcd\x1b[38;5;203mef\x1b[m"


def test_blanks_up_to_the_edge_are_erased() -> None:
    diff = ScreenDiff((COLUMNS, ROWS))
    diff.reduced(stroke(0, 0, [("x" * COLUMNS, "")]))
    assert diff.reduced(stroke(0, 0, [("x", ""), (" " * (COLUMNS - 1), "")])) == "\x1b[1;2H\x1b[K"


def test_blanks_on_a_coloured_ground_are_written() -> None:
    diff = ScreenDiff((COLUMNS, ROWS))
    diff.reduced(stroke(0, 0, [("x" * COLUMNS, "")]))
    assert "\x1b[K" not in diff.reduced(stroke(0, 0, [(" " * COLUMNS, "48;5;17")]))


@pytest.mark.parametrize("text", ["👩‍💻 writes", "e\u0301", "⌚", "\u0600"])
def test_rows_of_disputed_width_are_written_whole_each_time(text: str) -> None:
    diff = ScreenDiff((COLUMNS, ROWS))
    row = stroke(1, 0, [(text, "")])
    assert text in diff.reduced(row)
    assert text in diff.reduced(row)


@pytest.mark.parametrize("data", ["\x07", "\x1b]52;c;aGk=\x07", "\x1b[?1000h", "\x1b[?25l"])
def test_other_sequences_pass_and_leave_the_picture_known(data: str) -> None:
    diff = ScreenDiff((COLUMNS, ROWS))
    row = stroke(0, 0, [("abc", "")])
    diff.reduced(row)
    assert diff.reduced(data) == data
    assert diff.reduced(row) == ""


@pytest.mark.parametrize(
    "data", ["\x1b[?1049h", "\x1b[2J", "\x1bc", "\x1b[1;1Hx\x1b]8;;http://a\x1b\\y", "z\x1b[1;1Hx"]
)
def test_what_changes_the_picture_in_unknown_ways_makes_everything_unknown(data: str) -> None:
    diff = ScreenDiff((COLUMNS, ROWS))
    row = stroke(0, 0, [("abc", "")])
    diff.reduced(row)
    assert diff.reduced(data) == data
    assert "abc" in diff.reduced(row)


def test_the_cursor_goes_to_a_focused_input_and_not_home() -> None:
    diff = ScreenDiff((COLUMNS, ROWS))
    row = stroke(0, 0, [("abc", "")])
    assert diff.reduced(row + "\x1b[1;1H") == "\x1b[1Habc"
    assert diff.reduced(row + "\x1b[3;5H") == "\x1b[3;5H"
    assert diff.reduced(row + "\x1b[3;5H") == ""


def test_what_lies_outside_a_terminal_that_has_shrunk_is_not_taken_for_shown() -> None:
    diff = ScreenDiff((10, 2))
    wide = stroke(1, 0, [("0123456789abcdef", "")])
    diff.reduced(wide)
    assert "0123456789" in diff.reduced(stroke(1, 0, [("0123456789", "")]))
    assert diff.reduced(stroke(2, 0, [("below the last row", "")])) == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([("ab ", "1")], [("ab c", "1")]),
        ([("ab", "1")], [("ab c", "1")]),
        ([("a", ""), ("█", "31")], [("a", ""), ("██", "31")]),
        ([("ab", "7"), (" " * 22, "7")], [("abc", "7"), (" " * 21, "7")]),
        ([("漢", "1"), ("b", "")], [("漢", "1"), ("bc", "")]),
    ],
)
def test_a_row_that_grows_is_written_as_if_it_were_looked_at_whole(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    whole, straight = ScreenDiff((COLUMNS, ROWS)), ScreenDiff((COLUMNS, ROWS))
    for row in (before, after):
        assert straight.painted([(0, cut(row))], str) == whole.reduced(stroke(0, 0, [*row, (" " * COLUMNS, "")]))
    assert straight.reduced(stroke(0, 0, [*after, (" " * COLUMNS, "")])) == ""
