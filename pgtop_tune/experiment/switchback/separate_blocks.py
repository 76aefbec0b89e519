"""A against B in blocks that are runs of their own, for what cannot be switched within one run: values that take a
restart or new sessions, settings of the machine, endpoints, profiles.

Every block begins alike: its arm is put into force, the server is restarted where the experiment restarts it, the data
set is vacuumed and read in, a checkpoint is made, and a new load warms up. The server is restarted before each block,
also where the arm stays: else only one block of a pair would begin with a cold server.

The judge is that of pairs, not that of runs. Two neighbouring blocks differ as two runs do, and the spread of the pairs
has that in it: it is measured here, where the judge of runs assumes it, and it is looked at after each pair. A coin
decides which block of a pair comes first, so that a level that wanders favours neither arm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from statistics import fmean
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import duration
from pgtop_tune.bench.housekeeping import CHECKPOINT, PREWARM, TRUNCATE, VACUUM
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.changes.model.change import ParameterChange
from pgtop_tune.changes.ports import ChangeControl, MachineControl
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS
from pgtop_tune.experiment.load_run import BeforeEachRun, LoadRun, RunCell
from pgtop_tune.experiment.switchback.arms import Arm, Arms, BlockPair, check_reaches
from pgtop_tune.experiment.switchback.block_frames import (
    BlockFrames,
    OpenBlock,
    OwnCycles,
    how_ended,
)
from pgtop_tune.experiment.switchback.evaluation import PairsEvaluation
from pgtop_tune.experiment.switchback.state import Ending, Over, SwitchbackPhase, SwitchbackPlan, SwitchbackState
from pgtop_tune.experiment.switchback.switchback import Switchback
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.load import UNDER_WAY
from pgtop_tune.model.bench import BenchRun

ALIKE: Final = (TRUNCATE, VACUUM, PREWARM, CHECKPOINT)
"""Housekeeping after which two blocks begin from the same state."""


class OwnLoad(Struct, frozen=True):
    """pgbench, until it is stopped.

    Attributes:
        run: Starts it, and checks before whether it can run.
        runner: The same pgbench, to be stopped.
        cell: The load, without an end.
    """

    run: LoadRun
    runner: PgbenchRunner
    cell: RunCell

    async def start(self) -> None:
        """See `ContinuousLoad.start`."""
        await self.run.start(self.cell)

    async def stop(self) -> None:
        """See `ContinuousLoad.stop`."""
        await self.runner.stop()


class ArmLoads(Struct, frozen=True):
    """pgbench, anew for each block, after housekeeping.

    Attributes:
        run: Starts it.
        runner: The same pgbench, to be stopped.
        cells: The load of each arm, without an end.
        problems: Failures of the housekeeping, in words, each once.
    """

    run: LoadRun
    runner: PgbenchRunner
    cells: Mapping[Arm, RunCell]
    problems: list[str] = []

    async def start(self) -> None:
        """See `ContinuousLoad.start`: there is none between blocks."""

    async def begin(self, arm: Arm) -> int:
        """Make the data alike, start an arm's load, and return the number of its run. Raises as `LoadRun.start`."""
        under_way = await self.run.start(self.cells[arm], BeforeEachRun(ALIKE))
        for step in under_way.facts.housekeeping:
            problem = f"{step.name}: {step.problem}"
            if step.problem and problem not in self.problems:
                self.problems.append(problem)
        return under_way.number

    async def stop(self) -> None:
        """See `ContinuousLoad.stop`."""
        await self.runner.stop()


class ForeignLoad:
    """The load that another program drives."""

    async def start(self) -> None:
        """See `ContinuousLoad.start`."""

    async def stop(self) -> None:
        """See `ContinuousLoad.stop`."""


# What must not be going on when a switchback begins.


async def check_nothing_pending(*controls: ChangeControl | MachineControl) -> None:
    """Make sure that no change reverts by itself while an experiment measures.

    Args:
        controls: The control of the server, and of its machine where the experiment switches that.

    Raises:
        UsageProblem: A change is pending confirmation.
    """
    pending = [
        change.name
        for control in controls
        for change in await control.in_force()
        if change.until_ms is not None and not change.kept
    ]
    if pending:
        names = ", ".join(dict.fromkeys(pending))
        raise UsageProblem(
            f"a change of {names} is pending confirmation and would revert during the experiment",
            "confirm it on the screen, or undo it with `pgtop-tune revert`",
        )


_FIRST_SECOND_S: Final = 60.0
_LATE_S: Final = 15.0
_PREPARED_S: Final = 3600.0
"""A vacuum of a large data set takes its time; the set of the arm reverts by itself later than that."""
_ROUND_S: Final = 60.0


class SeparatePlan(SwitchbackPlan, frozen=True, kw_only=True):
    """A switchback in blocks that are runs of their own.

    Attributes:
        around_s: The time before the warm-up of a block, as long as no block has shown it.
    """

    around_s: float = 5.0

    @property
    def pair_s(self) -> float:
        """Return the expected length of a pair."""
        return 2.0 * (self.around_s + self.lengths.settle_s + self.lengths.measured_s)

    @property
    def least_s(self) -> float:
        """See `SwitchbackPlan.least_s`."""
        return FEWEST_PAIRS * self.pair_s

    @property
    def by_checkpoints(self) -> bool:
        """Return False: each block begins with a checkpoint, for any parameter."""
        return False


