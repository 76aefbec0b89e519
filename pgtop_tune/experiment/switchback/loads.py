"""The load of an experiment: one of ours, or that of somebody else. Fits `ContinuousLoad`."""

from __future__ import annotations

from typing import Final

from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.experiment.load_run import LoadRun, RunCell


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


class ForeignLoad:
    """The load that somebody else drives."""

    async def start(self) -> None:
        """See `ContinuousLoad.start`."""

    async def stop(self) -> None:
        """See `ContinuousLoad.stop`."""
