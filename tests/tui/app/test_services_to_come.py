"""Keys that need a service, pressed before the services are made."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.runtime.engine import Lazy
from pgtop_tune.tui.controls import ScreenOptions, Services
from pgtop_tune.tui.dashboard.screen import Dashboard
from pgtop_tune.tui.load.dialog import LoadDialog
from pgtop_tune.tui.parameters.dialog import ParameterDialog
from tests.support.screens import Rig, ScriptedBackends, ScriptedLoad, ScriptedParameters, running_screen


class Making:
    """Makes services when it may, in the engine's loop."""

    def __init__(self, problem: str = "") -> None:
        self.may = threading.Event()
        self.begun = threading.Event()
        self.load = ScriptedLoad()
        self._problem = problem

    async def __call__(self) -> Services:
        self.begun.set()
        await asyncio.to_thread(self.may.wait)
        if self._problem:
            raise UsageProblem(self._problem)
        return Services(load=self.load, parameters=ScriptedParameters(), backends=ScriptedBackends())


@asynccontextmanager
async def screen_with(making: Making, options: ScreenOptions | None = None) -> AsyncIterator[Rig]:
    try:
        async with running_screen(services=Lazy(making), knobs=KNOBS, options=options) as rig:
            yield rig
    finally:
        making.may.set()


async def test_the_dialog_opens_when_its_service_is_there_and_of_several_keys_the_last_counts() -> None:
    making = Making()
    async with screen_with(making) as rig:
        assert not making.begun.is_set(), "nobody has asked yet"
        await rig.press("b", "p")
        await rig.until(making.begun.is_set)
        await rig.press("down")
        assert isinstance(rig.app.screen, Dashboard)
        making.may.set()
        await rig.until(lambda: isinstance(rig.app.screen, ParameterDialog))
        await rig.sees("max_wal_size")
        assert not any(isinstance(screen, LoadDialog) for screen in rig.app.screen_stack)


async def test_undo_and_a_question_about_a_session_wait_too() -> None:
    making = Making()
    async with screen_with(making) as rig:
        await rig.press("down")
        pid = rig.app._dashboard.view.selected[0]
        await rig.press("K", "down")
        await rig.until(making.begun.is_set)
        assert rig.app._dashboard.view.selected[0] != pid
        making.may.set()
        await rig.sees(f"pg_terminate_backend({pid})")
        await rig.press("escape")
        await rig.press("u")
        await rig.until(lambda: any("no change is in force" in each.message for each in rig.app._notifications))


async def test_a_load_that_was_asked_for_with_the_screen_starts_once_there_is_a_picture() -> None:
    making, spec = Making(), LoadSpec(clients=3)
    async with screen_with(making, ScreenOptions(start_load=spec)) as rig:
        await rig.until(making.begun.is_set)
        making.may.set()
        await rig.until(lambda: making.load.started == [spec])


async def test_services_that_cannot_be_made_are_told_of_and_the_screen_goes_on() -> None:
    making = Making("the drivers are broken")
    async with screen_with(making) as rig:
        making.may.set()
        await rig.press("p")
        await rig.until(lambda: any("drivers are broken" in each.message for each in rig.app._notifications))
        await rig.press("q")
        await rig.until(lambda: rig.app._exit)
