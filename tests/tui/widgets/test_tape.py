"""The tape under the charts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.tui.widgets.chart import GUTTER, TimeAxis
from pgtop_tune.tui.widgets.lines import ASCII, STYLES, UNICODE, Glyphs, plain_text, width
from pgtop_tune.tui.widgets.time_axis import event_glyph, event_style, tape_line


def happened(at_s: float, kind: EventKind, text: str) -> tuple[float, Event]:
    return at_s, Event(0, kind, text)


def picture(*events: tuple[float, Event], glyphs: Glyphs = UNICODE) -> str:
    line = tape_line(events, TimeAxis(100, 160, 67), glyphs)
    assert width(line) == 67
    return plain_text(line).rstrip()


def test_marks_stand_in_the_charts_columns_with_their_words() -> None:
    tape = picture(
        happened(105, EventKind.PARAMETER, "max_wal_size 1GB→16GB"),
        happened(130.7, EventKind.CHECKPOINT, "ckpt(wal)"),
        happened(145, EventKind.LOAD, "clients 32"),
    )
    assert tape == " tape       ▲max_wal_size 1GB→16GB   ◆ckpt(wal)     ▲clients 32"
    assert tape[GUTTER + 30] == "◆"


def test_in_ascii() -> None:
    assert picture(happened(103, EventKind.NOTE, "more"), glyphs=ASCII) == " tape     &more"


def test_words_go_left_when_there_is_no_room_on_the_right() -> None:
    assert picture(happened(155, EventKind.NOTE, "more clients")).endswith("more clients✎")


def test_words_without_room_are_cut_and_marks_stay() -> None:
    tape = picture(*(happened(100 + 9 * i, EventKind.CHECKPOINT, "checkpoint by wal") for i in range(3)))
    assert tape.startswith(" tape  ◆checkp…") is True
    assert tape.count("◆") == 3


def test_rare_events_win_a_column_and_the_room_for_words() -> None:
    tape = picture(
        happened(110.2, EventKind.AUTOVACUUM, "vacuum pgbench_accounts"),
        happened(110.4, EventKind.PARAMETER, "work_mem 4MB→64MB"),
        happened(120, EventKind.AUTOVACUUM, "vacuum pgbench_history"),
        happened(126, EventKind.DEADLOCK, "deadlock in bench"),
    )
    assert "✗deadlock in bench" in tape
    assert "▲" in tape
    assert tape.count("▼") == 1
    gone = happened(120, EventKind.CONNECTION, "server gone")
    failed = happened(120.5, EventKind.LOAD, "load failed (2)")
    assert "✗server gone" in picture(gone, failed), "the cause, and not what it ended"


def test_outside_the_window_is_nothing() -> None:
    assert picture(happened(99.9, EventKind.NOTE, "a"), happened(160.4, EventKind.NOTE, "b")) == " tape"
    assert picture(happened(160.1, EventKind.NOTE, "b")).endswith("b✎"), "what happens now stands in the last column"


def test_foreign_words_are_printable_and_of_one_line() -> None:
    tape = picture(happened(101, EventKind.NOTE, "a\x1b]0;t\x07\nb\u202ec"))
    assert tape.isprintable()


@pytest.mark.parametrize("kind", EventKind)
def test_every_kind_has_a_mark_and_a_known_style(kind: EventKind) -> None:
    assert len(event_glyph(kind, UNICODE)) == len(event_glyph(kind, ASCII)) == 1
    assert event_style(kind) in STYLES


EVENTS = st.lists(
    st.builds(
        happened,
        st.floats(90, 170),
        st.sampled_from(list(EventKind)),
        st.text(max_size=30) | st.sampled_from(["漢字漢字漢字", "👩‍💻 deploys"]),
    ),
    max_size=12,
)


@given(events=EVENTS, cells=st.integers(0, 90))
@settings(max_examples=150, deadline=None)
def test_exactly_as_wide_as_asked_and_every_mark_in_its_column(events: list[tuple[float, Event]], cells: int) -> None:
    line = tape_line(events, TimeAxis(100, 160, cells), UNICODE)
    assert width(line) == cells
    if cells <= GUTTER:
        return
    marks = {event_glyph(kind, UNICODE) for kind in EventKind}
    at, found = 0, set()
    for text, _ in line:
        if text in marks:
            found.add(at - GUTTER)
        at += width(((text, ""),))
    wanted = {TimeAxis(100, 160, cells).column_of(at_s) for at_s, _ in events} - {None}
    assert wanted <= found
