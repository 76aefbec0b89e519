"""A sink that turns frames into blocks, and lets the experiment wait for them."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from itertools import pairwise
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import duration
from pgtop_tune.compare.sides.figures import frame_sums, line_sums
from pgtop_tune.compare.sides.from_recording import budget_of
from pgtop_tune.compare.sides.material import BUDGET_S, LatencySums, StatementsSeen
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS
from pgtop_tune.experiment.attribution import OF_OTHERS, Means
from pgtop_tune.experiment.switchback.arms import CYCLES_PER_PAIR, SETTLE_S, Arm, ArmBlock, Rival
from pgtop_tune.experiment.switchback.state import Ending, Over
from pgtop_tune.metrics import sections, server
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.checkpoints import CHECKPOINT_WRITES, RATE_WINDOW_S
from pgtop_tune.metrics.client_bound import client_bound
from pgtop_tune.metrics.load import UNDER_WAY
from pgtop_tune.metrics.server import checkpoints_between, client_backends, number
from pgtop_tune.metrics.waits import wait_profile
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchRun, RunState
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.parameter_values import parse
from pgtop_tune.model.postgres import ParameterSample
from pgtop_tune.runtime.ports import Step
from pgtop_tune.sampling.happenings import parameter_events

# What others change of the server's parameters while a pair of blocks is measured, from looks at pg_settings.
#
# The sampler looks again as soon as the server has read its files anew, so that a value which comes and goes within a
# block is seen as well, and so is a parameter that is not under test.

_LOOKS_KEPT: Final = 32
"""Looks; a pair has a handful."""


class ParametersSeen:
    """The newest looks."""

    def __init__(self) -> None:
        self._looks: Final = deque[ParameterSample](maxlen=_LOOKS_KEPT)

    def take(self, frame: Frame) -> None:
        """Take a frame with a new look, or with an earlier one."""
        sample = sections.parameters(frame)
        if not isinstance(sample, Unavailable) and (not self._looks or sample is not self._looks[-1]):
            self._looks.append(sample)

    def changed(self, pair_since_s: float, block_since_s: float, switched: Set[str]) -> str:
        """Return what others changed since the pair began, in words; "" for nothing.

        Args:
            pair_since_s: When the pair began, on the session's clock.
            block_since_s: When the block did.
            switched: Parameters under test: between blocks the experiment changes them itself.
        """
        for before, now in pairwise(self._looks):
            if now.at_s <= pair_since_s:
                continue
            own_changes = frozenset(switched) if before.at_s <= block_since_s else frozenset[str]()
            if events := parameter_events(before, now, 0, own_changes):
                return f"{events[0].text}, changed by someone else"
        return ""


_RESTARTED: Final = "the server was restarted"
_SESSIONS: Final = "active sessions"
_CLIENTS: Final = "sessions of clients"
_KEPT: Final = 130
"""Frames that metrics look back over (`catalogue`)."""
_EARLIER_S: Final = 1.5
"""Counters of statements may be read so long before a block begins: within the time to settle, which is longer."""


class OpenBlock:
    """A block that is being measured.

    Args:
        arm: The arm in force.
        settled_s: Left out before.
        measured_s: The seconds that are to count.
        loaded: Whether a load of ours tells its transactions.

    Attributes:
        seconds: The seconds so far.
        began_s: On the session's clock; 0 before.
        checkpoints: The checkpoints that began within.
        settled_s: Left out before.
        settling: Transactions per second while it settled.
        whole_cycle: It is a checkpoint cycle.
    """

    def __init__(self, arm: Arm, settled_s: float, measured_s: float, *, loaded: bool) -> None:
        self.arm: Final = arm
        self.seconds = 0.0
        self.checkpoints = 0
        self.settled_s = settled_s
        self.settling: list[float] = []
        self.whole_cycle = False
        self._budget_every_s: Final = min(BUDGET_S, measured_s)
        self._loaded: Final = loaded
        self._began_ms = self._ended_ms = 0
        self.began_s = 0.0
        self._tps: list[float] = []
        self._sums = Means()
        self._means = Means()
        self._waits: defaultdict[str, float] = defaultdict(float)
        self._waited = self._budget_s = 0.0
        self._latencies = LatencySums()
        self._generator = ""
        self._cpus = 0
        self._statements = StatementsSeen()

    def begin(self, frame: Frame) -> None:
        """Begin with the frame from which on the block counts."""
        self._began_ms = self._ended_ms = frame.taken_at_ms
        self.began_s = frame.elapsed_s
        self._statements = StatementsSeen(frame.elapsed_s - _EARLIER_S)
        self._statements.take(frame)

    def add(self, interval: Interval, seconds: float, line_before_s: float) -> None:
        """Add the time up to the newest frame.

        Args:
            interval: Frames up to it.
            seconds: The seconds since the frame before.
            line_before_s: Moment of the progress line before this frame, in the load's own time.
        """
        frame = interval.newest
        self.seconds += seconds
        self._ended_ms = frame.taken_at_ms
        self._statements.take(frame)
        for figure, part, total in frame_sums(interval, seconds, loaded=self._loaded):
            self._sums.add(figure, part, total)
        self._add_transactions(interval, line_before_s)
        self._means.add_metrics(OF_OTHERS.values(), interval, seconds)
        if (writes := CHECKPOINT_WRITES(interval)) is not None:
            self._means.add(CHECKPOINT_WRITES.id, seconds if writes > 0.0 else 0.0, seconds)
        if (cpu := interval.now(sections.cpu)) is not None:
            self._cpus = len(cpu.cores)
        if (activity := interval.now(sections.activity)) is not None:
            self._means.add(_CLIENTS, len(client_backends(activity)) * seconds, seconds)
        if (pair := interval.pair(sections.checkpoints)) is not None:
            self.checkpoints += (
                sum(checkpoints_between(*pair) or (0,)) if pair[1].at_s >= frame.elapsed_s - seconds else 0
            )
        if self.seconds - self._budget_s >= self._budget_every_s - seconds / 2.0:
            self._add_waits(interval)
        if self._loaded and (load := client_bound(interval)) is not None:
            self._generator = load.reason if load.bound else ""

    def _add_transactions(self, interval: Interval, line_before_s: float) -> None:
        if not self._loaded:
            tps = server.TPS(interval)
            if tps is not None:
                self._tps.append(tps)
            return
        bench = interval.now(sections.bench)
        for line in () if bench is None else bench.progress:
            lasted_s = line.elapsed_s - line_before_s
            line_before_s = line.elapsed_s
            self._tps.append(line.tps)
            for figure, part, total in line_sums(line, lasted_s):
                self._sums.add(figure, part, total)

    def _add_waits(self, interval: Interval) -> None:
        seconds, self._budget_s = self.seconds - self._budget_s, self.seconds
        if waits := wait_profile(interval, self._budget_every_s):
            self._means.add(_SESSIONS, sum(wait.sessions for wait in waits) * seconds, seconds)
        budget = budget_of(
            interval, interval.newest.elapsed_s, None, loaded=self._loaded, window_s=self._budget_every_s
        )
        if budget is None:
            return
        self._waited += budget.transactions
        for label, ms in budget.ms.items():
            self._waits[budget.classes[label]] += ms

    def take_latencies(self, frame: Frame) -> None:
        """Take whole seconds of the transaction log that are of this block, also those that come after its end."""
        if isinstance(frame.bench, Unavailable):
            return
        first, behind = math.ceil(self._began_ms / 1000.0), self._ended_ms // 1000
        for second in frame.bench.latencies:
            if first <= second.second < behind:
                self._latencies.add(second)

    def block(self, spoiled: str = "") -> ArmBlock:
        """Return the measurements so far."""
        merged = self._latencies.merged()
        return ArmBlock(
            arm=self.arm,
            began_ms=self._began_ms,
            began_s=self.began_s,
            seconds=self.seconds,
            settled_s=self.settled_s,
            tps=tuple(self._tps),
            settling=tuple(self.settling),
            sums=dict(self._sums.sums),
            latencies=merged if merged.logged else None,
            waits={name: ms / self._waited for name, ms in self._waits.items()} if self._waited else {},
            checkpoint=self._means.mean(CHECKPOINT_WRITES.id),
            cpus=self._cpus,
            generator=self._generator,
            spoiled=spoiled,
            statements=self._statements.foreign(),
            statements_ms=self._statements.all_ms(),
            sessions=self._means.mean(_SESSIONS),
            clients=self._means.mean(_CLIENTS),
            whole_cycle=self.whole_cycle,
            **self._means.of_others,
        )


class BlockFrames:
    """The sink that makes blocks of frames. All calls come from the engine's loop.

    Args:
        loaded: Whether a load of ours tells its transactions; else those of the server count.

    Attributes:
        tps: Second by second since `begin`.
        trouble: The reason why the experiment cannot go on: the load or the server ended; "" otherwise.
        statements: The statements since `begin`.
        parameters: Looks at them.
    """

    def __init__(self, *, loaded: bool) -> None:
        self.loaded: Final = loaded
        self.statements = StatementsSeen()
        self.parameters: Final = ParametersSeen()
        self.tps: list[float] = []
        self.trouble = ""
        self._frames: list[Frame] = []
        self._received_s = 0.0
        self._line_s = 0.0
        self._started_ms: int | None = None
        self._watching = self._closed = self._load_failed = self._answers_since = False
        self._open: OpenBlock | None = None
        self._opens_s = 0.0
        self._blocks: list[OpenBlock] = []
        self._changed = asyncio.Event()

    @property
    def interval(self) -> Interval | None:
        """Return the frames that metrics are computed from; None before the first frame."""
        return Interval(self._frames) if self._frames else None

    @property
    def now_s(self) -> float:
        """Return the session's clock."""
        return self._frames[-1].elapsed_s + time.monotonic() - self._received_s if self._frames else 0.0

    def begin(self) -> None:
        """Begin: the load runs, and from now on its end, and that of the server, are trouble."""
        self._watching, self.tps, self._started_ms = True, [], None
        self.statements = StatementsSeen()

    def end(self) -> None:
        """Allow the load to end."""
        self._watching = False

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        for frame in step.frames:
            seconds = frame.elapsed_s - self._frames[-1].elapsed_s if self._frames else 0.0
            self._frames.append(frame)
            del self._frames[:-_KEPT]
            self._received_s = time.monotonic()
            self.parameters.take(frame)
            if self._watching:
                self._watch(frame)
                self.statements.take(frame)
            self._add(frame, seconds)
        self._changed.set()
        self._changed = asyncio.Event()

    def close(self) -> None:
        """See `FrameSink.close`."""
        self._closed = True
        self.trouble = self.trouble or "the session ended"
        self._changed.set()

    def _add(self, frame: Frame, seconds: float) -> None:
        interval = Interval(self._frames)
        block = self._open
        if block is not None and self._opens_s <= frame.elapsed_s:
            if block.seconds or self._opens_s < 0.0:
                block.add(interval, seconds, self._line_s)
            else:
                block.begin(frame)
                self._opens_s = -1.0
        for newest_block in self._blocks[-2:]:
            newest_block.take_latencies(frame)
        tps = self._told(frame, interval)
        self.tps += tps
        if block is not None and self._opens_s >= 0.0:
            block.settling += tps

    def _told(self, frame: Frame, interval: Interval) -> list[float]:
        """Return transactions per second that this frame tells."""
        if not self.loaded:
            tps = server.TPS(interval)
            return [] if tps is None else [tps]
        if isinstance(frame.bench, Unavailable) or not frame.bench.progress:
            return []
        self._line_s = frame.bench.progress[-1].elapsed_s
        return [line.tps for line in frame.bench.progress]

    def _watch(self, frame: Frame) -> None:
        facts = sections.server(frame)
        if not isinstance(facts, Unavailable):
            if self._started_ms not in (None, facts.started_ms):
                # It is why the load failed, too: the load knows of the end sooner.
                self.trouble = _RESTARTED if self._load_failed else self.trouble or _RESTARTED
            self._started_ms = facts.started_ms
            self._answers_since = self._load_failed
        if self.loaded and not isinstance(frame.bench, Unavailable) and frame.bench.run.state not in UNDER_WAY:
            failed = frame.bench.run.state is RunState.FAILED and bool(frame.bench.run.message)
            self._load_failed = self._load_failed or (failed and not self.trouble)
            self.trouble = self.trouble or how_ended(frame.bench.run)

    def open(self, arm: Arm, settle_s: float, measured_s: float) -> OpenBlock:
        """Return a block that begins with the first frame once it has settled, and is to have so many seconds."""
        block = self._open = OpenBlock(arm, settle_s, measured_s, loaded=self.loaded)
        self._opens_s = self.now_s + settle_s
        self._blocks.append(block)
        return block

    def stop(self) -> None:
        """Close the open block to all but latencies that come late."""
        self._open = None

    async def why(self, timeout_s: float) -> str:
        """Return the trouble; where the load failed, wait until the server has told whether it was restarted."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._load_failed and not self._answers_since and not self._closed:
                    await self._changed.wait()
        return self.trouble

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for the condition, looked at with each frame; False in trouble, and when it did not hold in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.trouble:
                    if condition():
                        return True
                    await self._changed.wait()
        except TimeoutError:
            pass
        return False


def how_ended(run: BenchRun) -> str:
    """Return "the load failed: …" with the first of pgbench's last words, or "the load ended"."""
    if run.state is RunState.FAILED and run.message:
        return f"the load failed: {run.message.splitlines()[0]}"
    return "the load ended"


