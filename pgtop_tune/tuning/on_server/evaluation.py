"""One evaluation on a server: the candidate and what it would replace by turns, under a load that runs on.

What both arms share stays in force (`StandingValues`); what differs is switched by the blocks of an experiment: in one
run where a reload does, in blocks with restarts where that is what it takes.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Final, Protocol

from msgspec import Struct

from pgtop_tune.base.errors import ConnectionProblem, LoadProblem, PgtopError, ServerProblem
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.ports import ChangeControl, MachineControl
from pgtop_tune.compare.sides.figures import LATENCY, TPS
from pgtop_tune.compare.statement_rows import SAME_MIX
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS
from pgtop_tune.experiment.attribution import known_mean
from pgtop_tune.experiment.configurations import StandingValues
from pgtop_tune.experiment.plan.run import Stopped
from pgtop_tune.experiment.switchback.arms import ArmBlock, Arms, BlockPair, Lengths, Rival, as_shown, kernel_values
from pgtop_tune.experiment.switchback.block_frames import BlockFrames, OwnCycles
from pgtop_tune.experiment.switchback.evaluation import AT_COMMIT, ratios_of
from pgtop_tune.experiment.switchback.state import ContinuousLoad, Ending, SwitchbackPlan, SwitchbackState
from pgtop_tune.experiment.switchback.switchback import Switchback
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tuning.on_server.conditions import Change, SearchConditions
from pgtop_tune.tuning.on_server.objective import FIGURES, Objective
from pgtop_tune.tuning.plan import Space
from pgtop_tune.tuning.search import Evaluation, Outcome, SearchPhase

# What evaluations are made with: the load that runs on between them, blocks for the one under way, and the doors to
# server and machine.

TakeState = Callable[[SwitchbackState], None]


class HeldLoad:
    """A load that outlives an evaluation. Fits `ContinuousLoad`.

    Args:
        load: Started by the first evaluation.

    Attributes:
        runs: Whether it was started, and its end was not seen.
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
        """End it."""
        self.runs = False
        await self._load.stop()


