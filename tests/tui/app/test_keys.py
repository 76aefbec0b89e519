"""Every row of the table of actions: its key does what its description says."""

from __future__ import annotations

import base64
import math
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.command import CommandPalette

from pgtop_tune.analysis.ghosts import Shelf
from pgtop_tune.errors import UsageProblem
from pgtop_tune.model.backend_action import BackendAct
from pgtop_tune.model.change import Terms, Wanted
from pgtop_tune.model.events import EventKind
from pgtop_tune.session.ports import Landmark, Step
from pgtop_tune.tui.actions import ACTIONS, Need, available, check_keymap, footer_keys, keys_of
from pgtop_tune.tui.app import PgtopApp
from pgtop_tune.tui.controls import ScreenOptions
from pgtop_tune.tui.pages.registry import all_pages
from pgtop_tune.tui.screens.columns import ColumnsDialog
from pgtop_tune.tui.screens.dashboard import Dashboard
from pgtop_tune.tui.screens.details import DetailsDialog
from pgtop_tune.tui.screens.help import HelpDialog
from pgtop_tune.tui.screens.load import LoadDialog
from pgtop_tune.tui.screens.page import PageScreen
from pgtop_tune.tui.screens.parameters import ParameterDialog
from pgtop_tune.tui.screens.password import PasswordDialog
from pgtop_tune.tuning.knobs.catalogue import KNOBS
from tests.support.frames import frame
from tests.support.reports import ScriptedCheck
from tests.support.screens import (
    Rig,
    ScriptedBackends,
    ScriptedLoad,
    ScriptedParameters,
    ScriptedRecording,
    ScriptedSource,
    ScriptedTransport,
    frames,
    running_screen,
)


def _dashboard(rig: Rig) -> Dashboard:
    return rig.app._dashboard


async def _load(rig: Rig) -> None:
    await rig.press("b")
    await rig.until(lambda: isinstance(rig.app.screen, LoadDialog))


async def _parameters(rig: Rig) -> None:
    await rig.press("p")
    await rig.until(lambda: isinstance(rig.app.screen, ParameterDialog))


async def _undo(rig: Rig) -> None:
    control = rig.controls.parameters
    assert control is not None
    await rig.app._hands.ask(control.apply("work_mem", "8MB"))
    await rig.press("u")
    await rig.sees("ALTER SYSTEM RESET work_mem")
    await rig.press("y")
    await rig.until(lambda: any("work_mem is 4MB again" in each.message for each in rig.app._notifications))


async def _redo(rig: Rig) -> None:
    control = rig.controls.parameters
    assert control is not None
    await rig.app._hands.ask(control.apply("work_mem", "8MB"))
    await rig.app._hands.ask(control.apply("max_wal_size", "2GB"))
    await rig.press("U")
    await rig.sees("undo 2 changes")
    await rig.press("y")
    await rig.until(lambda: any("work_mem is 4MB again" in each.message for each in rig.app._notifications))
    await rig.press("ctrl+r")
    await rig.until(lambda: any("work_mem 4MB→8MB again" in each.message for each in rig.app._notifications))


async def _keep(rig: Rig) -> None:
    assert rig.app.changes is not None
    await rig.app.changes.apply((Wanted("work_mem", "8MB"),), Terms(keep_within_s=60.0))
    await rig.sees("or it reverts")
    await rig.press("Y")
    await rig.until(lambda: any("kept: work_mem 4MB→8MB" in each.message for each in rig.app._notifications))
    await rig.until(lambda: "or it reverts" not in rig.text())


async def _password(rig: Rig) -> None:
    await rig.press("P")
    await rig.until(lambda: isinstance(rig.app.screen, PasswordDialog))


async def _record(rig: Rig) -> None:
    control = rig.controls.recording
    assert control is not None
    await rig.press("r")
    await rig.until(lambda: control.state().path is not None)
    await rig.sees("rec 00:00:0")
    await rig.press("r")
    await rig.until(lambda: control.state().path is None)
    assert rig.app.recording == "made-up.jsonl.gz"


async def _note(rig: Rig) -> None:
    await rig.press("m")
    await rig.type("more [clients]")
    await rig.press("enter")
    await rig.until(lambda: rig.source.noted)
    assert (rig.source.noted[0].kind, rig.source.noted[0].text) == (EventKind.NOTE, "more [clients]")
    rig.source.feed(frame(5))
    await rig.until(lambda: any(event.text == "more [clients]" for _, event in rig.app._live.events))


async def _steps(rig: Rig) -> None:
    await rig.press("full_stop", "full_stop", "comma")
    assert _transport(rig).steps == 1
    await rig.press("z")
    assert _transport(rig).jumped == [math.inf]


