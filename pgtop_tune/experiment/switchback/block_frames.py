"""A sink that turns frames into blocks, and lets the experiment wait for them."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Set
from contextlib import suppress
from itertools import pairwise
from typing import Final

from pgtop_tune.compare.sides.figures import frame_sums, line_sums
from pgtop_tune.compare.sides.from_recording import budget_of
from pgtop_tune.compare.sides.gathered import LatencySums
from pgtop_tune.compare.sides.material import BUDGET_S
from pgtop_tune.compare.sides.statements import StatementsSeen
from pgtop_tune.experiment.switchback.blocks import Arm, Block
from pgtop_tune.metrics import sections, server
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.checkpoints import CHECKPOINT_WRITES
from pgtop_tune.metrics.client_bound import client_bound
from pgtop_tune.metrics.host import CPU_FOREIGN, CPU_STEAL
from pgtop_tune.metrics.host_details import IO_OTHERS, IO_OWN
from pgtop_tune.metrics.load import UNDER_WAY
from pgtop_tune.metrics.server import checkpoints_between, client_backends
from pgtop_tune.metrics.waits import wait_profile
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchRun, RunState
from pgtop_tune.model.frame import Frame
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
        """A frame with a new look, or with an earlier one."""
        sample = sections.parameters(frame)
        if not isinstance(sample, Unavailable) and (not self._looks or sample is not self._looks[-1]):
            self._looks.append(sample)

    def changed(self, pair_since_s: float, block_since_s: float, switched: Set[str]) -> str:
        """What others changed since the pair began, in words; "" for nothing.

        Args:
            pair_since_s: When the pair began, on the session's clock.
            block_since_s: When the block did.
            switched: Parameters under test: between blocks the experiment changes them itself.
        """
        for before, now in pairwise(self._looks):
            if now.at_s <= pair_since_s:
                continue
            ours = frozenset(switched) if before.at_s <= block_since_s else frozenset[str]()
            if found := parameter_events(before, now, 0, ours):
                return f"{found[0].text}, changed by someone else"
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
        arm: In force.
        settled_s: Left out before.
        measured_s: That are to count.
        loaded: Whether a load of ours tells its transactions.

    Attributes:
        seconds: So far.
        began_s: On the session's clock; 0 before.
        checkpoints: That began within.
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
        self._sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._means: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._waits: defaultdict[str, float] = defaultdict(float)
        self._waited = self._budget_s = 0.0
        self._latencies = LatencySums()
        self._generator = ""
        self._cpus = 0
        self._statements = StatementsSeen()

    def begin(self, frame: Frame) -> None:
        """The frame from which on it counts."""
        self._began_ms = self._ended_ms = frame.taken_at_ms
        self.began_s = frame.elapsed_s
        self._statements = StatementsSeen(frame.elapsed_s - _EARLIER_S)
        self._statements.take(frame)

    def add(self, interval: Interval, seconds: float, line_before_s: float) -> None:
        """The time up to the newest frame.

        Args:
            interval: Frames up to it.
            seconds: Since the frame before.
            line_before_s: Moment of the progress line before this frame, in the load's own time.
        """
        frame = interval.newest
        self.seconds += seconds
        self._ended_ms = frame.taken_at_ms
        self._statements.take(frame)
        for figure, part, whole in frame_sums(interval, seconds, loaded=self._loaded):
            self._add(self._sums, figure, part, whole)
        self._add_transactions(interval, line_before_s)
        for metric in (CHECKPOINT_WRITES, CPU_FOREIGN, CPU_STEAL, IO_OTHERS, IO_OWN):
            if (value := metric(interval)) is not None:
                value = float(value > 0.0) if metric is CHECKPOINT_WRITES else value
                self._add(self._means, metric.id, value * seconds, seconds)
        if (cpu := interval.now(sections.cpu)) is not None:
            self._cpus = len(cpu.cores)
        if (activity := interval.now(sections.activity)) is not None:
            self._add(self._means, _CLIENTS, len(client_backends(activity)) * seconds, seconds)
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
            for figure, part, whole in line_sums(line, lasted_s):
                self._add(self._sums, figure, part, whole)

    def _add_waits(self, interval: Interval) -> None:
        seconds, self._budget_s = self.seconds - self._budget_s, self.seconds
        if waits := wait_profile(interval, self._budget_every_s):
            self._add(self._means, _SESSIONS, sum(each.sessions for each in waits) * seconds, seconds)
        budget = budget_of(
            interval, interval.newest.elapsed_s, None, loaded=self._loaded, window_s=self._budget_every_s
        )
        if budget is None:
            return
        self._waited += budget.transactions
        for label, ms in budget.ms.items():
            self._waits[budget.classes[label]] += ms

    @staticmethod
    def _add(sums: defaultdict[str, list[float]], name: str, part: float, whole: float) -> None:
        sums[name][0] += part
        sums[name][1] += whole

    def take_latencies(self, frame: Frame) -> None:
        """Whole seconds of the transaction log that are of this block, also those that come after it has ended."""
        if isinstance(frame.bench, Unavailable):
            return
        first, behind = math.ceil(self._began_ms / 1000.0), self._ended_ms // 1000
        for second in frame.bench.latencies:
            if first <= second.second < behind:
                self._latencies.add(second)

    def block(self, spoiled: str = "") -> Block:
        """What was measured so far."""
        merged = self._latencies.merged()
        means = {name: part / whole for name, (part, whole) in self._means.items() if whole > 0.0}
        return Block(
            arm=self.arm,
            began_ms=self._began_ms,
            began_s=self.began_s,
            seconds=self.seconds,
            settled_s=self.settled_s,
            tps=tuple(self._tps),
            settling=tuple(self.settling),
            sums={name: (part, whole) for name, (part, whole) in self._sums.items()},
            latencies=merged if merged.logged else None,
            waits={name: ms / self._waited for name, ms in self._waits.items()} if self._waited else {},
            checkpoint=means.get(CHECKPOINT_WRITES.id),
            foreign=means.get(CPU_FOREIGN.id),
            steal=means.get(CPU_STEAL.id),
            foreign_io=means.get(IO_OTHERS.id),
            own_io=means.get(IO_OWN.id),
            cpus=self._cpus,
            generator=self._generator,
            spoiled=spoiled,
            statements=self._statements.foreign(),
            statements_ms=self._statements.all_ms(),
            sessions=means.get(_SESSIONS),
            clients=means.get(_CLIENTS),
            whole_cycle=self.whole_cycle,
        )


class BlockFrames:
    """Implements `FrameSink`. All calls come from the engine's loop.

    Args:
        loaded: Whether a load of ours tells its transactions; else those of the server count.

    Attributes:
        tps: Second by second since `begin`.
        trouble: Why the experiment cannot go on: the load or the server ended; "" otherwise.
        statements: Since `begin`.
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
        """What metrics are computed from; None before the first frame."""
        return Interval(self._frames) if self._frames else None

    @property
    def now_s(self) -> float:
        """The session's clock."""
        return self._frames[-1].elapsed_s + time.monotonic() - self._received_s if self._frames else 0.0

    def begin(self) -> None:
        """The load runs: from now on its end, and that of the server, are trouble."""
        self._watching, self.tps, self._started_ms = True, [], None
        self.statements = StatementsSeen()

    def end(self) -> None:
        """The load may end."""
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
        for each in self._blocks[-2:]:
            each.take_latencies(frame)
        told = self._told(frame, interval)
        self.tps += told
        if block is not None and self._opens_s >= 0.0:
            block.settling += told

    def _told(self, frame: Frame, interval: Interval) -> list[float]:
        """Transactions per second that this frame tells."""
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
        """A block that begins with the first frame once it has settled, and is to have so many seconds."""
        block = self._open = OpenBlock(arm, settle_s, measured_s, loaded=self.loaded)
        self._opens_s = self.now_s + settle_s
        self._blocks.append(block)
        return block

    def stop(self) -> None:
        """The open block takes nothing more but latencies that come late."""
        self._open = None

    async def why(self, timeout_s: float) -> str:
        """The trouble; where the load failed, once the server has told whether it was restarted, or after so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._load_failed and not self._answers_since and not self._closed:
                    await self._changed.wait()
        return self.trouble

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Waits for the condition, looked at with each frame; False in trouble, and when it did not hold in time."""
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
    """ "the load failed: …" with the first of pgbench's last words, or "the load ended"."""
    if run.state is RunState.FAILED and run.message:
        return f"the load failed: {run.message.splitlines()[0]}"
    return "the load ended"