class CurrentBlocks:
    """A sink that gives frames to the blocks of the evaluation that is under way."""

    def __init__(self, *, loaded: bool) -> None:
        self._loaded: Final = loaded
        self._newest: Step | None = None
        self.frames = BlockFrames(loaded=loaded)

    def renewed(self) -> BlockFrames:
        """Return blocks for the next evaluation, which know the newest frame."""
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
        plan, frames, take_state: See `Switchback`.
        parameters, settings: The parameters and the settings of the machine in which the arms differ.
        restart: Each block begins with a restart.
    """

    plan: SwitchbackPlan
    frames: BlockFrames
    parameters: tuple[Rival, ...]
    settings: tuple[Rival, ...]
    take_state: TakeState
    restart: bool


class SeparateExperiments(Protocol):
    """Blocks with a load of their own, for values that cannot be switched within one run of the load."""

    @property
    def standing(self) -> StandingValues:
        """Return the restart-level values that both arms share."""
        ...

    async def answers(self) -> None:
        """Wait until frames show the server as it is after a restart."""
        ...

    def experiment(self, request: SeparateWanted) -> Switchback:
        """Return blocks that have a load of their own each."""
        ...


class EvaluatingParts(Struct, frozen=True, kw_only=True):
    """Parts that evaluations are made with.

    Attributes:
        control: Parameters of the server.
        load: Held between evaluations.
        blocks: A sink of the engine.
        own_blocks: None where every knob can be switched within one run of the load.
        machine: Settings of the operating system; None where none is among the knobs.
        take_state: Takes each state of an evaluation.
        before_set: A callback with the id of each change set before it is made.
        own_cycles: The cycles for knobs that work through checkpoints; None waits for those of the server.
    """

    control: ChangeControl
    load: HeldLoad
    blocks: CurrentBlocks
    own_blocks: SeparateExperiments | None
    machine: MachineControl | None
    take_state: TakeState
    before_set: Callable[[str], None]
    own_cycles: OwnCycles | None = None


# One evaluation, attempted again where something else than its candidate has spoiled it.

_ATTEMPTS: Final = 3
"""Attempts at one evaluation, before the candidate, or the machine, is held to be the reason."""
_AGAIN_S: Final = 5.0
_BACK_S: Final = 600.0
"""A server that has ended is waited for so long."""


class Attempts(Struct, frozen=True):
    """Evaluations, attempted again where they are disturbed.

    Attributes:
        evaluator: Measures.
        answers: Waits until frames show the server as it is; raises a ConnectionProblem where it does not answer.
        tell: Takes what is going on, one line.
    """

    evaluator: Evaluator
    answers: Callable[[], Awaitable[None]]
    tell: Callable[[str], None]

    async def outcome(self, evaluation: Evaluation, seed: int) -> Outcome:
        """Return the outcome, after as many attempts as it takes.

        Args:
            evaluation: The evaluation.
            seed: The seed of the search.

        Raises:
            KnobsChanged, ConditionsChanged: See `Evaluator.measure`.
            Stopped: The setting of before cannot be measured.
            PgtopError: The server does not come back.
        """
        reason = ""
        for attempt in range(_ATTEMPTS):
            try:
                return await self.evaluator.measure(evaluation, _coin(seed, evaluation, attempt))
            except ConditionsChanged:
                raise
            except Disturbed as disturbed:
                reason = str(disturbed)
                self.tell(f"evaluation {evaluation.number} has no outcome: {reason}")
                if disturbed.gone:
                    await self._until_back()
        if evaluation.phase is SearchPhase.NOISE:
            raise Stopped(f"the load cannot be measured: {reason}", "`pgtop-tune experiment noise` examines the load")
        return Outcome(effect=None, stopped=f"no outcome in {_ATTEMPTS} attempts: {reason}")

    async def _until_back(self) -> None:
        """Wait for a server that has ended. Raises a ConnectionProblem where it does not come back."""
        deadline_s = time.monotonic() + _BACK_S
        while True:
            await asyncio.sleep(_AGAIN_S)
            try:
                await self.answers()
                return
            except ConnectionProblem:
                if time.monotonic() > deadline_s:
                    raise


def _coin(seed: int, evaluation: Evaluation, attempt: int) -> int:
    """Return the seed of the coin that orders the blocks of an evaluation: resumed, it falls as it would have."""
    return seed * 1_000_003 + evaluation.number * 11 + attempt


WAIT: Final = "wait "
"""The beginning of names of figures that are classes of the latency budget."""
_LEAST_PAIRS: Final = 3
"""The fewest pairs of an evaluation."""
_MARGIN_S: Final = 600.0
_REFUSALS: Final = frozenset({Ending.COLLAPSED, Ending.TOO_SHORT, Ending.FAILED})
"""Endings that the candidate is to blame for."""


class KnobsChanged(Exception):
    """Another session has changed knobs of the search.

    Attributes:
        names: The names of the knobs.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = tuple(names)


class Disturbed(Exception):
    """The evaluation has no outcome, and the candidate is not to blame: it can be made again.

    Attributes:
        gone: The load or the server ended.
    """

    def __init__(self, reason: str, *, has_ended: bool = False) -> None:
        super().__init__(reason)
        self.gone = has_ended


class ConditionsChanged(Disturbed):
    """The load of another program, or what others take of the machine, has changed: it was not one evaluation.

    Attributes:
        change: The change.
    """

    def __init__(self, change: Change) -> None:
        super().__init__(change.description)
        self.change = change