# Blocks that are whole checkpoint cycles, for parameters that work through checkpoints: cycles of the server, however
# long, or cycles that the experiment makes.

# How long a checkpoint cycle takes with other values than those in force. Pure.

_MIB = 1 << 20
_UNITS = {"checkpoint_timeout": "s", "max_wal_size": "MB", "checkpoint_completion_target": ""}


def cycle_s(interval: Interval, values: Mapping[str, str]) -> float | None:
    """Return seconds from the begin of a checkpoint to the next: checkpoint_timeout, or less where WAL forces it.

    Args:
        interval: Frames with the WAL rate of the last seconds.
        values: Values, as typed, of parameters that are to be changed; the others are those in force.
    """
    settings = {name: _value(interval, values, name) for name in _UNITS}
    timeout_s, size, target = (
        settings["checkpoint_timeout"],
        settings["max_wal_size"],
        settings["checkpoint_completion_target"],
    )
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
"""The assumed length of the CHECKPOINT before a block."""


class OwnCycles(Struct, frozen=True):
    """Cycles that the experiment makes: a block lies between two CHECKPOINTs, so that blocks of all values begin alike
    and pay for what they wrote. What the server itself would spread over a longer cycle is not seen.

    Attributes:
        seconds: The seconds from the first to the second, which comes on top.
        checkpoint: Makes one. Raises a PgtopError.
    """

    seconds: float
    checkpoint: Callable[[], Awaitable[None]]

    @property
    def pair_s(self) -> float:
        """Return the expected length of a pair of blocks."""
        return own_pair_s(self.seconds)

    async def end(self, block: OpenBlock, wait: Wait) -> None:
        """Make the second checkpoint, and wait for the first frame behind it: the block's writes are a part of it.

        Raises:
            Over: The load or the server ended.
            PgtopError: It was refused.
        """
        await self.checkpoint()
        ended_s = block.seconds
        await wait(lambda: block.seconds > ended_s, _LATE_S)