async def _seeks(rig: Rig) -> None:
    transport = _transport(rig)
    keys = dict(zip(("n", "N", "v", "V", "W"), Landmark, strict=True))
    await rig.press("n")
    await rig.until(lambda: any("no event after this moment" in each.message for each in rig.app._notifications))
    for place, (key, landmark) in enumerate(keys.items()):
        transport.landmarks = {landmark: 10.0 * place}
        await rig.press(key)
        await rig.until(lambda: len(transport.jumped) > place)  # noqa: B023
    assert transport.jumped == [0.0, 10.0, 20.0, 30.0, 40.0]
    assert transport.paused


async def _jump(rig: Rig) -> None:
    await rig.press("T")
    await rig.type("nonsense")
    await rig.press("enter")
    await rig.sees("is not a moment")
    await rig.press("ctrl+u")
    await rig.type("00:01:30")
    await rig.press("enter")
    await rig.until(lambda: _transport(rig).jumped == [90.0])


def _transport(rig: Rig) -> ScriptedTransport:
    transport = rig.controls.transport
    assert isinstance(transport, ScriptedTransport)
    return transport


async def _speed(rig: Rig) -> None:
    await rig.press("right_curly_bracket", "right_curly_bracket", "left_curly_bracket")
    assert _transport(rig).speed == 2.0
    await rig.sees("2×")


async def _filter(rig: Rig) -> None:
    await rig.press("slash")
    await rig.type("checkpointer")
    await rig.until(lambda: len(_dashboard(rig)._rows) == 1)
    await rig.press("enter", "q")
    assert not rig.app.is_running or rig.app._exit, "after Enter keys are keys again"


async def _sort(rig: Rig) -> None:
    await rig.press("s")
    assert _dashboard(rig).view.sort == "pid"
    await rig.press("greater_than_sign")
    assert _dashboard(rig).view.sort == "cpu"
    await rig.press("less_than_sign", "less_than_sign")
    assert _dashboard(rig).view.sort == "activity"


async def _pages(rig: Rig) -> None:
    for page in all_pages():
        await rig.press(page.key)
        await rig.until(lambda: isinstance(rig.app.screen, PageScreen))
        assert _page(rig).page is page
        for table in (*page.tables[1:], page.tables[0]):
            await rig.press("tab")
            assert _page(rig).table is table
        await rig.press("shift+tab")
        assert _page(rig).table is page.tables[-1]
        await rig.press("tab", "1")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))


def _page(rig: Rig) -> PageScreen:
    screen = rig.app.screen
    assert isinstance(screen, PageScreen)
    return screen


async def _reverse(rig: Rig) -> None:
    await rig.press("2", "s")
    await rig.until(lambda: rig.app.screen is rig.app._pages)
    await rig.until(lambda: _page(rig).view.sort == "pid")
    assert not _page(rig).view.descending
    await rig.press("R")
    found = [row.backend.pid for row in _page(rig)._found]
    assert found == sorted(found, reverse=True)


def _backends(rig: Rig) -> ScriptedBackends:
    control = rig.controls.backends
    assert isinstance(control, ScriptedBackends)
    return control


async def _signal(rig: Rig) -> None:
    for key, act in (("c", BackendAct.CANCEL), ("K", BackendAct.TERMINATE)):
        await rig.press("home", key)
        selected = _dashboard(rig).view.selected
        assert selected is not None
        await rig.sees(f"pg_{act}_backend({selected[0]})")
        await rig.press("y")
        await rig.until(lambda: len(_backends(rig).signalled) == 1)
        assert _backends(rig).signalled.pop() == (act, selected)
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard) and rig.source.noted)
        assert rig.source.noted.pop().text.endswith(f"ed {selected[0]}")


async def _explain(rig: Rig) -> None:
    await rig.press("home", "e")
    await rig.sees("Seq Scan on [t]")
    row = _dashboard(rig)._rows[0]
    assert _backends(rig).explained == [(row.key, row.backend.query)]
    await rig.press("y")
    assert rig.app.clipboard.startswith("Seq Scan on [t]\n")


async def _tag(rig: Rig) -> None:
    await rig.press("2", "down", "x", "insert", "up", "x")
    await rig.until(lambda: len(_page(rig).view.tagged) == 1)
    await rig.sees("1 tagged")
    await rig.press("escape")
    assert not _page(rig).view.tagged


async def _sideways(rig: Rig) -> None:
    await rig.press("2", "right", "right")
    await rig.until(lambda: _page(rig).view.left == 2)
    await rig.press("left")
    assert _page(rig).view.left == 1


async def _columns(rig: Rig) -> None:
    await rig.press("2", "o")
    await rig.until(lambda: isinstance(rig.app.screen, ColumnsDialog))
    await rig.press("down", "space", "enter")
    await rig.until(lambda: "CPU%" not in rig.text())
    assert "cpu" not in _page(rig).view.columns


