"""What the keys of tables do, each as a function that presses them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pgtop_tune.model.backend_action import BackendAct
from pgtop_tune.tui.actions import all_pages
from pgtop_tune.tui.dashboard.screen import Dashboard
from pgtop_tune.tui.dialogs.dialog import DetailsDialog
from pgtop_tune.tui.pages.screen import ColumnsDialog, PageScreen
from tests.support.screens import (
    Rig,
    ScriptedBackends,
)

Check = Callable[[Rig], Awaitable[None]]


def dashboard_of(rig: Rig) -> Dashboard:
    return rig.app._dashboard


async def _filter(rig: Rig) -> None:
    await rig.press("slash")
    await rig.type("checkpointer")
    await rig.until(lambda: len(dashboard_of(rig)._rows) == 1)
    await rig.press("enter", "q")
    assert not rig.app.is_running or rig.app._exit, "after Enter keys are keys again"


async def _sort(rig: Rig) -> None:
    await rig.press("s")
    assert dashboard_of(rig).view.sort == "pid"
    await rig.press("greater_than_sign")
    assert dashboard_of(rig).view.sort == "cpu"
    await rig.press("less_than_sign", "less_than_sign")
    assert dashboard_of(rig).view.sort == "activity"


async def _pages(rig: Rig) -> None:
    for page in all_pages():
        await rig.press(page.key)
        await rig.until(lambda: isinstance(rig.app.screen, PageScreen))
        assert page_of(rig).page is page
        for table in (*page.tables[1:], page.tables[0]):
            await rig.press("tab")
            assert page_of(rig).table is table
        await rig.press("shift+tab")
        assert page_of(rig).table is page.tables[-1]
        await rig.press("tab", "1")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))


def page_of(rig: Rig) -> PageScreen:
    screen = rig.app.screen
    assert isinstance(screen, PageScreen)
    return screen


async def _reverse(rig: Rig) -> None:
    await rig.press("2", "s")
    await rig.until(lambda: rig.app.screen is rig.app._pages)
    await rig.until(lambda: page_of(rig).view.sort == "pid")
    assert not page_of(rig).view.descending
    await rig.press("R")
    found = [row.backend.pid for row in page_of(rig)._found]
    assert found == sorted(found, reverse=True)


def backends_of(rig: Rig) -> ScriptedBackends:
    control = rig.app.context.services.backends
    assert isinstance(control, ScriptedBackends)
    return control


async def _signal(rig: Rig) -> None:
    for key, act in (("c", BackendAct.CANCEL), ("K", BackendAct.TERMINATE)):
        await rig.press("home", key)
        selected = dashboard_of(rig).view.selected
        assert selected is not None
        await rig.sees(f"pg_{act}_backend({selected[0]})")
        await rig.press("y")
        await rig.until(lambda: len(backends_of(rig).signalled) == 1)
        assert backends_of(rig).signalled.pop() == (act, selected)
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard) and rig.source.noted)
        assert rig.source.noted.pop().text.endswith(f"ed {selected[0]}")


async def _explain(rig: Rig) -> None:
    await rig.press("home", "e")
    await rig.sees("Seq Scan on [t]")
    row = dashboard_of(rig)._rows[0]
    assert backends_of(rig).explained == [(row.key, row.backend.query)]
    await rig.press("y")
    assert rig.app.clipboard.startswith("Seq Scan on [t]\n")


async def _tag(rig: Rig) -> None:
    await rig.press("2", "down", "asterisk", "insert", "up", "asterisk")
    await rig.until(lambda: len(page_of(rig).view.tagged) == 1)
    await rig.sees("1 tagged")
    await rig.press("escape")
    assert not page_of(rig).view.tagged


async def _sideways(rig: Rig) -> None:
    await rig.press("2", "right", "right")
    await rig.until(lambda: page_of(rig).view.scrolled_past == 2)
    await rig.press("left")
    assert page_of(rig).view.scrolled_past == 1


async def _columns(rig: Rig) -> None:
    await rig.press("2", "o")
    await rig.until(lambda: isinstance(rig.app.screen, ColumnsDialog))
    await rig.press("down", "space", "enter")
    await rig.until(lambda: "CPU%" not in rig.text())
    assert "cpu" not in page_of(rig).view.columns


async def _idle(rig: Rig) -> None:
    before = len(dashboard_of(rig)._rows)
    await rig.press("i")
    assert len(dashboard_of(rig)._rows) < before
    await rig.press("i")
    assert len(dashboard_of(rig)._rows) == before


async def _background(rig: Rig) -> None:
    await rig.sees("background process")
    before = len(dashboard_of(rig)._rows)
    await rig.press("a")
    await rig.until(lambda: len(dashboard_of(rig)._rows) > before)
    await rig.press("a")
    await rig.until(lambda: len(dashboard_of(rig)._rows) == before)


async def _details(rig: Rig) -> None:
    await rig.press("down", "enter")
    await rig.until(lambda: isinstance(rig.app.screen, DetailsDialog))
    await rig.sees("as in pg_stat_activity")
    await rig.press("escape", "escape", "enter")
    await rig.sees("bottleneck")
    await rig.sees("Enter without a selected row")


async def _copy(rig: Rig) -> None:
    await rig.press("y")
    await rig.until(lambda: rig.app._notifications)
    assert rig.app.clipboard == ""
    await rig.press("down", "y")
    assert rig.app.clipboard == dashboard_of(rig)._rows[0].backend.query


async def _moves(rig: Rig) -> None:
    dashboard = dashboard_of(rig)
    rows = dashboard._rows

    def at() -> int:
        return next(index for index, row in enumerate(rows) if row.key == dashboard.view.selected)

    await rig.press("down", "j", "down")
    assert at() == 2
    await rig.press("up", "k")
    assert at() == 0
    await rig.press("pagedown")
    assert at() > 5
    await rig.press("pageup")
    assert at() == 0
    await rig.press("end")
    assert at() == len(rows) - 1
    assert dashboard.view.top > 0
    await rig.press("home")
    assert (at(), dashboard.view.top) == (0, 0)
    await rig.press("escape")
    assert dashboard.view.selected is None


async def _edges(rig: Rig) -> None:
    await rig.press("2", "G")
    await rig.sees("G goes to the last row of a page; on the dashboard G groups waits")
    rows = page_of(rig)._found
    assert page_of(rig).selected == rows[-1].key
    await rig.press("g")
    await rig.sees("g goes to the first row of a page; on the dashboard g shows an earlier run")
    assert page_of(rig).selected == rows[0].key


async def _matches(rig: Rig) -> None:
    for page in "12":
        await rig.press(page, "f3")
        await rig.type("pgbench")
        await rig.press("enter")
        screen = rig.app.screen
        assert isinstance(screen, Dashboard | PageScreen)
        found = [row.key for row in (screen._rows if isinstance(screen, Dashboard) else screen._found)]
        assert len(found) > 2
        await rig.press("n", "n")
        assert screen.selected == found[1]
        await rig.press("N", "N")
        assert screen.selected == found[-1], "after the last match comes the first"
        await rig.press("n")
        assert screen.selected == found[0]
        assert "next-match" in {action.id for action in screen.offered()}
        await rig.press("escape")
        assert "next-match" not in {action.id for action in screen.offered()}
    assert rig.app.time_travel.past is None, "no event was looked for"
    await rig.sees("Esc clears the filter")


TABLE_CHECKS: dict[str, Check] = {
    "details": _details, "explain": _explain, "cancel": _signal, "terminate": _signal, "filter": _filter,
    "sort": _sort, "sort-right": _sort, "sort-left": _sort, "reverse": _reverse, "idle": _idle,
    "background": _background,
    "columns": _columns, "copy": _copy, "tag": _tag, "up": _moves, "down": _moves, "page-up": _moves,
    "page-down": _moves, "first": _moves, "last": _moves,
    "top": _edges, "bottom": _edges, "next-match": _matches, "previous-match": _matches,
    "left": _sideways, "right": _sideways,
    "unselect": _moves, "dashboard": _pages, **{page.id: _pages for page in all_pages()}, "next-table": _pages,
    "previous-table": _pages,
}  # fmt: skip
"""Id of an action → what shows that its key does what the table of actions says; in the order of that table."""
