"""Dispositions of signals: reset of those that a program inherits, and handlers that last for a block.

Ignored and blocked signals survive exec (signal(7)): a shell without job control starts `program &` with SIGINT
ignored, and some supervisors block or ignore more.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def reset_inherited() -> None:
    """Undo the parent's ignored and blocked signals: a signal then ends this process, and it sees its children end.

    SIGHUP stays ignored where it is: nohup(1) asks for that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def reset_in_fork() -> None:
    """Undo our own handlers in a forked child that has nothing to clean up."""
    for number in (*ENDING, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a command: not SIGHUP under nohup."""
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in ENDING if not (nohup and number == signal.SIGHUP))


@contextmanager
def handled(numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call a handler for these signals within the block; restore the earlier handlers after it."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
