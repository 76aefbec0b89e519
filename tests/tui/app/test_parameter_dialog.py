"""The parameter dialog: staged, shown as SQL, applied, read back, undone."""

from __future__ import annotations

from pgtop_tune.errors import ConnectionProblem
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.tuning.knobs.live import LIVE
from tests.support.frames import frame
from tests.support.screens import Rig, ScriptedParameters, running_screen


async def _opened(rig: Rig) -> None:
    await rig.press("p")
    await rig.sees("synchronous_commit")


async def test_a_step_shows_the_sql_and_a_applies_it() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=LIVE) as rig:
        await _opened(rig)
        await rig.press("plus", "plus")
        await rig.sees("apply: ALTER SYSTEM SET max_wal_size = '4GB'; SELECT pg_reload_conf();")
        assert control.journal == []
        await rig.press("a")
        await rig.sees("max_wal_size is now 4GB, read back from pg_settings")
        assert rig.source.noted == [], "the tape learns of it from the server"
        assert "→" not in rig.text().split("max_wal_size", 1)[1].splitlines()[0]


async def test_nothing_is_applied_before_its_sql_was_shown() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=LIVE) as rig:
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
    async with running_screen(parameters=control, knobs=LIVE) as rig:
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


async def test_a_warning_asks_a_second_time() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=LIVE) as rig:
        await _opened(rig)
        await rig.until(lambda: rig.app.screen._table.rows)  # type: ignore[attr-defined]
        names = [row.knob.name for row in rig.app.screen._table.rows]  # type: ignore[attr-defined]
        await rig.press(*["down"] * names.index("synchronous_commit"), "minus")
        await rig.sees("apply: ALTER SYSTEM SET synchronous_commit")
        await rig.press("a")
        await rig.sees("change synchronous_commit?")
        await rig.press("a", "enter")
        assert control.journal == []
        await rig.press("escape")
        await rig.sees("nothing was changed")
        await rig.press("a")
        await rig.sees("change synchronous_commit?")
        await rig.press("y")
        await rig.sees("read back from pg_settings")
        assert len(control.journal) == 1


async def test_the_servers_own_words_when_it_refuses() -> None:
    control = ScriptedParameters(refuses='invalid value for parameter "max_wal_size": "[7XB"')
    async with running_screen(parameters=control, knobs=LIVE) as rig:
        await _opened(rig)
        await rig.press("plus")
        await rig.sees("apply:")
        await rig.press("a")
        await rig.sees('invalid value for parameter "max_wal_size": "[7XB"')
        assert rig.source.noted == []


async def test_u_undoes_the_last_and_capital_u_everything_after_a_question() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=LIVE) as rig:
        await _opened(rig)
        for value in ("2GB", "3GB", "4GB"):
            await rig.press("enter", "ctrl+u")
            await rig.type(value)
            await rig.press("enter")
            await rig.sees(f"apply: ALTER SYSTEM SET max_wal_size = '{value}'")
            await rig.press("a")
            await rig.sees(f"is now {value}")
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
    async with running_screen(parameters=ScriptedParameters(), knobs=LIVE) as rig:
        await _opened(rig)
        before = rig.text().rsplit("now  tps", 1)[1]
        rig.source.feed(*(frame(second) for second in range(5, 40)))
        await rig.until(lambda: rig.text().rsplit("now  tps", 1)[1] != before)


async def test_a_server_that_does_not_answer_is_told_in_the_dialog() -> None:
    class Away(ScriptedParameters):
        async def list(self, names: tuple[str, ...]) -> tuple[Parameter, ...]:
            raise ConnectionProblem("connection refused", "is it running?")

    async with running_screen(parameters=Away(), knobs=LIVE) as rig:
        await rig.press("p")
        await rig.sees("connection refused")
        await rig.press("plus", "a", "enter", "escape")
        await rig.until(lambda: len(rig.app.screen_stack) == 2)


async def test_all_knobs_fit_the_smallest_screen_by_scrolling() -> None:
    control = ScriptedParameters()
    for knob in LIVE:
        control.rows.setdefault(
            knob.name,
            control.rows["work_mem"].__class__(
                **{field: getattr(control.rows["work_mem"], field) for field in control.rows["work_mem"].__slots__}
                | {"name": knob.name}
            ),
        )
    async with running_screen(size=(80, 24), parameters=control, knobs=LIVE) as rig:
        await rig.press("p")
        await rig.sees(LIVE[0].name)
        for knob in LIVE:
            await rig.sees(knob.name)
            await rig.press("down")
