"""The terms of a change from the parameter dialog: for whom, pending confirmation, trip wires, unlocked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.changes.model.change import Proof
from pgtop_tune.model.postgres import Activity, Parameter, PostgresSample
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.controls import ScreenOptions
from pgtop_tune.tui.dashboard.screen import Dashboard
from pgtop_tune.tui.load.dialog import LoadDialog
from pgtop_tune.tui.parameters.rows import ChangeConditions
from pgtop_tune.tui.parameters.staged_changes import ConditionsDialog, proof_words
from tests.support.frames import frame
from tests.support.screens import (
    Rig,
    ScriptedLoad,
    ScriptedParameters,
    ScriptedSource,
    frames,
    parameter,
    running_screen,
)
from tests.tui.app.dialog_steps import at, opened


async def test_a_parameter_of_sessions_goes_to_the_next_load_where_nobody_is_connected() -> None:
    control = ScriptedParameters()
    alone = [replace(each, postgres=_without_sessions(each.postgres)) for each in frames(3, load=False)]
    source = ScriptedSource([Step(tuple(alone), restart=True)])
    async with running_screen(source, parameters=control, load=ScriptedLoad(), knobs=KNOBS) as rig:
        await opened(rig)
        await at(rig, "work_mem")
        await rig.press("plus")
        await rig.sees("apply: the next load begins with -c work_mem=8MB; the server is not changed")
        await rig.press("a")
        await rig.sees("next load: 8MB")
        await rig.sees("the next load starts with work_mem=8MB (PGOPTIONS)")
        assert control.journal == []
        await rig.press("escape", "escape")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
        await rig.press("b")
        await rig.until(lambda: isinstance(rig.app.screen, LoadDialog))
        assert rig.app.screen._entries.spec.settings == (("work_mem", "8MB"),)  # type: ignore[attr-defined]


def _without_sessions(sample: PostgresSample) -> PostgresSample:
    assert isinstance(sample.activity, Activity)
    return replace(sample, activity=replace(sample.activity, backends=()))


async def test_a_change_can_be_kept_before_the_list_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(names: Sequence[str]) -> tuple[Parameter, ...]:
        await asyncio.Event().wait()
        return ()

    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await opened(rig)
        await rig.press("plus")
        await rig.sees("= '2GB'")
        monkeypatch.setattr(control, "list", never)
        await rig.press("a")
        await rig.sees("is now 2GB")
        await rig.press("Y")
        await rig.sees("confirmed: ")


async def test_a_role_that_is_connected_can_be_chosen() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await opened(rig)
        await at(rig, "work_mem")
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
        await opened(rig)
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
        await rig.sees("no trip wire can watch 'p98'")
        await rig.press("escape")
        await rig.until(lambda: not isinstance(rig.app.screen, ConditionsDialog))
        await rig.sees("reverts after 5 s unless confirmed (Y), or at once if p99>5")
        await rig.press("a")
        await rig.sees("is now 2GB")
        assert control.terms.keep_within_s == 5.0
        await rig.sees("or if p99>5")


async def test_a_crossed_trip_wire_takes_it_back_and_says_why() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        rig.app.parameters.panel.conditions = ChangeConditions(wires="tps<1000000")
        await opened(rig)
        await rig.press("plus")
        await rig.sees("SET max_wal_size = '2GB'")
        await rig.press("a")
        await rig.sees("Y confirm")
        await rig.sees("max_wal_size is now 2GB")
        rig.source.feed(*(frame(second) for second in range(5, 25)))
        await rig.until(lambda: control.journal == [])
        assert [why for _, why in control.reverted] == ["tps<1000000 for 3 s"]
        await rig.until(lambda: any("reverted, tps<1000000" in each.message for each in rig.app._notifications))
        assert [event.text for event in rig.source.noted] == ["reverted: tps<1000000 for 3 s"]
        await rig.until(lambda: "Y confirm" not in rig.text())
        await rig.until(lambda: "is now 2GB" not in rig.text())
        assert rig.app.parameters.changes is not None
        assert rig.app.parameters.changes.made == ()


async def test_synchronous_commit_is_tried_within_a_deadline_with_its_loss_in_numbers() -> None:
    control = _with_wal_writer()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await opened(rig)
        await _off(rig)
        await rig.sees("reverts at its deadline, and once confirmed")
        await rig.press("a")
        await rig.sees("change synchronous_commit?")
        await rig.sees("up to 600 ms")
        assert "locked:" not in rig.text()
        await rig.press("y")
        await rig.sees("is now off")
        assert control.terms.keep_within_s is not None
        assert control.terms.confirmed == frozenset()


async def test_what_off_would_lose_is_not_told_of_remote_apply() -> None:
    control = ScriptedParameters()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        await opened(rig)
        await at(rig, "synchronous_commit")
        await rig.press("enter")
        await rig.sees("Enter choose")
        await rig.press("end", "enter")
        await rig.sees("SET synchronous_commit = 'remote_apply'")
        await rig.press("a")
        await rig.sees("change synchronous_commit?")
        await rig.sees("have replayed it")
        assert "loses" not in rig.text()


async def test_a_longer_wal_writer_delay_tells_the_loss_it_brings() -> None:
    async with running_screen(parameters=_with_wal_writer(), knobs=KNOBS, size=(160, 50)) as rig:
        await opened(rig)
        await _off(rig)
        await rig.press("escape")
        await at(rig, "wal_writer_delay")
        await rig.press("enter")
        await rig.type("1s")
        await rig.press("enter")
        await rig.sees("can lose up to 3000 ms of acknowledged commits")


async def test_without_a_deadline_the_lock_is_shown_at_staging_and_the_name_is_typed() -> None:
    control = _with_wal_writer()
    async with running_screen(parameters=control, knobs=KNOBS) as rig:
        rig.app.parameters.panel.conditions = ChangeConditions(keep_within_s=None)
        await opened(rig)
        await _off(rig)
        await rig.sees("locked: o sets a deadline, or start with --allow-unsafe")
        await rig.press("a", "y")
        await rig.sees("--allow-unsafe to unlock it; no change was made")
        assert control.journal == []
    async with running_screen(parameters=control, knobs=KNOBS, options=ScreenOptions(allow_unsafe=True)) as rig:
        rig.app.parameters.panel.conditions = ChangeConditions(keep_within_s=None)
        await opened(rig)
        await _off(rig)
        await rig.press("a", "y")
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


def _with_wal_writer() -> ScriptedParameters:
    control = ScriptedParameters()
    control.rows["wal_writer_delay"] = parameter(
        "wal_writer_delay", "200", "200ms", unit="ms", min_val="1", max_val="10000"
    )
    return control


async def _off(rig: Rig) -> None:
    """Chooses it from the list of values."""
    await at(rig, "synchronous_commit")
    await rig.press("enter")
    await rig.sees("Enter choose")
    await rig.press("home", "enter")
    await rig.sees("SET synchronous_commit = 'off'")


@pytest.mark.parametrize(
    ("behind", "words"), [(1, "1 session has the old work_mem until its"), (2, "2 sessions have the old")]
)
def test_who_has_the_old_value_yet_is_counted(behind: int, words: str) -> None:
    (said,) = proof_words(Proof("work_mem", "8MB", "4MB", "8MB", "u", "d", "database", behind=behind))
    assert said.startswith(words)