async def _idle(rig: Rig) -> None:
    before = len(_dashboard(rig)._rows)
    await rig.press("i")
    assert len(_dashboard(rig)._rows) < before
    await rig.press("i")
    assert len(_dashboard(rig)._rows) == before


async def _details(rig: Rig) -> None:
    await rig.press("down", "enter")
    await rig.until(lambda: isinstance(rig.app.screen, DetailsDialog))
    await rig.sees("as pg_stat_activity has it")


async def _copy(rig: Rig) -> None:
    await rig.press("y")
    await rig.until(lambda: rig.app._notifications)
    assert rig.app.clipboard == ""
    await rig.press("down", "y")
    assert rig.app.clipboard == _dashboard(rig)._rows[0].backend.query


async def _moves(rig: Rig) -> None:
    dashboard = _dashboard(rig)
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


async def _pause(rig: Rig) -> None:
    await rig.press("space")
    shown = rig.app._shown
    rig.source.feed(frame(5), frame(6), frame(7))
    await rig.sees("−3s")
    assert shown is not None
    assert shown.now is not None
    assert shown.now.sequence == 4
    await rig.press("space")
    await rig.until(lambda: "−3s" not in rig.text())
    assert rig.app._live.now is not None
    assert rig.app._live.now.sequence == 7


async def _interval(rig: Rig) -> None:
    await rig.press("plus", "plus", "minus")
    assert rig.source.interval_s == 2.0
    await rig.press(*["plus"] * 9)
    assert rig.source.interval_s == 60.0


async def _theme(rig: Rig) -> None:
    themes = [rig.app.theme]
    for _ in range(len(rig.app._themes) - 1):
        await rig.press("t")
        themes.append(rig.app.theme)
    assert sorted(themes) == sorted(rig.app._themes)
    await rig.press("t")
    assert rig.app.theme == themes[0]


async def _palette(rig: Rig) -> None:
    await rig.press("ctrl+p")
    await rig.until(lambda: isinstance(rig.app.screen, CommandPalette))
    await rig.type("hide or show")
    await rig.sees("idle sessions")
    await rig.press("enter")
    await rig.until(lambda: _dashboard(rig).view.hide_idle)


async def _redraw(rig: Rig) -> None:
    """What it does is seen on a real terminal; here: it is nobody else's key, in dialogs and while typing either."""
    await rig.press("ctrl+l", "slash", "c", "ctrl+l", "h")
    assert _dashboard(rig).view.filter == "ch"
    await rig.press("enter", "question_mark")
    await rig.until(lambda: isinstance(rig.app.screen, HelpDialog))
    await rig.press("ctrl+l")
    assert isinstance(rig.app.screen, HelpDialog)


async def _help(rig: Rig) -> None:
    await rig.press("question_mark")
    await rig.until(lambda: isinstance(rig.app.screen, HelpDialog))
    for action in rig.app._dashboard.offered():
        assert action.description[:40] in "\n".join(
            "".join(text for text, _ in line)
            for line in rig.app.screen.content(96)  # type: ignore[attr-defined]
        )
    await rig.press("f1")
    await rig.until(lambda: isinstance(rig.app.screen, Dashboard))


async def _check(rig: Rig) -> None:
    await rig.press("C")
    await rig.sees("found: nothing")
    await rig.press("escape")
    await rig.until(lambda: isinstance(rig.app.screen, Dashboard))


async def _quit(rig: Rig) -> None:
    await rig.press("q")
    await rig.until(lambda: rig.app._exit)
    assert rig.app.return_value == 0


Check = Callable[[Rig], Awaitable[None]]


async def _ghost(rig: Rig) -> None:
    await rig.press("g")
    await rig.sees("there are no recordings yet")
    await rig.press("escape")


async def _marks(rig: Rig) -> None:
    await rig.press("[")
    await rig.sees("] ends it")
    rig.source.feed(frame(6))
    await rig.until(lambda: rig.app._live.now is not None and rig.app._live.now.sequence == 6)
    await rig.press("]")
    await rig.sees("what differs from the time before")
    await rig.press("D")
    await rig.sees("fewer than 2 frames of")
    await rig.press("escape")


CHECKS: dict[str, Check] = {
    "load": _load, "parameters": _parameters, "undo": _undo, "undo-all": _redo,
    "redo": _redo, "keep": _keep, "check": _check, "password": _password, "record": _record, "note": _note,
    "ghost": _ghost, "live": _steps, "step-back": _steps, "step-forward": _steps, "jump": _jump,
    "next-event": _seeks, "previous-event": _seeks, "next-checkpoint": _seeks, "previous-checkpoint": _seeks,
    "worst-p99": _seeks, "slower": _speed, "faster": _speed,
    "mark-begin": _marks, "mark-end": _marks, "brush": _marks,
    "details": _details, "filter": _filter, "cancel": _signal, "terminate": _signal, "explain": _explain,
    "sort": _sort, "sort-right": _sort, "sort-left": _sort, "reverse": _reverse, "idle": _idle,
    "columns": _columns, "copy": _copy, "tag": _tag, "up": _moves, "down": _moves, "page-up": _moves,
    "page-down": _moves, "first": _moves, "last": _moves, "left": _sideways, "right": _sideways,
    "unselect": _moves, "dashboard": _pages, **{page.id: _pages for page in all_pages()}, "next-table": _pages,
    "previous-table": _pages, "pause": _pause, "longer": _interval, "shorter": _interval, "theme": _theme,
    "palette": _palette, "redraw": _redraw, "help": _help, "quit": _quit,
}  # fmt: skip


