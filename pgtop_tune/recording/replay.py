"""A recording as a source of frames: the same steps a live session makes, with play, pause, step, speed and jump."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from pgtop_tune.metrics.catalogue import WHOLE_S
from pgtop_tune.model.events import Event
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.frames import Frames, find_landmark
from pgtop_tune.runtime.frame_window import KEEP_FRAMES, FrameWindow
from pgtop_tune.runtime.ports import Landmark, Step, TransportState

SLOWEST: Final = 0.25
FASTEST: Final = 60.0
CONTEXT_S: Final = 600.0
"""Seconds before a jump's target that are delivered after it, for the charts."""
_BATCH_S: Final = 0.05
"""Least time between two batches of frames at high speed."""
_LOOK_S: Final = 0.5
"""Time between two looks at the end of a file that grows."""
_ENOUGH: Final = KEEP_FRAMES // 2
"""Frames a session needs behind the newest one; with fewer, those before them are read again."""
_HELD_S: Final = 2 * WHOLE_S
"""Seconds for which whole frames are held for steps back; a session keeps them for half of it."""


class ReplaySource:
    """A `FrameSource` and `Transport` over kept frames.

    Args:
        frames: An open recording, or the last hour; closed with the source.
        speed: Multiple of the recorded pace.
        shown_frames: Frames that a session shows already: the source begins there, paused, and yields only later ones.
            The session knows the frames before a moment then, but for the whole frames it keeps.
        until_s: Where it pauses, once; None plays to the end.
    """

    def __init__(
        self, frames: Frames, speed: float = 1.0, shown_frames: Sequence[Frame] = (), until_s: float | None = None
    ) -> None:
        self._frames = frames
        self._until_s = until_s
        self._lock = threading.Lock()
        self._speed = min(max(speed, SLOWEST), FASTEST)
        self._paused = bool(shown_frames)
        self._context_s: Final = None if shown_frames else CONTEXT_S
        self._known: deque[tuple[int, Frame]] = deque(
            (frames.index_at(frame.elapsed_s), frame)
            for frame in shown_frames
            if frame.elapsed_s > shown_frames[-1].elapsed_s - WHOLE_S
        )
        self._behind = len(shown_frames)
        self._index = self._known[-1][0] if self._known else frames.first
        self._wanted: tuple[float | None, int] | None = None if shown_frames else (None, 0)
        self._position_s = shown_frames[-1].elapsed_s if shown_frames else 0.0
        self._length_s = frames.length_s
        self._ahead: Iterator[tuple[int, Frame]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None

    async def steps(self) -> AsyncIterator[Step]:
        """Yield steps. Stays at the last frame until it is closed: an operator wants to look at it."""
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        clock = _PlaybackClock(self._position_s)
        while True:
            with self._lock:
                move, self._wanted = self._wanted, None
                paused, speed = self._paused, self._speed
            if move is not None:
                for step in self._moved(*move):
                    clock.start(self._arrived_s())
                    yield step
                continue
            if not paused and self._at_end and self._frames.extend():
                batch = self._read(self._last)
                clock.start(self._arrived_s())
                yield Step(batch)
                continue
            if paused or self._at_end:
                clock.stop()
                growing = not paused and self._frames.growing
                await self._woken(_LOOK_S if growing else None)
                clock.start(self._position_s)
                if growing and not self._frames.growing:
                    # No frame, but the end of the recording is known now.
                    yield Step(())
                continue
            due_s = clock.position(speed)
            if self._until_s is not None and due_s >= self._until_s:
                due_s = self._until_s
            last = self._index
            while last < self._last and self._frames.elapsed_s(last + 1) <= due_s:
                last += 1
            if last > self._index:
                batch = self._read(last)
                self._arrived_s()
                if batch:
                    yield Step(batch)
                continue
            if due_s == self._until_s:
                with self._lock:
                    self._paused, self._until_s = True, None
                continue
            next_s = self._frames.elapsed_s(min(self._index + 1, self._last))
            if await self._woken(max((next_s - due_s) / speed, _BATCH_S)):
                clock.start(clock.position(speed))

    @property
    def _last(self) -> int:
        return max(self._frames.frame_count - 1, self._frames.first)

    @property
    def _at_end(self) -> bool:
        return self._index >= self._last

    async def _woken(self, timeout_s: float | None) -> bool:
        """Wait until an operator requests something; False when nobody did in time."""
        assert self._wake is not None
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return False
        self._wake.clear()
        return True

    def _read(self, last: int) -> tuple[Frame, ...]:
        """Return the frames after the one shown, up to a number."""
        frames: list[Frame] = []
        anew = self._ahead is None
        while self._index < last:
            if self._ahead is None:
                self._ahead = self._frames.frames(self._index + 1)
            following = next(self._ahead, None)
            if following is None:
                # It may have come to an end before more was written.
                self._ahead = None
                if anew:
                    self._index = last
                anew = True
                continue
            self._index, anew = following[0], False
            _hold(self._known, *following)
            self._behind = min(self._behind + 1, KEEP_FRAMES)
            frames.append(following[1])
        return tuple(frames)

    def _moved(self, from_s: float | None, by: int) -> Iterator[Step]:
        """Yield the steps that bring a session to another frame: the moment itself first, then the frames before it.

        Args:
            from_s: A moment; None for the one shown.
            by: Frames from there.
        """
        self._frames.extend()
        base = self._index if from_s is None else self._frames.index_at(from_s)
        target = min(max(base + by, self._frames.first), self._last)
        if target == self._index + 1 and self._known:
            yield Step(self._read(target))
            return
        if self._known and self._known[0][0] < target < self._index:
            while self._known[-1][0] > target:
                self._known.pop()
                self._behind -= 1
            self._index, self._ahead = self._known[-1][0], None
            yield self._set_back()
            if self._behind >= _ENOUGH or self._behind > self._index - self._frames.first:
                if self._know_more():
                    yield self._set_back()
                return
        else:
            # Reading the frames before a moment takes a hundred times as long as the moment.
            begun = self._arrive(target, target - 1) or self._arrive(target, self._begin_of_past(target))
            yield Step(begun, restart=True, more=self._has_past(self._index))
        past = self._past_of(self._index)
        if past is not None:
            yield Step(past, restart=True)

    def _set_back(self) -> Step:
        """Return the frame shown, and whole ones before it as far as a session keeps them."""
        at_s = self._known[-1][1].elapsed_s
        whole_frames = tuple(frame for _, frame in self._known if frame.elapsed_s >= at_s - WHOLE_S)
        return Step(whole_frames, back_to_s=at_s)

    def _know_more(self) -> bool:
        """Read whole frames before those held, where they do not reach far enough back; False when that is no use."""
        begin, (_, newest) = self._known[0], self._known[-1]
        if begin[1].elapsed_s <= newest.elapsed_s - WHOLE_S or begin[0] <= self._frames.first:
            return False
        earlier: list[tuple[int, Frame]] = []
        for index, frame in self._frames.frames(self._frames.index_at(newest.elapsed_s - _HELD_S)):
            if index >= begin[0] or self._wanted is not None:
                break
            earlier.append((index, frame))
        if self._wanted is None:
            self._known.extendleft(reversed(earlier))
        return self._wanted is None

    def _arrive(self, target: int, first: int) -> tuple[Frame, ...]:
        self._known.clear()
        self._ahead = self._frames.frames(max(first, self._frames.first))
        for index, frame in self._ahead:
            _hold(self._known, index, frame)
            self._index = index
            if index >= target:
                break
        self._behind = len(self._known)
        return tuple(frame for _, frame in self._known)

    def _begin_of_past(self, index: int) -> int:
        if self._context_s is None or not self._frames.frame_count:
            return max(index - KEEP_FRAMES + 1, self._frames.first)
        return self._frames.index_at(self._frames.elapsed_s(index) - self._context_s)

    def _has_past(self, index: int) -> bool:
        return self._begin_of_past(index) < index - 1

    def _past_of(self, last: int) -> tuple[Frame, ...] | None:
        """Return the frames before one; None when there are no more, or another is requested by now."""
        if not self._has_past(last):
            return None
        first = self._begin_of_past(last)
        # Without context, a session keeps all of these frames; the older ones, which are large, are thinned.
        past: FrameWindow | list[Frame] = FrameWindow() if self._context_s is None else []
        held_frames: deque[tuple[int, Frame]] = deque()
        for index, frame in self._frames.frames(first):
            if index > last or self._wanted is not None:
                break
            past.append(frame)
            _hold(held_frames, index, frame)
        if self._wanted is not None:
            return None
        self._known, self._behind = held_frames, min(len(past), KEEP_FRAMES)
        return tuple(past)

    def _arrived_s(self) -> float:
        self._length_s = self._frames.length_s
        self._position_s = self._frames.elapsed_s(self._index) if self._frames.frame_count else 0.0
        return self._position_s

    def note(self, event: Event) -> None:
        """Do nothing: a recording takes no notes."""

    async def aclose(self) -> None:
        self._frames.close()

    async def find(self, landmark: Landmark) -> float | None:
        number = await find_landmark(self._frames, landmark, self._index)
        return None if number is None else self._frames.elapsed_s(number)

    def state(self) -> TransportState:
        return TransportState(
            paused=self._paused,
            speed=self._speed,
            position_s=self._position_s,
            length_s=self._length_s,
            at_end=self._at_end,
            growing=self._frames.growing,
        )

    def pause(self, paused: bool) -> None:
        with self._lock:
            self._paused = paused
        self._poke()

    def set_speed(self, speed: float) -> None:
        with self._lock:
            self._speed = min(max(speed, SLOWEST), FASTEST)
        self._poke()

    def step(self, frames: int) -> None:
        with self._lock:
            self._paused = True
            from_s, by = self._wanted or (None, 0)
            self._wanted = (from_s, by + frames)
        self._poke()

    def jump(self, elapsed_s: float) -> None:
        with self._lock:
            self._wanted = (elapsed_s, 0)
        self._poke()

    def _poke(self) -> None:
        if self._loop is not None and self._wake is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)


def _hold(held_frames: deque[tuple[int, Frame]], index: int, frame: Frame) -> None:
    """Add the newest frame, and drop those that steps back do not need any more."""
    held_frames.append((index, frame))
    while held_frames[0][1].elapsed_s < frame.elapsed_s - _HELD_S:
        held_frames.popleft()


class _PlaybackClock:
    """Position of the playback between two frames."""

    def __init__(self, base_s: float) -> None:
        self._base_s = base_s
        self._since: float | None = None

    def start(self, base_s: float) -> None:
        self._base_s, self._since = base_s, time.monotonic()

    def stop(self) -> None:
        self._since = None

    def position(self, speed: float) -> float:
        if self._since is None:
            self._since = time.monotonic()
        return self._base_s + (time.monotonic() - self._since) * speed
