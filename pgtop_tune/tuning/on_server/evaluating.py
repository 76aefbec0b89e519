"""One evaluation on a server: the candidate and what it would replace by turns, under a load that runs on.

What both arms share stays in force (`standing_values`); what differs is switched by the blocks of an experiment: in one
run where a reload does, in blocks with restarts where that is what it takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Final, Protocol

from msgspec import Struct

from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.ports import ChangeControl, MachineControl
from pgtop_tune.compare.sides.figures import LATENCY, TPS
from pgtop_tune.compare.statement_rows import SAME_MIX
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS
from pgtop_tune.errors import ConnectionProblem, LoadProblem, PgtopError, ServerProblem
from pgtop_tune.experiment.standing_values import StandingValues
from pgtop_tune.experiment.switchback.arms import Arms, Rival, as_shown
from pgtop_tune.experiment.switchback.block_frames import BlockFrames
from pgtop_tune.experiment.switchback.blocks import Block, Lengths, Pair
from pgtop_tune.experiment.switchback.figures import ratios_of
from pgtop_tune.experiment.switchback.machine_arms import live_values
from pgtop_tune.experiment.switchback.same_mix import AT_COMMIT, fixed_mix
from pgtop_tune.experiment.switchback.state import (
    ContinuousLoad,
    Ending,
    SwitchbackPlan,
    SwitchbackState,
)
from pgtop_tune.experiment.switchback.switchback import Switchback
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tuning.on_server.objective import FIGURES, Objective
from pgtop_tune.tuning.search import Evaluation, Outcome
from pgtop_tune.tuning.space import Space

WAIT: Final = "wait "
"""What the names of figures begin with that are classes of the latency budget."""
_LEAST_PAIRS: Final = 3
"""Below which an evaluation is none."""
_MARGIN_S: Final = 600.0
_REFUSALS: Final = frozenset({Ending.COLLAPSED, Ending.TOO_SHORT, Ending.FAILED})
"""Endings that the candidate is to blame for."""

Seen = Callable[[SwitchbackState], None]


class KnobsChanged(Exception):
    """Somebody else has changed knobs of the search.

    Attributes:
        names: Of them.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = tuple(names)


class Disturbed(Exception):
    """The evaluation has no outcome, and the candidate is not to blame: it can be made again.

    Attributes:
        gone: The load or the server ended.
    """

    def __init__(self, why: str, *, gone: bool = False) -> None:
        super().__init__(why)
        self.gone = gone


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


