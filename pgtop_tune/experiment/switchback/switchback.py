"""The experiment: a load that runs on, arms by turns, an evaluation after each pair, and everything put back."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, PgtopError, UsageProblem
from pgtop_tune.base.units import count, duration
from pgtop_tune.compare.sides.figures import FAILED, LATENCY, TPS
from pgtop_tune.compare.statement_rows import SAME_MIX
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS
from pgtop_tune.experiment.attribution import attribution
from pgtop_tune.experiment.noise_floor import known_floor, seen_in
from pgtop_tune.experiment.prediction import Trial, predict, prediction_words
from pgtop_tune.experiment.switchback.arms import (
    QUICK,
    QUICK_READINGS,
    Arm,
    ArmBlock,
    Arms,
    BlockPair,
    longer,
    orders,
)
from pgtop_tune.experiment.switchback.block_frames import BlockFrames, OpenBlock, OwnCycles, WholeCycles
from pgtop_tune.experiment.switchback.evaluation import (
    PairsEvaluation,
    evaluate,
    missing_words,
    slower_calls,
    why_no_mix,
)
from pgtop_tune.experiment.switchback.plans import StatementPlans, look_under_both
from pgtop_tune.experiment.switchback.state import (
    ANSWERS,
    NOT_RESTORED,
    OF_VERDICT,
    ContinuousLoad,
    Ending,
    Over,
    SwitchbackPhase,
    SwitchbackPlan,
    SwitchbackState,
)
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.steady_state import FEWEST_S, steady_state
from pgtop_tune.model.run_result import SteadyState

# How soon an effect is in force: measured at the changes of the arm, where it is large enough to be seen there. Pure.
#
# Shorter blocks reach a verdict sooner, and a large effect shows within the seconds of one change whether it builds up.

_UNTIL: Final = 3
"""Pairs after which lengths stay as they are."""
_LATER_S: Final = int(QUICK.settle_s)
"""Seconds of a change that are never looked at: the load tells its seconds late."""
_FEWEST: Final = 3
"""Seconds of settling behind them that are looked at."""
_COVERED: Final = 0.9
"""Share of the step that has been made then. Sure to be at least `_SURELY`, one-sided at 95 %."""
_SURELY: Final = 0.6
_ONE_SIDED: Final = 1.645
_CLEAR: Final = 27.0
"""Times its variance that the square of a step has to be: three standard errors, of seconds that resemble each other
so much that a third of them count."""


def at_once(pairs: Sequence[BlockPair]) -> bool:
    """Return whether the changes of the arm show the whole effect after its settle time: `QUICK` blocks will do.

    The share of the step that the seconds behind it have made, over all changes by least squares through the origin,
    has to be 90 %, and surely more than 60 %; an effect that is small beside the noise shows nothing.
    """
    steps = [*_steps([block for pair in pairs for block in pair.blocks])]
    size = math.fsum(step.tps**2 for step in steps)
    if len(pairs) > _UNTIL or size <= _CLEAR * math.fsum(step.variance for step in steps):
        return False
    share_made = math.fsum(step.tps * step.settled_tps for step in steps) / size
    error = math.sqrt(math.fsum(step.tps**2 * step.settled_variance for step in steps)) / size
    return share_made >= _COVERED and share_made - _ONE_SIDED * error >= _SURELY


class _ArmChange(Struct, frozen=True):
    """A change of the arm, in transactions per second.

    Attributes:
        tps: Mean after it less mean before.
        variance: The variance of that difference.
        settled_tps: The part of it that had been made while it settled.
        settled_variance: The variance of that part.
    """

    tps: float
    variance: float
    settled_tps: float
    settled_variance: float


def _steps(blocks: Sequence[ArmBlock]) -> Iterator[_ArmChange]:
    for before, after in pairwise(blocks):
        settling = after.settling[_LATER_S:]
        if before.arm is after.arm or len(settling) < _FEWEST or min(len(before.tps), len(after.tps)) < _FEWEST:
            continue
        level, of_level = fmean(before.tps), _variance(before.tps) / len(before.tps)
        spread = _variance(after.tps)
        yield _ArmChange(
            tps=fmean(after.tps) - level,
            variance=of_level + spread / len(after.tps),
            settled_tps=fmean(settling) - level,
            settled_variance=of_level + spread / len(settling),
        )


def _variance(seconds: Sequence[float]) -> float:
    mean = fmean(seconds)
    return math.fsum((tps - mean) ** 2 for tps in seconds) / (len(seconds) - 1)


# Whether the load of an experiment is steady by now. Pure.

_NOISE: Final = 0.5
"""A drift as large as this may hide in it."""
_WINDOWS: Final = (120, 60, 40, 30, 20)
"""Newest seconds that are looked at, besides all of them: what was before is the warm-up."""


def newest_steady(seconds: Sequence[float]) -> SteadyState:
    """Return the state of all seconds, or of the newest that show no drift beyond their noise.

    The noise may be larger than that of a single run: pairs of blocks are compared, and a coin orders them.
    """
    overall = steady_state(seconds, _NOISE)
    newest = (steady_state(seconds[-window:], _NOISE) for window in _WINDOWS if window < len(seconds))
    return overall if overall.steady else next((state for state in newest if state.steady), overall)


# When an experiment stops at once: two blocks of B in a row that do harm. No statistics: a guard. Pure.

_LOW: Final = 0.5
_LONG: Final = 2.0
_FAILED_POINTS: Final = 5.0
"""Per cent of transactions that fail under B and not under A."""
_IN_A_ROW: Final = 2
_USUAL: Final = 10
"""Blocks of A before them: the worst of these shows what happens under A, too."""


class Harm(Struct, frozen=True):
    """The harm that B does to the load.

    Attributes:
        times: Its figure, of A's usual one.
        finding: The harm in words, without the reason below.
        unattributable: The reason why it is not due to the parameters; "" where it is.
    """

    times: float
    finding: str
    unattributable: str = ""

    @property
    def reason(self) -> str:
        """Return the reason of the ending."""
        return f"stopped: {self.finding}{f'; {self.unattributable}' if self.unattributable else ''}"


def harm(blocks: Sequence[ArmBlock], objective: str = TPS) -> Harm | None:
    """Return the harm for which the experiment stops; None where it may go on.

    Args:
        blocks: Blocks in the order of time.
        objective: The figure that decides; a load that is judged by latency has a rate, and keeps its throughput.
    """
    if (collapse := collapsed(blocks, objective)) is not None:
        return collapse
    if objective == LATENCY and (sides := _last_and_usual(blocks, lambda block: block.figure(LATENCY))) is not None:
        last, usual = sides
        if min(last.values) >= _LONG * max(usual.values) > 0.0:
            times = fmean(last.values) / median(usual.values)
            because = _because(usual.blocks, last.blocks, 1.0 / times)
            return Harm(times, f"latency under B is {times:.1f} times the latency under A", because)
    if (sides := _last_and_usual(blocks, lambda block: block.figure(FAILED) or 0.0)) is not None:
        last, usual = sides
        if min(last.values) >= max(usual.values) + _FAILED_POINTS:
            return Harm(math.inf, f"{fmean(last.values):.0f} % of the transactions under B fail")
    return None


def collapsed(blocks: Sequence[ArmBlock], objective: str = TPS) -> Harm | None:
    """Return the harm where B's last two blocks were below half of each of A's before and among them; else None.

    Args:
        blocks: Blocks in the order of time.
        objective: Of the same mix of statements calls must take twice as long, too: a foreign load may go away.
    """
    sides = _last_and_usual(blocks, lambda block: block.mean_tps)
    if sides is None:
        return None
    last, usual = sides
    if max(last.values) >= _LOW * min(usual.values):
        return None
    if objective == SAME_MIX and not slower_calls(blocks, 1.0 / _LOW, _IN_A_ROW):
        return None
    share = fmean(last.values) / median(usual.values)
    return Harm(share, f"B ran at {100.0 * share:.0f} % of A", _because(usual.blocks, last.blocks, share))


def _because(usual: Sequence[ArmBlock], last: Sequence[ArmBlock], share: float) -> str:
    """Return why B's share of A's figure is not attributable to the parameters; "" where it is."""
    sides = [block.surroundings for block in usual], [block.surroundings for block in last]
    return attribution(*sides, share - 1.0, share - 1.0)[0]


class _Of(Struct, frozen=True):
    """Blocks that have a figure, and its values."""

    blocks: list[ArmBlock]
    values: list[float]


def _last_and_usual(blocks: Sequence[ArmBlock], of: Callable[[ArmBlock], float | None]) -> tuple[_Of, _Of] | None:
    """Return a figure of B's last two blocks, and of A's before and among them; None where there are too few.

    One of these blocks of A comes after the first of B's two: a load that slumps by itself slumps there, too. One that
    goes up and down by itself did so within the blocks of A before. Blocks that do not count are left out.
    """
    counted = [block for block in blocks if not block.spoiled]
    places = [index for index, block in enumerate(counted) if block.arm is Arm.B][-_IN_A_ROW:]
    if len(places) < _IN_A_ROW:
        return None
    before = [block for block in counted[: places[0]] if block.arm is Arm.A][-_USUAL:]
    after = [block for block in counted[places[0] :] if block.arm is Arm.A]
    last, usual = _with(of, [counted[index] for index in places]), _with(of, [*before, *after])
    return (last, usual) if after and usual.values and len(last.values) == _IN_A_ROW else None


def _with(of: Callable[[ArmBlock], float | None], blocks: Sequence[ArmBlock]) -> _Of:
    measured = [(block, value) for block in blocks if (value := of(block)) is not None]
    return _Of([block for block, _ in measured], [value for _, value in measured])


_FIRST_SECOND_S: Final = 60.0
"""A load that connects many clients takes its time until its first transaction."""
_STEADY_SHARE: Final = 1 / 3
"""The share of the experiment's time in which the load has to get steady."""
_STEADY_LEAST_S: Final = 60.0
_LATE_S: Final = 15.0
"""A busy machine's frames come late."""
_BETWEEN_LOOKS: Final = 5
_SPOILED_IN_A_ROW: Final = 3
_PLANNED: Final = frozenset({*ANSWERS, Ending.UNDECIDED, Ending.NOT_ATTRIBUTABLE})
"""Endings after which plans are worth a look."""


