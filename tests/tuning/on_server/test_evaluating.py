"""An evaluation that others disturb: what the search is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from pgtop_tune.experiment.switchback.arms import Lengths
from pgtop_tune.experiment.switchback.state import Ending, SwitchbackState
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.tuning.on_server.evaluation import (
    CurrentBlocks,
    Disturbed,
    EvaluatingParts,
    Evaluator,
    HeldLoad,
    KnobsChanged,
)
from pgtop_tune.tuning.on_server.objective import objective
from pgtop_tune.tuning.plan import Dimension, Space
from pgtop_tune.tuning.search import Evaluation, SearchPhase
from tests.support.plans import parameter

SPACE = Space(tuple(Dimension(name=name, levels=("4MB", "8MB"), start=0) for name in ("work_mem", "temp_buffers")))
STATE = SwitchbackState(ending=Ending.CHANGED, reason="work_mem was changed by someone else")


class Control:
    """Parameters as somebody else has left them."""

    def __init__(self, **values: str) -> None:
        self.values = values

    async def list(self, names: Sequence[str]) -> tuple[Parameter, ...]:
        kilobytes = {name: int(value.removesuffix("MB")) * 1024 for name, value in self.values.items()}
        there = [name for name in names if name in self.values]
        rows = [parameter(name, str(kilobytes[name]), unit="kB", context="user") for name in there]
        return tuple(replace(row, shown=self.values[row.name]) for row in rows)


class Load:
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def measured(control: Control, names: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """One evaluation of the start against itself, its blocks spoiled; `names` are the knobs that are still ours."""

    class Spoiled:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def run(self) -> SwitchbackState:
            return STATE

    monkeypatch.setattr("pgtop_tune.tuning.on_server.evaluation.Switchback", Spoiled)
    given: Any = control
    parts = EvaluatingParts(
        control=given, load=HeldLoad(Load()), blocks=CurrentBlocks(loaded=True), own_blocks=None, machine=None,
        take_state=lambda state: None, before_set=lambda set_id: None,
    )  # fmt: skip
    values = dict.fromkeys(names, "4MB")
    wanted = Evaluation(
        number=1, phase=SearchPhase.NOISE, candidate=(0, 0), against=(0, 0), values=values, against_values=values,
        restart=False, cost=1.0, why="",
    )  # fmt: skip
    evaluator = Evaluator(parts, SPACE, objective("tps"), "x", Lengths(5.0, 10.0), 600.0)
    return asyncio.run(evaluator.measure(wanted, 1))


def test_a_knob_of_the_search_that_someone_has_changed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KnobsChanged) as changed:
        measured(Control(work_mem="64MB", temp_buffers="4MB"), ("work_mem", "temp_buffers"), monkeypatch)
    assert changed.value.names == ("work_mem",)


def test_a_knob_that_this_server_does_not_have_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KnobsChanged) as changed:
        measured(Control(temp_buffers="4MB"), ("work_mem", "temp_buffers"), monkeypatch)
    assert changed.value.names == ("work_mem",)


def test_one_that_was_let_go_of_may_change_again_and_spoils_the_evaluation_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(Disturbed, match="work_mem was changed"):
        measured(Control(work_mem="64MB", temp_buffers="4MB"), ("temp_buffers",), monkeypatch)
