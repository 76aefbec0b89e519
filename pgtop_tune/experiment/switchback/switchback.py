"""The experiment: a load that runs on, arms by turns, an evaluation after each pair, and everything put back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from pgtop_tune.compare.sides.figures import TPS
from pgtop_tune.compare.statement_rows import SAME_MIX
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS
from pgtop_tune.errors import ConnectionProblem, PgtopError, UsageProblem
from pgtop_tune.experiment.known_floor import known_floor, seen_in
from pgtop_tune.experiment.prediction import Trial, predict, prediction_words
from pgtop_tune.experiment.switchback.arms import Arms
from pgtop_tune.experiment.switchback.block_frames import BlockFrames, OpenBlock
from pgtop_tune.experiment.switchback.blocks import (
    QUICK,
    QUICK_READINGS,
    Arm,
    Block,
    Pair,
    longer,
    orders,
)
from pgtop_tune.experiment.switchback.evaluation import Evaluation, evaluate, missing_words
from pgtop_tune.experiment.switchback.guard import harm
from pgtop_tune.experiment.switchback.newest_steady import newest_steady
from pgtop_tune.experiment.switchback.plans import StatementPlans, look_under_both
from pgtop_tune.experiment.switchback.same_mix import why_no_mix
from pgtop_tune.experiment.switchback.settling import at_once
from pgtop_tune.experiment.switchback.state import (
    ANSWERS,
    NOT_PUT_BACK,
    OF_VERDICT,
    ContinuousLoad,
    Ending,
    Over,
    Phase,
    SwitchbackPlan,
    SwitchbackState,
)
from pgtop_tune.experiment.switchback.whole_cycles import OwnCycles, WholeCycles
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.steady_state import FEWEST_S, steady_state
from pgtop_tune.units import duration

_FIRST_SECOND_S: Final = 60.0
"""A load that connects many clients takes its time until its first transaction."""
_STEADY_SHARE: Final = 1 / 3
"""Of the time of the experiment, in which the load has to get steady."""
_STEADY_LEAST_S: Final = 60.0
_LATE_S: Final = 15.0
"""A busy machine's frames come late."""
_BETWEEN_LOOKS: Final = 5
_SPOILED_IN_A_ROW: Final = 3
_PLANNED: Final = frozenset({*ANSWERS, Ending.UNDECIDED, Ending.NOT_ATTRIBUTABLE})
"""Endings after which plans are worth a look."""


