"""The engine: it takes steps from a source and hands them to sinks, in a thread of its own beside a screen; and the
requests of the screen to that thread.

A terminal may stall for a minute (SSH, Ctrl-S) and block Textual's loop; the recording must not notice. Headless
commands run the same engine without a thread.

A lazy part: made once, when it is first needed, for all callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.model.events import Event, EventKind

if TYPE_CHECKING:
    from pgtop_tune.runtime.ports import FrameSink, FrameSource


T = TypeVar("T")


class Engine:
    """The loop that runs a source and feeds sinks until the source ends or `stop` is called.

    Args:
        source: Source of the frames. Closed when the engine ends.
        sinks: Receivers of the steps. Closed when the engine ends.
    """

    def __init__(self, source: FrameSource, sinks: Iterable[FrameSink] = ()) -> None:
        self._source = source
        self._sinks = list(sinks)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._wanted = threading.Event()
        self._released = asyncio.Event()
        self.failure: BaseException | None = None

    def attach(self, sink: FrameSink, *, first: bool = False) -> None:
        """Add a sink; before `start` or `run`. After `prepare` it still gets every step.

        Args:
            sink: Receiver of the steps.
            first: Puts it before the sinks that are there: an operator waits for it.
        """
        self._sinks.insert(0 if first else len(self._sinks), sink)

    def note(self, event: Event) -> None:
        """Put an event into the next frame. Thread-safe."""
        self._source.note(event)

    async def run(self) -> None:
        """Run in the caller's loop until the source ends or the task is cancelled."""
        self._wanted.set()
        await self._run()

    def prepare(self) -> None:
        """Start the engine in a thread, but hold its first step back until `start`. Returns at once.

        The source connects and takes its first look while its reader gets ready.
        """
        self._thread = threading.Thread(target=self._run_thread, name="engine", daemon=True)
        self._thread.start()

    def start(self) -> None:
        """Start the engine in a thread, or release what `prepare` holds back; returns at once."""
        self._wanted.set()
        if self._thread is None:
            self.prepare()
        elif self._loop is not None:
            # The loop is closed where the source could not begin.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._released.set)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        if self._wanted.is_set():
            self._released.set()
        self._started.set()
        try:
            await self._feed()
        except Exception as failure:
            # Set before the sinks are closed: they ask at once whether the end was a failure.
            self.failure = failure
            # A sink that is attached while the start is awaited must learn of the end, too.
            await self._released.wait()
            raise
        finally:
            try:
                await self._source.aclose()
            finally:
                for sink in self._sinks:
                    sink.close()

    async def _feed(self) -> None:
        async for step in self._source.steps():
            await self._released.wait()
            for sink in tuple(self._sinks):
                try:
                    sink.accept(step)
                except PgtopError as problem:
                    self._sinks.remove(sink)
                    with contextlib.suppress(PgtopError):
                        sink.close()
                    self.note(
                        Event(
                            at_ms=int(time.time() * 1000),
                            kind=EventKind.WARNING,
                            text=problem.message,
                            detail=problem.hint,
                        )
                    )
        await self._released.wait()

    def _run_thread(self) -> None:
        try:
            asyncio.run(self._run())
        except asyncio.CancelledError:
            pass
        except BaseException as failure:
            self.failure = failure
        finally:
            self._started.set()

    def call(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine (of a control) in the engine's loop; the answer comes as a future for the calling thread.

        Raises:
            RuntimeError: The engine is not running any more.
        """
        self._started.wait(5)
        if self._loop is None or self._loop.is_closed():
            work.close()
            raise RuntimeError("sampling has ended")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self, timeout_s: float = 15.0) -> bool:
        """End the engine and wait until source and sinks are closed.

        Returns:
            Whether everything was closed in time.
        """
        thread = self._thread
        if thread is None:
            return True
        self._started.wait(timeout_s)
        loop, task = self._loop, self._task
        if loop is not None and task is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
        thread.join(timeout_s)
        return not thread.is_alive()


# Requests of the operator to the engine's thread, and the reply: an answer or one sentence.


class EngineClient:
    """Caller of controls that does not stop the screen.

    Args:
        engine: The engine whose loop the controls run in.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a control's coroutine in the engine's loop.

        Raises:
            PgtopError: The control refused, the engine has ended, or anything unexpected, told as one sentence.
        """
        try:
            # `call` may wait for the engine's loop to exist; that must not happen in the screen's.
            answer = await asyncio.to_thread(self._engine.call, work)
        except RuntimeError as ended:
            raise PgtopError(str(ended), "quit and start again") from None
        try:
            return await asyncio.wrap_future(answer)
        except PgtopError:
            raise
        except Exception as surprise:
            message = f"{type(surprise).__name__}: {surprise}"
            raise PgtopError(message, "please report this bug") from None

    def note(self, kind: EventKind, text: str, detail: str = "") -> None:
        """Put a tick on the tape, now."""
        self._engine.note(Event(at_ms=time.time_ns() // 1_000_000, kind=kind, text=text, detail=detail))


class Lazy(Generic[T]):
    """A part that is made in one event loop, once, when it is first needed; coroutines run there.

    Args:
        make: Makes it. What it raises is raised in all who wait.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._make = make
        self._making: asyncio.Task[T] | None = None
        self._made: T | None = None
        self._uses: list[Callable[[T], None]] = []

    @staticmethod
    def ready(part: T) -> Lazy[T]:
        """Return a part that exists already."""

        async def give() -> T:
            return part

        lazy = Lazy(give)
        lazy._made = part
        return lazy

    @property
    def made(self) -> T | None:
        """The part; None before it is made. Thread-safe."""
        return self._made

    def when_made(self, use: Callable[[T], None]) -> None:
        """Call this as soon as the part is made, before all who wait for it; at once when it exists.

        To be called before the loop runs, or within it.
        """
        if self._made is None:
            self._uses.append(use)
        else:
            use(self._made)

    async def get(self) -> T:
        """Wait for the part; the first call begins to make it. A caller that is cancelled stops nothing."""
        if self._made is not None:
            return self._made
        if self._making is None:
            self._making = asyncio.create_task(self._finish())
        return await asyncio.shield(self._making)

    async def _finish(self) -> T:
        part = self._made = await self._make()
        for use in self._uses:
            use(part)
        return part

    async def settled(self) -> T | None:
        """Return the part, once a making that has begun is over; None when none has begun, or it failed."""
        if self._making is not None:
            await asyncio.wait((self._making,))
        return self._made
