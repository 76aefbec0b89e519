"""Two copies under load: started with the settings of an arm each, exchanged, and measured in the same seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.bench.ports import SqlSession, safe_path
from pgtop_tune.errors import PgtopError
from pgtop_tune.experiment.switchback.blocks import Arm, Block
from pgtop_tune.experiment.twin.design import Moment, TwinLengths, TwinPair
from pgtop_tune.experiment.twin.half_cpu import HalfCpu
from pgtop_tune.experiment.twin.placement import Placement
from pgtop_tune.experiment.twin.room import free_and_spare
from pgtop_tune.experiment.twin.sides import LATE_S, Side, SideCounters, Span
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.units import size

POLL_S: Final = 0.1
"""A progress line counts from its arrival."""
_DISK_EVERY_S: Final = 1.0


class Trouble(Exception):
    """The load cannot go on; its text says why."""


class BothSpans(Struct, frozen=True):
    """The same seconds on both copies; `swapped` as in `Moment`."""

    swapped: bool
    spans: tuple[Span, Span]


class PairSpans(Struct, frozen=True):
    """Those of a pair; `crossed` as in `TwinPair`."""

    crossed: bool
    both: tuple[BothSpans, BothSpans]


class LoadedCopies:
    """Both copies with their loads.

    Args:
        sides: The first copy and the second.
        halves: Of the CPUs; () where they are shared.
        placement: Puts processes onto CPUs.
        open_session: Opens a session on a copy.

    Attributes:
        crossed: The copies have exchanged their settings.
        swapped: A runs on the second half of the CPUs.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        lengths: TwinLengths,
        halves: Sequence[Sequence[int]],
        placement: Placement,
        open_session: Callable[[Side], Awaitable[SqlSession]],
    ) -> None:
        self.sides: Final = tuple(sides)
        self.crossed = False
        self.swapped = False
        self._lengths: Final = lengths
        self._halves: Final = tuple(halves)
        self._placement: Final = placement
        self._open_session: Final = open_session
        self._sessions: list[SqlSession] = []
        self._cpu = HalfCpu()
        self._disk_s = 0.0

    @property
    def arms(self) -> tuple[Arm, Arm]:
        """Of the first copy and of the second."""
        return (Arm.B, Arm.A) if self.crossed else (Arm.A, Arm.B)

    async def start(self, spec: LoadSpec) -> None:
        """The loads; both servers run."""
        for side in self.sides:
            side.begin()
        self._sessions = [await self._open_session(side) for side in self.sides]
        for index, side in enumerate(self.sides):
            self._placement.enter(index, side.pids)
        self._place()
        pinned = [() if spec.scripts else await safe_path(session) for session in self._sessions]
        await asyncio.gather(
            *(
                side.runner.start(replace(spec, settings=settings))
                for side, settings in zip(self.sides, pinned, strict=True)
            )
        )

    async def until_begun(self, timeout_s: float) -> bool:
        """Waits for the first second of both loads; whether they came in time."""
        until_s = time.monotonic() + timeout_s
        while not all(side.has_begun for side in self.sides):
            await self.listen(POLL_S)
            if time.monotonic() > until_s:
                return False
        for index, side in enumerate(self.sides):
            self._placement.enter(index, side.pids)
        self._place()
        return True

    async def end(self) -> None:
        """The loads; the servers go on."""
        for side in self.sides:
            await side.runner.stop()
        for session in self._sessions:
            await session.aclose()
        self._sessions = []

    async def listen(self, seconds: float) -> None:
        """Lets time pass.

        Raises:
            Trouble: A load or a server ended, or the disk gets full.
        """
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0.0:
            await asyncio.sleep(min(POLL_S, left_s))
            self._check_disk()
            for side, arm in zip(self.sides, self.arms, strict=True):
                side.collect()
                if side.trouble:
                    raise Trouble(f"{arm}: {side.trouble}")

    def _check_disk(self) -> None:
        if time.monotonic() < self._disk_s + _DISK_EVERY_S:
            return
        self._disk_s = time.monotonic()
        free_bytes, spare_bytes = free_and_spare(self.sides[0].server.home)
        if free_bytes < spare_bytes:
            raise Trouble(f"the disk of the copies gets full: {size(free_bytes)} are left")

    def _place(self) -> None:
        """Puts each copy on the half of the CPUs that its arm has now; time so far goes to those that had them."""
        if not self._halves:
            return
        halves = [self._halves[(arm is Arm.B) != self.swapped] for arm in self.arms]
        for index, half in enumerate(halves):
            self._placement.give(index, half)

    def _had(self) -> list[Sequence[int]]:
        return [self._halves[(arm is Arm.B) != self.swapped] for arm in self.arms] if self._halves else []

    def _exchange(self) -> None:
        self._cpu.look(self._had())
        self.swapped = not self.swapped
        self._place()

    # The pairs.

    async def pair(self, swapped: bool) -> PairSpans:
        """One block that begins on either half.

        Args:
            swapped: A begins on the second half.

        Raises:
            Trouble: As `listen`.
        """
        try:
            return PairSpans(self.crossed, (await self._spans(swapped), await self._spans(not swapped)))
        except PgtopError:
            # The load tells it as well, a moment later.
            await self.listen(10.0 * POLL_S)
            raise

    async def _spans(self, swapped: bool) -> BothSpans:
        """The seconds of a block, on either copy."""
        if swapped != self.swapped:
            self._exchange()
        self._place()
        began_s, first = time.time(), await self._counters()
        at_s, lengths = time.monotonic(), self._lengths
        for part in range(1, lengths.parts + 1):
            await self.listen(at_s + part * lengths.measured_s / lengths.parts - time.monotonic())
            if part < lengths.parts:
                self._exchange()
        ended_s, last = time.time(), await self._counters()
        await self.listen(LATE_S)
        a, b = (
            Span(
                began_s=began_s, ended_s=ended_s, cpus=self._cpu.cpus, first=before, last=after,
                checkpoint=side.log.checkpoint_share(began_s, ended_s),
            )
            for side, before, after in zip(self.sides, first, last, strict=True)
        )  # fmt: skip
        return BothSpans(swapped, (a, b))

    async def _counters(self) -> list[SideCounters]:
        both = zip(self.sides, self._sessions, strict=True)
        wal_bytes = await asyncio.gather(*(side.wal_bytes(session) for side, session in both))
        self._cpu.look(self._had())
        shared = not self._halves
        return [
            side.counters(
                written, None if shared else self._cpu.busy_ms[index], None if shared else self._cpu.steal_ms[index]
            )
            for index, (side, written) in enumerate(zip(self.sides, wal_bytes, strict=True))
        ]

    def made(self, number: int, spans: PairSpans) -> TwinPair:
        """The pair with all that has come of it so far."""
        first, second = (self._moment(spans.crossed, both) for both in spans.both)
        return TwinPair(number, spans.crossed, (first, second))

    def _moment(self, crossed: bool, both: BothSpans) -> Moment:
        arms = (Arm.B, Arm.A) if crossed else (Arm.A, Arm.B)
        blocks: dict[Arm, Block] = {
            arm: side.block(arm, span) for arm, side, span in zip(arms, self.sides, both.spans, strict=True)
        }
        return Moment(blocks[Arm.A], blocks[Arm.B], both.swapped)
