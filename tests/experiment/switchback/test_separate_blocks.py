"""Blocks that are runs of their own: what precedes each, how it ends, and what their pairs say in simulated noise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import ServerProblem, UsageProblem
from pgtop_tune.compare.statistics.switchback import Paired, decide
from pgtop_tune.experiment.switchback.arms import Arm, Lengths, Rival
from pgtop_tune.experiment.switchback.separate_blocks import SeparateBlocks, SeparatePlan
from pgtop_tune.experiment.switchback.state import Ending, SwitchbackState
from pgtop_tune.model.bench import RunState
from pgtop_tune.model.frame import Frame
from tests.experiment.switchback.simulated import Made

PLAN = SeparatePlan(
    rivals=(Rival("shared_buffers", "1GB", "4GB"),), load="made up", loaded=True, for_s=3600.0, seed=3,
    lengths=Lengths(5.0, 30.0), around_s=15.0,
)  # fmt: skip


class Separate(Made):
    """An experiment with a restart before each block; `acts` has all that is done to server and load, in order."""

    def __init__(self, plan: SeparatePlan = PLAN, *, restarts: bool = True) -> None:
        super().__init__(plan)
        self.acts = self.arms.acts
        self.running, self.runs, self.failed = False, 0, ""
        self.problems = ["prewarm: no extension"]
        self.refused: Callable[[Arm], None] = lambda arm: None
        self.experiment = SeparateBlocks(
            plan,
            self.frames,
            self.arms,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self._answers,
            self._restart if restarts else None,
            self.states.append,
        )
        self.change = self._of_load

    def _of_load(self, second: int, found: Frame) -> Frame:
        state = RunState.RUNNING if self.running else RunState.FAILED if self.failed else RunState.STOPPED
        run = replace(found.bench.run, state=state, run=self.runs, message=self.failed)  # type: ignore[union-attr]
        progress = found.bench.progress if self.running else ()  # type: ignore[union-attr]
        return replace(found, bench=replace(found.bench, run=run, progress=progress))  # type: ignore[type-var]

    async def _answers(self) -> None:
        self.acts.append("answers")

    async def _restart(self) -> None:
        self.acts.append("restart")

    async def start(self) -> None:
        """Nothing runs between blocks."""

    async def begin(self, arm: Arm) -> int:
        self.refused(arm)
        self.acts.append(f"load {arm}")
        self.runs += 1
        self.running = not self.failed
        return self.runs

    async def stop(self) -> None:
        self.running = False


def separate(gain: float, plan: SeparatePlan = PLAN, *, restarts: bool = True) -> Separate:
    made, draw = Separate(plan, restarts=restarts), random.Random(1)
    made.tps = lambda second, arm: 1000.0 * (1.0 + gain * (arm is Arm.B)) * (1.0 + draw.gauss(0, 0.01))
    return made


def blocks(acts: list[str]) -> list[list[str]]:
    """What was done for each block."""
    found: list[list[str]] = []
    for act in acts[1:-1]:
        if act in tuple(Arm):
            found.append([])
        found[-1].append(act)
    return found


async def test_every_block_begins_with_a_restart_and_a_load_of_its_own() -> None:
    made = separate(0.2)
    state = await made.run()
    assert state.ending is Ending.BETTER, state.reason
    assert (made.acts[0], made.acts[-1]) == ("check", "restore")
    done = blocks(made.acts)
    assert len(done) == 2 * len(state.pairs) >= 8
    before = None
    for block in done:
        arm = block[0]
        # A switch restarts; where the arm stays, the server is restarted as it is.
        assert block == [arm, *(["restart"] if arm == before else []), "answers", f"load {arm}"]
        before = arm
    assert any("restart" in block for block in done)
    assert not made.running
    assert state.notes == ("prewarm: no extension",)
    assert all(len(block.tps) >= 29 and block.settled_s > 0.0 for pair in state.pairs for block in pair.blocks)


async def test_without_restarts_none_is_made() -> None:
    made = separate(-0.2, restarts=False)
    state = await made.run()
    assert state.ending is Ending.WORSE, state.reason
    assert not {"restart", "answers"} & set(made.acts)


async def test_too_little_time_is_refused_with_what_it_takes() -> None:
    with pytest.raises(UsageProblem, match="5m00s is too short") as refused:
        await separate(0.0, replace(PLAN, for_s=300.0)).run()
    assert "6m40s" in refused.value.hint


async def test_pairs_that_take_longer_than_assumed_end_it_with_what_it_takes() -> None:
    made = separate(0.0, replace(PLAN, for_s=420.0))

    def slow(arm: Arm) -> None:
        # The clock of the experiment is the real one.
        made.experiment._began_s -= 150.0

    made.refused = slow
    state = await made.run()
    assert state.ending is Ending.TOO_SHORT
    assert len(state.pairs) == 1
    assert "four pairs need --for 2" in state.reason
    assert made.acts[-1] == "restore"


async def test_a_restart_that_fails_ends_it_and_puts_everything_back() -> None:
    made = separate(0.0)

    def fails(arm: Arm) -> None:
        if len(blocks([*made.acts, ""])) == 2:
            raise ServerProblem("the server is down")

    made.refused = fails
    state = await made.run()
    assert (state.ending, state.reason) == (Ending.FAILED, "the server is down")
    assert made.acts[-1] == "restore"


async def test_a_load_that_dies_within_a_block_ends_it() -> None:
    made = separate(0.0)
    of_load = made.change

    def dies(second: int, found: Frame) -> Frame:
        if made.frames.tps and len(made.frames.tps) > 20:
            made.running = False
        return of_load(second, found)

    made.change = dies
    state: SwitchbackState = await made.run()
    assert (state.ending, state.reason) == (Ending.ENDED, "the load ended")


async def test_a_load_that_fails_at_once_ends_it_with_the_words_of_pgbench() -> None:
    """Seen on a standby: no frame showed the load while it ran, and a minute later the reason was lost."""
    made = separate(0.0)
    made.failed = "pgbench: error: cannot execute UPDATE in a read-only transaction\nRun was aborted"
    state = await made.run()
    assert (state.ending, state.reason) == (
        Ending.ENDED,
        "the load failed: pgbench: error: cannot execute UPDATE in a read-only transaction",
    )
    assert made.acts[-1] == "restore"


# Runs differ by more than their seconds show: what the judge of pairs makes of it.


def _at_the_end(between: float, wanders: float, effect: float, draw: random.Random) -> Paired:
    """Up to twenty pairs of runs, looked at after each.

    Args:
        between: Standard deviation from run to run.
        wanders: Of the steps of a level that wanders from run to run.
    """
    ratios: list[float] = []
    level = 0.0
    while True:
        runs = []
        for _ in range(2):
            level += draw.gauss(0.0, wanders)
            runs.append(level + draw.gauss(0.0, between))
        ratios.append(math.log1p(effect) + (runs[1] - runs[0]) * draw.choice((1.0, -1.0)))
        found = decide(ratios)
        if found.over or len(ratios) == 20:
            return found


@pytest.mark.parametrize(("between", "wanders"), [(0.05, 0.0), (0.02, 0.01)])
def test_runs_that_differ_by_themselves_are_not_called_an_effect(between: float, wanders: float) -> None:
    draw = random.Random(5)
    found = [_at_the_end(between, wanders, 0.0, draw) for _ in range(200)]
    claimed = sum(each.over and str(each.verdict) in ("better", "worse") for each in found)
    assert claimed / len(found) <= 0.05
    better = [_at_the_end(between, wanders, 0.10, draw) for _ in range(50)]
    assert sum(str(each.verdict) == "better" for each in better) >= 48
    assert not any(str(each.verdict) == "worse" for each in better)
