"""The right half of a page on a wide screen: the row that is chosen, and what becomes of its number."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len

from pgtop_tune.model.postgres import Activity
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.actions import all_pages
from pgtop_tune.tui.pages.listing import APART, FROM
from pgtop_tune.tui.pages.screen import PageScreen
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text
from tests.support.frames import EPOCH_MS, backend, frame, postgres_sample
from tests.support.screens import Rig, ScriptedSource, running_screen
from tests.tui.app.test_mouse import click, place


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def sessions(second: int, *pids: int) -> Step:
    """A second in which these sessions are active, the first of them with the oldest transaction."""
    now_ms = EPOCH_MS + 1000 * second
    rows = tuple(
        backend(pid, now_ms, query=f"SELECT {pid}", xact_start_ms=now_ms - 1000 * (9 - place))
        for place, pid in enumerate(pids)
    )
    activity = Activity(float(second), now_ms, rows)
    return Step((frame(second, postgres=postgres_sample(second, activity=activity), events=()),), restart=second == 0)


async def turned_to(rig: Rig, key: str) -> PageScreen:
    await rig.press(key)
    await rig.until(lambda: isinstance(rig.app.screen, PageScreen) and rig.app._pages.page.key == key)
    await rig.pilot.pause()
    return rig.app._pages


def right(rig: Rig) -> str:
    """What stands right of the table."""
    page = rig.app._pages
    first = page.query_one("#table").region.y
    return "\n".join(line[page._table_width + len(APART) :] for line in rig.text().split("\n")[first:-1])


async def test_the_chosen_row_stands_beside_the_table_on_a_wide_screen_alone() -> None:
    async with running_screen(ScriptedSource([sessions(0, 11, 12, 13)]), size=(FROM, 48)) as rig:
        page = await turned_to(rig, "2")
        await rig.until(lambda: "SELECT 11" in right(rig))
        await rig.press("down", "down")
        await rig.until(lambda: "PID 12" in right(rig) and "SELECT 12" in right(rig) and "SELECT 11" not in right(rig))
    async with running_screen(ScriptedSource([sessions(0, 11)]), size=(FROM - 1, 48)) as rig:
        page = await turned_to(rig, "2")
        assert page._table_width == FROM - 1


async def test_without_a_choice_the_same_row_stays_while_the_order_changes() -> None:
    source = ScriptedSource([sessions(0, 11, 12)])
    async with running_screen(source, size=(200, 50)) as rig:
        await turned_to(rig, "2")
        await rig.until(lambda: "PID 11" in right(rig))
        source.feed(*sessions(1, 12, 11).frames)
        await rig.until(lambda: rig.app.context.live.now is not None and rig.app.context.live.now.sequence == 1)
        await rig.pilot.pause()
        assert "PID 11" in right(rig)
        source.feed(*sessions(2, 12).frames)
        await rig.until(lambda: "PID 12" in right(rig))


async def test_the_history_is_that_of_the_row_s_number_since_it_stands_there() -> None:
    source = ScriptedSource([sessions(0, 11)])
    async with running_screen(source, size=(200, 50)) as rig:
        await turned_to(rig, "2")
        for second in range(1, 5):
            source.feed(*sessions(second, 11).frames)
        await rig.until(lambda: "since 4.0 s ago" in right(rig))


async def test_a_number_that_is_unknown_of_the_row_gives_way_to_the_first_known_one() -> None:
    now_ms = EPOCH_MS
    root = backend(11, now_ms, state="idle in transaction", wait_event_type="Client", wait_event="ClientRead")
    waiting = backend(12, now_ms, wait_event_type="Lock", wait_event="transactionid", blocked_by=(11,))
    activity = Activity(0.0, now_ms, (root, waiting))
    step = Step((frame(0, postgres=postgres_sample(0, activity=activity), events=()),), restart=True)
    async with running_screen(ScriptedSource([step]), size=(200, 50)) as rig:
        await turned_to(rig, "4")
        await rig.until(lambda: "PID 11" in right(rig))
        assert "holds  1" in right(rig)


async def test_the_table_points_at_the_row_that_stands_beside_it_without_a_choice() -> None:
    source = ScriptedSource([sessions(0, 11, 12)])
    async with running_screen(source, size=(200, 50)) as rig:
        page = await turned_to(rig, "2")
        await rig.until(lambda: "PID 11" in right(rig))
        source.feed(*sessions(1, 12, 11).frames)
        await rig.until(lambda: rig.app.context.live.now is not None and rig.app.context.live.now.sequence == 1)
        await rig.pilot.pause()
        (pointed,) = [plain_text(line) for line in page._drawn["table"] if plain_text(line).startswith(UNICODE.pointer)]
        assert pointed.split()[1] == "11"


async def test_of_the_lock_tree_the_root_stands_beside_it() -> None:
    def jam(second: int, root: int) -> Step:
        now_ms = EPOCH_MS + 1000 * second
        waiting = {"wait_event_type": "Lock", "wait_event": "transactionid", "blocked_by": (root,)}
        both = Activity(float(second), now_ms, (backend(root, now_ms), backend(root + 1, now_ms, **waiting)))
        return Step((frame(second, postgres=postgres_sample(second, activity=both), events=()),), restart=second == 0)

    source = ScriptedSource([jam(0, 21)])
    async with running_screen(source, size=(200, 50)) as rig:
        await turned_to(rig, "4")
        await rig.until(lambda: "─ PID 21 ─" in right(rig))
        now_ms = EPOCH_MS + 1000
        chain = (
            backend(11, now_ms), backend(21, now_ms, wait_event_type="Lock", wait_event="tuple", blocked_by=(11,)),
            backend(22, now_ms, wait_event_type="Lock", wait_event="tuple", blocked_by=(21,)),
        )  # fmt: skip
        source.feed(frame(1, postgres=postgres_sample(1, activity=Activity(1.0, now_ms, chain)), events=()))
        await rig.until(lambda: "─ PID 11 ─" in right(rig))


async def test_a_table_that_never_had_a_row_has_the_whole_width() -> None:
    """A third of the screen was an empty half."""
    source = ScriptedSource([sessions(0, 11)])
    async with running_screen(source, size=(200, 50)) as rig:
        page = await turned_to(rig, "4")
        assert page._table_width == 200
        now_ms = EPOCH_MS + 1000
        waiting = backend(12, now_ms, wait_event_type="Lock", wait_event="transactionid", blocked_by=(11,))
        both = Activity(1.0, now_ms, (backend(11, now_ms), waiting))
        source.feed(frame(1, postgres=postgres_sample(1, activity=both), events=()))
        await rig.until(lambda: "PID 11" in right(rig))
        source.feed(*sessions(2, 11).frames)
        await rig.until(lambda: "no row" in right(rig))


async def test_a_click_beside_the_table_chooses_nothing() -> None:
    async with running_screen(ScriptedSource([sessions(0, 11, 12)]), size=(200, 50)) as rig:
        page = await turned_to(rig, "2")
        y = page.query_one("#table").region.y
        await click(rig, (page._table_width + 6, y + 3))
        await click(rig, (page._table_width + 6, y + 1))
        await rig.pilot.pause()
        assert page.view.selected is None
        assert page.view.sort == page.table.sort
        await click(rig, place(rig, "SELECT 12", y + 3))
        await rig.until(lambda: page.view.selected is not None)


@pytest.mark.parametrize("size", [(160, 24), (200, 50), (250, 70)])
async def test_every_table_has_lines_of_the_screen_s_width(size: tuple[int, int]) -> None:
    async with running_screen(size=size) as rig:
        for page in all_pages():
            screen = await turned_to(rig, page.key)
            for table in page.tables:
                assert screen.table is table
                lines = screen._drawn["table"]
                odd = [plain_text(line) for line in lines if sum(cell_len(text) for text, _ in line) != size[0]]
                assert not odd, (page.id, table.id, odd)
                if len(page.tables) > 1:
                    await rig.press("tab")
