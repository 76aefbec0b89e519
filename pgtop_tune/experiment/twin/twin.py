"""The twin: two copies, a load on each, pairs in two stages, and everything removed.

The original gives its data once, and gets no load.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from pgtop_tune.bench.ports import LoadEndpoint, SqlSession
from pgtop_tune.bench.runner import LoadPreparation
from pgtop_tune.cluster.copied_server import CopiedServer
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS, MOST_PAIRS
from pgtop_tune.errors import PgtopError
from pgtop_tune.experiment.switchback.newest_steady import newest_steady
from pgtop_tune.experiment.switchback.state import OF_VERDICT, Ending
from pgtop_tune.experiment.twin.copies import Copies
from pgtop_tune.experiment.twin.design import TwinLengths, TwinPair, begins_swapped, check_time, stage_pairs
from pgtop_tune.experiment.twin.evaluation import collapsed_in, evaluate, of_stage, stage_pairs_of
from pgtop_tune.experiment.twin.loaded import LoadedCopies, PairSpans, Trouble
from pgtop_tune.experiment.twin.placement import Placement
from pgtop_tune.experiment.twin.sides import Side
from pgtop_tune.experiment.twin.state import TwinMaterial, TwinPhase, TwinPlan, TwinState
from pgtop_tune.units import duration

_FIRST_SECOND_S: Final = 60.0
"""A load that connects many clients takes its time until its first transaction."""
_STEADY_SHARE: Final = 1 / 6
"""Of the time of the experiment, in which both loads have to get steady, in either stage."""
_STEADY_LEAST_S: Final = 60.0
_BETWEEN_LOOKS_S: Final = 5.0
_SPOILED_IN_A_ROW: Final = 3


class _Over(Exception):
    """The experiment ends here.

    Attributes:
        ending, reason: As in the state.
    """

    def __init__(self, ending: Ending, reason: str) -> None:
        super().__init__(reason)
        self.ending = ending
        self.reason = reason


class Twin:
    """One experiment.

    Args:
        seen: Takes each new state.
        notes: Where the copies are not as the original.

    Attributes:
        state: The newest.
    """

    def __init__(
        self, plan: TwinPlan, material: TwinMaterial, seen: Callable[[TwinState], None], notes: tuple[str, ...] = ()
    ) -> None:
        self.plan: Final = plan
        self.state = TwinState(notes=notes)
        self._material: Final = material
        self._seen: Final = seen
        self._copies: Final = Copies(material)
        self._placement: Placement | None = None
        self._loaded: LoadedCopies | None = None
        self._measured: list[PairSpans] = []
        self._coin = begins_swapped(plan.seed)
        self._began_s: float | None = None
        self._warmed_s = 0.0

    async def run(self) -> None:
        """To its end; the ending is in the state.

        Raises:
            UsageProblem: The time does not suffice; nothing was made.
            asyncio.CancelledError: It was stopped; everything is removed.
        """
        check_time(self.plan.for_s, self.plan.lengths)
        try:
            await self._make_copies()
            await self._experiment()
        except _Over as over:
            self._put(ending=over.ending, reason=over.reason)
        except Trouble as trouble:
            self._put(ending=Ending.ENDED, reason=str(trouble))
        except PgtopError as problem:
            self._put(ending=Ending.FAILED, reason=problem.message)
        except asyncio.CancelledError:
            self._put(ending=Ending.INTERRUPTED, reason="interrupted")
            raise
        finally:
            await asyncio.shield(self._remove())
            self._judge(final=True)
            self._put(phase=TwinPhase.OVER)

    # The copies.

    async def _make_copies(self) -> None:
        began_s = time.monotonic()
        placement = self._placement = Placement.here() if self.plan.halves else Placement(None)
        self._copies.create(placement.groups)
        self._put(phase=TwinPhase.COPYING)
        await self._copies.fill(lambda: self._put(phase=TwinPhase.CLONING))
        self._put(copying_s=time.monotonic() - began_s)
        sides = [self._side(copy) for copy in self._copies.servers]
        self._put(placement=self._placement_words)
        self._loaded = LoadedCopies(
            sides, self.plan.lengths, self.plan.halves, placement, lambda side: self._open(side.server)
        )

    def _side(self, copy: CopiedServer) -> Side:
        side = Side(copy, self._material.make_runner(self._endpoint(copy)))
        side.runner.prepare = LoadPreparation(lambda: self._open(copy)).complete
        return side

    def _endpoint(self, copy: CopiedServer) -> LoadEndpoint:
        return LoadEndpoint(
            host=str(copy.socket_dir), port=copy.port, user=self._material.user, dbname=self._material.dbname,
            # A variable of ours that leads elsewhere does not count.
            env={"PGHOSTADDR": ""},
        )  # fmt: skip

    async def _open(self, copy: CopiedServer) -> SqlSession:
        return await self._material.open_session(self._endpoint(copy))

    async def _remove(self) -> None:
        self._put(phase=TwinPhase.REMOVING)
        if self._loaded is not None:
            await self._loaded.end()
        await self._copies.remove()
        if self._placement is not None:
            self._put(placement=self._placement_words)
            self._placement.close()

    @property
    def _placement_words(self) -> str:
        return self._placement.words if self._placement is not None and self.plan.halves else ""

    # The stages.

    async def _experiment(self) -> None:
        loaded = self._loaded
        assert loaded is not None
        await self._start(loaded)
        fresh = True
        while True:
            wanted = stage_pairs(self._remaining_s, self._lengths, fresh=False)
            if wanted < (FEWEST_PAIRS if fresh else 1):
                self._end_undecided()
            # Starts differ from each other: without more to learn from pairs, the copies exchange settings again soon.
            await self._stage(loaded, wanted if fresh else min(wanted, self._more() or FEWEST_PAIRS), early=fresh)
            await self._cross(loaded)
            await self._stage(loaded, self._behind(loaded), early=False)
            fresh = False

    async def _start(self, loaded: LoadedCopies) -> None:
        """Both servers with their arm's settings, and both loads."""
        self._put(phase=TwinPhase.STARTING)
        for side, arm in zip(loaded.sides, loaded.arms, strict=True):
            side.server.configure(self._material.settings[arm])
            try:
                await self._copies.in_thread(side.server.start)
            except PgtopError as problem:
                raise _Over(Ending.FAILED, f"{arm} does not start: {problem.message}") from None
        await loaded.start(replace(self._material.spec, seed=self.plan.seed % 2**31))
        if self._began_s is None:
            self._began_s = time.monotonic()
        self._put(phase=TwinPhase.WARMING_UP)
        if not await loaded.until_begun(_FIRST_SECOND_S):
            raise _Over(Ending.ENDED, f"no transaction ended within {duration(_FIRST_SECOND_S)}")
        await self._warm_up(loaded)

    async def _warm_up(self, loaded: LoadedCopies) -> None:
        """Waits until both loads are steady."""
        began_s, limit_s = time.monotonic(), max(_STEADY_LEAST_S, self.plan.for_s * _STEADY_SHARE)
        await loaded.listen(self.plan.lengths.warm_up_s)
        while unsteady := _unsteady(loaded):
            if time.monotonic() - began_s > limit_s:
                raise _Over(Ending.NOT_STEADY, f"the load does not get steady: {unsteady}")
            await loaded.listen(_BETWEEN_LOOKS_S)
            self._put()
        self._warmed_s = max(self._warmed_s, time.monotonic() - began_s)

    async def _stage(self, loaded: LoadedCopies, pairs: int, *, early: bool) -> None:
        """So many pairs; a verdict ends the experiment.

        Args:
            early: Ends sooner where the pairs of this stage alone are clear: the other stage may begin.
        """
        for _ in range(pairs):
            self._put(phase=TwinPhase.MEASURING, pair=len(self._measured) + 1)
            self._measured.append(await loaded.pair(next(self._coin)))
            self._judge()
            self._put()
            self._end_if_decided()
            if collapsed_in(self.state.pairs, crossed=loaded.crossed) is not None and self._stages == 1:
                return
            if early and self.state.stage is not None and self.state.stage.over:
                return

    @property
    def _stages(self) -> int:
        """That have a pair."""
        return len({pair.crossed for pair in self.state.pairs})

    async def _cross(self, loaded: LoadedCopies) -> None:
        """The copies exchange their settings."""
        self._put(phase=TwinPhase.CROSSING)
        await loaded.end()
        for side in loaded.sides:
            await self._copies.in_thread(side.server.halt)
        loaded.crossed = not loaded.crossed
        self._put(crossed=loaded.crossed)
        await self._start(loaded)

    def _behind(self, loaded: LoadedCopies) -> int:
        """Pairs that the stage under way lacks to the other one, one at least."""
        here, there = (
            len(stage_pairs_of(self.state.pairs, crossed=crossed)) for crossed in (loaded.crossed, not loaded.crossed)
        )
        return max(there - here, 1)

    @property
    def _lengths(self) -> TwinLengths:
        """With the warm-up that it takes."""
        lengths = self.plan.lengths
        return replace(lengths, warm_up_s=max(lengths.warm_up_s, self._warmed_s))

    # What the pairs say.

    def _judge(self, *, final: bool = False) -> None:
        """Makes blocks and evaluation anew: latencies of the last block may have come since."""
        if self._loaded is None or not self._measured:
            return
        pairs = tuple(self._loaded.made(number, spans) for number, spans in enumerate(self._measured, 1))
        objective = self.plan.objective
        self.state = replace(
            self.state,
            pairs=pairs,
            stage=of_stage(pairs, objective, crossed=self._loaded.crossed),
            evaluation=evaluate(pairs, objective, final=final),
        )

    def _end_if_decided(self) -> None:
        evaluation, pairs = self.state.evaluation, self.state.pairs
        assert evaluation is not None
        if (said := _silent(pairs)) is not None:
            raise _Over(Ending.ENDED, said)
        if evaluation.generator and len(pairs) >= 2:
            raise _Over(Ending.GENERATOR, evaluation.generator)
        # A copy could be slow: B has to collapse on both of them.
        stages = [collapsed_in(pairs, crossed=crossed) for crossed in (False, True)]
        if len(found := [stage for stage in stages if stage is not None]) == len(stages):
            # Where one of them cannot be put down to the settings, neither can both.
            worst = max(found, key=lambda stage: (bool(stage.unattributable), stage.share))
            raise _Over(Ending.NOT_ATTRIBUTABLE if worst.unattributable else Ending.COLLAPSED, worst.words)
        if evaluation.over:
            raise _Over(OF_VERDICT[evaluation.paired.verdict], "")
        if evaluation.paired.pairs >= MOST_PAIRS:
            self._end_undecided(f"{MOST_PAIRS} pairs of each stage are the most")

    def _end_undecided(self, why: str = "the time is over") -> None:
        evaluation = self.state.evaluation
        if evaluation is not None and evaluation.paired.over and evaluation.unattributable:
            raise _Over(Ending.NOT_ATTRIBUTABLE, evaluation.unattributable)
        if evaluation is not None and evaluation.paired.pairs < FEWEST_PAIRS:
            why += ", and fewer than four pairs of each stage count"
        more = self._more()
        if more is None:
            raise _Over(Ending.UNDECIDED, why)
        longer_s = 2.0 * more * self.plan.lengths.pair_s + self._lengths.stage_s
        raise _Over(Ending.UNDECIDED, f"{why}; about {duration(longer_s)} more would decide")

    def _more(self) -> int | None:
        evaluation = self.state.evaluation
        return None if evaluation is None else evaluation.paired.more_pairs

    @property
    def _elapsed_s(self) -> float:
        return 0.0 if self._began_s is None else time.monotonic() - self._began_s

    @property
    def _remaining_s(self) -> float:
        return max(self.plan.for_s - self._elapsed_s, 0.0)

    def _put(self, **fields: object) -> None:
        self.state = replace(self.state, elapsed_s=self._elapsed_s, remaining_s=self._remaining_s, **fields)
        self._seen(self.state)


def _unsteady(loaded: LoadedCopies) -> str:
    """Which load is not steady, and why; "" where both are."""
    for side, arm in zip(loaded.sides, loaded.arms, strict=True):
        found = newest_steady(side.tps)
        if not found.steady:
            return f"{arm}: {found.reason}"
    return ""


def _silent(pairs: Sequence[TwinPair]) -> str | None:
    """Why the newest pairs do not count, all of them; None where one does."""
    newest = pairs[-_SPOILED_IN_A_ROW:]
    if len(newest) < _SPOILED_IN_A_ROW or not all(pair.spoiled for pair in newest):
        return None
    return f"{len(newest)} pairs in a row do not count: {newest[-1].spoiled}"
