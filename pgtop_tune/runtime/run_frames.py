"""A sink that keeps the frames of a run, without sections that no rule reads, and lets a task wait for one.

Before and between runs it keeps the newest frames only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from functools import partial
from typing import Final

from msgspec.structs import replace

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load_cpu import COVERED, load_pids
from pgtop_tune.model.absence import NOT_RECORDED, Unavailable
from pgtop_tune.model.bench import BenchProgress, BenchRun
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostSample, ProcessSample
from pgtop_tune.model.postgres import Activity, PostgresSample
from pgtop_tune.model.waits import LOAD_APPLICATION
from pgtop_tune.runtime.ports import FrameSink, Step

_BEFORE: Final = 2
"""Frames kept from before a run: rates need two."""

_RESTING: Final = 12
"""Frames kept between runs, among which a section that is read seldom is found."""

OnProgress = Callable[[BenchRun, BenchProgress], None]


class FrameKeeper:
    """A `FrameSink` that keeps frames. All calls come from the engine's loop.

    Args:
        on_progress: Takes each progress line.
        most: Most frames of a run that are kept, the newest; None keeps all.

    Attributes:
        beside: Another sink, which gets the whole frames; None without one.
    """

    def __init__(self, on_progress: OnProgress = lambda run, line: None, most: int | None = None) -> None:
        self.beside: FrameSink | None = None
        self._on_progress = on_progress
        self._most = most
        self._resting = True
        self._frames: list[Frame] = []
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def frames(self) -> tuple[Frame, ...]:
        """All frames since `begin`, and the two frames before; without a run, the newest."""
        return tuple(self._frames)

    @property
    def interval(self) -> Interval | None:
        """The interval of these frames, for metrics; None before the first frame."""
        return Interval(self._frames) if self._frames else None

    def begin(self) -> None:
        """Forget all but the newest frames, and keep all that come."""
        self._resting = False
        before, self._frames = self._frames[-_BEFORE:], []
        for frame in before:
            append_thin(self._frames, frame)

    def rest(self) -> None:
        """Keep only the newest frames until `begin`: there is no run to be judged by them."""
        self._resting = True

    def accept(self, step: Step) -> None:
        if self.beside is not None:
            self.beside.accept(step)
        keep = self._frames.append if self._resting else partial(append_thin, self._frames)
        for frame in step.frames:
            keep(frame)
            if not isinstance(frame.bench, Unavailable):
                for line in frame.bench.progress:
                    self._on_progress(frame.bench.run, line)
        most = _RESTING if self._resting else self._most
        if most is not None:
            del self._frames[:-most]
        self._wake()

    def close(self) -> None:
        """Take the end of the source: waiting tasks learn that no frame will come."""
        self._closed = True
        self._wake()

    async def until(self, condition: Callable[[Interval], bool], timeout_s: float | None) -> bool:
        """Wait for the condition to hold for the newest frames; False when it did not in time, or no more frames
        come."""
        try:
            async with asyncio.timeout(timeout_s):
                while not (self._frames and condition(Interval(self._frames))):
                    if self._closed:
                        return False
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def fresh(self, timeout_s: float) -> bool:
        """Wait for a frame that is made from now on."""
        newest = self._frames[-1].sequence if self._frames else -1
        # The frame under way may hold older readings.
        return await self.until(lambda interval: interval.newest.sequence > newest + 1, timeout_s)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def append_thin(frames: list[Frame], frame: Frame) -> None:
    """Append a frame, thin, to those of a run.

    The first and the newest frame with the load's own sessions keep their processes: the difference of the two is the
    CPU time and the queueing of the run.
    """
    pids = load_pids(frame)
    frames.append(thin(frame, pids))
    if (
        pids
        and len(frames) > 1
        and not (_has(frames[-2], pids) and not any(_has(frame_between, pids) for frame_between in frames[:-2]))
    ):
        frames[-2] = thin(frames[-2])


def _has(frame: Frame, pids: Set[int]) -> bool:
    return len(load_pids(frame) & pids) >= COVERED * len(pids)


def thin(frame: Frame, pids: Set[int] = frozenset()) -> Frame:
    """Return the frame with the sections by which a run is judged: an hour under a thousand clients fits in memory.

    Left out: the load's own sessions and their processes, and sections that no rule looks at.

    Args:
        frame: The whole frame.
        pids: Sessions of the load that stay, with their processes.
    """
    return replace(frame, host=_thin_host(frame.host, pids), postgres=_thin_postgres(frame.postgres, pids))


def _thin_host(host: HostSample | Unavailable, pids: Set[int]) -> HostSample | Unavailable:
    if isinstance(host, Unavailable):
        return host
    processes = host.processes
    if isinstance(processes, ProcessSample):
        kept = tuple(row for row in processes.processes if row.pid in pids) if pids else ()
        processes = replace(processes, processes=kept)
    return HostSample(
        facts=host.facts, cpu=host.cpu, memory=host.memory, pressure=host.pressure, disks=host.disks,
        network=host.network, processes=processes, setup=host.setup, cgroup=host.cgroup,
    )  # fmt: skip


def _thin_postgres(postgres: PostgresSample | Unavailable, pids: Set[int]) -> PostgresSample | Unavailable:
    if isinstance(postgres, Unavailable):
        return postgres
    activity = postgres.activity
    if isinstance(activity, Activity):
        kept = tuple(row for row in activity.backends if row.application_name != LOAD_APPLICATION or row.pid in pids)
        activity = replace(activity, backends=kept)
    return replace(
        PostgresSample(),
        server=postgres.server, activity=activity, waits=postgres.waits, database=postgres.database, wal=postgres.wal,
        checkpoints=postgres.checkpoints, parameters=postgres.parameters, progress=postgres.progress,
        locks=NOT_RECORDED,
    )  # fmt: skip
