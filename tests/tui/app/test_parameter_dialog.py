"""The parameter dialog: staged, shown as SQL, applied, read back, undone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pgtop_tune.errors import ConnectionProblem
from pgtop_tune.model.change import Terms, Wanted
from pgtop_tune.model.postgres import Activity, Parameter, PostgresSample
from pgtop_tune.model.restart import (
    PendingParameter,
    RestartCheck,
    RestartOutcome,
    RestartPlan,
    RestartState,
    Verdict,
)
from pgtop_tune.session.ports import Step
from pgtop_tune.session.restart_control import silent
from pgtop_tune.tui.controls import ScreenOptions
from pgtop_tune.tui.panel.one_set import Conditions
from pgtop_tune.tui.screens.conditions import ConditionsDialog
from pgtop_tune.tui.screens.dashboard import Dashboard
from pgtop_tune.tui.screens.load import LoadDialog
from pgtop_tune.tui.screens.parameters import ParameterDialog
from pgtop_tune.tuning.knobs.catalogue import KNOBS
from tests.support.frames import frame
from tests.support.screens import Rig, ScriptedLoad, ScriptedParameters, ScriptedSource, frames, running_screen


async def _opened(rig: Rig) -> None:
    await rig.press("p")
    await rig.sees("synchronous_commit")


async def _at(rig: Rig, name: str) -> None:
    """Narrows the list to one parameter."""
    await rig.press("slash", "ctrl+u")
    rig.paste(name)
    await rig.sees(f"/{name}")
    await rig.press("enter")
    await rig.sees("Enter type")


async def _applied(rig: Rig, value: str) -> None:
    """Types a value for the selected parameter, applies and keeps it."""
    await rig.press("enter", "ctrl+u")
    await rig.type(value)
    await rig.press("enter")
    await rig.sees(f"= '{value}'")
    await rig.press("a")
    await rig.sees(f"is now {value}")
    await rig.press("Y")
    await rig.sees("kept: ")


async def test_a_step_shows_the_sql_and_a_applies_it_on_trial() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        await rig.press("plus", "plus")
        await rig.sees("apply: ALTER SYSTEM SET max_wal_size = '4GB'; SELECT pg_reload_conf();")
        await rig.sees("keep within 60 s or it reverts")
        assert control.journal == []
        await rig.press("a")
        await rig.sees("max_wal_size is now 4GB, read back from pg_settings")
        assert control.terms.keep_within_s == 60.0
        assert rig.source.noted == [], "the tape learns of it from the server"
        await rig.sees("Y keep  u undo  max_wal_size 1GB→4GB")
        await rig.press("Y")
        await rig.sees("kept: max_wal_size 1GB→4GB")
        assert [change.kept for change in control.journal] == [True]
        await rig.until(lambda: "Y keep" not in rig.text())


async def test_several_staged_values_are_one_set_with_one_reload() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        await rig.press("plus")
        await _at(rig, "work_mem")
        await rig.until(lambda: rig.app.screen._table.selected.name == "work_mem")  # type: ignore[attr-defined]
        await rig.press("plus")
        await rig.sees("apply: ALTER SYSTEM SET max_wal_size = '2GB'; ALTER SYSTEM SET work_mem = '8MB'; "
                       "SELECT pg_reload_conf();")  # fmt: skip
        await rig.sees("2 staged")
        await rig.press("a")
        await rig.sees("work_mem is now 8MB")
        assert {change.set_id for change in control.journal} == {"s1"}
        await rig.press("u")
        await rig.sees("undo 2 changes")
        await rig.press("y")
        await rig.sees("work_mem is 4MB again")
        assert control.journal == []
        await rig.press("ctrl+r")
        await rig.sees("max_wal_size 1GB→2GB again; work_mem 4MB→8MB again")
        assert len(control.journal) == 2


async def test_what_waits_for_a_restart_is_not_applied_with_the_rest() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        await _at(rig, "shared_buffers")
        await rig.press("plus")
        await rig.sees("waits for a restart (A): shared_buffers")
        await rig.press("a")
        await rig.sees("A looks what one would do")
        assert control.journal == []


class ScriptedRestart:
    """A `RestartControl` of a server that comes up, or does not."""

    def __init__(self, *, possible: bool = True, comes_up: bool = True) -> None:
        self.possible, self.comes_up = possible, comes_up
        self.asked: list[tuple[tuple[Wanted, ...], bool]] = []

    async def pending(self) -> tuple[PendingParameter, ...]:
        return ()

    async def plan(self, wanted: Sequence[Wanted] = ()) -> RestartPlan:
        verdict = Verdict.FINE if self.possible else Verdict.IMPOSSIBLE
        check = RestartCheck("shared memory", verdict, "needs 300 MB of 16 GB")
        return RestartPlan(("ALTER SYSTEM …",), (), (check,), "pg_ctl", "pg_ctl restart", True, sessions=3)

    async def apply(
        self, wanted: Sequence[Wanted], terms: Terms, progress: Callable[[str], None] = silent, *, anyway: bool = False
    ) -> RestartOutcome:
        self.asked.append((tuple(wanted), anyway))
        progress("stopping the server")
        if self.comes_up:
            return RestartOutcome(RestartState.CAME_UP, "the server is up with it")
        log = ("FATAL:  could not map anonymous shared memory",)
        return RestartOutcome(RestartState.OLD_VALUES, "it runs with the old values", log=log)

    async def keep(self, set_id: str) -> None:
        raise NotImplementedError

    async def revert_set(self, set_id: str, why: str = "", progress: Callable[[str], None] = silent) -> RestartOutcome:
        raise NotImplementedError


async def test_one_restart_takes_everything_that_is_staged_after_its_checks_were_shown() -> None:
    restart = ScriptedRestart()
    async with running_screen(parameters=ScriptedParameters(), restart=restart, knobs=KNOBS) as rig:
        await _opened(rig)
        await rig.press("plus")
        await _at(rig, "shared_buffers")
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
        await _opened(rig)
        await _at(rig, "shared_buffers")
        await rig.press("plus", "A")
        await rig.sees("impossible: needs 300 MB")
        await rig.press("y")
        await rig.sees("! try all the same")
        assert restart.asked == []
        await rig.press("exclamation_mark")
        await rig.sees("could not map anonymous shared memory")
        await rig.press("escape")
        await rig.until(lambda: isinstance(rig.app.screen, ParameterDialog))
        await rig.sees("it runs with the old values")


async def test_a_parameter_of_sessions_goes_to_the_next_load_where_nobody_is_connected() -> None:
    control = ScriptedParameters()
    alone = [replace(each, postgres=_without_sessions(each.postgres)) for each in frames(3, load=False)]
    source = ScriptedSource([Step(tuple(alone), restart=True)])
    async with running_screen(source, parameters=control, load=ScriptedLoad(), knobs=KNOBS) as rig:
        await _opened(rig)
        await _at(rig, "work_mem")
        await rig.press("plus")
        await rig.sees("apply: the next load begins with -c work_mem=8MB; nothing changes on the server")
        await rig.press("a")
        await rig.sees("next load: 8MB")
        assert control.journal == []
        await rig.press("escape", "escape")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
        await rig.press("b")
        await rig.until(lambda: isinstance(rig.app.screen, LoadDialog))
        assert rig.app.screen._spec.settings == (("work_mem", "8MB"),)  # type: ignore[attr-defined]


def _without_sessions(sample: PostgresSample) -> PostgresSample:
    assert isinstance(sample.activity, Activity)
    return replace(sample, activity=replace(sample.activity, backends=()))


async def test_a_change_can_be_kept_before_the_list_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(names: Sequence[str]) -> tuple[Parameter, ...]:
        await asyncio.Event().wait()
        return ()

    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        await rig.press("plus")
        await rig.sees("= '2GB'")
        monkeypatch.setattr(control, "list", never)
        await rig.press("a")
        await rig.sees("is now 2GB")
        await rig.press("Y")
        await rig.sees("kept: ")


async def test_a_role_that_is_connected_can_be_chosen() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        await _at(rig, "work_mem")
        await rig.press("plus", "o", "right", "right")
        await rig.sees("new sessions of app")
        await rig.press("enter")
        await rig.sees("apply: ALTER ROLE app SET work_mem")
        await rig.press("o")
        await rig.sees("new sessions of app")
        await rig.press("escape")


async def test_the_terms_are_chosen_in_a_form_and_end_up_in_the_change() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        await rig.press("plus", "o")
        await rig.sees("terms of a change")
        await rig.press("tab", "ctrl+u", "5", "tab", "tab", "ctrl+u")
        await rig.type("p99>5")
        await rig.press("enter")
        await rig.until(lambda: not isinstance(rig.app.screen, ConditionsDialog))
        await rig.press("o")
        await rig.until(lambda: isinstance(rig.app.screen, ConditionsDialog))
        await rig.press("tab", "tab", "tab", "ctrl+u")
        await rig.type("p98>5")
        await rig.press("enter")
        await rig.sees("there is no trip wire on 'p98'")
        await rig.press("escape")
        await rig.until(lambda: not isinstance(rig.app.screen, ConditionsDialog))
        await rig.sees("keep within 5 s or it reverts, or at once at p99>5")
        await rig.press("a")
        await rig.sees("is now 2GB")
        assert control.terms.keep_within_s == 5.0
        await rig.sees("or at p99>5")


async def test_a_crossed_trip_wire_takes_it_back_and_says_why() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        rig.app._panel.conditions = Conditions(wires="tps<1000000")
        await _opened(rig)
        await rig.press("plus")
        await rig.sees("SET max_wal_size = '2GB'")
        await rig.press("a")
        await rig.sees("Y keep")
        rig.source.feed(*(frame(second) for second in range(5, 25)))
        await rig.until(lambda: control.journal == [])
        assert control.reverted == [("s1", "tps<1000000 for 3 s")]
        await rig.until(lambda: any("taken back, tps<1000000" in each.message for each in rig.app._notifications))
        assert [event.text for event in rig.source.noted] == ["taken back: tps<1000000 for 3 s"]
        await rig.until(lambda: "Y keep" not in rig.text())
        assert rig.app.changes is not None
        assert rig.app.changes.made == ()


async def test_a_value_that_can_lose_data_is_locked_and_its_name_is_typed() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        await _off(rig)
        await rig.press("y")
        await rig.sees("--allow-unsafe to unlock it")
        assert control.journal == []
    async with running_screen(parameters=control, knobs=KNOBS, options=ScreenOptions(allow_unsafe=True)) as rig:
        await _opened(rig)
        await _off(rig)
        await rig.press("y")
        await rig.sees("unlock synchronous_commit")
        await rig.type("yes")
        await rig.press("enter")
        await rig.sees("that is not synchronous_commit")
        assert control.journal == []
        await rig.press("ctrl+u")
        rig.paste("synchronous_commit")
        await rig.sees("> synchronous_commit")
        await rig.press("enter")
        await rig.sees("is now off")
        assert control.terms.confirmed == {"synchronous_commit"}


async def _off(rig: Rig) -> None:
    await _at(rig, "synchronous_commit")
    await rig.press("enter", "ctrl+u")
    await rig.type("off")
    await rig.press("enter")
    await rig.sees("can lose acknowledged commits")
    await rig.sees("SET synchronous_commit = 'off'")
    await rig.press("a")
    await rig.sees("change synchronous_commit?")


async def test_details_say_what_is_known_and_what_others_say() -> None:
    async with running_screen(parameters=ScriptedParameters(), knobs=KNOBS) as rig:
        await _opened(rig)
        await _at(rig, "work_mem")
        await rig.press("question_mark")
        for words in ("others say", "pgtune", "moves with", "takes effect", "system: ", "load: ", "no value: "):
            await rig.sees(words)
        await rig.press("escape")
        await rig.until(lambda: isinstance(rig.app.screen, ParameterDialog))


async def test_what_somebody_else_changes_is_in_the_list_with_who_it_was() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        made = await rig.app._hands.ask(control.apply("max_wal_size", "64GB"))
        control.journal[:] = [replace(made, by="ann@db1, 77", reason="checkpoints")]
        rig.source.feed(frame(61))
        await rig.sees("was 1GB; changed by ann@db1, 77: checkpoints")
        await rig.until(lambda: " 64GB " in rig.text())


async def test_nothing_is_applied_before_its_sql_was_shown() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        await rig.press("a")
        await rig.sees("nothing is staged")
        dialog = rig.app.screen
        dialog._table.step(1)  # type: ignore[attr-defined]
        dialog._apply_asked()  # type: ignore[attr-defined]
        await rig.pilot.pause()
        assert control.journal == []


async def test_a_value_is_typed_and_escape_forgets_it() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        await rig.press("enter", "ctrl+u")
        await rig.type("3GB")
        await rig.press("escape")
        assert "3GB" not in rig.text()
        await rig.press("enter", "ctrl+u")
        await rig.type("3GB")
        await rig.press("enter")
        await rig.sees("SET max_wal_size = '3GB'")
        await rig.press("x")
        await rig.sees("ALTER SYSTEM RESET max_wal_size")


async def test_the_servers_own_words_when_it_refuses() -> None:
    control = ScriptedParameters(refuses='invalid value for parameter "max_wal_size": "[7XB"')
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        await rig.press("plus")
        await rig.sees("apply:")
        await rig.press("a")
        await rig.sees('invalid value for parameter "max_wal_size": "[7XB"')
        assert rig.source.noted == []


async def test_u_undoes_the_last_and_capital_u_everything_after_a_question() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await _opened(rig)
        for value in ("2GB", "3GB", "4GB"):
            await _applied(rig, value)
        await rig.press("u")
        await rig.sees("undo the last change")
        await rig.press("escape")
        await rig.sees("nothing was undone")
        await rig.press("u")
        await rig.sees("undo the last change")
        await rig.press("y")
        await rig.sees("max_wal_size is 3GB again")
        await rig.press("U")
        await rig.sees("undo 2 changes")
        await rig.press("y")
        await rig.sees("max_wal_size is 1GB again")
        assert rig.app.changes is not None
        assert rig.app.changes.made == ()
        await rig.press("u")
        await rig.sees("there is nothing to undo")


async def test_the_figures_go_on_while_the_dialog_is_open() -> None:
    async with running_screen(parameters=ScriptedParameters(), knobs=KNOBS) as rig:
        await _opened(rig)
        before = rig.text().rsplit("now  tps", 1)[1]
        rig.source.feed(*(frame(second) for second in range(5, 40)))
        await rig.until(lambda: rig.text().rsplit("now  tps", 1)[1] != before)


async def test_a_server_that_does_not_answer_is_told_in_the_dialog() -> None:
    class Away(ScriptedParameters):
        async def list(self, names: tuple[str, ...]) -> tuple[Parameter, ...]:
            raise ConnectionProblem("connection refused", "is it running?")

    async with running_screen(parameters=Away(), knobs=KNOBS) as rig:
        await rig.press("p")
        await rig.sees("connection refused")
        await rig.press("plus", "a", "enter", "escape")
        await rig.until(lambda: len(rig.app.screen_stack) == 2)


async def test_every_parameter_is_reached_on_the_smallest_screen() -> None:
    control = ScriptedParameters()
    for knob in KNOBS:
        control.rows.setdefault(knob.name, replace(control.rows["work_mem"], name=knob.name))
    async with running_screen(size=(80, 24), parameters=control, knobs=KNOBS) as rig:
        await rig.press("p")
        await rig.sees(f"▸ {KNOBS[0].name}")
        seen = set()
        while len(seen) < len(KNOBS):
            seen |= {word for word in rig.text().split() if word in control.rows}
            before = rig.text()
            await rig.press("pagedown")
            if f"▸ {KNOBS[-1].name}" in before:
                break
        assert seen >= {knob.name for knob in KNOBS}
        await rig.press("end")
        await rig.sees(f"▸ {KNOBS[-1].name}")
        await rig.press("tab")
        await rig.sees(f"▸ {KNOBS[0].name}")
        await rig.press("shift+tab")
        first_of_last = next(knob for knob in KNOBS if knob.group == KNOBS[-1].group)
        await rig.sees(f"▸ {first_of_last.name}")


async def test_what_somebody_changes_while_one_is_asked_is_not_undone_unseen() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await rig.app._hands.ask(control.apply("max_wal_size", "2GB"))
        await _opened(rig)
        await rig.press("u")
        await rig.sees("undo the last change")
        await rig.app._hands.ask(control.apply("work_mem", "8MB"))
        await rig.press("y")
        await rig.sees("somebody has changed something meanwhile")
        assert [change.name for change in control.journal] == ["max_wal_size", "work_mem"]
