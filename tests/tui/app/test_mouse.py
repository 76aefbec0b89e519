"""The mouse: what stands in a cell says what a click, a drag or the wheel does there."""

from __future__ import annotations

import pytest
from textual import events

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.dashboard.screen import Dashboard
from pgtop_tune.tui.pages.screen import PageScreen
from pgtop_tune.tui.parameters.dialog import ParameterDialog
from pgtop_tune.tui.scene.scene import key_at, span_at, word_at
from pgtop_tune.tui.widgets.lines import Line
from tests.support.frames import frame, postgres_sample
from tests.support.screens import Rig, ScriptedParameters, ScriptedSource, ScriptedTransport, frames, running_screen
from tests.support.statement_frames import sample, statement
from tests.support.wait_frames import queue_at

FOOTER: Line = ((" ", ""), ("1-9", "key"), (" dash", "title"), ("  ", ""), ("b", "key"), (" load", ""), ("   ", ""))


@pytest.mark.parametrize(
    ("x", "key"), [(0, ""), (1, "1-9"), (6, "1-9"), (9, ""), (11, "b"), (13, "b"), (17, ""), (99, "")]
)
def test_a_key_reaches_to_the_end_of_its_words(x: int, key: str) -> None:
    assert key_at(FOOTER, x) == key


def test_words_and_spans_are_found_by_their_cell() -> None:
    assert [word_at((("  PID CPU%", ""),), x) for x in (0, 2, 4, 6, 20)] == ["", "PID", "PID", "CPU%", ""]
    assert [span_at((("wal ", "dim"), ("io", "title")), x) for x in (1, 5, 9)] == ["wal", "io", ""]


def place(rig: Rig, words: str, line: int | None = None) -> tuple[int, int]:
    """The first cell of these words, on the last line that has them."""
    lines = rig.text().split("\n")
    y = next(y for y in reversed(range(len(lines))) if words in lines[y]) if line is None else line
    return lines[y].index(words), y


def wheel(rig: Rig, x: int, y: int) -> None:
    rig.app.post_message(events.MouseScrollDown(None, x, y, 0, 0, 0, False, False, False))


async def click(rig: Rig, at: tuple[int, int]) -> None:
    await rig.pilot.mouse_down(offset=at)
    await rig.pilot.mouse_up(offset=at)


async def test_footer_pages_headings_rows_and_the_wheel() -> None:
    async with running_screen(parameters=ScriptedParameters(), knobs=KNOBS) as rig:
        dashboard = rig.app.screen
        assert isinstance(dashboard, Dashboard)
        await click(rig, place(rig, "CPU% "))
        await rig.until(lambda: dashboard.view.sort == "cpu")
        x, y = place(rig, "CPU% ")
        await click(rig, (x, y + 2))
        await rig.until(lambda: dashboard.view.selected == dashboard._rows[1].key)
        wheel(rig, 1, y)
        await rig.until(lambda: dashboard.view.selected == dashboard._rows[4].key)
        params = place(rig, "p params")
        await rig.pilot.mouse_down(offset=(x, y))
        await rig.pilot.mouse_up(offset=params)
        assert rig.app.screen is dashboard
        await click(rig, params)
        await rig.until(lambda: isinstance(rig.app.screen, ParameterDialog))
        await rig.press("escape")
        await rig.press("2")
        await rig.until(lambda: isinstance(rig.app.screen, PageScreen))
        page = rig.app._pages
        await rig.sees("PID")
        heading = page.query_one("#table").region.y + 1
        await click(rig, place(rig, "xact", heading))
        await rig.until(lambda: page.view.sort == "xact")
        before = page.view.descending
        await click(rig, place(rig, "xact", heading))
        await rig.until(lambda: page.view.descending is not before)


async def test_beside_the_sessions_a_statement_opens_its_page_and_a_lock_selects_its_session() -> None:
    activity, locks = queue_at(2)
    steps = []
    for second in (0, 2):
        statements = sample(
            float(second), 0.0 if second else None, [statement(1, calls=second, exec_us=9_000 * second), statement(2)]
        )
        given = {"activity": activity, "locks": locks, "statement_counters": statements}
        steps.append(frame(second, postgres=postgres_sample(second, **given)))
    source = ScriptedSource([Step(tuple(steps), restart=True)])
    async with running_screen(source, size=(200, 50)) as rig:
        dashboard = rig.app.screen
        assert isinstance(dashboard, Dashboard)
        await rig.sees("> 101")
        first = dashboard.view
        await click(rig, place(rig, "object"))
        await click(rig, place(rig, "locks waiting"))
        await rig.pilot.pause()
        assert dashboard.view == first, "a heading is no row, and sorts no other table"
        await click(rig, place(rig, "> 101"))
        await rig.until(lambda: dashboard.view.selected is not None)
        assert dashboard.view.selected is not None
        assert dashboard.view.selected[0] == 101
        x, y = place(rig, "ms/s")
        await click(rig, (x, y + 1))
        await rig.until(lambda: isinstance(rig.app.screen, PageScreen))
        assert rig.app._pages.page.id == "statements"
        assert rig.app._pages.view.selected == statement(1).id


