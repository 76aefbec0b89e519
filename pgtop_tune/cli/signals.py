"""Signals and questions: a hang-up, a kill or Ctrl-C runs every `finally` on the way out, also during a question."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from pgtop_tune.base.errors import ServerProblem, UsageProblem
from pgtop_tune.cli.exit_codes import Terminated, raise_terminated
from pgtop_tune.cli.output import can_ask, unread_lines_stop
from pgtop_tune.process.dispositions import ending_signals, handled

T = TypeVar("T")


@contextlib.contextmanager
def signals_taken(stop: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Have the running event loop call `stop` for each signal that ends a command."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in ending_signals()}
    for number in before:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number, earlier in before.items():
            loop.remove_signal_handler(number)
            # asyncio puts the kernel's default back, which would end the rest on the spot.
            if earlier is not None:
                signal.signal(number, earlier)


def run_until_signalled(work: Coroutine[Any, Any, T]) -> T:
    """Run work as asyncio.run does; a signal cancels it, and waits until it has cleaned up.

    A second Ctrl-C does not cut the cleaning up short, which ends programs on this machine and on the server.

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

    try:
        with signals_taken(stop), unread_lines_stop(loop, lambda: stop(signal.SIGPIPE)):
            return await task
    except asyncio.CancelledError:
        if received:
            raise Terminated(received[0]) from None
        raise


def answer_to(question: str) -> str:
    """Ask on stderr and return the typed line without outer spaces, also within an event loop, which delays signals.

    Raises:
        Terminated: By the signal, SIGINT among them; nothing was answered.
        EOFError: The terminal is gone, or its user pressed Ctrl-D.
    """
    reading, waking = os.pipe()
    os.set_blocking(waking, False)
    # Not the loop's: it would cancel on top of that what the exception makes clean up.
    awake = signal.set_wakeup_fd(waking)
    try:
        with handled(ending_signals(), raise_terminated):
            print(question, end="", file=sys.stderr, flush=True)
            # A signal that arrives before the terminal is read would be kept back until there is a line.
            select.select([sys.stdin, reading], [], [])
            line = sys.stdin.readline()
    finally:
        signal.set_wakeup_fd(awake)
        os.close(reading)
        os.close(waking)
    if not line:
        raise EOFError
    return line.strip()


def says_yes(question: str) -> bool:
    """Ask a question of yes or no; anything but a yes is a no."""
    return answer_to(f"{question} [y/N] ").lower() in ("y", "yes")


def require_yes(question: str, *, yes: bool, reason: str, refused: str) -> None:
    """Ask for a confirmation, unless --yes has given it.

    Args:
        reason: Why a confirmation is needed.
        refused: Message after a no.

    Raises:
        UsageProblem: There is no terminal to ask on.
        ServerProblem: The operator did not say yes.
    """
    if yes:
        return
    if not can_ask():
        raise UsageProblem(reason, "pass --yes without a terminal")
    if not says_yes(question):
        raise ServerProblem(refused)


async def to_the_end(work: Awaitable[T], on_stop: Callable[[], None]) -> tuple[T, bool]:
    """Return the result of work that no signal interrupts, and whether a signal came: half a change is worse than one.

    Args:
        on_stop: Called at the signal; may shorten the work.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task), False
    except asyncio.CancelledError:
        on_stop()
        return await task, True
