"""What evaluations are made with: the load that runs on between them, blocks for the one under way, and the doors to
server and machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from pgtop_tune.changes.ports import ChangeControl, MachineControl
from pgtop_tune.experiment.standing_values import StandingValues
from pgtop_tune.experiment.switchback.arms import Rival
from pgtop_tune.experiment.switchback.block_frames import BlockFrames
from pgtop_tune.experiment.switchback.state import ContinuousLoad, SwitchbackPlan, SwitchbackState
from pgtop_tune.experiment.switchback.switchback import Switchback
from pgtop_tune.experiment.switchback.whole_cycles import OwnCycles
from pgtop_tune.runtime.ports import Step

Seen = Callable[[SwitchbackState], None]


class HeldLoad:
    """A load that outlives an evaluation. Fits `ContinuousLoad`.

    Args:
        load: Started by the first evaluation.

    Attributes:
        runs: Whether it was started, and nobody has seen its end.
    """

    def __init__(self, load: ContinuousLoad) -> None:
        self._load: Final = load
        self.runs = False

    async def start(self) -> None:
        """See `ContinuousLoad.start`."""
        if not self.runs:
            await self._load.start()
            self.runs = True

    async def stop(self) -> None:
        """See `ContinuousLoad.stop`: it goes on."""

    async def end(self) -> None:
        """Ends it."""
        self.runs = False
        await self._load.stop()


class CurrentBlocks:
    """A sink that gives frames to the blocks of the evaluation that is under way."""

    def __init__(self, *, loaded: bool) -> None:
        self._loaded: Final = loaded
        self._newest: Step | None = None
        self.frames = BlockFrames(loaded=loaded)

    def renewed(self) -> BlockFrames:
        """Blocks for the next evaluation, which know the newest frame."""
        self.frames = BlockFrames(loaded=self._loaded)
        if self._newest is not None:
            self.frames.accept(self._newest)
        return self.frames

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        self._newest = step
        self.frames.accept(step)

    def close(self) -> None:
        """See `FrameSink.close`."""
        self.frames.close()


class SeparateWanted(Struct, frozen=True, kw_only=True):
    """An evaluation whose blocks have a load of their own each.

    Attributes:
        plan, frames, seen: See `Switchback`.
        parameters, settings: What the arms differ in, of the server and of its machine.
        restart: Each block begins with a restart.
    """

    plan: SwitchbackPlan
    frames: BlockFrames
    parameters: tuple[Rival, ...]
    settings: tuple[Rival, ...]
    seen: Seen
    restart: bool


class OwnBlocks(Protocol):
    """What an evaluation needs where its arms, or what both share, cannot be switched within one run of the load."""

    @property
    def standing(self) -> StandingValues:
        """The restart-level values that both arms share."""
        ...

    async def answers(self) -> None:
        """Waits until frames show the server as it is after a restart."""
        ...

    def experiment(self, wanted: SeparateWanted) -> Switchback:
        """Blocks that have a load of their own each."""
        ...


class EvaluatingParts(Struct, frozen=True, kw_only=True):
    """What evaluations are made with.

    Attributes:
        control: Parameters of the server.
        load: Held between evaluations.
        blocks: A sink of the engine.
        own_blocks: None where every knob can be switched within one run of the load.
        machine: Settings of the operating system; None where none is among the knobs.
        seen: Takes each state of an evaluation.
        before_set: Told the id of a change set before it is made.
        own_cycles: Of knobs that work through checkpoints; None waits for those of the server.
    """

    control: ChangeControl
    load: HeldLoad
    blocks: CurrentBlocks
    own_blocks: OwnBlocks | None
    machine: MachineControl | None
    seen: Seen
    before_set: Callable[[str], None]
    own_cycles: OwnCycles | None = None
