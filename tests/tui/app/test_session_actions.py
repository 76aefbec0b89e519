"""Cancel, terminate and EXPLAIN from the screen: whom they mean, what is asked before, what is said after."""

from __future__ import annotations

import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.model.backend_action import BackendAct, BackendOutcome, PlanRisk
from pgtop_tune.model.postgres import Activity
from pgtop_tune.tui.controls import ScreenOptions
from pgtop_tune.tui.dialogs.dialog import ConfirmDialog, DetailsDialog
from pgtop_tune.tui.pages.screen import PageScreen
from pgtop_tune.tui.scene.scene import SceneScreen
from tests.support.frames import backend, frame, postgres_sample
from tests.support.screens import Rig, ScriptedBackends, ScriptedTransport, running_screen


def page_of(rig: Rig) -> PageScreen:
    return rig.app._pages


async def opened(rig: Rig) -> None:
    await rig.press("2")
    await rig.until(lambda: rig.app.screen is page_of(rig) and page_of(rig)._found)


async def asked(rig: Rig) -> None:
    await rig.until(lambda: isinstance(rig.app.screen, ConfirmDialog))


async def told(rig: Rig, words: str) -> None:
    await rig.until(lambda: any(words in notice.message for notice in rig.app._notifications))


async def test_tagged_rows_are_meant_also_when_another_is_selected() -> None:
    control = ScriptedBackends()
    async with running_screen(backends=control) as rig:
        await opened(rig)
        await rig.press("home", "insert", "insert", "end", "K")
        await asked(rig)
        await rig.sees("terminate 2 sessions")
        await rig.press("y")
        wanted = [row.key for row in page_of(rig)._found[:2]]
        await rig.until(lambda: control.signalled == [(BackendAct.TERMINATE, key) for key in wanted])
        await told(rig, "2 terminated")
        await rig.until(lambda: [event.text for event in rig.source.noted] == ["terminated ×2"])


async def test_all_that_the_filter_shows_are_asked_about_twice_and_only_clients_are_meant() -> None:
    control = ScriptedBackends()
    async with running_screen(backends=control, size=(120, 60)) as rig:
        await opened(rig)
        await rig.press("slash")
        await rig.type("wal")
        await rig.press("enter", "home", "c")
        await asked(rig)
        await rig.sees("filtered client sessions")
        clients = [row.key for row in page_of(rig)._found if row.backend.backend_type == "client backend"]
        assert 1 < len(clients) < len(page_of(rig)._found)
        await rig.press("a")
        await rig.sees(f"cancel the statement of {len(clients)} sessions")
        assert control.signalled == []
        await rig.press("y")
        await rig.until(lambda: control.signalled == [(BackendAct.CANCEL, key) for key in clients])


async def test_escape_does_nothing_and_enter_is_no_answer() -> None:
    control = ScriptedBackends()
    async with running_screen(backends=control) as rig:
        await rig.press("down", "K")
        await asked(rig)
        await rig.press("enter", "escape")
        await rig.until(lambda: isinstance(rig.app.screen, SceneScreen))
        await told(rig, "no session was signalled")
        assert control.signalled == []


async def test_nothing_selected_is_said() -> None:
    async with running_screen(backends=ScriptedBackends()) as rig:
        await rig.press("c")
        await told(rig, "select a session")


async def test_what_came_of_each_is_said_with_the_grant() -> None:
    async with running_screen() as rig:
        first, second = (row.backend.pid for row in rig.app._dashboard._rows[:2])
    control = ScriptedBackends(outcomes={first: BackendOutcome.NOT_PERMITTED, second: BackendOutcome.GONE})
    async with running_screen(backends=control) as rig:
        await opened(rig)
        await rig.press("home", "insert", "insert", "insert", "c")
        await asked(rig)
        await rig.press("y")
        await told(rig, "1 not permitted, 1 gone already, 1 cancelled\nGRANT pg_signal_backend")