class Switchback:
    """One experiment; `run` in the engine's loop.

    Args:
        plan: What is asked for.
        frames: A sink of the engine.
        arms: Puts values into force.
        load: The load.
        seen: Takes each new state.
        trials: Made earlier on this server.
        plans: Plans statements at the end; None where nobody asked for it.
        own_cycles: Of parameters that work through checkpoints; None waits for the server's own.

    Attributes:
        state: The newest. Thread-safe.
    """

    def __init__(
        self,
        plan: SwitchbackPlan,
        frames: BlockFrames,
        arms: Arms,
        load: ContinuousLoad,
        seen: Callable[[SwitchbackState], None] = lambda state: None,
        trials: Sequence[Trial] = (),
        plans: StatementPlans | None = None,
        own_cycles: OwnCycles | None = None,
    ) -> None:
        self.plan: Final = plan
        self.state = SwitchbackState(remaining_s=plan.for_s)
        self._frames: Final = frames
        self._arms: Final = arms
        self._load: Final = load
        self._seen: Final = seen
        self._trials: Final = tuple(trials)
        self._plans: Final = plans
        self._lengths = plan.lengths
        self._objective = plan.objective
        self._cycles: Final = WholeCycles(frames, plan.rivals, own_cycles, self._wait) if plan.by_checkpoints else None
        self._began_s = time.monotonic()
        self._pair_since_s = 0.0
        self._open: list[tuple[Pair, OpenBlock, OpenBlock]] = []
        self._blocks: list[Block] = []

    async def run(self) -> SwitchbackState:
        """Runs to the end, whatever that is; the state says which.

        Raises:
            PgtopError: It could not begin; nothing is changed.
            asyncio.CancelledError: It was stopped; everything is put back, and the state has what was measured.
        """
        if self.plan.for_s < self.plan.least_s:
            raise UsageProblem(
                f"{duration(self.plan.for_s)} is too short for a verdict",
                f"four pairs of blocks and the warm-up take {duration(self.plan.least_s)}",
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
            ending, reason = Ending.ENDED, await self._trouble() or problem.message
        except PgtopError as problem:
            ending, reason = Ending.FAILED, problem.message
        finally:
            if self.state.pairs:
                self._put(evaluation=self._evaluated(self.state.pairs, final=True))
            self._put(phase=Phase.PUTTING_BACK, arm=None)
            await self._put_back(ending)
            self._put(phase=Phase.OVER, ending=ending, reason=reason)
        return self.state

    async def _look_at_plans(self, ending: Ending) -> None:
        """Plans of the statements with most time under both arms; what goes wrong is a note."""
        if self._plans is None or ending not in _PLANNED or not self.state.pairs:
            return
        found = self._evaluated(self.state.pairs, final=True).statements
        if found is None:
            self._note("no plans: there are no counters of statements")
            return
        self._put(phase=Phase.PLANNING, arm=None)
        try:
            self._put(plans=await look_under_both(self._plans, self._arms, found, self._frames.statements))
        except PgtopError as problem:
            self._note(f"no plans: {problem.message}")

    async def _put_back(self, ending: Ending) -> None:
        """Ends the load and restores the values; a better B stays where that was asked for."""
        evaluation = self.state.evaluation
        self._frames.end()
        kept = False
        if self.plan.keep_better and ending is Ending.BETTER and evaluation is not None:
            why = evaluation.trade
            try:
                if not why:
                    await self._arms.keep(Arm.B)
                    kept = True
            except PgtopError as problem:
                why = problem.message
            self._note_afterwards(f"B is not kept: {why}" if why else "B is kept")
        if not kept and (left := await self._arms.restore(f"ab: {ending}")):
            self._note_afterwards(f"{NOT_PUT_BACK}: {left}")
        await self._load.stop()

    async def _trouble(self) -> str:
        """What frames say why the server does not answer; a restart shows once it is back."""
        await self._frames.until(lambda: False, _LATE_S)
        return self._frames.trouble

    async def _measure(self) -> None:
        """Pairs until there is a verdict. Always ends by raising `Over`, or a PgtopError."""
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
        """Waits until the load is steady."""
        if self.plan.steady:
            return
        self._put(phase=Phase.WARMING_UP)
        frames, limit_s = self._frames, max(_STEADY_LEAST_S, self.plan.for_s * _STEADY_SHARE)
        if not await frames.until(lambda: len(frames.tps) > 0, _FIRST_SECOND_S):
            self._check_trouble()
            raise Over(Ending.NOT_STEADY, "no transaction ended")
        found = steady_state(())
        while self.elapsed_s < limit_s:
            wanted = max(len(frames.tps) + _BETWEEN_LOOKS, FEWEST_S)
            await self._wait(lambda: len(frames.tps) >= wanted, wanted + _LATE_S)  # noqa: B023
            found = newest_steady(frames.tps)
            self._put(warm_up_tps=tuple(frames.tps))
            if found.steady:
                self._note(f"the load is steady at {found.tps or 0.0:,.0f} tps")
                self._choose_objective()
                self._predict()
                await self._tell_noise()
                return
        raise Over(Ending.NOT_STEADY, f"the load does not get steady: {found.reason}")

    async def _tell_noise(self) -> None:
        """What the time can show of this load; ends where that is nothing."""
        interval = self._frames.interval
        load = None if interval is None else interval.now(sections.bench)
        if interval is None or load is None or self._objective != TPS or self.plan.by_checkpoints:
            return
        floor = await asyncio.to_thread(known_floor, interval.newest, load.run)
        if floor is None:
            return
        seen = seen_in(floor, self.plan.for_s - self.elapsed_s, self._lengths.pair_s, QUICK.pair_s)
        if seen.hopeless:
            needed = "" if seen.needed_s is None else f": --for {duration(seen.needed_s + self.elapsed_s)}"
            raise Over(Ending.TOO_SHORT, f"{seen.words}{needed}")
        self._note(seen.words)

    def _choose_objective(self) -> None:
        """TPS in place of the same mix of statements, where the server does not tell it or it does not show."""
        if self._objective != SAME_MIX:
            return
        if why := why_no_mix([rival.name for rival in self.plan.rivals], self._frames.interval):
            self._objective = TPS
            self._note(f"tps decides: {why}")

    def _evaluated(self, pairs: Sequence[Pair], *, final: bool = False) -> Evaluation:
        return evaluate(pairs, self._objective, final=final, text=self._frames.statements.text)

    def _predict(self) -> None:
        interval = self._frames.interval
        if not self.plan.a_in_force or self.plan.objective not in (TPS, SAME_MIX) or interval is None:
            return
        rivals = sorted(self.plan.rivals, key=lambda rival: rival.name)
        names, values = [rival.name for rival in rivals], [(rival.a, rival.b) for rival in rivals]
        if (found := predict(interval, names, values, self._trials, self.plan.load)) is not None:
            self._put(prediction=found)
            self._note(f"prediction: {prediction_words(found)}")

    async def _pair(self, number: int, order: tuple[Arm, Arm]) -> Pair:
        """Measures one pair."""
        if self.elapsed_s + self._pair_s > self.plan.for_s:
            self._end_undecided("the time is over")
        self._put(pair=number, arm=None)
        self._pair_since_s = self._frames.now_s
        opened: dict[Arm, tuple[OpenBlock, str]] = {}
        for arm in order:
            opened[arm] = await self._block(arm)
            self._blocks.append(opened[arm][0].block(opened[arm][1]))
            if (found := harm(self._blocks, self._objective)) is not None:
                raise Over(Ending.NOT_ATTRIBUTABLE if found.unattributable else Ending.COLLAPSED, found.words)
        (a, a_spoiled), (b, b_spoiled) = opened[Arm.A], opened[Arm.B]
        pair = Pair(number, order[0], a.block(a_spoiled), b.block(b_spoiled))
        self._open.append((pair, a, b))
        return pair

    @property
    def _pair_s(self) -> float:
        return self._lengths.pair_s if self._cycles is None else self._cycles.pair_s

    async def _block(self, arm: Arm) -> tuple[OpenBlock, str]:
        """Measures one block; why it does not count, "" where it does."""
        changed = await self._arms.to(arm, self._lengths_s if self._cycles is None else self._cycles.longest_s)
        self._put(phase=Phase.SETTLING if changed else Phase.MEASURING, arm=arm, arm_since_s=self._frames.now_s)
        if self._cycles is None:
            block = await self._of_lengths(arm, self._lengths.settle_s if changed else 0.0)
        else:
            block = await self._cycles.block(arm, lambda: self._put(phase=Phase.MEASURING), changed=changed)
        self._frames.stop()
        spoiled = await self._arms.foreign_change()
        switched = frozenset(rival.name for rival in self.plan.rivals)
        return block, spoiled or self._frames.parameters.changed(self._pair_since_s, block.began_s, switched)

    async def _of_lengths(self, arm: Arm, settle_s: float) -> OpenBlock:
        block = self._frames.open(arm, settle_s, self._lengths.measured_s)
        await self._wait(lambda: block.seconds > 0.0, self._lengths_s)
        self._put(phase=Phase.MEASURING)
        await self._wait(lambda: block.seconds >= self._lengths.measured_s - 0.5, self._lengths_s)
        block.settled_s = settle_s
        return block

    @property
    def _lengths_s(self) -> float:
        """A block of these lengths takes no longer."""
        return self._lengths.settle_s + self._lengths.measured_s + _LATE_S

    async def _wait(self, condition: Callable[[], bool], timeout_s: float) -> None:
        if not await self._frames.until(self._ticking(condition), timeout_s):
            self._check_trouble()

    def _ticking(self, condition: Callable[[], bool]) -> Callable[[], bool]:
        """The condition, and a new state each time it is looked at."""

        def look() -> bool:
            self._put()
            return condition()

        return look

    def _check_trouble(self) -> None:
        if self._frames.trouble:
            raise Over(Ending.ENDED, self._frames.trouble)

    def _judge(self) -> None:
        """Evaluates what there is; latencies of the last block may have come since."""
        self._open = [
            (replace(pair, a=a.block(pair.a.spoiled), b=b.block(pair.b.spoiled)), a, b) for pair, a, b in self._open
        ]
        pairs = tuple(pair for pair, _, _ in self._open)
        evaluation = self._evaluated(pairs)
        self._put(pairs=pairs, evaluation=evaluation)
        self._fit_lengths(pairs, evaluation)

    def _fit_lengths(self, pairs: tuple[Pair, ...], evaluation: Evaluation) -> None:
        """Makes the next blocks longer or shorter, as the effect has shown."""
        if self._cycles is not None:
            return
        if evaluation.slow:
            self._settle_longer()
        elif self._lengths == self.plan.lengths and at_once(pairs):
            self._lengths = quick = QUICK_READINGS if self._objective == SAME_MIX else QUICK
            self._put(lengths=quick)
            self._note(f"nothing builds up: the next blocks settle for {quick.settle_s:.0f} s")

    def _settle_longer(self) -> None:
        """The effect builds up too slowly for the lengths there are: the pairs so far are dropped."""
        settled_s, next_lengths = self._lengths.settle_s, longer(self._lengths)
        if next_lengths is None or self.elapsed_s + FEWEST_PAIRS * next_lengths.pair_s > self.plan.for_s:
            return
        self._lengths = next_lengths
        self._open = [(replace(pair, superseded=True), a, b) for pair, a, b in self._open]
        pairs = tuple(pair for pair, _, _ in self._open)
        self._put(pairs=pairs, evaluation=self._evaluated(pairs), lengths=next_lengths)
        self._note(
            f"the effect builds up slower than {settled_s:.0f} s: {len(pairs)} pairs are dropped, "
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
            self._end_undecided(f"{self.plan.most_pairs} pairs are the most")

    def _end_undecided(self, why: str) -> None:
        evaluation = self.state.evaluation
        if evaluation is not None and evaluation.paired.over and evaluation.unattributable:
            raise Over(Ending.NOT_ATTRIBUTABLE, evaluation.unattributable)
        raise Over(Ending.UNDECIDED, why + missing_words(evaluation, self.elapsed_s, self._pair_s))

    @property
    def elapsed_s(self) -> float:
        """Since the load runs."""
        return time.monotonic() - self._began_s

    def _note_afterwards(self, words: str) -> None:
        self._put(notes=(*self.state.notes, words), afterwards=words)

    def _note(self, words: str) -> None:
        self._put(notes=(*self.state.notes, words))

    def _put(self, **fields: object) -> None:
        elapsed_s = self.elapsed_s
        remaining_s = max(self.plan.for_s - elapsed_s, 0.0)
        self.state = replace(self.state, elapsed_s=elapsed_s, remaining_s=remaining_s, **fields)
        self._seen(self.state)
