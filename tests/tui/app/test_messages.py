"""Messages stand in one fixed line, move nothing, and never lie over a dialog."""

from __future__ import annotations

import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.tui.scene.header import ShownMessage, message_lines
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text, width
from tests.support.screens import ScriptedLoad, running_screen


@pytest.mark.parametrize(("page", "size"), [("1", (80, 24)), ("1", (120, 30)), ("2", (80, 24)), ("2", (120, 30))])
async def test_a_message_stands_above_the_footer_and_moves_nothing(page: str, size: tuple[int, int]) -> None:
    async with running_screen(size=size) as rig:
        await rig.press(page)
        await rig.sees("PID")
        before = rig.text().split("\n")
        rig.app.context.tell("the [red]recorder[/red] stops: the disk is full", "warning")
        await rig.sees("the [red]recorder[/red] stops: the disk is full")
        after = rig.text().split("\n")
        assert "the [red]recorder" in after[-2]
        assert (after[:-2], after[-1]) == (before[:-2], before[-1])
        assert ("PID" in before[-2], before[-2].strip() == "") == (False, size[1] == 30), "no row where there is a line"
        rig.app.clear_notifications()
        await rig.until(lambda: rig.text().split("\n") == before)


async def test_the_selected_row_is_never_under_a_message() -> None:
    async with running_screen(size=(80, 24)) as rig:
        await rig.press("2")
        page = rig.app._pages
        await rig.until(lambda: rig.app.screen is page and page.visible_rows > 1)
        for _ in range(page.visible_rows):
            await rig.press("down")
        last = page.view.selected
        assert isinstance(last, tuple)
        rig.app.context.tell("the recorder stops", "warning")
        await rig.sees("the recorder stops")
        assert f" {last[0]} " in rig.text()


async def test_with_a_dialog_open_it_stands_on_its_edge_and_never_over_its_content() -> None:
    async with running_screen(load=ScriptedLoad(), size=(80, 24)) as rig:
        await rig.press("b")
        await rig.sees("pgbench -n")
        rig.app.context.repaint()
        await rig.pilot.pause()
        before = rig.text().split("\n")
        await rig.press("y")
        await rig.sees("the command line is in your clipboard")
        after = rig.text().split("\n")
        changed = [new for old, new in zip(before, after, strict=True) if old != new]
        assert len(changed) == 1
        assert "╭" in changed[0], "the keys on the lower edge stay"
        rig.app.clear_notifications()
        await rig.until(lambda: rig.text().split("\n") == before)


async def test_a_message_stays_with_what_was_on_top_when_it_came_and_only_problems_outlive_a_dialog() -> None:
    async with running_screen(load=ScriptedLoad(), size=(80, 24)) as rig:
        await rig.press("2")
        await rig.sees("PID")
        rig.app.context.tell("the first one")
        await rig.sees("the first one")
        await rig.press("b")
        await rig.sees("pgbench -n")
        rig.app.messages_changed()
        await rig.pilot.pause()
        assert "the first one" not in rig.text(), "it was told before the dialog was opened"
        await rig.press("y")
        await rig.sees("the command line is in your clipboard")
        rig.app.context.tell("the disk is full", "warning")
        await rig.sees("the disk is full")
        await rig.press("escape")
        await rig.until(lambda: "pgbench -n" not in rig.text())
        await rig.sees("the disk is full")
        await rig.press("b")
        await rig.sees("pgbench -n")
        rig.app.messages_changed()
        await rig.pilot.pause()
        assert "clipboard" not in rig.text()
        assert "the disk is full" not in rig.text()


def test_a_hint_does_not_run_into_the_sentence_before_it() -> None:
    (line,) = message_lines(ShownMessage(str(UsageProblem("it is none", "name another")), "error"), 80, UNICODE)
    assert "it is none; hint: name another" in plain_text(line)


def test_a_long_message_takes_three_lines_at_most_and_control_characters_do_nothing() -> None:
    lines = message_lines(ShownMessage("word \x1b[31m" * 200, "error"), 60, UNICODE)
    assert len(lines) == 3
    assert all(width(line) <= 60 for line in lines)
    assert not any("\x1b" in plain_text(line) for line in lines)
    assert plain_text(lines[-1]).rstrip().endswith("…")