class Evaluator:
    """The measurement of evaluations, one at a time, in the engine's loop.

    Args:
        space: The space of the search.
        objective: The figure that decides; None where the same mix of statements does, under load of another program.
        load_words: The load in words, for the record.
        lengths: The lengths of the blocks of evaluations without a restart.
        longest_s: One evaluation takes no longer.
    """

    def __init__(
        self,
        parts: EvaluatingParts,
        space: Space,
        objective: Objective | None,
        load_words: str,
        lengths: Lengths,
        longest_s: float,
    ) -> None:
        self._parts: Final = parts
        self._start: Final = space.values(space.start)
        self._restarts: Final = frozenset(dimension.name for dimension in space.dimensions if dimension.restart)
        self._settings: Final = frozenset(dimension.name for dimension in space.dimensions if dimension.machine)
        self._objective: Final = objective
        self._load_words: Final = load_words
        self._lengths: Final = lengths
        self._longest_s: Final = longest_s
        self._standing: Final = StandingValues(parts.control, parts.before_set, "tune:", parts.machine, self._settings)
        self._conditions: Final = SearchConditions(loaded=parts.blocks.frames.loaded)
        self._steady = False

    async def measure(self, evaluation: Evaluation, seed: int) -> Outcome:
        """Make one evaluation; afterwards only what both arms share is in force.

        Raises:
            KnobsChanged: Another session changed knobs; nothing was measured.
            ConditionsChanged: It was not made under the conditions of those before.
            Disturbed: It has no outcome, and can be made again.
            LoadProblem: The load cannot be started, or its generator is the limit: nothing can be tuned by it.
            PgtopError: The values in force cannot be restored.
        """
        differing = [name for name, value in evaluation.values.items() if evaluation.against_values[name] != value]
        shared = {
            name: value
            for name, value in evaluation.values.items()
            if name not in differing and value != self._start[name]
        }
        await self._check_unchanged(evaluation.values)
        try:
            await self._stand(shared)
        except ConnectionProblem as problem:
            raise Disturbed(problem.message, has_ended=True) from None
        rivals = [Rival(name, evaluation.against_values[name], evaluation.values[name]) for name in differing]
        if evaluation.separate:
            await self._forget_load()
        experiment = self._experiment(rivals, seed, evaluation)
        try:
            state = await experiment.run()
        except LoadProblem:
            raise
        except ConnectionProblem as problem:
            self._steady = False
            raise Disturbed(problem.message, has_ended=True) from None
        except PgtopError as problem:
            return Outcome(effect=None, stopped=problem.message)
        return await self._outcome(state, differing, evaluation)

    async def put_back(self, reason: str) -> None:
        """End the load and take everything out of force. Raises as `StandingValues.revert`."""
        try:
            await self._parts.load.end()
        finally:
            await self._standing.revert(reason)
            if self._parts.own_blocks is not None:
                await self._parts.own_blocks.standing.revert(reason)

    async def _check_unchanged(self, values: Mapping[str, str]) -> None:
        """Raise KnobsChanged where a knob has neither the value of before nor the one that stands by us."""
        standing = dict(self._standing.values)
        if self._parts.own_blocks is not None:
            standing |= self._parts.own_blocks.standing.values
        names = [name for name in values if name not in self._settings]
        parameters = {parameter.name: parameter for parameter in await self._parts.control.list(tuple(names))}
        # A server of another version may not have one.
        changed = [
            name
            for name in names
            if name not in parameters
            or parameters[name].shown != as_shown(parameters[name], standing.get(name, self._start[name]))
        ]
        if self._parts.machine is not None and (settings := self._settings.intersection(values)):
            live = await kernel_values(self._parts.machine, settings)
            changed += [name for name in sorted(settings) if live[name] != standing.get(name, self._start[name])]
        if changed:
            raise KnobsChanged(changed)

    async def _stand(self, shared: Mapping[str, str]) -> None:
        within_s = self._longest_s + _MARGIN_S
        own_blocks = self._parts.own_blocks
        of_restart = {name: value for name, value in shared.items() if name in self._restarts}
        if own_blocks is not None:
            restarts = own_blocks.standing.differs(of_restart)
            if restarts:
                # A restart ends the load: it is ours to end it before.
                await self._forget_load()
            await own_blocks.standing.to(of_restart, within_s)
            if restarts:
                await own_blocks.answers()
        await self._standing.to({name: value for name, value in shared.items() if name not in of_restart}, within_s)

    def _experiment(self, rivals: Sequence[Rival], seed: int, evaluation: Evaluation) -> Switchback:
        plan = SwitchbackPlan(
            rivals=tuple(rivals),
            load=self._load_words,
            loaded=self._parts.blocks.frames.loaded,
            for_s=self._longest_s,
            seed=seed,
            lengths=self._lengths,
            objective=SAME_MIX if self._objective is None else TPS if self._objective.rate is None else LATENCY,
            a_in_force=False,
            most_pairs=FEWEST_PAIRS,
            steady=self._steady and self._parts.load.runs,
        )
        frames = self._parts.blocks.renewed()
        if evaluation.separate and self._parts.own_blocks is not None:
            return self._parts.own_blocks.experiment(
                SeparateWanted(
                    plan=plan,
                    frames=frames,
                    take_state=self._parts.take_state,
                    restart=evaluation.restart,
                    parameters=tuple(rival for rival in rivals if rival.name not in self._settings),
                    settings=tuple(rival for rival in rivals if rival.name in self._settings),
                )
            )
        parts = self._parts
        arms = Arms(ChangeSets(parts.control, None), parts.control, rivals, frozenset())
        return Switchback(plan, frames, arms, parts.load, parts.take_state, own_cycles=parts.own_cycles)

    async def _outcome(self, state: SwitchbackState, differing: Sequence[str], evaluation: Evaluation) -> Outcome:
        ending = state.ending
        if state.left_in_force:
            raise ServerProblem(state.left_in_force)
        if ending is Ending.ENDED or not self._parts.load.runs:
            await self._forget_load()
        else:
            self._steady = True
        if ending is Ending.ENDED:
            raise Disturbed(state.reason, has_ended=True)
        if ending is Ending.CHANGED:
            # Knobs that were let go of are not among these: they may change as they like.
            await self._check_unchanged(evaluation.values)
        if change := self._conditions.take(evaluation, state.pairs, self._parts.blocks.frames.statements.text):
            self._steady = False
            raise ConditionsChanged(change)
        if ending is Ending.GENERATOR:
            raise LoadProblem(f"the load cannot judge settings: {state.reason}", "use more threads, or more clients")
        if ending in _REFUSALS:
            return Outcome(effect=None, stopped=state.reason or str(ending))
        if ending in (Ending.CHANGED, Ending.NOT_STEADY):
            raise Disturbed(state.reason)
        pairs = _counted(state)
        ratios = self._of_same_mix(pairs, differing) if self._objective is None else _of_blocks(pairs, self._objective)
        if pairs and not ratios:
            figure = "the time of the same statements" if self._objective is None else self._objective.typed
            return Outcome(effect=None, stopped=f"under this load {figure} has no value above 0")
        if len(ratios) < _LEAST_PAIRS:
            raise Disturbed(f"{len(ratios)} pairs of blocks count: {state.reason}")
        return Outcome(
            effect=fmean(ratios),
            error=stdev(ratios) / math.sqrt(len(ratios)),
            figures=_means([pair.b for pair in pairs]),
            against_figures=_means([pair.a for pair in pairs]),
        )

    def _of_same_mix(self, pairs: Sequence[BlockPair], names: Sequence[str]) -> list[float]:
        """Return ratios of a fixed mix of statements, or of TPS where the mix does not show the effect of the knobs."""
        mix = self._conditions.mix_of(pairs)
        if mix.problem or not AT_COMMIT.isdisjoint(names):
            return ratios_of(lambda block: block.mean_tps, pairs)
        return [-ratio for ratio in ratios_of(mix.of, pairs)]

    async def _forget_load(self) -> None:
        self._steady = False
        await self._parts.load.end()


def _of_blocks(pairs: Sequence[BlockPair], objective: Objective) -> list[float]:
    ratios = (objective.log_ratio(pair.b, pair.a) for pair in pairs)
    return [ratio for ratio in ratios if ratio is not None]


def _counted(state: SwitchbackState) -> list[BlockPair]:
    if state.evaluation is None:
        return []
    numbers = frozenset(state.evaluation.counted)
    return [pair for pair in state.pairs if pair.number in numbers]


def _means(blocks: Sequence[ArmBlock]) -> dict[str, float]:
    """Return the mean of each figure, and of each class of waits in milliseconds of a transaction."""
    means = {figure.name: mean for figure in FIGURES if (mean := known_mean(map(figure.of, blocks))) is not None}
    classes = dict.fromkeys(name for block in blocks for name in block.waits)
    return means | {f"{WAIT}{name}": fmean(block.waits.get(name, 0.0) for block in blocks) for name in classes}
