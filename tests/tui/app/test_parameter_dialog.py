"""The parameter dialog: staged, shown as SQL, applied, read back, undone."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.runtime.load_control import LoadState
from pgtop_tune.tui.parameters.dialog import ParameterDialog
from tests.support.frames import frame
from tests.support.screens import ScriptedLoad, ScriptedParameters, running_screen
from tests.tui.app.dialog_steps import applied, at, opened


async def test_a_step_shows_the_sql_and_a_applies_it_on_trial() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await opened(rig)
        await rig.press("plus", "plus")
        await rig.sees("apply: ALTER SYSTEM SET max_wal_size = '4GB'; SELECT pg_reload_conf();")
        await rig.sees("reverts after 60 s")
        assert control.journal == []
        await rig.press("a")
        await rig.sees("max_wal_size is now 4GB, read back from pg_settings")
        assert control.terms.keep_within_s == 60.0
        assert rig.source.noted == [], "the tape learns of it from the server"
        await rig.sees("Y confirm  u undo  max_wal_size 1GB→4GB")
        await rig.press("Y")
        await rig.sees("confirmed: max_wal_size 1GB→4GB")
        assert [change.kept for change in control.journal] == [True]
        await rig.until(lambda: "Y confirm" not in rig.text())


async def test_several_staged_values_are_one_set_with_one_reload() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await opened(rig)
        await rig.press("plus")
        await at(rig, "work_mem")
        await rig.until(lambda: rig.app.screen._table.selected.name == "work_mem")  # type: ignore[attr-defined]
        await rig.press("plus")
        await rig.sees("apply: ALTER SYSTEM SET max_wal_size = '2GB'; ALTER SYSTEM SET work_mem = '8MB'; "
                       "SELECT pg_reload_conf();")  # fmt: skip
        await rig.sees("2 staged")
        await rig.press("a")
        await rig.sees("work_mem is now 8MB")
        assert len({change.set_id for change in control.journal}) == 1
        await rig.press("u")
        await rig.sees("undo 2 changes")
        await rig.press("y")
        await rig.sees("work_mem is 4MB again")
        assert control.journal == []
        await rig.press("ctrl+r")
        await rig.sees("max_wal_size 1GB→2GB again; work_mem 4MB→8MB again")
        assert len(control.journal) == 2


async def test_nothing_is_changed_while_runs_of_a_load_are_compared() -> None:
    control, load = ScriptedParameters(), ScriptedLoad()
    async with running_screen(parameters=control, knobs=KNOBS, load=load) as rig:
        await opened(rig)
        await rig.press("plus")
        load.standing = LoadState("search", "search: probing")
        await rig.press("a")
        await rig.sees("the search for the highest rate compares its runs")
        assert control.journal == []
        load.standing = LoadState()
        await rig.press("a")
        await rig.sees("max_wal_size is now 2GB")
        load.standing = LoadState("steps", "step 2 of 3")
        await rig.press("u")
        await rig.sees("undo")
        await rig.press("y")
        await rig.sees("the steps of the load are compared with each other")
        assert len(control.journal) == 1


async def test_details_say_what_is_known_and_what_others_say() -> None:
    async with running_screen(parameters=ScriptedParameters(), knobs=KNOBS) as rig:
        await opened(rig)
        await at(rig, "work_mem")
        await rig.press("question_mark")
        for words in ("other tools", "pgtune", "related", "takes effect", "system: ", "load: ", "starting point"):
            await rig.sees(words)
        await rig.press("escape")
        await rig.until(lambda: isinstance(rig.app.screen, ParameterDialog))


async def test_what_somebody_else_changes_is_in_the_list_with_who_it_was() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await opened(rig)
        made = await rig.app.context.client.ask(control.apply("max_wal_size", "64GB"))
        control.journal[:] = [replace(made, by="ann@db1, 77", reason="checkpoints")]
        rig.source.feed(frame(61))
        await rig.sees("was 1GB, set by ann@db1, 77: checkpoints")
        await rig.until(lambda: " 64GB " in rig.text())


async def test_nothing_is_applied_before_its_sql_was_shown() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await opened(rig)
        await rig.press("a")
        await rig.sees("no staged changes")
        dialog = rig.app.screen
        dialog._table.step(1)  # type: ignore[attr-defined]
        dialog._apply_asked()  # type: ignore[attr-defined]
        await rig.pilot.pause()
        assert control.journal == []


async def test_a_value_is_typed_and_escape_forgets_it() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await opened(rig)
        await rig.press("enter")
        await rig.type("3GB")
        await rig.press("escape")
        assert "3GB" not in rig.text()
        await rig.press("enter")
        await rig.type("3")
        await rig.press("enter")
        await rig.sees("SET max_wal_size = '3'")
        await rig.press("enter", "end")
        await rig.type("GB")
        await rig.press("enter")
        await rig.sees("SET max_wal_size = '3GB'")
        await rig.press("x")
        await rig.sees("ALTER SYSTEM RESET max_wal_size")


async def test_a_value_that_the_server_would_refuse_is_not_staged() -> None:
    async with running_screen(parameters=ScriptedParameters(), knobs=KNOBS) as rig:
        await opened(rig)
        for typed, words in (("1MB", "'1MB' is out of range"), ("lots", "'lots' is not a number")):
            await rig.press("enter")
            await rig.type(typed)
            await rig.press("enter")
            await rig.sees(words)
            await rig.sees("Enter ok")
            await rig.press("escape")
            await rig.sees("Enter edit")
        assert "staged" not in rig.text().split("parameters", 1)[1].split("advice")[0]


async def test_the_servers_own_words_when_it_refuses() -> None:
    control = ScriptedParameters(refuses='invalid value for parameter "max_wal_size": "[7XB"')
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await opened(rig)
        await rig.press("plus")
        await rig.sees("apply:")
        await rig.press("a")
        await rig.sees('invalid value for parameter "max_wal_size": "[7XB"')
        assert rig.source.noted == []


async def test_u_undoes_the_last_and_capital_u_everything_after_a_question() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await opened(rig)
        for value in ("2GB", "3GB", "4GB"):
            await applied(rig, value)
        await rig.press("u")
        await rig.sees("undo the last change")
        await rig.press("escape")
        await rig.sees("no change was undone")
        await rig.press("u")
        await rig.sees("undo the last change")
        await rig.press("y")
        await rig.sees("max_wal_size is 3GB again")
        await rig.press("U")
        await rig.sees("undo 2 changes")
        await rig.press("y")
        await rig.sees("max_wal_size is 1GB again")
        assert rig.app.parameters.changes is not None
        assert rig.app.parameters.changes.made == ()
        await rig.press("u")
        await rig.sees("no change is in force")


async def test_the_figures_go_on_while_the_dialog_is_open() -> None:
    async with running_screen(parameters=ScriptedParameters(), knobs=KNOBS) as rig:
        await opened(rig)
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
        await rig.app.context.client.ask(control.apply("max_wal_size", "2GB"))
        await opened(rig)
        await rig.press("u")
        await rig.sees("undo the last change")
        await rig.app.context.client.ask(control.apply("work_mem", "8MB"))
        await rig.press("y")
        await rig.sees("another user has made a change meanwhile")
        assert [change.name for change in control.journal] == ["max_wal_size", "work_mem"]
