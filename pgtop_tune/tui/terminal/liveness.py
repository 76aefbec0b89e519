"""The terminal as something that can stall, vanish or be taken away: the screen must end then, and the engine close.

Textual writes through a bounded queue; a terminal that stops reading blocks its loop, and with it every way out. So
signals are taken outside the loop, and a stuck queue is emptied when leaving.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final

from pgtop_tune.tui.terminal.textual_private import drop_queued_output
from pgtop_tune.tui.terminal.thrifty_driver import ThriftyDriver

LOOK_EVERY_S: Final = 5.0
_PATIENCE_S: Final = 2.0
"""How long a screen that was asked to leave may take before its output is thrown away."""
_STEP_S: Final = 0.1
_LEAVING: Final = (
    signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    signal.SIGVTALRM, signal.SIGPROF, signal.SIGXCPU, signal.SIGIO,
)  # fmt: skip
"""All that would end us on the spot and can be caught: signal(7), dispositions Term and Core."""


class ScreenDriver(ThriftyDriver):
    """Can throw away what a stalled terminal does not take, so that the way out is free."""

    def discard_output(self) -> None:
        """Empties queue and terminal buffer, so that whoever waits to write goes on. From any thread."""
        drop_queued_output(self)
        with contextlib.suppress(OSError, termios.error):
            termios.tcflow(self.fileno, termios.TCOON)
            termios.tcflush(self.fileno, termios.TCOFLUSH)


class TerminalWatch:
    """Within it, a vanished terminal and every signal that would end us make the screen leave.

    Args:
        leave: Asks the screen to close with an exit status; called in any thread, also inside a signal handler.
        unstick: Throws output away that the terminal does not take.

    Attributes:
        signalled: The signal that arrived, 0 when none did.
    """

    def __init__(self, leave: Callable[[int], None], unstick: Callable[[], None]) -> None:
        self._leave = leave
        self._unstick = unstick
        self._over = threading.Event()
        self._asked = threading.Event()
        self._handlers: dict[int, Any] = {}
        self.signalled = 0

    def __enter__(self) -> TerminalWatch:
        for number in _LEAVING:
            self._handlers[number] = signal.signal(number, self._signal)
        if os.isatty(sys.__stdin__.fileno()) if sys.__stdin__ is not None else False:
            threading.Thread(target=self._look, name="terminal-watch", daemon=True).start()
        threading.Thread(target=self._see_out, name="terminal-exit", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._asked.set()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _signal(self, number: int, frame: FrameType | None) -> None:
        self.signalled = number
        self._ask(128 + number)

    def _ask(self, exit_status: int) -> None:
        self._leave(exit_status)
        self._asked.set()

    def _look(self) -> None:
        """A terminal that is gone sends no key; without this its reader would spin for ever."""
        assert sys.__stdin__ is not None
        number = sys.__stdin__.fileno()
        while not self._over.wait(LOOK_EVERY_S):
            if not os.isatty(number):
                self._ask(128 + signal.SIGHUP)
                return

    def _see_out(self) -> None:
        """Once the screen was asked to leave: gives it time, then throws its output away until it has left."""
        self._asked.wait()
        if self._over.wait(_PATIENCE_S):
            return
        while not self._over.wait(_STEP_S):
            self._unstick()