def test_every_action_has_a_check() -> None:
    assert list(CHECKS) == [action.id for action in ACTIONS]


@pytest.mark.parametrize("check", dict.fromkeys(CHECKS.values()), ids=lambda check: check.__name__.strip("_"))
async def test_a_key_does_what_the_table_says(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    replayed = check in (_steps, _jump, _seeks, _speed)
    source = ScriptedSource([Step(tuple(frames(5, load=False)), restart=True)])
    async with running_screen(
        source,
        load=None if replayed else ScriptedLoad(),
        parameters=None if replayed else ScriptedParameters(),
        knobs=KNOBS,
        recording=None if replayed else ScriptedRecording(),
        transport=ScriptedTransport() if replayed else None,
        interval=None if replayed else source,
        backends=None if replayed else ScriptedBackends(),
        checks=None if replayed else ScriptedCheck(),
        on_password=lambda password: None,
        frames=lambda since_s: iter(frames(5)),
        ghosts=Shelf(tmp_path, lambda: None),
    ) as rig:
        await check(rig)


async def test_a_replay_pauses_itself_and_has_no_keys_that_change_a_server() -> None:
    transport = ScriptedTransport()
    async with running_screen(transport=transport) as rig:
        await rig.sees("replay")
        await rig.press("space")
        assert transport.paused
        await rig.sees("paused")
        await rig.press("down", "b", "p", "u", "r", "m", "plus", "c", "K", "e")
        await rig.pilot.pause()
        assert isinstance(rig.app.screen, Dashboard)
        assert rig.app._past is None


async def test_a_copied_query_reaches_the_terminal_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_screen() as rig:
        written: list[str] = []
        assert rig.app._driver is not None
        monkeypatch.setattr(rig.app._driver, "write", written.append)
        await rig.press("down", "y")
        query = rig.app._dashboard._rows[0].backend.query or ""
        assert any(base64.b64encode(query.encode()).decode() in text for text in written)


async def test_a_remapped_key_works_and_the_old_one_does_not() -> None:
    async with running_screen(options=ScreenOptions(keymap={"idle": "h", "theme": "ctrl+t,f5"})) as rig:
        await rig.press("i")
        assert not rig.app._dashboard.view.hide_idle
        await rig.press("h")
        assert rig.app._dashboard.view.hide_idle
        before = rig.app.theme
        await rig.press("f5")
        assert rig.app.theme != before


@pytest.mark.parametrize(
    ("keymap", "words"),
    [
        ({"no-such": "x"}, 'no action "no-such"'),
        ({"idle": "q"}, 'q is bound to "idle" and to "quit"'),
        ({"idle": "question_mark"}, '"idle" and to "help"'),
        ({"idle": "x,"}, "empty key"),
    ],
)
def test_a_keymap_that_cannot_be_used_is_refused_with_a_reason(keymap: dict[str, str], words: str) -> None:
    with pytest.raises(UsageProblem, match=words):
        check_keymap(keymap)


def test_defaults_do_not_clash_and_a_swap_is_allowed() -> None:
    check_keymap({})
    check_keymap({"idle": "s", "sort": "i"})


def test_actions_exist_only_where_their_need_is_met() -> None:
    live = {action.id for action in available([Need.LIVE, Need.INTERVAL, Need.LOAD])}
    assert {"load", "longer", "note", "quit"} <= live
    assert not live & {"jump", "step-back", "parameters", "record"}


def test_the_footer_shows_the_operators_own_keys() -> None:
    actions = available(list(Need))
    assert ("F9", "help") not in footer_keys(actions, {})
    assert ("f9", "help") in footer_keys(actions, {"help": "f9"})
    help_action = next(action for action in actions if action.id == "help")
    assert keys_of(help_action, {"help": "f9, ?"}) == ("f9", "?")


def test_every_action_of_the_table_is_implemented() -> None:
    for action in ACTIONS:
        owners = (PgtopApp,) if action.action.startswith("app.") else (Dashboard, PageScreen)
        name = action.action.removeprefix("app.").partition("(")[0]
        assert any(callable(getattr(owner, f"action_{name}", None)) for owner in owners), action.id
