"""A recording as a source of frames: the same steps a live session makes, with play, pause, step, speed and jump."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final

from pgtop_tune.model.events import Event
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.session.ports import Step, TransportState

SLOWEST: Final = 0.25
FASTEST: Final = 60.0
CONTEXT_S: Final = 600.0
"""Seconds before the moment jumped to that are handed over after it, for the charts."""
_BATCH_S: Final = 0.05
"""At high speed frames are handed over in batches, at most so often."""


class ReplaySource:
    """Implements `FrameSource` and `Transport`.

    Args:
        reader: An open recording; closed with the source.
        speed: Multiple of the recorded pace.
    """

    def __init__(self, reader: RecordingReader, speed: float = 1.0) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._speed = min(max(speed, SLOWEST), FASTEST)
        self._paused = False
        self._index = 0
        self._wanted: int | None = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None

    async def steps(self) -> AsyncIterator[Step]:
        """See `FrameSource.steps`. Stays at the last frame until it is closed: an operator wants to look at it."""
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        frames = self._reader.frames(0)
        clock = _Clock()
        while True:
            with self._lock:
                wanted, self._wanted = self._wanted, None
                paused, speed = self._paused, self._speed
            if wanted is not None:
                # The moment itself first: reading all that leads up to it takes a hundred times as long.
                context, frames = self._frames_up_to(wanted, max(wanted - 1, 0))
                if not context:
                    context, frames = self._frames_up_to(wanted, self._begin_of_past(wanted))
                clock.start(self._reader.elapsed_s(self._index) if context else 0.0)
                yield Step(context, restart=True)
                past = self._past_of(self._index)
                if past is not None:
                    yield Step(past, restart=True)
                continue
            if paused or self._index >= self._reader.frame_count - 1:
                clock.stop()
                await self._wake.wait()
                self._wake.clear()
                clock.start(self._here_s())
                continue
            due_s = clock.position(speed)
            batch: list[Frame] = []
            while self._index < self._reader.frame_count - 1 and self._reader.elapsed_s(self._index + 1) <= due_s:
                following = next(frames, None)
                if following is None:
                    self._index = self._reader.frame_count - 1
                    break
                self._index = following[0]
                batch.append(following[1])
            if batch:
                yield Step(tuple(batch))
                continue
            next_s = self._reader.elapsed_s(min(self._index + 1, self._reader.frame_count - 1))
            try:
                async with asyncio.timeout(max((next_s - due_s) / speed, _BATCH_S)):
                    await self._wake.wait()
                self._wake.clear()
                clock.start(clock.position(speed))
            except TimeoutError:
                pass

    def _frames_up_to(self, wanted: int, first: int) -> tuple[tuple[Frame, ...], Iterator[tuple[int, Frame]]]:
        frames = self._reader.frames(first)
        context: list[Frame] = []
        for index, frame in frames:
            context.append(frame)
            self._index = index
            if index >= wanted:
                break
        return tuple(context), frames

    def _begin_of_past(self, index: int) -> int:
        return self._reader.index_at(self._reader.elapsed_s(index) - CONTEXT_S) if self._reader.frame_count else 0

    def _past_of(self, last: int) -> tuple[Frame, ...] | None:
        """The frames that lead up to one, for the charts; None when there are no more, or another is wanted by now."""
        first = self._begin_of_past(last)
        if first >= last - 1:
            return None
        past: list[Frame] = []
        for index, frame in self._reader.frames(first):
            if index > last or self._wanted is not None:
                break
            past.append(frame)
        return tuple(past) if self._wanted is None else None

    def _here_s(self) -> float:
        return self._reader.elapsed_s(self._index) if self._reader.frame_count else 0.0

    def note(self, event: Event) -> None:
        """A recording takes no notes: what happened has happened."""

    async def aclose(self) -> None:
        """Closes the recording."""
        self._reader.close()

    def state(self) -> TransportState:
        """See `Transport.state`."""
        count = self._reader.frame_count
        at_end = self._index >= count - 1
        return TransportState(self._paused, self._speed, self._here_s(), self._reader.length_s, at_end)

    def pause(self, paused: bool) -> None:
        """See `Transport.pause`."""
        with self._lock:
            self._paused = paused
        self._poke()

    def set_speed(self, speed: float) -> None:
        """See `Transport.set_speed`."""
        with self._lock:
            self._speed = min(max(speed, SLOWEST), FASTEST)
        self._poke()

    def step(self, frames: int) -> None:
        """See `Transport.step`."""
        with self._lock:
            self._paused = True
            base = self._index if self._wanted is None else self._wanted
            self._wanted = min(max(base + frames, 0), max(self._reader.frame_count - 1, 0))
        self._poke()

    def jump(self, elapsed_s: float) -> None:
        """See `Transport.jump`."""
        with self._lock:
            self._wanted = self._reader.index_at(elapsed_s)
        self._poke()

    def _poke(self) -> None:
        if self._loop is not None and self._wake is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)


class _Clock:
    """Where playing stands between two frames."""

    def __init__(self) -> None:
        self._base_s = 0.0
        self._since: float | None = None

    def start(self, base_s: float) -> None:
        self._base_s, self._since = base_s, time.monotonic()

    def stop(self) -> None:
        self._since = None

    def position(self, speed: float) -> float:
        if self._since is None:
            self._since = time.monotonic()
        return self._base_s + (time.monotonic() - self._since) * speed
