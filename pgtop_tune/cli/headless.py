"""Runs the engine without a screen: for a time, or until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from typing import Final

from pgtop_tune.errors import PgtopError
from pgtop_tune.runtime.engine import Engine

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_engine(
    engine: Engine,
    seconds: float | None = None,
    started: Callable[[], Awaitable[None]] | None = None,
    stopping: Callable[[], Awaitable[None]] | None = None,
) -> signal.Signals | None:
    """Runs until the time is over, a signal asks to stop, or the source ends.

    Args:
        engine: Not started.
        seconds: How long; None for until a signal.
        started: Called once the engine runs.
        stopping: Called before the engine is ended, while frames still come.

    Returns:
        The signal that ended it, None when it ended by itself.

    Raises:
        PgtopError: What the source or `started` could not go on from.
    """
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        received.append(number)
        asked.set()

    for number in _STOPPING:
        loop.add_signal_handler(number, stop, number)
    running = loop.create_task(engine.run())
    waiting = loop.create_task(asked.wait())
    try:
        if started is not None:
            await started()
        await asyncio.wait((running, waiting), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if stopping is not None and not running.done():
            await stopping()
    finally:
        waiting.cancel()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        for number in _STOPPING:
            loop.remove_signal_handler(number)
    return received[0] if received else None


async def run_beside(engine: Engine, work: Callable[[], Awaitable[None]]) -> signal.Signals | None:
    """Runs the engine for as long as some work lasts.

    The first signal cancels the work, which may still tidy up while frames come. A second one ends the engine, so that
    nobody waits for a frame; a third one does not wait for the work either.

    Returns:
        The signal that ended it, None when the work ended by itself.

    Raises:
        PgtopError: What the source or the work could not go on from.
    """
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []
    running = loop.create_task(engine.run())
    working = asyncio.ensure_future(work())

    def stop(number: signal.Signals) -> None:
        (running if len(received) == 1 else working).cancel()
        received.append(number)

    for number in _STOPPING:
        loop.add_signal_handler(number, stop, number)
    try:
        await asyncio.wait((running, working), return_when=asyncio.FIRST_COMPLETED)
        if running.done() and not running.cancelled():
            running.result()
        with contextlib.suppress(asyncio.CancelledError):
            await working
    finally:
        for task in (working, running):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, PgtopError):
                await task
        for number in _STOPPING:
            loop.remove_signal_handler(number)
    return received[0] if received else None