class Switchback:
    """An experiment; `run` in the engine's loop.

    Args:
        plan: The request.
        frames: A sink of the engine.
        arms: Puts values into force.
        load: The load.
        take_state: Takes each new state.
        trials: Made earlier on this server.
        plans: Plans statements at the end; None where they are not asked for.
        own_cycles: The cycles for parameters that work through checkpoints; None waits for the server's own.

    Attributes:
        state: The newest. Thread-safe.
    """

    def __init__(
        self,
        plan: SwitchbackPlan,
        frames: BlockFrames,
        arms: Arms,
        load: ContinuousLoad,
        take_state: Callable[[SwitchbackState], None] = lambda state: None,
        trials: Sequence[Trial] = (),
        plans: StatementPlans | None = None,
        own_cycles: OwnCycles | None = None,
    ) -> None:
        self.plan: Final = plan
        self.state = SwitchbackState(remaining_s=plan.for_s)
        self._frames: Final = frames
        self._arms: Final = arms
        self._load: Final = load
        self._take_state: Final = take_state
        self._trials: Final = tuple(trials)
        self._plans: Final = plans
        self._lengths = plan.lengths
        self._objective = plan.objective
        self._cycles: Final = WholeCycles(frames, plan.rivals, own_cycles, self._wait) if plan.by_checkpoints else None
        self._began_s = time.monotonic()
        self._pair_since_s = 0.0
        self._open: list[tuple[BlockPair, OpenBlock, OpenBlock]] = []
        self._blocks: list[ArmBlock] = []

    async def run(self) -> SwitchbackState:
        """Run until the experiment ends; the state that is returned has its ending.

        Raises:
            PgtopError: It could not begin; nothing is changed.
            asyncio.CancelledError: It was stopped; everything is put back, and the state has what was measured.
        """
        if self.plan.for_s < self.plan.least_s:
            raise UsageProblem(
                f"{duration(self.plan.for_s)} is too short for a verdict",
                f"four pairs of blocks and the warm-up need --for {duration(self.plan.least_s)}",
            )
        await self._arms.check(_STEADY_LEAST_S)
        await self._load.start()
        ending, reason = Ending.INTERRUPTED, "stopped by the operator"
        try:
            await self._measure()
        except Over as over:
            ending, reason = over.ending, over.reason
            if ending is Ending.ENDED:
                reason = await self._frames.why(_LATE_S) or over.reason
            await self._look_at_plans(ending)
        except ConnectionProblem as problem:
            # A restart shows once the server is back.
            await self._frames.until(lambda: False, _LATE_S)
            ending, reason = Ending.ENDED, self._frames.trouble or problem.message
        except PgtopError as problem:
            ending, reason = Ending.FAILED, problem.message
        finally:
            if self.state.pairs:
                self._put(evaluation=self._evaluated(self.state.pairs, final=True))
            self._put(phase=SwitchbackPhase.PUTTING_BACK, arm=None)
            await self._put_back(ending)
            self._put(phase=SwitchbackPhase.OVER, ending=ending, reason=reason)
        return self.state

    async def _look_at_plans(self, ending: Ending) -> None:
        """Look at the plans of the statements with most time under both arms; a failure is a note."""
        if self._plans is None or ending not in _PLANNED or not self.state.pairs:
            return
        comparison = self._evaluated(self.state.pairs, final=True).statements
        if comparison is None:
            self._note("no plans: no statement counters")
            return
        self._put(phase=SwitchbackPhase.PLANNING, arm=None)
        try:
            self._put(plans=await look_under_both(self._plans, self._arms, comparison, self._frames.statements))
        except PgtopError as problem:
            self._note(f"no plans: {problem.message}")

    async def _put_back(self, ending: Ending) -> None:
        """End the load and restore the values; a better B stays where that was asked for."""
        evaluation = self.state.evaluation
        self._frames.end()
        kept = False
        if self.plan.keep_better and ending is Ending.BETTER and evaluation is not None:
            reason = evaluation.trade
            try:
                if not reason:
                    await self._arms.keep(Arm.B)
                    kept = True
            except PgtopError as problem:
                reason = problem.message
            self._note_afterwards(f"B is not kept: {reason}" if reason else "B is kept")
        if not kept and (problem_left := await self._arms.restore(f"ab: {ending}")):
            self._note_afterwards(f"{NOT_RESTORED}: {problem_left}")
        await self._load.stop()

    async def _measure(self) -> None:
        """Measure pairs until there is a verdict. Always ends by raising `Over`, or a PgtopError."""
        self._began_s = time.monotonic()
        self._frames.begin()
        await self._warm_up()
        if self._cycles is not None:
            self._note(self._cycles.plan(self.plan.for_s - self.elapsed_s, self.elapsed_s))
        spoiled = 0
        for number, order in enumerate(orders(self.plan.seed), 1):
            pair = await self._pair(number, order)
            self._judge()
            spoiled = spoiled + 1 if pair.spoiled else 0
            if spoiled >= _SPOILED_IN_A_ROW:
                raise Over(Ending.CHANGED, f"{spoiled} pairs in a row do not count: {pair.spoiled}")
            self._end_if_decided()

    async def _warm_up(self) -> None:
        """Wait until the load is steady."""
        if self.plan.steady:
            return
        self._put(phase=SwitchbackPhase.WARMING_UP)
        frames, limit_s = self._frames, max(_STEADY_LEAST_S, self.plan.for_s * _STEADY_SHARE)
        if not await frames.until(lambda: len(frames.tps) > 0, _FIRST_SECOND_S):
            self._check_trouble()
            raise Over(Ending.NOT_STEADY, "no transaction ended")
        steadiness = steady_state(())
        while self.elapsed_s < limit_s:
            least_seconds = max(len(frames.tps) + _BETWEEN_LOOKS, FEWEST_S)
            await self._wait(lambda: len(frames.tps) >= least_seconds, least_seconds + _LATE_S)  # noqa: B023
            steadiness = newest_steady(frames.tps)
            self._put(warm_up_tps=tuple(frames.tps))
            if steadiness.steady:
                self._note(f"the load is steady at {count(steadiness.tps)} tps")
                self._choose_objective()
                self._predict()
                await self._tell_noise()
                return
        raise Over(Ending.NOT_STEADY, f"the load does not become steady: {steadiness.reason}")

    async def _tell_noise(self) -> None:
        """Note the smallest difference that the time can show under this load; end the experiment without one."""
        interval = self._frames.interval
        load = None if interval is None else interval.now(sections.bench)
        if interval is None or load is None or self._objective != TPS or self.plan.by_checkpoints:
            return
        floor = await asyncio.to_thread(known_floor, interval.newest, load.run)
        if floor is None:
            return
        in_time = seen_in(floor, self.plan.for_s - self.elapsed_s, self._lengths.pair_s, QUICK.pair_s)
        if in_time.hopeless:
            needed = "" if in_time.needed_s is None else f": --for {duration(in_time.needed_s + self.elapsed_s)}"
            raise Over(Ending.TOO_SHORT, f"{in_time.sentence}{needed}")
        self._note(in_time.sentence)

    def _choose_objective(self) -> None:
        """Let TPS decide in place of the same mix of statements, where the server does not tell the mix."""
        if self._objective != SAME_MIX:
            return
        if reason := why_no_mix([rival.name for rival in self.plan.rivals], self._frames.interval):
            self._objective = TPS
            self._note(f"tps decides: {reason}")

    def _evaluated(self, pairs: Sequence[BlockPair], *, final: bool = False) -> PairsEvaluation:
        return evaluate(pairs, self._objective, final=final, text=self._frames.statements.text)

    def _predict(self) -> None:
        interval = self._frames.interval
        if not self.plan.a_in_force or self.plan.objective not in (TPS, SAME_MIX) or interval is None:
            return
        rivals = sorted(self.plan.rivals, key=lambda rival: rival.name)
        names, values = [rival.name for rival in rivals], [(rival.a, rival.b) for rival in rivals]
        if (prediction := predict(interval, names, values, self._trials, self.plan.load)) is not None:
            self._put(prediction=prediction)
            if sentence := prediction_words(prediction):
                self._note(f"prediction: {sentence}")

    async def _pair(self, number: int, order: tuple[Arm, Arm]) -> BlockPair:
        """Measure one pair."""
        if self.elapsed_s + self._pair_s > self.plan.for_s:
            self._end_undecided("the time limit is reached")
        self._put(pair=number, arm=None)
        self._pair_since_s = self._frames.now_s
        opened: dict[Arm, tuple[OpenBlock, str]] = {}
        for arm in order:
            opened[arm] = await self._block(arm)
            self._blocks.append(opened[arm][0].block(opened[arm][1]))
            if (damage := harm(self._blocks, self._objective)) is not None:
                raise Over(Ending.NOT_ATTRIBUTABLE if damage.unattributable else Ending.COLLAPSED, damage.reason)
        (a, a_spoiled), (b, b_spoiled) = opened[Arm.A], opened[Arm.B]
        pair = BlockPair(number, order[0], a.block(a_spoiled), b.block(b_spoiled))
        self._open.append((pair, a, b))
        return pair

    @property
    def _pair_s(self) -> float:
        return self._lengths.pair_s if self._cycles is None else self._cycles.pair_s

    async def _block(self, arm: Arm) -> tuple[OpenBlock, str]:
        """Measure one block; why it does not count, "" where it does."""
        changed = await self._arms.to(arm, self._lengths_s if self._cycles is None else self._cycles.longest_s)
        self._put(phase=SwitchbackPhase.SETTLING if changed else SwitchbackPhase.MEASURING, arm=arm)
        if self._cycles is None:
            block = await self._of_lengths(arm, self._lengths.settle_s if changed else 0.0)
        else:
            block = await self._cycles.block(arm, lambda: self._put(phase=SwitchbackPhase.MEASURING), changed=changed)
        self._frames.stop()
        return block, await self._spoiled(block)

    async def _spoiled(self, block: OpenBlock) -> str:
        """Return what others have changed since the pair began; "" for nothing."""
        spoiled = await self._arms.foreign_change()
        switched = frozenset(rival.name for rival in self.plan.rivals)
        return spoiled or self._frames.parameters.changed(self._pair_since_s, block.began_s, switched)

    async def _of_lengths(self, arm: Arm, settle_s: float) -> OpenBlock:
        block = self._frames.open(arm, settle_s, self._lengths.measured_s)
        await self._wait(lambda: block.seconds > 0.0, self._lengths_s)
        self._put(phase=SwitchbackPhase.MEASURING)
        await self._wait(lambda: block.seconds >= self._lengths.measured_s - 0.5, self._lengths_s)
        block.settled_s = settle_s
        return block

    @property
    def _lengths_s(self) -> float:
        """Return a block of these lengths takes no longer."""
        return self._lengths.settle_s + self._lengths.measured_s + _LATE_S

    async def _wait(self, condition: Callable[[], bool], timeout_s: float) -> None:
        def look() -> bool:
            self._put()
            return condition()

        if not await self._frames.until(look, timeout_s):
            self._check_trouble()

    def _check_trouble(self) -> None:
        if self._frames.trouble:
            raise Over(Ending.ENDED, self._frames.trouble)

    def _judge(self) -> None:
        """Evaluate the pairs; latencies of the last block may have come since."""
        self._open = [
            (replace(pair, a=a.block(pair.a.spoiled), b=b.block(pair.b.spoiled)), a, b) for pair, a, b in self._open
        ]
        pairs = tuple(pair for pair, _, _ in self._open)
        evaluation = self._evaluated(pairs)
        self._put(pairs=pairs, evaluation=evaluation)
        self._fit_lengths(pairs, evaluation)

    def _fit_lengths(self, pairs: tuple[BlockPair, ...], evaluation: PairsEvaluation) -> None:
        """Make the next blocks longer or shorter, as the effect has shown."""
        if self._cycles is not None:
            return
        if evaluation.slow:
            self._settle_longer()
        elif self._lengths == self.plan.lengths and at_once(pairs):
            self._lengths = quick = QUICK_READINGS if self._objective == SAME_MIX else QUICK
            self._put(lengths=quick)
            self._note(f"the effect is immediate: the next blocks settle for {quick.settle_s:.0f} s")

    def _settle_longer(self) -> None:
        """Drop the pairs so far, and settle longer: the effect builds up too slowly for the lengths there are."""
        settled_s, next_lengths = self._lengths.settle_s, longer(self._lengths)
        if next_lengths is None or self.elapsed_s + FEWEST_PAIRS * next_lengths.pair_s > self.plan.for_s:
            return
        self._lengths = next_lengths
        self._open = [(replace(pair, superseded=True), a, b) for pair, a, b in self._open]
        pairs = tuple(pair for pair, _, _ in self._open)
        self._put(pairs=pairs, evaluation=self._evaluated(pairs), lengths=next_lengths)
        self._note(
            f"the effect takes longer than {settled_s:.0f} s to build up: {len(pairs)} pairs are dropped, "
            f"and the next ones settle for {next_lengths.settle_s:.0f} s"
        )

    def _end_if_decided(self) -> None:
        evaluation = self.state.evaluation
        assert evaluation is not None
        if evaluation.generator and len(evaluation.counted) >= 2:
            raise Over(Ending.GENERATOR, evaluation.generator)
        if evaluation.over:
            raise Over(OF_VERDICT[evaluation.paired.verdict], "")
        if len(evaluation.counted) >= self.plan.most_pairs:
            self._end_undecided(f"the limit of {self.plan.most_pairs} pairs is reached")

    def _end_undecided(self, reason: str) -> None:
        evaluation = self.state.evaluation
        if evaluation is not None and evaluation.paired.over and evaluation.unattributable:
            raise Over(Ending.NOT_ATTRIBUTABLE, evaluation.unattributable)
        raise Over(Ending.UNDECIDED, reason + missing_words(evaluation, self.elapsed_s, self._pair_s))

    @property
    def elapsed_s(self) -> float:
        """Return the time since the load runs."""
        return time.monotonic() - self._began_s

    def _note_afterwards(self, note: str) -> None:
        self._put(notes=(*self.state.notes, note), afterwards=note)

    def _note(self, note: str) -> None:
        self._put(notes=(*self.state.notes, note))

    def _put(self, **fields: object) -> None:
        elapsed_s = self.elapsed_s
        remaining_s = max(self.plan.for_s - elapsed_s, 0.0)
        self.state = replace(self.state, elapsed_s=elapsed_s, remaining_s=remaining_s, **fields)
        self._take_state(self.state)
