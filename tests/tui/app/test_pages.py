"""Pages: reached from everywhere, live and replayed, one computed at a time, each as it was left."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.postgres import Activity
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui import app as app_module
from pgtop_tune.tui.actions import PAGES, all_pages, page_of
from pgtop_tune.tui.dashboard.screen import Dashboard
from pgtop_tune.tui.dialogs.dialog import DetailsDialog, TooSmall
from pgtop_tune.tui.dialogs.help import HelpDialog
from pgtop_tune.tui.pages.page import Page, PageTable
from pgtop_tune.tui.pages.screen import PageScreen
from tests.support.frames import EPOCH_MS, backend, frame, postgres_sample
from tests.support.pictures import assert_picture
from tests.support.screens import (
    Rig,
    ScriptedBackends,
    ScriptedParameters,
    ScriptedSource,
    ScriptedTransport,
    running_screen,
)

GOLDENS = Path(__file__).parents[1] / "goldens"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


async def turned_to(rig: Rig, key: str) -> PageScreen:
    await rig.press(key)
    await rig.until(lambda: isinstance(rig.app.screen, PageScreen) and rig.app._pages.page.key == key)
    await rig.pilot.pause()
    return rig.app._pages


def test_every_page_has_a_key_an_id_and_columns_of_its_own() -> None:
    for row in PAGES:
        assert (row.key, row.id, row.title) == (row.page.key, row.page.id, row.page.title), "footers say what pages are"
    assert len({page.key for page in all_pages()}) == len({page.id for page in all_pages()}) == len(all_pages())
    # As the keys lie on the keyboard: 0 is the last.
    assert [page.key for page in all_pages()] == sorted((page.key for page in all_pages()), key="1234567890".index)
    tables = [table for page in all_pages() for table in page.tables]
    assert len({table.id for table in tables}) == len(tables), "choices are remembered by the id of the table"
    for table in tables:
        assert len({column.id for column in table.columns}) == len(table.columns), table.id
        assert table.sort == "" or any(each.id == table.sort and each.value for each in table.columns), table.id
        assert table.columns[0].visible, table.id
        for column in table.columns:
            assert column.definition, f"{table.id} {column.id}"
            assert column.source, f"{table.id} {column.id}"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (250, 70), (60, 15)])
async def test_every_table_of_every_page_fills_every_screen(size: tuple[int, int]) -> None:
    async with running_screen(size=size) as rig:
        for page in all_pages():
            screen = await turned_to(rig, page.key)
            for table in page.tables:
                assert screen.table is table
                lines = rig.text().split("\n")
                assert len(lines) == size[1]
                assert all(len(line) <= size[0] for line in lines)
                assert any(table.title in line for line in lines), (page.id, table.id, rig.text())
                await rig.press("tab")


@pytest.mark.parametrize("reason", [Reason.NO_ANSWER, Reason.NOT_RECORDED])
async def test_without_a_server_every_page_says_why(reason: Reason) -> None:
    async with running_screen() as rig:
        gone = Unavailable(reason, "db1: the server is [not] there\x1b[31m")
        rig.source.feed(frame(5, postgres=gone, host=gone, pooler=gone))  # type: ignore[arg-type]
        await rig.until(lambda: rig.app.context.live.now is not None and rig.app.context.live.now.sequence == 5)
        for page in all_pages():
            await turned_to(rig, page.key)
            await rig.sees("the server is [not] there␛[31m")


async def test_before_the_first_frame_every_page_can_be_drawn() -> None:
    from tests.support.screens import ScriptedSource

    async with running_screen(ScriptedSource(), waits_for_frames=False) as rig:
        for page in all_pages():
            screen = await turned_to(rig, page.key)
            assert screen.page is page
        await rig.press("down", "end", "enter", "escape", "right", "s", "insert", "y", "i")
        await rig.pilot.pause()
        assert isinstance(rig.app.screen, PageScreen)


async def test_pages_work_in_a_replay_and_the_transport_stays() -> None:
    async with running_screen(transport=ScriptedTransport()) as rig:
        await turned_to(rig, "2")
        await rig.sees("replay")
        await rig.press("space")
        await rig.sees("paused")
        await rig.press("1")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
        await rig.sees("replay")


async def test_only_the_page_in_view_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(table: PageTable) -> PageTable:
        def rows(session: object) -> object:
            asked.append(table.id)
            return table.rows(session)  # type: ignore[arg-type]

        return replace(table, rows=rows)  # type: ignore[arg-type]

    def counted_page(name: str) -> Page:
        page = page_of(name)
        return replace(page, tables=tuple(counted(table) for table in page.tables))

    monkeypatch.setattr(app_module, "page_of", counted_page)
    async with running_screen() as rig:
        rig.source.feed(frame(5))
        await rig.until(lambda: rig.app.context.live.now is not None and rig.app.context.live.now.sequence == 5)
        assert asked == []
        await turned_to(rig, "2")
        asked.clear()
        rig.source.feed(frame(6))
        await rig.until(lambda: asked)
        await rig.press("down", "down", "s", "insert")
        assert asked == ["sessions", "connections", "limits"], "once per frame, not once per key"


async def test_a_page_stands_as_it_was_left() -> None:
    async with running_screen() as rig:
        screen = await turned_to(rig, "2")
        await rig.press("down", "down", "s", "right")
        left = screen.view
        await turned_to(rig, all_pages()[1].key)
        await rig.press("1")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
        await turned_to(rig, "2")
        assert screen.view == left


async def test_columns_are_remembered_over_sessions() -> None:
    for expected in (True, False):
        async with running_screen() as rig:
            await turned_to(rig, "2")
            assert ("CPU%" in rig.text()) is expected
            await rig.press("o", "down", "space", "enter")
            await rig.until(lambda: isinstance(rig.app.screen, PageScreen))


async def test_help_explains_the_columns_of_the_page_in_view() -> None:
    async with running_screen(size=(120, 50)) as rig:
        for page in all_pages():
            await turned_to(rig, page.key)
            await rig.press("question_mark")
            await rig.until(lambda: isinstance(rig.app.screen, HelpDialog))
            lines = rig.app.screen.content(96)  # type: ignore[attr-defined]
            text = " ".join("".join(part for part, _ in line).strip() for line in lines)
            for table in page.tables:
                for column in table.columns:
                    assert " ".join(column.definition.split())[:40] in " ".join(text.split()), (table.id, column.id)
            await rig.press("escape")
            await rig.until(lambda: isinstance(rig.app.screen, PageScreen))


async def test_help_opens_at_the_table_in_view_and_keys_are_one_key_away() -> None:
    async with running_screen() as rig:
        await turned_to(rig, "6")
        await rig.press("tab", "tab", "question_mark")
        await rig.sees("Cache of transaction states")
        await rig.press("home")
        await rig.until(lambda: "next table of this page" in "\n".join(rig.text().split("\n")[:4]))
        await rig.press("tab")
        await rig.sees("Cache of transaction states")


async def test_help_opens_at_the_column_chosen_and_finds_what_is_searched() -> None:
    async with running_screen(size=(120, 30)) as rig:
        await turned_to(rig, "2")
        await rig.press("s", "question_mark")
        await rig.until(lambda: isinstance(rig.app.screen, HelpDialog))
        column = rig.app._pages.help_at
        await rig.until(lambda: column in rig.text().split("\n")[1])
        await rig.press("slash")
        await rig.type("REDRAW the whole")
        await rig.sees("redraw the whole screen")
        await rig.press("enter", "slash")
        await rig.type("no such words")
        await rig.sees("not found")
        await rig.press("escape")
        await rig.sees("/ search")
        await rig.press("escape")
        await rig.until(lambda: isinstance(rig.app.screen, PageScreen))


async def test_the_palette_finds_parameters_and_sessions_and_obeys_no_markup() -> None:
    odd = replace(backend(77, EPOCH_MS, query="SELECT '[red]x[/red]'"), usename="[b]odd")
    activity = Activity(2.0, EPOCH_MS, (odd,))
    source = ScriptedSource([Step((frame(2, postgres=postgres_sample(2, activity=activity)),), restart=True)])
    async with running_screen(source, parameters=ScriptedParameters(), knobs=KNOBS) as rig:
        await rig.press("ctrl+p")
        await rig.type("max wal")
        await rig.sees("parameter max_wal_size")
        await rig.press("enter")
        await rig.sees("/max_wal_size")
        await rig.press("escape", "escape", "ctrl+p")
        await rig.type("session 77")
        await rig.sees("session 77 [b]odd@bench active: SELECT '[red]x[/red]'")
        await rig.press("enter")
        await rig.until(
            lambda: rig.app.screen is rig.app._pages and rig.app._pages.view.selected == (77, odd.backend_start_ms)
        )


@pytest.mark.parametrize(
    ("key", "tabs", "offered", "missing"),
    [
        ("2", 0, "Tab table │ ↑↓ select  e plan  c cancel  K end │", "plan  / filter"),
        ("5", 0, "9 repl │ ↑↓ select  e plan │", "Tab table"),
        ("4", 0, "Tab table │ ↑↓ select  e plan  c cancel  K end │", "idle"),
        ("6", 1, "Tab table │ ↑↓ select │ / filter", "idle"),
    ],
)
async def test_the_footer_names_first_what_works_on_this_table_and_nothing_that_does_not(
    key: str, tabs: int, offered: str, missing: str
) -> None:
    async with running_screen(size=(250, 40), backends=ScriptedBackends()) as rig:
        await turned_to(rig, key)
        await rig.press(*["tab"] * tabs)
        await rig.pilot.pause()
        footer = rig.text().split("\n")[-1]
        assert offered in footer
        assert not missing or missing not in footer


async def test_details_follow_their_row_and_say_when_it_is_gone() -> None:
    async with running_screen() as rig:
        screen = await turned_to(rig, "2")
        await rig.press("down", "enter")
        await rig.until(lambda: isinstance(rig.app.screen, DetailsDialog))
        key = screen.view.selected
        await rig.sees("as in pg_stat_activity")
        rig.source.feed(frame(5, postgres=replace(frame(5).postgres, activity=_without(key))))  # type: ignore[type-var]
        await rig.sees("is gone")
        await rig.press("escape", "y")
        await rig.until(lambda: any("select a row" in each.message for each in rig.app._notifications))


def _without(key: object) -> object:
    activity = frame(5).postgres.activity  # type: ignore[union-attr]
    kept = tuple(each for each in activity.backends if (each.pid, each.backend_start_ms) != key)  # type: ignore[union-attr]
    return replace(activity, backends=kept)  # type: ignore[type-var]


async def test_every_row_of_every_table_has_details_and_something_to_copy() -> None:
    async with running_screen() as rig:
        for page in all_pages():
            screen = await turned_to(rig, page.key)
            for _ in page.tables:
                if screen._found:
                    await rig.press("home", "enter")
                    await rig.until(lambda: isinstance(rig.app.screen, DetailsDialog))
                    await rig.press("escape")
                    await rig.until(lambda: isinstance(rig.app.screen, PageScreen))
                await rig.press("tab")


async def test_a_terminal_that_shrinks_and_grows_on_a_page_comes_back_to_it() -> None:
    async with running_screen() as rig:
        screen = await turned_to(rig, "2")
        await rig.pilot.resize_terminal(50, 10)
        await rig.until(lambda: isinstance(rig.app.screen, TooSmall))
        await rig.pilot.resize_terminal(100, 30)
        await rig.until(lambda: rig.app.screen is screen)
        await rig.sees("sessions")
        assert len(rig.text().split("\n")) == 30
        await rig.pilot.resize_terminal(140, 40)
        await rig.press("1")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
        await rig.pilot.pause()
        assert len(rig.text().split("\n")) == 40
        await rig.sees("where each transaction")


async def test_a_frozen_page_stays_frozen_across_pages() -> None:
    async with running_screen() as rig:
        await rig.press("space")
        rig.source.feed(frame(5), frame(6), frame(7))
        await rig.sees("−3s")
        await turned_to(rig, "2")
        await rig.sees("−3s")
        await rig.press("space")
        await rig.until(lambda: "−3s" not in rig.text())


async def test_digits_typed_into_a_filter_belong_to_the_filter() -> None:
    async with running_screen() as rig:
        screen = await turned_to(rig, "2")
        await rig.press("slash")
        await rig.type("2231")
        await rig.press("enter")
        assert screen.view.filter == "2231"
        assert rig.app.screen is screen


async def test_the_palette_leads_to_pages_and_offers_only_what_the_screen_does() -> None:
    async with running_screen() as rig:
        await rig.press("ctrl+p")
        await rig.type("the host page")
        await rig.sees("the host page")
        await rig.press("enter")
        await rig.until(lambda: isinstance(rig.app.screen, PageScreen) and rig.app._pages.page.id == "host")
        await rig.press("ctrl+p")
        await rig.type("table of settings")
        await rig.sees("9 repl")
        await rig.press("enter")
        await rig.until(lambda: rig.app._pages.table.id == "settings" and rig.app._pages.page.key == "9")
        await rig.press("1", "ctrl+p")
        await rig.type("choose the columns")
        await rig.sees("No matches found")


def _phrases(rig: Rig) -> set[str]:
    return {action.id for action in rig.app._dashboard.possible()}


async def test_the_palette_offers_only_what_is_possible_now() -> None:
    frames_of = {"frames": lambda since_s: iter(())}
    async with running_screen(backends=ScriptedBackends(), **frames_of) as rig:
        assert not _phrases(rig) & {"cancel", "terminate", "explain", "details", "copy", "brush", "mark-end", "live"}
        await rig.press("down", "[")
        await rig.until(lambda: _phrases(rig) >= {"cancel", "terminate", "explain", "details", "copy", "mark-end"})


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 48)])
async def test_the_page_of_sessions_looks_as_it_did(width: int, height: int) -> None:
    async with running_screen(size=(width, height), backends=ScriptedBackends()) as rig:
        await turned_to(rig, "2")
        await rig.press("down", "insert", "down", "right")
        await rig.sees("1 tagged")
        assert_picture(GOLDENS / f"page-sessions-{width}x{height}.txt", rig.text().split("\n"))


async def test_the_page_of_poolers_is_named_where_there_are_some_or_it_is_in_view() -> None:
    async with running_screen() as rig:
        assert " 1-9 pages " in rig.text()
        await turned_to(rig, "0")
        await rig.sees(" 0-9 pages ")


async def test_a_row_is_not_called_gone_while_the_server_does_not_answer() -> None:
    async with running_screen() as rig:
        screen = await turned_to(rig, "2")
        await rig.press("home")
        silent = Unavailable(Reason.NO_ANSWER, "no answer for 1 s")
        rig.source.feed(replace(frame(9), postgres=silent))
        await rig.sees("no answer for 1 s")
        assert not isinstance(screen.rows, Unavailable)
        assert all(row.stale for row in screen.rows)
        await rig.press("enter")
        await rig.until(lambda: rig.app.screen is not screen)
        await rig.sees("no answer for 1 s")
        assert "has ended" not in rig.text()
