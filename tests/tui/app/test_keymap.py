"""Keys as a whole: the operator's own ones, what exists where, what a replay does not have."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, cast

import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.runtime.engine import Engine
from pgtop_tune.tui.actions import _MEANT, ACTIONS, Need, available, check_keymap, footer_keys, keys_of, with_keys
from pgtop_tune.tui.app import PgtopApp
from pgtop_tune.tui.controls import Controls, ScreenOptions
from pgtop_tune.tui.dashboard.screen import Dashboard
from pgtop_tune.tui.pages.screen import PageScreen
from pgtop_tune.tui.pages.wait_groups import WaitGroupsDialog
from tests.support.screens import ScriptedSource, ScriptedTransport, running_screen

if TYPE_CHECKING:
    from pgtop_tune.tui.dialogs.help import HelpDialog


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
        assert rig.app.time_travel.past is None


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


async def test_a_key_without_effect_tells_the_one_to_press() -> None:
    for words in _MEANT.values():
        assert "{" not in with_keys(words, {})
    async with running_screen(options=ScreenOptions(keymap={"terminate": "X"})) as rig:
        await rig.press("f8")
        await rig.sees("F8 does nothing here: c cancels, X ends a session")
        await rig.press("tab")
        await rig.sees("1 and 2 to 9 are the pages")
        await rig.press("B")
        await rig.sees("B does nothing here: ? lists the keys")
        await rig.press("2", "R")
        await rig.sees("R reverses an order of yours: s, < and > sort")
        await rig.press("question_mark", "ctrl+d", "B")
        assert cast("HelpDialog", rig.app.screen).top > 0
        await rig.sees("B does nothing here")


async def test_a_colon_searches_the_actions() -> None:
    async with running_screen() as rig:
        await rig.press("colon")
        await rig.type("sessions")
        await rig.sees("the sessions page")
        await rig.press("enter")
        await rig.until(lambda: isinstance(rig.app.screen, PageScreen))


async def test_every_text_names_the_key_that_is_bound() -> None:
    own = {
        "deed": "k",
        "up": "up",
        "tag": "ctrl+t",
        "mark-begin": "1",
        "dashboard": "f11",
        "mark-end": "f9",
        "idle": "h",
    }
    options = ScreenOptions(keymap=own)
    async with running_screen(options=options, frames=lambda since_s: iter(()), size=(160, 40)) as rig:
        await rig.press("2", "k")
        await rig.sees("k does the action at the end of the first line; Ctrl+T tags rows")
        await rig.press("escape", "D")
        await rig.sees("no window is marked: 1 starts one and F9 ends it")
        await rig.press("ctrl+p")
        await rig.type("idlerows")
        await rig.sees("hide or show idle rows  (h)")


@pytest.mark.parametrize(
    ("keymap", "words"),
    [
        ({"no-such": "x"}, 'no action "no-such"'),
        ({"idle": "q"}, 'q is bound to "idle" and to "quit"'),
        ({"idle": "question_mark"}, '"idle" and to "help"'),
        ({"ghost": "n"}, '"ghost" and to "next-event"'),
        ({"idle": "x,"}, "empty key"),
    ],
)
def test_a_keymap_that_cannot_be_used_is_refused_with_a_reason(keymap: dict[str, str], words: str) -> None:
    with pytest.raises(UsageProblem, match=words):
        check_keymap(keymap)


def test_defaults_do_not_clash_and_a_swap_is_allowed() -> None:
    check_keymap({})
    check_keymap({"idle": "s", "sort": "i"})
    check_keymap({"heatmap": "n", "next-event": "H"})


def test_a_further_key_of_the_table_yields_to_the_operators() -> None:
    keymap = {"note": "f3, h", "idle": "plus"}
    with pytest.raises(UsageProblem, match='"longer"'):
        check_keymap(keymap)
    del keymap["idle"]
    check_keymap(keymap)
    keys = {action.id: keys_of(action, keymap) for action in ACTIONS}
    assert (keys["note"], keys["filter"], keys["help"]) == (("f3", "h"), ("/",), ("?", "f1"))


async def test_a_key_of_two_actions_stays_with_the_one_that_is_not_remapped() -> None:
    frames = {"frames": lambda since_s: iter(())}
    async with running_screen(options=ScreenOptions(keymap={"wait-groups": "f6", "idle": "h"}), **frames) as rig:
        await rig.press("G")
        assert isinstance(rig.app.screen, Dashboard)
        await rig.press("f6")
        await rig.until(lambda: isinstance(rig.app.screen, WaitGroupsDialog))
        await rig.press("q", "2", "G")
        page = rig.app._pages
        await rig.until(lambda: page.selected is not None and page.selected == page._found[-1].key)


def test_actions_exist_only_where_their_need_is_met() -> None:
    live = {action.id for action in available([Need.LIVE, Need.INTERVAL, Need.LOAD])}
    assert {"load", "longer", "note", "quit"} <= live
    assert not live & {"jump", "step-back", "parameters", "record"}


def test_the_footer_shows_the_operators_own_keys() -> None:
    actions = available(list(Need))
    assert ("?", "help") in footer_keys(actions, {}).last
    assert ("F9", "help") in footer_keys(actions, {"help": "f9"}).last
    help_action = next(action for action in actions if action.id == "help")
    assert keys_of(help_action, {"help": "f9, ?"}) == ("f9", "?")


def test_every_action_of_the_table_is_implemented() -> None:
    app = PgtopApp(Controls(Engine(ScriptedSource())), ScreenOptions())
    for action in ACTIONS:
        owners = (app,) if action.action.startswith("app.") else (Dashboard, PageScreen)
        name = action.action.removeprefix("app.").partition("(")[0]
        assert any(callable(getattr(owner, f"action_{name}", None)) for owner in owners), action.id
