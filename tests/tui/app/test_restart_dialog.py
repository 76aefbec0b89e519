"""A restart from the parameter dialog: its checks first, then everything that waits, then what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.changes.model.change import Terms, WantedParameter
from pgtop_tune.changes.model.change_set import (
    PendingParameter,
    RestartCheck,
    RestartOutcome,
    RestartPlan,
    RestartState,
    RestartVerdict,
)
from pgtop_tune.changes.ports import no_progress
from pgtop_tune.tui.parameters.dialog import ParameterDialog
from tests.support.screens import ScriptedParameters, running_screen
from tests.tui.app.dialog_steps import at, opened
from tests.tui.app.test_machine_rows import KNOBS as MACHINE_KNOBS
from tests.tui.app.test_machine_rows import ScriptedMachine, stage


async def test_what_waits_for_a_restart_is_not_applied_with_the_rest() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await opened(rig)
        await at(rig, "shared_buffers")
        await rig.press("plus")
        await rig.sees("waits for a restart (A): shared_buffers")
        await rig.press("a")
        await rig.sees("A checks one")
        assert control.journal == []


class ScriptedRestart:
    """A `RestartControl` of a server that comes up, or does not."""

    def __init__(self, *, possible: bool = True, comes_up: bool = True) -> None:
        self.possible, self.comes_up = possible, comes_up
        self.asked: list[tuple[tuple[WantedParameter, ...], bool]] = []

    async def pending(self) -> tuple[PendingParameter, ...]:
        return ()

    async def plan(self, wanted: Sequence[WantedParameter] = ()) -> RestartPlan:
        verdict = RestartVerdict.FINE if self.possible else RestartVerdict.IMPOSSIBLE
        check = RestartCheck("shared memory", verdict, "needs 300 MB of 16 GB")
        return RestartPlan(("ALTER SYSTEM …",), (), (check,), "pg_ctl", "pg_ctl restart", True, sessions=3)

    async def apply(
        self,
        wanted: Sequence[WantedParameter],
        terms: Terms,
        progress: Callable[[str], None] = no_progress,
        *_: object,
        anyway: bool = False,
    ) -> RestartOutcome:
        self.asked.append((tuple(wanted), anyway))
        progress("stopping the server")
        if self.comes_up:
            return RestartOutcome(RestartState.CAME_UP, "the server is up with it")
        log = ("FATAL:  could not map anonymous shared memory",)
        return RestartOutcome(RestartState.OLD_VALUES, "it runs with the old values", log=log)

    async def keep(self, set_id: str) -> None:
        raise NotImplementedError

    async def revert_set(
        self, set_id: str, why: str = "", progress: Callable[[str], None] = no_progress, *_: object
    ) -> RestartOutcome:
        raise NotImplementedError


async def test_one_restart_takes_everything_that_is_staged_after_its_checks_were_shown() -> None:
    restart = ScriptedRestart()
    async with running_screen(parameters=ScriptedParameters(), restart=restart, knobs=KNOBS) as rig:
        await opened(rig)
        await rig.press("plus")
        await at(rig, "shared_buffers")
        await rig.press("plus", "A")
        for words in ("fine: needs 300 MB", "pg_ctl restart", "3 client sessions", "y restart"):
            await rig.sees(words)
        assert restart.asked == []
        await rig.press("y")
        await rig.sees("the server is up with it")
        assert [(each.name, each.value) for each in restart.asked[0][0]] == [
            ("max_wal_size", "2GB"), ("shared_buffers", "256MB"),
        ]  # fmt: skip


async def test_a_server_that_would_not_start_or_did_not_says_why() -> None:
    restart = ScriptedRestart(possible=False, comes_up=False)
    async with running_screen(parameters=ScriptedParameters(), restart=restart, knobs=KNOBS) as rig:
        await opened(rig)
        await at(rig, "shared_buffers")
        await rig.press("plus", "A")
        await rig.sees("impossible: needs 300 MB")
        await rig.press("y")
        await rig.sees("! try anyway")
        assert restart.asked == []
        await rig.press("exclamation_mark")
        await rig.sees("could not map anonymous shared memory")
        await rig.press("escape")
        await rig.until(lambda: isinstance(rig.app.screen, ParameterDialog))
        await rig.sees("it runs with the old values")


async def test_the_machine_s_half_is_made_before_the_restart_and_goes_back_when_the_server_does_not_come_up() -> None:
    for comes_up, live in ((True, "1"), (False, "60")):
        machine, restart = ScriptedMachine(), ScriptedRestart(possible=False, comes_up=comes_up)
        async with running_screen(
            parameters=ScriptedParameters(), machine=machine, restart=restart, knobs=MACHINE_KNOBS
        ) as rig:
            await opened(rig)
            await stage(rig, "vm.swappiness", "1")
            await at(rig, "shared_buffers")
            await rig.press("plus", "A")
            await rig.sees("sudo sysctl -w vm.swappiness=1")
            # A check that fails now may pass once the machine's half is made: it is asked again then.
            await rig.press("y")
            await rig.sees("the server is up with it" if comes_up else "it runs with the old values")
            assert (machine.live["vm.swappiness"], restart.asked[0][1]) == (live, False)
