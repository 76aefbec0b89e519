"""The load of an experiment: one of ours, or that of another program. Fits `ContinuousLoad`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pgtop_tune.bench.housekeeping import CHECKPOINT, PREWARM, TRUNCATE, VACUUM
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.experiment.load_run import LoadRun
from pgtop_tune.experiment.run_cell import BeforeEachRun, RunCell
from pgtop_tune.experiment.switchback.arms import Arm

ALIKE: Final = (TRUNCATE, VACUUM, PREWARM, CHECKPOINT)
"""Housekeeping after which two blocks begin from the same state."""


class OwnLoad:
    """pgbench, until it is stopped.

    Args:
        run: Starts it, and checks before whether it can run.
        runner: The same pgbench, to be stopped.
        cell: The load, without an end.
    """

    def __init__(self, run: LoadRun, runner: PgbenchRunner, cell: RunCell) -> None:
        self._run: Final = run
        self._runner: Final = runner
        self._cell: Final = cell

    async def start(self) -> None:
        """See `ContinuousLoad.start`."""
        await self._run.start(self._cell)

    async def stop(self) -> None:
        """See `ContinuousLoad.stop`."""
        await self._runner.stop()


class ArmLoads:
    """pgbench, anew for each block, after housekeeping.

    Args:
        run: Starts it.
        runner: The same pgbench, to be stopped.
        cells: The load of each arm, without an end.

    Attributes:
        problems: What the housekeeping could not do, in words, each once.
    """

    def __init__(self, run: LoadRun, runner: PgbenchRunner, cells: Mapping[Arm, RunCell]) -> None:
        self._run: Final = run
        self._runner: Final = runner
        self._cells: Final = cells
        self.problems: list[str] = []

    async def start(self) -> None:
        """See `ContinuousLoad.start`: there is none between blocks."""

    async def begin(self, arm: Arm) -> int:
        """Makes the data alike and starts the load of an arm; the number of its run. Raises as `LoadRun.start`."""
        under_way = await self._run.start(self._cells[arm], BeforeEachRun(ALIKE))
        for step in under_way.facts.housekeeping:
            words = f"{step.name}: {step.problem}"
            if step.problem and words not in self.problems:
                self.problems.append(words)
        return under_way.number

    async def stop(self) -> None:
        """See `ContinuousLoad.stop`."""
        await self._runner.stop()


class ForeignLoad:
    """The load that another program drives."""

    async def start(self) -> None:
        """See `ContinuousLoad.start`."""

    async def stop(self) -> None:
        """See `ContinuousLoad.stop`."""
