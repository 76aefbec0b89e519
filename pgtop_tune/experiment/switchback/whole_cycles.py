"""Blocks that are whole checkpoint cycles, for parameters that work through checkpoints: cycles of the server, however
long, or cycles that the experiment makes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import duration
from pgtop_tune.compare.sides.material import BUDGET_S
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS
from pgtop_tune.experiment.switchback.arms import Rival
from pgtop_tune.experiment.switchback.block_frames import BlockFrames, OpenBlock
from pgtop_tune.experiment.switchback.blocks import CYCLES_PER_PAIR, SETTLE_S, Arm
from pgtop_tune.experiment.switchback.state import Ending, Over
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.checkpoints import RATE_WINDOW_S
from pgtop_tune.metrics.server import number
from pgtop_tune.model.parameter_values import parse

# How long a checkpoint cycle takes with other values than those in force. Pure.

_MIB = 1 << 20
_UNITS = {"checkpoint_timeout": "s", "max_wal_size": "MB", "checkpoint_completion_target": ""}


def cycle_s(interval: Interval, values: Mapping[str, str]) -> float | None:
    """Seconds from the begin of a checkpoint to the next: checkpoint_timeout, or less where WAL forces it.

    Args:
        interval: With the WAL rate of the last seconds.
        values: As typed, of parameters that are to be changed; the others are those in force.
    """
    found = {name: _value(interval, values, name) for name in _UNITS}
    timeout_s, size, target = found["checkpoint_timeout"], found["max_wal_size"], found["checkpoint_completion_target"]
    if timeout_s is None or size is None or target is None:
        return None
    recent = interval.recent(sections.wal, RATE_WINDOW_S, least=2)
    if len(recent) < 2 or recent[0].lsn_bytes is None or recent[-1].lsn_bytes is None:
        return timeout_s
    per_s = (recent[0].lsn_bytes - recent[-1].lsn_bytes) / (recent[0].at_s - recent[-1].at_s)
    return min(timeout_s, size * _MIB / (1.0 + target) / per_s) if per_s > 0.0 else timeout_s


def _value(interval: Interval, values: Mapping[str, str], name: str) -> float | None:
    if name not in values:
        return number(interval, name)
    return parse(values[name], _UNITS[name], integer=name != "checkpoint_completion_target")


Wait = Callable[[Callable[[], bool], float], Awaitable[None]]
"""Waits until a condition holds, which each frame checks, or the seconds given are over. Raises Over where the load or
the server ended."""
_TOLERANCE: Final = 2.0
_LATE_S: Final = 30.0
"""A busy machine's frames come late, and blocks settle."""
_CHECKPOINT_S: Final = 60.0
_AROUND_S: Final = 2.0
"""What the CHECKPOINT before a block takes, as assumed."""


class OwnCycles(Struct, frozen=True):
    """Cycles that the experiment makes: a block lies between two CHECKPOINTs, so that blocks of all values begin alike
    and pay for what they wrote. What the server itself would spread over a longer cycle is not seen.

    Attributes:
        seconds: From the first to the second, which comes on top.
        checkpoint: Makes one. Raises a PgtopError.
    """

    seconds: float
    checkpoint: Callable[[], Awaitable[None]]

    @property
    def pair_s(self) -> float:
        """Of a pair of blocks, as assumed."""
        return own_pair_s(self.seconds)

    async def end(self, block: OpenBlock, wait: Wait) -> None:
        """The second one, up to the first frame behind it: what the block has written is a part of it.

        Raises:
            Over: The load or the server ended.
            PgtopError: It was refused.
        """
        await self.checkpoint()
        ended_s = block.seconds
        await wait(lambda: block.seconds > ended_s, _LATE_S)


def own_pair_s(seconds: float) -> float:
    """Expected length of a pair of blocks, each between CHECKPOINTs `seconds` apart."""
    return 2.0 * (seconds + 2.0 * _AROUND_S)


class WholeCycles:
    """Measures the blocks of an experiment.

    Args:
        frames: A sink of the engine.
        rivals: Of the experiment.
        own: None for the cycles of the server.
        wait: Of the experiment.
    """

    def __init__(self, frames: BlockFrames, rivals: Sequence[Rival], own: OwnCycles | None, wait: Wait) -> None:
        self._frames: Final = frames
        self._rivals: Final = tuple(rivals)
        self._own: Final = own
        self._wait: Final = wait
        self._cycle_s = 0.0

    def plan(self, remaining_s: float, elapsed_s: float) -> str:
        """Under the load, before the first block: how long blocks are, in words.

        Raises:
            Over: Too few fit into the time, or how long a cycle takes is not known.
        """
        if self._own is not None:
            return f"blocks are checkpoint cycles of {duration(self._own.seconds)}, made by CHECKPOINT"
        interval = self._frames.interval
        cycles = [
            None if interval is None else cycle_s(interval, {each.name: each.value(arm) for each in self._rivals})
            for arm in Arm
        ]
        if None in cycles:
            raise Over(Ending.FAILED, "the length of a checkpoint cycle is not known")
        self._cycle_s = max(each for each in cycles if each is not None)
        needed_s = FEWEST_PAIRS * self.pair_s
        if needed_s > remaining_s:
            names = ", ".join(rival.name for rival in self._rivals)
            raise Over(
                Ending.TOO_SHORT,
                f"{names} works through checkpoints, {duration(self._cycle_s)} apart under this load: whole cycles need"
                f" --for {duration(needed_s + elapsed_s)}. Or judge it by runs: pgtop-tune bench run --repeat",
            )
        return f"blocks are whole checkpoint cycles of up to {duration(self._cycle_s)}"

    @property
    def pair_s(self) -> float:
        """Of a pair, as assumed."""
        return CYCLES_PER_PAIR * self._cycle_s if self._own is None else self._own.pair_s

    @property
    def longest_s(self) -> float:
        """A block takes no longer."""
        if self._own is None:
            return _TOLERANCE * 2.0 * self._cycle_s + _LATE_S
        return self._own.seconds + 2.0 * _CHECKPOINT_S + _LATE_S

    async def block(self, arm: Arm, measuring: Callable[[], None], *, changed: bool) -> OpenBlock:
        """Measures one, still open.

        Args:
            measuring: Called once what counts begins.
            changed: The arm was put into force just now.

        Raises:
            Over: The load or the server ended.
            PgtopError: A CHECKPOINT was refused.
        """
        since_s = self._frames.now_s
        if self._own is not None:
            await self._own.checkpoint()
        elif changed:
            # The cycle under way holds pages of the other arm: the next one begins with a checkpoint.
            settling = self._frames.open(arm, SETTLE_S, BUDGET_S)
            await self._wait(lambda: settling.checkpoints > 0, self.longest_s)
            self._frames.stop()
        settled_s = self._frames.now_s - since_s
        block = self._frames.open(arm, 0.0, BUDGET_S)
        block.whole_cycle = True
        await self._wait(lambda: block.seconds > 0.0, self.longest_s)
        measuring()
        await self._end(block)
        block.settled_s = settled_s
        return block

    async def _end(self, block: OpenBlock) -> None:
        own = self._own
        if own is None:
            await self._wait(lambda: block.checkpoints > 0, self.longest_s)
            return
        await self._wait(lambda: block.seconds >= own.seconds - 0.5, self.longest_s)
        await own.end(block, self._wait)
