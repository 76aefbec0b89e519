"""A server and a load that are made up, a thousand times as fast as real ones, for the engine of switchbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.experiment.switchback.arms import Arm, Rival
from pgtop_tune.experiment.switchback.block_frames import BlockFrames, OwnCycles
from pgtop_tune.experiment.switchback.state import SwitchbackPlan, SwitchbackState
from pgtop_tune.experiment.switchback.switchback import Switchback
from pgtop_tune.model.absence import NOT_RECORDED
from pgtop_tune.model.bench import BenchProgress, RunState
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.ports import Step
from tests.support.frames import bench_sample, frame, host_sample
from tests.support.run_frames import server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PLAN = SwitchbackPlan(rivals=(Rival("work_mem", "4MB", "64MB"),), load="made up", loaded=True, for_s=3600.0, seed=3)


class MadeArms:
    """Fits what the engine asks of `Arms`; remembers what it was asked."""

    def __init__(self) -> None:
        self.arm: Arm | None = None
        self.acts: list[str] = []
        self.foreign: Callable[[int], str] = lambda block: ""
        self.blocks = 0
        self.problem: PgtopError | None = None

    async def check(self, within_s: float) -> None:
        self.acts.append("check")

    async def to(self, arm: Arm, stays_s: float) -> bool:
        if self.problem is not None:
            raise self.problem
        changed = arm is not self.arm
        self.arm = arm
        self.acts.append(arm)
        return changed

    async def foreign_change(self) -> str:
        self.blocks += 1
        return self.foreign(self.blocks)

    async def restore(self, why: str) -> str:
        self.acts.append("restore")
        self.arm = None
        return ""

    async def keep(self, arm: Arm) -> None:
        self.acts.append(f"keep {arm}")


class MadeLoad:
    def __init__(self) -> None:
        self.running = False

    async def start(self) -> None:
        self.running = True

    async def stop(self) -> None:
        self.running = False


class Made:
    """An experiment on it.

    Attributes:
        tps: Of a second, under an arm.
        change: What else a frame has.
    """

    def __init__(self, plan: SwitchbackPlan = PLAN, own_cycles: OwnCycles | None = None) -> None:
        self.frames = BlockFrames(loaded=plan.loaded)
        self.arms, self.load = MadeArms(), MadeLoad()
        self.states: list[SwitchbackState] = []
        self.tps: Callable[[int, Arm | None], float] = lambda second, arm: 1000.0
        self.change: Callable[[int, Frame], Frame] = lambda second, found: found
        self.experiment = Switchback(
            plan,
            self.frames,
            self.arms,  # type: ignore[arg-type]
            self.load,
            self.states.append,
            own_cycles=own_cycles,
        )

    async def run(self) -> SwitchbackState:
        """To its end."""
        async with self.fed():
            async with asyncio.timeout(60):
                return await self.experiment.run()

    @asynccontextmanager
    async def fed(self) -> AsyncIterator[asyncio.Task[None]]:
        """Frames come."""
        feeding = asyncio.create_task(self._feed())
        try:
            yield feeding
        finally:
            feeding.cancel()

    async def _feed(self) -> None:
        for second in range(1, 100_000):
            self.frames.accept(Step((self.change(second, self._frame(second)),)))
            await asyncio.sleep(0.001)

    def _frame(self, second: int) -> Frame:
        load = bench_sample(second)
        line = BenchProgress(float(second), self.tps(second, self.arms.arm), 8.0, 1.0)
        run = replace(load.run, state=RunState.RUNNING)
        return frame(
            second,
            postgres=server(second),
            host=replace(host_sample(second), processes=NOT_RECORDED),
            bench=replace(load, progress=(line,), run=run),
        )
