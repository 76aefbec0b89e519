"""The twin: two copies, a load on each, pairs in two stages, and everything removed.

The original gives its data once, through pg_basebackup, and gets no load.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.bench.ports import LoadEndpoint, SqlSession, safe_path
from pgtop_tune.bench.runner import LoadPreparation
from pgtop_tune.cluster.copied_server import CopiedServer
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS, PairedVerdict
from pgtop_tune.errors import PgtopError
from pgtop_tune.experiment.switchback.blocks import Arm
from pgtop_tune.experiment.switchback.state import Ending
from pgtop_tune.experiment.twin.design import Moment, TwinPair, begins_swapped, stage_pairs
from pgtop_tune.experiment.twin.evaluation import evaluate, stage
from pgtop_tune.experiment.twin.sides import LATE_S, Side, SideCounters, Span
from pgtop_tune.experiment.twin.state import TwinMaterial, TwinPhase, TwinPlan, TwinState
from pgtop_tune.process.guarded_program import Guarded, start_guarded
from pgtop_tune.units import duration

_POLL_S: Final = 0.1
"""A progress line counts from its arrival."""
_FIRST_SECOND_S: Final = 60.0
"""A load that connects many clients takes its time until its first transaction."""
_KEEPER: Final = ("/bin/sh", "-c", "trap '' INT; while :; do sleep 1; done")
"""Lives a moment longer than the servers of a program that was killed, then its guard removes what they left."""
_KEEPER_GRACE_S: Final = 8.0
_OF_VERDICT: Final = {
    PairedVerdict.BETTER: Ending.BETTER,
    PairedVerdict.WORSE: Ending.WORSE,
    PairedVerdict.EQUIVALENT: Ending.EQUIVALENT,
}


class _Over(Exception):
    """The experiment ends here.

    Attributes:
        ending, reason: As in the state.
    """

    def __init__(self, ending: Ending, reason: str) -> None:
        super().__init__(reason)
        self.ending = ending
        self.reason = reason


class _BothSpans(Struct, frozen=True):
    """The same seconds on both copies; `swapped` as in `Moment`."""

    swapped: bool
    spans: tuple[Span, Span]


class _PairSpans(Struct, frozen=True):
    """Those of a pair; `crossed` as in `TwinPair`."""

    crossed: bool
    both: tuple[_BothSpans, _BothSpans]


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
        self._copies: list[CopiedServer] = []
        self._sides: list[Side] = []
        self._sessions: list[SqlSession] = []
        self._measured: list[_PairSpans] = []
        self._crossed = False
        self._swapped = False
        self._coin = begins_swapped(plan.seed)
        self._began_s: float | None = None
        self._keeper: Guarded | None = None

    async def run(self) -> None:
        """To its end; the ending is in the state.

        Raises:
            asyncio.CancelledError: It was stopped; everything is removed.
        """
        try:
            await self._make_copies()
            await self._experiment()
        except _Over as over:
            self._put(ending=over.ending, reason=over.reason)
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
        material, began_s = self._material, time.monotonic()
        for _ in Arm:
            self._copies.append(CopiedServer.create(material.programs, material.account, material.directory))
        remove = [path for copy in self._copies for path in (copy.home, copy.socket_dir)]
        # Also what no server runs in is removed when we are killed.
        self._keeper = start_guarded(_KEEPER, grace_s=_KEEPER_GRACE_S, remove=remove)
        first, second = self._copies
        self._put(phase=TwinPhase.COPYING)
        await self._in_thread(lambda: first.take_backup(material.source, material.backup_programs))
        self._put(phase=TwinPhase.CLONING)
        # It recovers with the original's own settings, and both copies begin with the same bytes.
        await self._in_thread(lambda: first.configure(material.settings[Arm.A]))
        await self._in_thread(first.start)
        await self._in_thread(first.halt)
        await self._in_thread(lambda: second.clone(first))
        self._put(copying_s=time.monotonic() - began_s)
        for copy in self._copies:
            side = Side(copy, material.make_runner(self._endpoint(copy)))
            side.runner.prepare = LoadPreparation(lambda copy=copy: self._open(copy)).complete  # type: ignore[misc]
            self._sides.append(side)

    def _endpoint(self, copy: CopiedServer) -> LoadEndpoint:
        return LoadEndpoint(
            host=str(copy.socket_dir), port=copy.port, user=self._material.user, dbname=self._material.dbname,
            # A variable of ours that leads elsewhere does not count.
            env={"PGHOSTADDR": ""},
        )  # fmt: skip

    async def _open(self, copy: CopiedServer) -> SqlSession:
        return await self._material.open_session(self._endpoint(copy))

    async def _in_thread(self, work: Callable[[], None]) -> None:
        """Waits for blocking work; when we are cancelled, ends what it waits for first."""
        working = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            while not working.done():
                await asyncio.to_thread(self._stop_copies)
                await asyncio.wait((working,), timeout=_POLL_S)
            working.exception()
            raise

    def _stop_copies(self) -> None:
        for copy in self._copies:
            copy.stop("immediate")

    async def _remove(self) -> None:
        self._put(phase=TwinPhase.REMOVING)
        await self._end_loads()
        await asyncio.to_thread(self._stop_copies)
        if self._keeper is not None:
            self._keeper.send_signal("KILL")
            await asyncio.to_thread(self._keeper.wait)
            self._keeper.stop()

    # The loads.

    async def _start(self) -> None:
        """Both servers with their arm's settings, and both loads."""
        self._put(phase=TwinPhase.STARTING)
        for side, arm in zip(self._sides, _arms(self._crossed), strict=True):
            side.server.configure(self._material.settings[arm])
            try:
                await self._in_thread(side.server.start)
            except PgtopError as problem:
                raise _Over(Ending.FAILED, f"{arm} does not start: {problem.message}") from None
        self._sessions = [await self._open(side.server) for side in self._sides]
        self._bind()
        spec = replace(self._material.spec, seed=self.plan.seed % 2**31)
        pinned = [() if spec.scripts else await safe_path(session) for session in self._sessions]
        for side in self._sides:
            side.begin()
        await asyncio.gather(
            *(
                side.runner.start(replace(spec, settings=settings))
                for side, settings in zip(self._sides, pinned, strict=True)
            )
        )
        if self._began_s is None:
            self._began_s = time.monotonic()
        self._put(phase=TwinPhase.WARMING_UP)
        until_s = time.monotonic() + _FIRST_SECOND_S
        while not all(side.has_begun for side in self._sides):
            await self._listen(_POLL_S)
            if time.monotonic() > until_s:
                raise _Over(Ending.ENDED, f"no transaction ended within {duration(_FIRST_SECOND_S)}")
        self._bind()
        await self._listen(self.plan.lengths.warm_up_s)

    async def _end_loads(self) -> None:
        for side in self._sides:
            await side.runner.stop()
        for session in self._sessions:
            await session.aclose()
        self._sessions = []

    async def _listen(self, seconds: float) -> None:
        """Lets time pass; a load that ends is the end of the experiment."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0.0:
            await asyncio.sleep(min(_POLL_S, left_s))
            for side, arm in zip(self._sides, _arms(self._crossed), strict=True):
                side.collect()
                if side.trouble:
                    raise _Over(Ending.ENDED, f"{arm}: {side.trouble}")

    def _bind(self) -> None:
        """Puts each arm on its half of the CPUs."""
        for side, arm in zip(self._sides, _arms(self._crossed), strict=True):
            if self.plan.halves:
                side.bind(self.plan.halves[(arm is Arm.B) != self._swapped])

    # The pairs.

    async def _experiment(self) -> None:
        await self._start()
        fresh = True
        while True:
            wanted = stage_pairs(self._remaining_s, self.plan.lengths, fresh=False)
            if wanted < (FEWEST_PAIRS if fresh else 1):
                self._end_undecided()
            await self._stage(wanted if fresh else min(wanted, self._more() or wanted), early=fresh)
            await self._cross()
            await self._stage(self._behind(), early=False)
            fresh = False

    async def _stage(self, pairs: int, *, early: bool) -> None:
        """So many pairs; a verdict ends the experiment.

        Args:
            early: Ends sooner where the pairs of this stage alone are clear: the other stage may begin.
        """
        for _ in range(pairs):
            await self._pair()
            evaluation = self.state.evaluation
            assert evaluation is not None
            if evaluation.over:
                raise _Over(_OF_VERDICT[evaluation.paired.verdict], "")
            if early and self.state.stage is not None and self.state.stage.over:
                return

    def _behind(self) -> int:
        """Pairs that the stage under way lacks to the other one."""
        crossed = sum(pair.crossed for pair in self.state.pairs if not pair.spoiled)
        plain = sum(not pair.crossed for pair in self.state.pairs if not pair.spoiled)
        return plain - crossed if self._crossed else crossed - plain

    def _more(self) -> int | None:
        evaluation = self.state.evaluation
        return None if evaluation is None else evaluation.paired.more_pairs

    async def _pair(self) -> None:
        """One block that begins on either half."""
        self._put(phase=TwinPhase.MEASURING, pair=len(self._measured) + 1)
        swapped = next(self._coin)
        spans = []
        for now in (swapped, not swapped):
            self._swapped = now
            self._bind()
            spans.append(_BothSpans(now, await self._spans()))
        self._measured.append(_PairSpans(self._crossed, (spans[0], spans[1])))
        self._judge()
        self._put()

    async def _spans(self) -> tuple[Span, Span]:
        """The seconds of a block, on either copy."""
        began_s, first = time.time(), await self._counters()
        at_s, lengths = time.monotonic(), self.plan.lengths
        for part in range(1, lengths.parts + 1):
            await self._listen(at_s + part * lengths.measured_s / lengths.parts - time.monotonic())
            if part < lengths.parts:
                self._swapped = not self._swapped
                self._bind()
        ended_s, last = time.time(), await self._counters()
        await self._listen(LATE_S)
        a, b = (Span(began_s, ended_s, *both) for both in zip(first, last, strict=True))
        return a, b

    async def _counters(self) -> list[SideCounters]:
        both = zip(self._sides, self._sessions, strict=True)
        return await asyncio.gather(*(side.counters(session) for side, session in both))

    async def _cross(self) -> None:
        """The copies exchange their settings."""
        self._put(phase=TwinPhase.CROSSING)
        await self._end_loads()
        for side in self._sides:
            await self._in_thread(side.server.halt)
        self._crossed = not self._crossed
        self._put(crossed=self._crossed)
        await self._start()

    def _judge(self, *, final: bool = False) -> None:
        """Makes blocks and evaluation anew: latencies of the last block may have come since."""
        pairs = tuple(self._made(number, spans) for number, spans in enumerate(self._measured, 1))
        if not pairs:
            return
        objective = self.plan.objective
        self.state = replace(
            self.state,
            pairs=pairs,
            stage=stage(pairs, objective, crossed=self._crossed),
            evaluation=evaluate(pairs, objective, final=final),
        )

    def _made(self, number: int, spans: _PairSpans) -> TwinPair:
        first, second = (self._moment(spans.crossed, both) for both in spans.both)
        return TwinPair(number, spans.crossed, (first, second))

    def _moment(self, crossed: bool, both: _BothSpans) -> Moment:
        blocks = {
            arm: side.block(arm, span) for arm, side, span in zip(_arms(crossed), self._sides, both.spans, strict=True)
        }
        return Moment(blocks[Arm.A], blocks[Arm.B], both.swapped)

    def _end_undecided(self) -> None:
        more = self._more()
        if more is None:
            raise _Over(Ending.UNDECIDED, "the time is over")
        longer_s = 2.0 * more * self.plan.lengths.pair_s + self.plan.lengths.stage_s
        raise _Over(Ending.UNDECIDED, f"the time is over; about {duration(longer_s)} more would decide")

    @property
    def _elapsed_s(self) -> float:
        return 0.0 if self._began_s is None else time.monotonic() - self._began_s

    @property
    def _remaining_s(self) -> float:
        return max(self.plan.for_s - self._elapsed_s, 0.0)

    def _put(self, **fields: object) -> None:
        self.state = replace(self.state, elapsed_s=self._elapsed_s, remaining_s=self._remaining_s, **fields)
        self._seen(self.state)


def _arms(crossed: bool) -> tuple[Arm, Arm]:
    """Of the first copy and of the second."""
    return (Arm.B, Arm.A) if crossed else (Arm.A, Arm.B)
