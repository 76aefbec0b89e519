"""Signals: a hang-up, a kill or Ctrl-C runs every `finally` on the way out, inside the event loop and outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

from pgtop_tune.cli.exit_codes import Terminated
from pgtop_tune.cli.output import unread_lines_stop

T = TypeVar("T")

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated(number)


@contextlib.contextmanager
def terminating() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP raise `Terminated` in the main thread; SIGINT raises KeyboardInterrupt as always."""
    before = {number: signal.signal(number, _raise) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_until_signalled(work: Coroutine[Any, Any, T]) -> T:
    """asyncio.run, in which a signal cancels the work and waits until it has cleaned up.

    A second Ctrl-C does not cut the cleaning up short: it is what ends programs on this machine and on the server.

    Raises:
        Terminated: By the signal, SIGINT among them.
    """
    return asyncio.run(_until_signalled(work))


async def _until_signalled(work: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    received: list[int] = []

    def stop(number: int) -> None:
        if not received:
            received.append(number)
            task.cancel()

    for number in ENDING:
        loop.add_signal_handler(number, stop, number)
    try:
        with unread_lines_stop(loop, lambda: stop(signal.SIGPIPE)):
            return await task
    except asyncio.CancelledError:
        if received:
            raise Terminated(received[0]) from None
        raise
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)


def answer_to(question: str) -> str:
    """What is typed at a question, without spaces around it; also within an event loop, which would keep signals back.

    Raises:
        Terminated: By the signal, SIGINT among them; nothing was answered.
        EOFError: The terminal has ended, or its user has with Ctrl-D.
    """
    reading, waking = os.pipe()
    os.set_blocking(waking, False)
    # Not the loop's: it would cancel on top of that what the exception makes clean up.
    awake = signal.set_wakeup_fd(waking)
    before = {number: signal.signal(number, _raise) for number in ENDING}
    try:
        print(question, end="", file=sys.stderr, flush=True)
        # A signal that arrives before the terminal is read would be kept back until there is a line.
        select.select([sys.stdin, reading], [], [])
        line = sys.stdin.readline()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(awake)
        os.close(reading)
        os.close(waking)
    if not line:
        raise EOFError
    return line.strip()


async def to_the_end(work: Awaitable[T], on_stop: Callable[[], None] = lambda: None) -> tuple[T, bool]:
    """The result, and whether we were asked to stop meanwhile: a change half-made is worse than one made.

    Args:
        work: Goes to its end.
        on_stop: Called when we are asked to stop; may shorten the work.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task), False
    except asyncio.CancelledError:
        on_stop()
        return await task, True
