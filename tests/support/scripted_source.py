"""A source of frames that a test feeds by hand."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable

from msgspec.structs import replace

from pgtop_tune.model.events import Event
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.ports import Step


class ScriptedSource:
    """A `FrameSource` that hands over what a test feeds it; notes go into the next frame, as in a live one."""

    def __init__(self, steps: Iterable[Step] = (), *, ends: bool = False, fails: BaseException | None = None) -> None:
        self._waiting: deque[Step] = deque(steps)
        self._ends = ends
        self._fails = fails
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._notes: deque[Event] = deque()
        self.noted: list[Event] = []
        self.handed_over = 0
        self.closed = False
        self.interval_s = 1.0

    def feed(self, *frames: Frame, restart: bool = False) -> None:
        """EngineClient one step over. From any thread."""
        self._waiting.append(Step(frames, restart))
        if self._loop is not None and self._wake is not None:
            self._loop.call_soon_threadsafe(self._wake.set)

    async def steps(self) -> AsyncIterator[Step]:
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        while True:
            while self._waiting:
                step = self._waiting.popleft()
                notes = tuple(self._notes)
                self._notes.clear()
                if notes and step.frames:
                    *others, last = step.frames
                    step = replace(step, frames=(*others, replace(last, events=last.events + notes)))
                yield step
                self.handed_over += 1
            if self._fails is not None:
                raise self._fails
            if self._ends:
                return
            await self._wake.wait()
            self._wake.clear()

    def note(self, event: Event) -> None:
        self.noted.append(event)
        self._notes.append(event)

    async def aclose(self) -> None:
        self.closed = True

    def set_interval(self, interval_s: float) -> None:
        self.interval_s = interval_s

    async def burst(self) -> float:
        return 20.0