async def test_a_table_named_in_the_head_of_a_page_is_turned_to() -> None:
    async with running_screen() as rig:
        await rig.press("3")
        page = rig.app._pages
        await rig.until(lambda: rig.app.screen is page and page._drawn)
        other = page.page.tables[1]
        await click(rig, place(rig, other.title, page.query_one("#table").region.y))
        await rig.until(lambda: page.table is other)


async def test_a_click_in_a_chart_shows_its_moment_and_drags_mark_windows() -> None:
    transport = ScriptedTransport()
    source = ScriptedSource([Step(tuple(frames(40)[::3]), restart=True)])
    async with running_screen(source, transport=transport, frames=lambda since_s: iter(()), size=(160, 50)) as rig:
        dashboard = rig.app.screen
        assert isinstance(dashboard, Dashboard)
        x, y = place(rig, "┤")
        y -= 1
        # What stands at 23 s came with the frame that followed; before the session there is nothing but its first
        # frame. The last click is in the chart of waits beside.
        middles = {dashboard.moment_at("throughput", at, 2): at for at in range(160)}
        cells = [at for wanted_s in (23.0, 37.0) for at_s, at in middles.items() if abs((at_s or 0.0) - wanted_s) < 1.0]
        assert cells
        assert [at for at_s, at in middles.items() if at_s is not None and at_s > 39.0] == []
        for cell, ends_s in (cells[0], 24.0), (x + 2, 0.0), (cells[-1], 39.0):
            transport.jumped.clear()
            await click(rig, (cell, y))
            await rig.until(lambda: bool(transport.jumped))
            assert transport.jumped == [ends_s]
        assert dashboard.moment_at("latency", 2, 1) is None
        for begin in (5, 20):
            await rig.pilot.mouse_down(offset=(x + begin, y))
            await rig.pilot.mouse_up(offset=(x + begin + 10, y))
        await rig.until(lambda: len(rig.app.windows.marks.windows) == 2)
        ends = [dashboard.moment_at("latency", x + begin + more, 1) for begin in (5, 20) for more in (0, 10)]
        assert [at for window in rig.app.windows.marks.windows for at in (window.since_s, window.until_s)] == ends
        assert transport.jumped == [39.0]


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (160, 50)])
async def test_a_click_on_the_bar_of_a_replay_goes_there(size: tuple[int, int]) -> None:
    transport = ScriptedTransport()
    source = ScriptedSource([Step(tuple(frames(3)), restart=True)])
    async with running_screen(source, transport=transport, size=size) as rig:
        await rig.sees("replay")
        y = rig.app.screen.query_one("#transport").region.y
        line = rig.text().split("\n")[y].rstrip()
        await click(rig, (len(line) - 1, y))
        await rig.until(lambda: transport.jumped == [120.0])
        await click(rig, (line.index("replay"), y))
        await click(rig, (line.index("─"), y))
        await rig.until(lambda: transport.jumped == [120.0, 0.0])


@pytest.mark.parametrize(("key", "at_x", "ends_s"), [("3", 125, 15.0), ("7", 140, 24.0)])
async def test_a_click_in_a_chart_of_a_page_shows_its_moment(key: str, at_x: int, ends_s: float) -> None:
    transport = ScriptedTransport()
    source = ScriptedSource([Step(tuple(frames(40)[::3]), restart=True)])
    async with running_screen(source, transport=transport, frames=lambda since_s: iter(()), size=(160, 50)) as rig:
        await rig.press(key)
        page = rig.app._pages
        await rig.until(lambda: rig.app.screen is page and page._drawn)
        y = page.query_one("#summary").region.y + 3
        await click(rig, (at_x, y))
        await rig.until(lambda: bool(transport.jumped))
        # A column is two seconds wide, of the narrower histories three; frames are three apart.
        assert transport.jumped == [ends_s]
        # Neither the names beside the chart nor a row of the table are a moment.
        assert page.moment_at("summary", 159 if key == "3" else 20, 3) is None
        assert page.moment_at("table", at_x, 3) is None


async def test_the_wheel_in_a_dialog_does_as_the_arrows() -> None:
    async with running_screen(parameters=ScriptedParameters(), knobs=KNOBS) as rig:
        await rig.press("p")
        await rig.sees("synchronous_commit")
        dialog = rig.app.screen
        assert isinstance(dialog, ParameterDialog)
        before = dialog._table.cursor
        wheel(rig, 60, 30)
        await rig.until(lambda: dialog._table.cursor == before + 1)
