"""Sets pending confirmation: one at a time, reverted for a reason that is told, kept only while they are in force."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, UsageProblem
from pgtop_tune.changes import change_sets
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.confirm.pending_sets import PendingSets
from pgtop_tune.changes.model.change import ParameterChange, Terms, WantedParameter
from pgtop_tune.changes.model.change_set import ChangeSet, RestartOutcome, RestartState
from pgtop_tune.changes.ports import AdoptedSet, AdoptionControl, RestartControl
from pgtop_tune.metrics.trip_wires import trip_wire
from pgtop_tune.model.events import Event
from pgtop_tune.runtime.ports import Step
from tests.support.frames import frame
from tests.support.screens import ScriptedParameters
from tests.support.undoing import undo_last

SET = ChangeSet(parameters=(WantedParameter("max_wal_size", "2GB"), WantedParameter("work_mem", "8MB")))
CROSSED = (trip_wire("tps<1000000"),)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def sets(
    control: ScriptedParameters,
    note: Callable[[Event], None] = lambda event: None,
    adoptions: AdoptionControl | None = None,
    restart: RestartControl | None = None,
) -> PendingSets:
    return PendingSets(ChangeSets(control, None, restart), note, adoptions=adoptions)


def watched(pending: PendingSets, seconds: range) -> None:
    for second in seconds:
        pending.accept(Step((frame(second),)))


async def test_a_set_without_a_time_is_kept_at_once() -> None:
    pending = sets(ScriptedParameters())
    made = await pending.apply(SET, Terms(), CROSSED)
    watched(pending, range(20))
    assert ([change.kept for change in made.changes], pending.current, pending.ended) == ([True, True], None, None)


async def test_a_second_set_waits_for_the_first() -> None:
    control = ScriptedParameters()
    pending = sets(control)
    await pending.apply(SET, Terms(60.0))
    with pytest.raises(UsageProblem, match="max_wal_size, work_mem: still pending confirmation"):
        await pending.apply(SET, Terms(60.0))
    assert len(control.journal) == len(SET.parameters)
    assert [change.kept for change in await pending.confirm()] == [True, True]
    assert pending.current is None
    await pending.apply(SET, Terms(60.0))


async def test_nobody_in_time_and_a_crossed_wire_take_it_back_and_say_so() -> None:
    for terms, wires, why in (
        (Terms(0.05), (), "not confirmed in time"),
        (Terms(600.0), CROSSED, "tps<1000000 for 3 s"),
    ):
        control, noted = ScriptedParameters(), list[Event]()
        pending = sets(control, noted.append)
        watched(pending, range(1))
        await pending.apply(SET, terms, wires)
        watched(pending, range(1, 20))
        await until(lambda pending=pending: pending.ended)  # type: ignore[misc]
        assert control.journal == []
        assert pending.current is None
        assert pending.ended is not None
        assert pending.ended.why == why
        assert [event.text for event in noted] == [f"reverted: {why}"]
        assert noted[0].detail == "max_wal_size 2GB→1GB; work_mem 8MB→4MB"


class Adopted:
    """Sets of a program that is gone."""

    def __init__(self) -> None:
        self.sets: tuple[AdoptedSet, ...] = ()

    def adopted(self) -> tuple[AdoptedSet, ...]:
        return self.sets

    async def of(self, control: ScriptedParameters, within_s: float, *trip_wires: str) -> AdoptedSet:
        """One more of them, made by somebody else."""
        made = await control.apply_set(SET.parameters, Terms(within_s))
        assert made[0].until_ms is not None
        left = AdoptedSet(
            set_id=made[0].set_id, changes=made, until_ms=made[0].until_ms, by="ann@db1, 7", trip_wires=trip_wires
        )
        self.sets = (*self.sets, left)
        return left


async def test_an_adopted_set_counts_down_and_is_kept_or_taken_back_as_one_of_ours() -> None:
    for wires, within_s, why in (
        (("tps<1000000", "of_a_newer_version>1"), 600.0, "tps<1000000 for 3 s"),
        ((), 0.05, "not confirmed in time"),
    ):
        control, adopted = ScriptedParameters(), Adopted()
        pending = sets(control, adoptions=adopted)
        watched(pending, range(1))
        left = await adopted.of(control, within_s, *wires)
        watched(pending, range(1, 2))
        assert pending.current is not None
        assert (pending.current.adopted_from, pending.current.until_ms) == ("ann@db1, 7", left.until_ms)
        assert [wire.text for wire in pending.current.wires] == list(wires[:1])
        with pytest.raises(UsageProblem, match="still pending confirmation"):
            await pending.apply(SET, Terms(60.0))
        watched(pending, range(2, 20))
        await until(lambda pending=pending: pending.ended)  # type: ignore[misc]
        assert pending.ended is not None
        assert (pending.ended.why, control.journal, pending.current) == (why, [], None)


async def test_an_adopted_set_that_took_a_restart_is_taken_back_with_one() -> None:
    class Restarts:
        def __init__(self) -> None:
            self.reverted: list[tuple[str, str]] = []

        async def revert_set(self, set_id: str, why: str = "", **_: object) -> RestartOutcome:
            self.reverted.append((set_id, why))
            return RestartOutcome(RestartState.CAME_UP, "it is back")

    control, adopted, restarts = ScriptedParameters(), Adopted(), Restarts()
    pending = sets(control, adoptions=adopted, restart=restarts)  # type: ignore[arg-type]
    left = await adopted.of(control, 0.05)
    adopted.sets = (replace(left, with_restart=True),)
    watched(pending, range(20))
    await until(lambda: pending.ended)
    assert (restarts.reverted, control.reverted) == ([(left.set_id, "not confirmed in time")], [])


async def test_of_several_adopted_sets_the_next_to_go_back_is_shown_and_kept_first() -> None:
    control, adopted = ScriptedParameters(), Adopted()
    pending = sets(control, adoptions=adopted)
    later, sooner = await adopted.of(control, 600.0), await adopted.of(control, 60.0)
    watched(pending, range(1))
    assert pending.current is not None
    assert pending.current.set_id == sooner.set_id
    assert {change.set_id for change in await pending.confirm()} == {sooner.set_id}
    watched(pending, range(1, 2))
    assert pending.current is not None
    assert pending.current.set_id == later.set_id
    pending.reverted_by_hand(await control.revert_set(later.set_id))
    assert pending.current is None


async def test_what_was_undone_by_hand_is_not_on_trial_any_more() -> None:
    control = ScriptedParameters()
    pending = sets(control)
    await pending.apply(SET, Terms(0.05))
    pending.reverted_by_hand(await undo_last(control))
    watched(pending, range(20))
    assert (pending.current, pending.ended, control.reverted) == (None, None, [])


async def test_a_server_that_is_away_is_asked_again_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_sets, "AGAIN_S", 0.01)

    class Away(ScriptedParameters):
        here = False

        async def revert_set(self, set_id: str, why: str = "", *_: object) -> tuple[ParameterChange, ...]:
            if not self.here:
                raise ConnectionProblem("connection refused")
            return await super().revert_set(set_id, why)

    control = Away()
    pending = sets(control)
    watched(pending, range(1))
    await pending.apply(SET, Terms(0.05))
    await until(lambda: pending.current is not None and pending.current.problem)
    assert pending.current is not None
    assert pending.current.reverting == "not confirmed in time"
    assert pending.current.problem == "connection refused"
    control.here = True
    await until(lambda: pending.ended)
    assert control.journal == []


async def test_once_its_revert_has_begun_a_set_is_not_confirmed_and_one_reverted_by_hand_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_sets, "AGAIN_S", 0.01)
    tries = 0

    class Away(ScriptedParameters):
        async def revert_set(self, set_id: str, why: str = "", *_: object) -> tuple[ParameterChange, ...]:
            nonlocal tries
            tries += 1
            raise ConnectionProblem("connection refused")

    control, noted = Away(), list[Event]()
    pending = sets(control, noted.append)
    made = await pending.apply(SET, Terms(0.05))
    await until(lambda: tries > 1)
    assert await pending.confirm() == ()
    assert [change.kept for change in control.journal] == [False, False]
    pending.reverted_by_hand(made.changes)
    before = tries
    await asyncio.sleep(0.2)
    assert tries <= before + 1
    assert (pending.current, pending.ended, noted) == (None, None, [])


async def test_nobody_waits_for_a_set_that_was_reverted_by_hand() -> None:
    control = ScriptedParameters()
    pending = sets(control)
    made = await pending.apply(SET, Terms(600.0))
    over = asyncio.create_task(pending.over(made.set_id))
    await asyncio.sleep(0)
    pending.reverted_by_hand(await undo_last(control))
    async with asyncio.timeout(10):
        assert (await over).changes == ()
