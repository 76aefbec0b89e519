"""The live source: one frame a tick of host, server, load and this program."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from msgspec.structs import replace

from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchSample
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Footprint, Frame
from pgtop_tune.runtime.ports import Step
from pgtop_tune.sampling.happenings import ParameterWatch, events_between
from pgtop_tune.sampling.host_sampler import HostSampler
from pgtop_tune.sampling.measured_limits import MeasuredLimits
from pgtop_tune.sampling.pooler_sampler import PoolerSampler
from pgtop_tune.sampling.postgres_sampler import PostgresSampler, SessionClock

SHORTEST_S: Final = 0.2
LONGEST_S: Final = 60.0
_SECOND_LOOK_S: Final = 0.3
"""Delay of the second frame, which comes sooner: rates need two."""
_GAP: Final = 3.0
"""Intervals without a frame that make a gap: nothing else that a tick waits for lasts as long."""
_PATIENCE: Final = 0.8
"""Share of the interval that a tick waits for the server before it goes on without."""
_LEAST: Final = 0.5
"""Least share of the interval between two ticks: after a stop of this program one may be due at once, and a rate over
some ms is noise."""


def skipped_ticks(due: float, now: float, began: float, interval_s: float) -> int:
    """Return the number of ticks to skip: those that are late by now, or too near to the last tick.

    Args:
        due: Moment at which the next tick is due.
        now: End of the last tick.
        began: Begin of the last tick, however late.
        interval_s: Seconds from tick to tick.
    """
    soonest = max(now, began + _LEAST * interval_s)
    return int((soonest - due) / interval_s) + 1 if soonest > due else 0


class Load(Protocol):
    """pgbench, as far as sampling uses it."""

    def sample(self, at_s: float) -> BenchSample | Unavailable: ...

    async def aclose(self) -> None: ...


class LiveSource:
    """A `FrameSource` of a live server.

    Args:
        clock: The session's clock.
        host: The machine.
        server: Makes the server's sampler in the engine's loop; its argument takes the sampler's events.
        load: pgbench.
        footprint: Returns this program's own cost now.
        interval_s: Seconds from tick to tick.
        poolers: Their admin consoles; None where the operator named none.
        ceilings: Measured limits; None reads them from the state directory.
    """

    def __init__(
        self,
        clock: SessionClock,
        host: HostSampler,
        server: Callable[[Callable[[Event], None]], PostgresSampler],
        load: Load,
        footprint: Callable[[], Footprint],
        interval_s: float,
        poolers: PoolerSampler | None = None,
        ceilings: MeasuredLimits | None = None,
    ) -> None:
        self._clock = clock
        self._host = host
        self._make_server = server
        self._load = load
        self._footprint = footprint
        self._interval_s = interval_s
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._poolers = poolers or PoolerSampler((), clock)
        self._ceilings = ceilings or MeasuredLimits(clock)
        self._notes: deque[Event] = deque()
        self._lock = threading.Lock()
        self._server: PostgresSampler | None = None
        self._task: asyncio.Task[None] | None = None
        self._before: Frame | None = None
        self._ticked_with_s = interval_s
        self._parameters = ParameterWatch()
        self._sequence = 0

    @property
    def server(self) -> PostgresSampler | None:
        """The server's sampler, once the source runs."""
        return self._server

    @property
    def interval_s(self) -> float:
        """Seconds from tick to tick."""
        return self._interval_s

    def set_interval(self, interval_s: float) -> None:
        """Change the interval, bounded to 0.2 … 60 s; a shorter one brings the next tick forward. Thread-safe."""
        self._interval_s = min(max(interval_s, SHORTEST_S), LONGEST_S)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                # The loop may be closed by now: the session ends.
                self._loop.call_soon_threadsafe(self._changed.set)

    def burst(self) -> float:
        """Sample waits more often; return for how many seconds, 0 before there is a server. In the engine's loop."""
        return 0.0 if self._server is None else self._server.burst()

    def note(self, event: Event) -> None:
        with self._lock:
            self._notes.append(event)

    def switching(self, names: frozenset[str]) -> None:
        """Ignore changes of the parameters that an experiment switches; empty once it is over."""
        if names:
            self._parameters.switching(names)
        else:
            self._parameters.switched(self._clock())

    async def steps(self) -> AsyncIterator[Step]:
        """Yield a step every tick. A tick that comes late is skipped, not made up for."""
        self._loop = loop = asyncio.get_running_loop()
        self._server = self._make_server(self.note)
        self._task = loop.create_task(self._server.run())
        self._poolers.start()
        due = loop.time()
        while True:
            if self._task.done():
                self._task.result()
            began = loop.time()
            yield Step((await self._frame(self._server),))
            first = self._sequence == 1
            now = loop.time()
            # The first frame may have waited for the screen, which is being drawn now.
            due = now + min(self._interval_s, _SECOND_LOOK_S) if first else due + self._interval_s
            skipped = 0 if first else skipped_ticks(due, now, began, self._interval_s)
            self._sequence += skipped
            due += skipped * self._interval_s
            due = await self._waited(due, loop)

    async def _waited(self, due: float, loop: asyncio.AbstractEventLoop) -> float:
        """Wait for the next tick; return when it was due, which a shorter interval makes sooner."""
        ticked = loop.time()
        while (rest_s := due - loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await self._changed.wait()
                self._changed.clear()
                due = min(due, ticked + self._interval_s)
        return due

    async def _frame(self, server: PostgresSampler) -> Frame:
        postgres = await server.look(self._interval_s * _PATIENCE)
        bench = self._load.sample(self._clock())
        run = None if isinstance(bench, Unavailable) else bench.run
        pgbench, poolers = ((), ()) if run is None else (run.pids, [process.pid for process in run.path])
        host = await self._host.look(postgres, pgbench, self._interval_s * _PATIENCE, poolers)
        frame = Frame(
            sequence=self._sequence,
            taken_at_ms=SessionClock.wall_ms(),
            elapsed_s=self._clock(),
            host=host,
            postgres=postgres,
            bench=bench,
            footprint=self._footprint(),
            pooler=self._poolers.sample(),
            ceilings=self._ceilings.sample(postgres),
            interval_s=self._interval_s,
        )
        with self._lock:
            notes = tuple(self._notes)
            self._notes.clear()
        # A load that began before the first frame is an event, too.
        before = self._before or Frame(-1, frame.taken_at_ms, 0.0)
        happened = events_between(before, frame, self._parameters.switched_since(before))
        events = notes + self._gap(frame) + happened + self._parameters.events(frame)
        frame = replace(frame, events=tuple(map(Event.masked, events)))
        self._before = frame
        self._ticked_with_s = self._interval_s
        self._sequence += 1
        return frame

    def _gap(self, frame: Frame) -> tuple[Event, ...]:
        """Return the event of a gap in the samples; none for the second frame, which may wait for the screen."""
        if self._before is None or self._before.sequence == 0:
            return ()
        missed_s = frame.elapsed_s - self._before.elapsed_s
        if missed_s <= _GAP * max(self._interval_s, self._ticked_with_s):
            return ()
        detail = "pgtop-tune was stopped or had no CPU, so numbers are missing"
        return (
            Event(at_ms=frame.taken_at_ms, kind=EventKind.GAP, text=f"no samples for {missed_s:.1f} s", detail=detail),
        )

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            # Its failure, if it had one, has been raised by `steps` already.
            await asyncio.wait((self._task,))
        await self._poolers.aclose()
        await self._load.aclose()
        self._host.close()