class CheckedArms(Arms):
    """Arms that checks before a restart have looked at: to put each into force for a moment would take restarts."""

    async def check(self, within_s: float) -> None:
        """See `Arms.check`."""

    async def _make(self, arm: Arm, within_s: float) -> tuple[ParameterChange, ...]:
        changes = await super()._make(arm, within_s)
        for proof in await self._control.prove(changes) if changes else ():
            check_reaches(proof)
        return changes


class SeparateBlocks(Switchback):
    """An experiment in blocks that are runs of their own; `run` in the engine's loop.

    Args:
        plan, frames, arms, take_state: See `Switchback`.
        load: The loads of the arms.
        answers: Waits until frames show the restarted server.
        restart: Restarts the server with its present settings; None where blocks need no restart.
        own_cycles: Makes the checkpoints that blocks end with, where the arms differ in knobs that work through them.
    """

    def __init__(
        self,
        plan: SeparatePlan,
        frames: BlockFrames,
        arms: Arms,
        load: ArmLoads,
        answers: Callable[[], Awaitable[None]],
        restart: Callable[[], Awaitable[None]] | None,
        take_state: Callable[[SwitchbackState], None] = lambda state: None,
        own_cycles: OwnCycles | None = None,
    ) -> None:
        super().__init__(plan, frames, arms, load, take_state)
        self._own_cycles: Final = own_cycles
        self._separate: Final = plan
        self._loads: Final = load
        self._answers: Final = answers
        self._restart: Final = restart

    async def _warm_up(self) -> None:
        """Do nothing: each block has its own warm-up."""

    def _fit_lengths(self, pairs: tuple[BlockPair, ...], evaluation: PairsEvaluation) -> None:
        """Keep the lengths: an effect that builds up more slowly is said at the end."""

    @property
    def _pair_s(self) -> float:
        """Return the length that the pairs have shown."""
        pairs = self.state.pairs
        return fmean(pair.seconds for pair in pairs) if pairs else self._separate.pair_s

    async def _pair(self, number: int, order: tuple[Arm, Arm]) -> BlockPair:
        missing = FEWEST_PAIRS - len(self.state.pairs)
        if self.state.pairs and self.elapsed_s + missing * self._pair_s > self.plan.for_s:
            needed_s = _ROUND_S * (1 + (self.elapsed_s + missing * self._pair_s) // _ROUND_S)
            took = f"a pair takes {duration(self._pair_s)} here"
            raise Over(Ending.TOO_SHORT, f"{took}: four pairs need --for {duration(needed_s)}")
        return await super()._pair(number, order)

    async def _block(self, arm: Arm) -> tuple[OpenBlock, str]:
        """Return prepares and measures one block; why it does not count, "" where it does."""
        began_s, lengths = self.elapsed_s, self._lengths
        self._put(phase=SwitchbackPhase.PREPARING, arm=None)
        await self._end_load()
        changed = await self._arms.to(arm, _PREPARED_S + lengths.settle_s + lengths.measured_s)
        if self._restart is not None:
            if not changed:
                await self._restart()
            await self._answers()
        await self._begin_load(arm)
        self._put(phase=SwitchbackPhase.WARMING_UP, arm=arm)
        block = self._frames.open(arm, lengths.settle_s, lengths.measured_s)
        await self._wait(lambda: block.seconds > 0.0, lengths.settle_s + _LATE_S)
        settled_s = self.elapsed_s - began_s
        self._put(phase=SwitchbackPhase.MEASURING)
        await self._wait(lambda: block.seconds >= lengths.measured_s - 0.5, lengths.measured_s + _LATE_S)
        if self._own_cycles is not None:
            block.whole_cycle = True
            await self._own_cycles.end(block, self._wait)
        self._frames.stop()
        spoiled = await self._spoiled(block)
        await self._end_load()
        block.settled_s = settled_s
        return block, spoiled

    async def _begin_load(self, arm: Arm) -> None:
        """Start the load; from then on its end, and that of the server, are trouble."""
        number = await self._loads.begin(arm)
        for problem in self._loads.problems:
            if problem not in self.state.notes:
                self._note(problem)
        frames, seconds_before = self._frames, len(self._frames.tps)

        def begun() -> bool:
            run = _run(frames)
            return run is not None and (
                _is_over(run, number) or (run.state in UNDER_WAY and len(frames.tps) > seconds_before)
            )

        if not await frames.until(begun, _FIRST_SECOND_S):
            self._check_trouble()
            raise Over(Ending.ENDED, f"no transaction ended in {arm}")
        if (run := _run(frames)) is not None and _is_over(run, number):
            raise Over(Ending.ENDED, how_ended(run))
        frames.begin()

    async def _end_load(self) -> None:
        self._frames.end()
        await self._load.stop()

    async def _put_back(self, ending: Ending) -> None:
        # The values that are put back may need a restart.
        await self._end_load()
        await super()._put_back(ending)


def _run(frames: BlockFrames) -> BenchRun | None:
    load = None if frames.interval is None else frames.interval.now(sections.bench)
    return None if load is None else load.run


def _is_over(run: BenchRun, number: int) -> bool:
    """Return whether the run is the load of that number, and has ended by itself."""
    return run.run == number and run.state not in UNDER_WAY