class OwnBlocks(Protocol):
    """What an evaluation needs where its arms, or what both share, cannot be switched within one run of the load."""

    @property
    def standing(self) -> StandingValues:
        """The restart-level values that both arms share."""
        ...

    async def answers(self) -> None:
        """Waits until frames show the server as it is after a restart."""
        ...

    def experiment(
        self,
        plan: SwitchbackPlan,
        frames: BlockFrames,
        parameters: Sequence[Rival],
        settings: Sequence[Rival],
        seen: Seen,
        *,
        restart: bool,
    ) -> Switchback:
        """Blocks that have a load of their own each, and begin with a restart where one is asked for."""
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
    """

    control: ChangeControl
    load: HeldLoad
    blocks: CurrentBlocks
    own_blocks: OwnBlocks | None
    machine: MachineControl | None
    seen: Seen
    before_set: Callable[[str], None]


class Evaluator:
    """Measures evaluations, one at a time, in the engine's loop.

    Args:
        space: Of the search.
        objective: What decides; None where the same mix of statements does, under the load of somebody else.
        load_words: For the record.
        lengths: Of the blocks of evaluations without a restart.
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
        self._restarts: Final = frozenset(each.name for each in space.dimensions if each.restart)
        self._settings: Final = frozenset(each.name for each in space.dimensions if each.machine)
        self._objective: Final = objective
        self._load_words: Final = load_words
        self._lengths: Final = lengths
        self._longest_s: Final = longest_s
        self._standing: Final = StandingValues(parts.control, parts.before_set, "tune:", parts.machine, self._settings)
        self._steady = False

    async def measure(self, wanted: Evaluation, seed: int) -> Outcome:
        """Makes one evaluation; afterwards only what both arms share is in force.

        Raises:
            KnobsChanged: Somebody else changed knobs; nothing was measured.
            Disturbed: It has no outcome, and can be made again.
            LoadProblem: The load cannot be started, or its generator is the limit: nothing can be tuned by it.
            PgtopError: What was in force cannot be restored.
        """
        differing = [name for name, value in wanted.values.items() if wanted.against_values[name] != value]
        shared = {
            name: value for name, value in wanted.values.items() if name not in differing and value != self._start[name]
        }
        await self._check_unchanged(wanted.values)
        try:
            await self._stand(shared)
        except ConnectionProblem as problem:
            raise Disturbed(problem.message, gone=True) from None
        rivals = [Rival(name, wanted.against_values[name], wanted.values[name]) for name in differing]
        if wanted.separate:
            await self._forget_load()
        experiment = self._experiment(rivals, seed, wanted)
        try:
            state = await experiment.run()
        except LoadProblem:
            raise
        except ConnectionProblem as problem:
            self._steady = False
            raise Disturbed(problem.message, gone=True) from None
        except PgtopError as problem:
            return Outcome(effect=None, stopped=problem.message)
        return await self._outcome(state, differing, wanted)

    async def put_back(self, why: str) -> None:
        """Ends the load and takes everything out of force. Raises as `StandingValues.revert`."""
        try:
            await self._parts.load.end()
        finally:
            await self._standing.revert(why)
            if self._parts.own_blocks is not None:
                await self._parts.own_blocks.standing.revert(why)

    async def _check_unchanged(self, values: Mapping[str, str]) -> None:
        """Raises KnobsChanged where a knob has neither the value of before nor the one that stands by us."""
        standing = dict(self._standing.values)
        if self._parts.own_blocks is not None:
            standing |= self._parts.own_blocks.standing.values
        changed = [
            each.name
            for each in await self._parts.control.list(tuple(name for name in values if name not in self._settings))
            if each.shown != as_shown(each, standing.get(each.name, self._start[each.name]))
        ]
        if self._parts.machine is not None and (names := self._settings.intersection(values)):
            live = await live_values(self._parts.machine, names)
            changed += [name for name in sorted(names) if live[name] != standing.get(name, self._start[name])]
        if changed:
            raise KnobsChanged(changed)

    async def _stand(self, shared: Mapping[str, str]) -> None:
        within_s = self._longest_s + _MARGIN_S
        own_blocks = self._parts.own_blocks
        of_restart = {name: value for name, value in shared.items() if name in self._restarts}
        if own_blocks is not None:
            if own_blocks.standing.differs(of_restart):
                # A restart ends the load: it is ours to end it before.
                await self._parts.load.end()
                self._steady = False
                await own_blocks.standing.to(of_restart, within_s)
                await own_blocks.answers()
            else:
                await own_blocks.standing.to(of_restart, within_s)
        await self._standing.to({name: value for name, value in shared.items() if name not in of_restart}, within_s)

    def _experiment(self, rivals: Sequence[Rival], seed: int, wanted: Evaluation) -> Switchback:
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
        if wanted.separate and self._parts.own_blocks is not None:
            parameters = [each for each in rivals if each.name not in self._settings]
            settings = [each for each in rivals if each.name in self._settings]
            return self._parts.own_blocks.experiment(
                plan, frames, parameters, settings, self._parts.seen, restart=wanted.restart
            )
        control = self._parts.control
        arms = Arms(ChangeSets(control, None), control, rivals, frozenset())
        return Switchback(plan, frames, arms, self._parts.load, self._parts.seen)

    async def _outcome(self, state: SwitchbackState, differing: Sequence[str], wanted: Evaluation) -> Outcome:
        ending = state.ending
        if state.left_in_force:
            raise ServerProblem(state.left_in_force)
        if ending is Ending.ENDED or not self._parts.load.runs:
            await self._forget_load()
        else:
            self._steady = True
        if ending is Ending.ENDED:
            raise Disturbed(state.reason, gone=True)
        if ending is Ending.CHANGED:
            # Knobs that were let go of are not among these: they may change as they like.
            await self._check_unchanged(wanted.values)
            raise Disturbed(state.reason)
        if ending is Ending.GENERATOR:
            raise LoadProblem(f"the load cannot judge settings: {state.reason}", "more threads, or more clients")
        if ending in _REFUSALS:
            return Outcome(effect=None, stopped=state.reason or str(ending))
        if ending is Ending.NOT_STEADY:
            raise Disturbed(state.reason)
        pairs = _counted(state)
        ratios = _of_same_mix(pairs, differing) if self._objective is None else _of_blocks(pairs, self._objective)
        if pairs and not ratios:
            words = "the time of the same statements" if self._objective is None else self._objective.words
            return Outcome(effect=None, stopped=f"under this load {words} has no value above 0")
        if len(ratios) < _LEAST_PAIRS:
            raise Disturbed(f"{len(ratios)} pairs of blocks count: {state.reason}")
        return Outcome(
            effect=fmean(ratios),
            error=stdev(ratios) / math.sqrt(len(ratios)),
            figures=_means([pair.b for pair in pairs]),
            against_figures=_means([pair.a for pair in pairs]),
        )

    async def _forget_load(self) -> None:
        self._steady = False
        await self._parts.load.end()


def _of_blocks(pairs: Sequence[Pair], objective: Objective) -> list[float]:
    found = (objective.log_ratio(pair.b, pair.a) for pair in pairs)
    return [ratio for ratio in found if ratio is not None]


def _of_same_mix(pairs: Sequence[Pair], names: Sequence[str]) -> list[float]:
    """Time of a fixed mix of statements, less is better; TPS where the server counts no time that the knobs change."""
    mix = fixed_mix(pairs)
    if mix.problem or not AT_COMMIT.isdisjoint(names):
        return ratios_of(lambda block: block.mean_tps, pairs)
    return [-ratio for ratio in ratios_of(mix.of, pairs)]


def _counted(state: SwitchbackState) -> list[Pair]:
    if state.evaluation is None:
        return []
    numbers = frozenset(state.evaluation.counted)
    return [pair for pair in state.pairs if pair.number in numbers]


def _means(blocks: Sequence[Block]) -> dict[str, float]:
    """Of each figure, and of each class of waits in milliseconds of a transaction."""
    found = {}
    for figure in FIGURES:
        values = [value for block in blocks if (value := figure.of(block)) is not None]
        if values:
            found[figure.name] = fmean(values)
    classes = dict.fromkeys(name for block in blocks for name in block.waits)
    return found | {f"{WAIT}{name}": fmean(block.waits.get(name, 0.0) for block in blocks) for name in classes}