async def test_the_question_shows_hostile_queries_as_text() -> None:
    hostile = backend(7, frame(4).taken_at_ms, query="SELECT '[bold]\x1b]52;c;AAAA\x07'")
    control = ScriptedBackends()
    async with running_screen(backends=control) as rig:
        activity = Activity(5.0, frame(5).taken_at_ms, (hostile,))
        rig.source.feed(frame(5, postgres=postgres_sample(5, activity=activity)))
        await rig.until(lambda: len(rig.app._dashboard._rows) == 1)
        await rig.press("down", "K")
        await asked(rig)
        await rig.sees("[bold]␛]52;c;AAAA")


HOSTILE = "SELECT 1\r\n\t\x1b[201~; rm -rf ~\x03\x9b \u202egnp\u2066\ud800\u2028--"


@pytest.mark.parametrize("keys", [("down", "y"), ("down", "enter", "y"), ("2", "down", "y")])
async def test_a_copied_query_pastes_as_text_and_what_was_left_out_is_said(keys: tuple[str, ...]) -> None:
    async with running_screen(backends=ScriptedBackends(), size=(160, 40)) as rig:
        taken_at_ms = frame(5).taken_at_ms
        activity = Activity(5.0, taken_at_ms, (backend(7, taken_at_ms, query=HOSTILE),))
        rig.source.feed(frame(5, postgres=postgres_sample(5, activity=activity)))
        await rig.until(lambda: len(rig.app._dashboard._rows) == 1)
        await rig.press(*keys)
        await told(rig, "without 8 control characters")
        assert "SELECT 1\n\t[201~; rm -rf ~ gnp--" in rig.app.clipboard


@pytest.mark.parametrize("key", ["c", "e"])
async def test_a_refusal_is_said(key: str) -> None:
    control = ScriptedBackends(refuses=UsageProblem("the text contains more than one statement"))
    async with running_screen(backends=control) as rig:
        await rig.press("down", key)
        if key == "c":
            await asked(rig)
            await rig.press("y")
        await told(rig, "more than one statement")


@pytest.mark.parametrize("page", ["1", "2"])
async def test_the_details_of_a_session_have_the_same_keys(page: str) -> None:
    control = ScriptedBackends()
    async with running_screen(backends=control, options=ScreenOptions(keymap={"terminate": "X"})) as rig:
        await rig.press(page, "home", "enter")
        await rig.sees("e plan  c cancel  X end")
        await rig.press("X")
        await asked(rig)
        await rig.press("y")
        await rig.until(lambda: len(control.signalled) == 1)
        await rig.press("enter", "e")
        await rig.sees("Seq Scan on [t]")
        assert control.explained[0][0] == control.signalled[0][1]


RISK = PlanRisk(
    query="SELECT trap() -- \x1b[2J",
    database="shop",
    role="postgres",
    powers=("a superuser",),
    session_role="mallory",
    not_as_session='FATAL: password authentication failed for user "mallory"',
)


async def test_a_powerful_role_plans_only_after_the_danger_was_named() -> None:
    control = ScriptedBackends(risk=RISK)
    async with running_screen(backends=control, size=(120, 40)) as rig:
        await rig.press("down", "e")
        await asked(rig)
        await rig.sees("executes functions of this query as role postgres (a superuser), in database shop")
        await rig.sees("password authentication failed")
        await rig.sees("SELECT trap() -- ␛[2J")
        await rig.press("enter", "escape")
        await told(rig, "not planned")
        assert control.explained == []
        await rig.press("e")
        await asked(rig)
        await rig.press("y")
        await rig.sees("Seq Scan on [t]")
        assert len(control.explained) == 1


async def test_a_plan_says_who_made_it_and_that_functions_may_have_run() -> None:
    async with running_screen(backends=ScriptedBackends(), size=(160, 40)) as rig:
        await rig.press("down", "e")
        await rig.sees("Planned by role app in database bench, not executed; its functions marked")
        await rig.sees("may have run during")


async def test_a_replay_has_details_without_these_keys() -> None:
    async with running_screen(transport=ScriptedTransport()) as rig:
        await rig.press("home", "enter")
        await rig.sees("as in pg_stat_activity")
        assert "terminate" not in rig.text()
        await rig.press("K")
        await rig.pilot.pause()
        assert isinstance(rig.app.screen, DetailsDialog)