def own_pair_s(seconds: float) -> float:
    """Return expected length of a pair of blocks, each between CHECKPOINTs `seconds` apart."""
    return 2.0 * (seconds + 2.0 * _AROUND_S)


class WholeCycles:
    """Blocks that are whole checkpoint cycles.

    Args:
        frames: A sink of the engine.
        rivals: The rivals of the experiment.
        own_cycles: None for the cycles of the server.
        wait: The experiment's way to wait.
    """

    def __init__(self, frames: BlockFrames, rivals: Sequence[Rival], own_cycles: OwnCycles | None, wait: Wait) -> None:
        self._frames: Final = frames
        self._rivals: Final = tuple(rivals)
        self._own: Final = own_cycles
        self._wait: Final = wait
        self._cycle_s = 0.0

    def plan(self, remaining_s: float, elapsed_s: float) -> str:
        """Return under the load, before the first block: how long blocks are, in words.

        Raises:
            Over: Too few fit into the time, or how long a cycle takes is not known.
        """
        if self._own is not None:
            return f"blocks are checkpoint cycles of {duration(self._own.seconds)}, made by CHECKPOINT"
        interval = self._frames.interval
        cycles = [
            None if interval is None else cycle_s(interval, {rival.name: rival.value(arm) for rival in self._rivals})
            for arm in Arm
        ]
        if None in cycles:
            raise Over(Ending.FAILED, "the length of a checkpoint cycle is unknown")
        self._cycle_s = max(seconds for seconds in cycles if seconds is not None)
        needed_s = FEWEST_PAIRS * self.pair_s
        if needed_s > remaining_s:
            names = ", ".join(rival.name for rival in self._rivals)
            raise Over(
                Ending.TOO_SHORT,
                f"{names} acts through checkpoints, {duration(self._cycle_s)} apart under this load: whole cycles need"
                f" --for {duration(needed_s + elapsed_s)}; or compare separate runs: pgtop-tune bench run --repeat",
            )
        return f"blocks are whole checkpoint cycles of up to {duration(self._cycle_s)}"

    @property
    def pair_s(self) -> float:
        """Return the expected length of a pair."""
        return CYCLES_PER_PAIR * self._cycle_s if self._own is None else self._own.pair_s

    @property
    def longest_s(self) -> float:
        """Return a block takes no longer."""
        if self._own is None:
            return _TOLERANCE * 2.0 * self._cycle_s + _LATE_S
        return self._own.seconds + 2.0 * _CHECKPOINT_S + _LATE_S

    async def block(self, arm: Arm, measuring: Callable[[], None], *, changed: bool) -> OpenBlock:
        """Measure one, still open.

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
        own_cycles = self._own
        if own_cycles is None:
            await self._wait(lambda: block.checkpoints > 0, self.longest_s)
            return
        await self._wait(lambda: block.seconds >= own_cycles.seconds - 0.5, self.longest_s)
        await own_cycles.end(block, self._wait)
