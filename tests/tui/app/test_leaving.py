"""The way out: asked only when something would be lost, and nothing is left behind unseen."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.changes.model.change import ParameterChange, Terms, WantedParameter
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.controls import ScreenOptions
from pgtop_tune.tui.dashboard.screen import Dashboard
from tests.support.frames import frame
from tests.support.screens import (
    Rig,
    ScriptedLoad,
    ScriptedParameters,
    ScriptedSource,
    ScriptedTransport,
    frames,
    running_screen,
)


def _idle() -> ScriptedSource:
    return ScriptedSource([Step(tuple(frames(5, load=False)), restart=True)])


async def _change(rig: Rig) -> None:
    assert rig.app.parameters.changes is not None
    await rig.app.parameters.changes.apply((WantedParameter("max_wal_size", "16GB"),), Terms())


async def test_nothing_to_lose_nothing_asked() -> None:
    async with running_screen(_idle(), load=ScriptedLoad(), parameters=ScriptedParameters(), knobs=KNOBS) as rig:
        await rig.press("ctrl+c")
        await rig.until(lambda: rig.app._exit)


async def test_a_running_load_is_asked_about_and_stopped() -> None:
    load = ScriptedLoad()
    async with running_screen(load=load) as rig:
        await rig.press("q")
        await rig.sees("A load is running (tpcb-like, 16 clients)")
        await rig.press("escape")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
        assert load.stops == 0
        await rig.press("q")
        await rig.sees("stop the load and leave")
        await rig.press("y")
        await rig.until(lambda: rig.app._exit)
        assert load.stops == 1


async def test_ctrl_c_twice_leaves_and_changes_stay() -> None:
    control = ScriptedParameters()
    async with running_screen(_idle(), parameters=control, knobs=KNOBS) as rig:
        await _change(rig)
        await rig.press("ctrl+c")
        await rig.sees("max_wal_size 1GB→16GB")
        await rig.press("ctrl+c")
        await rig.until(lambda: rig.app._exit)
        assert len(control.journal) == 1


async def test_what_is_on_trial_is_kept_or_taken_back_on_the_way_out() -> None:
    for key, kept in (("l", False), ("k", True)):
        control = ScriptedParameters()
        async with running_screen(_idle(), parameters=control, knobs=KNOBS) as rig:
            assert rig.app.parameters.changes is not None
            await rig.app.parameters.changes.apply(
                (WantedParameter("max_wal_size", "16GB"),), Terms(keep_within_s=60.0)
            )
            await rig.press("q")
            await rig.sees("Pending confirmation; leaving reverts it:")
            await rig.sees("confirm the pending changes, leave")
            assert "the changes stay" not in rig.text()
            await rig.press(key)
            await rig.until(lambda: rig.app._exit)
            assert [change.kept for change in control.journal] == [kept]


async def test_changes_are_undone_before_leaving_when_asked_for() -> None:
    control = ScriptedParameters()
    async with running_screen(_idle(), parameters=control, knobs=KNOBS) as rig:
        await _change(rig)
        await _change(rig)
        await rig.press("q")
        await rig.sees("undo the changes, leave")
        await rig.press("u")
        await rig.until(lambda: rig.app._exit)
        assert control.journal == []


async def test_a_server_that_refuses_the_undo_keeps_the_screen_open() -> None:
    class Stubborn(ScriptedParameters):
        async def undo_these(self, ids: Sequence[str]) -> tuple[ParameterChange, ...]:
            raise ServerProblem("cannot execute ALTER SYSTEM")

    async with running_screen(_idle(), parameters=Stubborn(), knobs=KNOBS) as rig:
        await _change(rig)
        await rig.press("q")
        await rig.sees("undo the changes")
        await rig.press("u")
        await rig.until(lambda: rig.app._notifications)
        assert "cannot execute ALTER SYSTEM" in next(iter(rig.app._notifications)).message
        assert not rig.app._exit
        await rig.press("q")
        await rig.sees("the changes stay")
        await rig.press("l")
        await rig.until(lambda: rig.app._exit)


async def test_a_recorded_load_is_nobody_s_to_stop() -> None:
    async with running_screen(transport=ScriptedTransport()) as rig:
        await rig.press("q")
        await rig.until(lambda: rig.app._exit)


async def test_changes_of_a_server_that_is_thrown_away_are_nothing_to_ask_about() -> None:
    async with running_screen(
        _idle(), parameters=ScriptedParameters(), knobs=KNOBS, options=ScreenOptions(throwaway=True)
    ) as rig:
        await _change(rig)
        await rig.press("q")
        await rig.until(lambda: rig.app._exit)


async def test_the_countdown_of_a_pending_change_does_not_draw_on_a_screen_that_is_taken_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[Dashboard] = []

    def tick(dashboard: Dashboard) -> None:
        rig.app.parameters.count_down()
        counted.append(dashboard)

    monkeypatch.setattr(Dashboard, "on_unmount", tick, raising=False)
    async with running_screen(_idle(), parameters=ScriptedParameters(), knobs=KNOBS) as rig:
        assert rig.app.parameters.changes is not None
        await rig.app.parameters.changes.apply((WantedParameter("work_mem", "8MB"),), Terms(keep_within_s=60.0))
    assert counted


async def test_the_countdown_of_a_pending_change_goes_on_when_no_frame_comes() -> None:
    async with running_screen(_idle(), parameters=ScriptedParameters(), knobs=KNOBS) as rig:
        assert rig.app.parameters.changes is not None
        await rig.app.parameters.changes.apply((WantedParameter("work_mem", "8MB"),), Terms(keep_within_s=60.0))
        rig.source.feed(frame(5))
        seen: set[str] = set()

        def has_gone_on() -> bool:
            seen.update(re.findall(r"auto-revert in (\d+) s", rig.text()))
            return len(seen) > 1

        await rig.until(has_gone_on)
