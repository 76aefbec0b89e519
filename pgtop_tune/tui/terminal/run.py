"""Runs the screen from first paint to last, and closes the engine whatever happens in between."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.changes.model.change import HostChange, ParameterChange
from pgtop_tune.tui.app import PgtopApp
from pgtop_tune.tui.controls import Controls, ScreenOptions, ScreenOutcome

# The terminal as something that can stall, vanish or be taken away: the screen must end then, and the engine close.
#
# Textual writes through a bounded queue; a terminal that stops reading blocks its loop, and with it every way out. So
# signals are taken outside the loop, and a stuck queue is emptied when leaving.

LOOK_EVERY_S: Final = 5.0
_PATIENCE_S: Final = 2.0
"""How long a screen that was asked to leave may take before its output is thrown away."""
_STEP_S: Final = 0.1
_LEAVING: Final = (
    signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    signal.SIGVTALRM, signal.SIGPROF, signal.SIGXCPU, signal.SIGIO,
)  # fmt: skip
"""All that would end us on the spot and can be caught: signal(7), dispositions Term and Core."""


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
        """Leave when the terminal is gone: it sends no key, and its reader would spin for ever."""
        assert sys.__stdin__ is not None
        number = sys.__stdin__.fileno()
        while not self._over.wait(LOOK_EVERY_S):
            if not os.isatty(number):
                self._ask(128 + signal.SIGHUP)
                return

    def _see_out(self) -> None:
        """Give the screen time to leave once it was asked to, then throw its output away until it has left."""
        self._asked.wait()
        if self._over.wait(_PATIENCE_S):
            return
        while not self._over.wait(_STEP_S):
            self._unstick()


_ANSWER_S: Final = 3.0


def run_screen(controls: Controls, options: ScreenOptions) -> ScreenOutcome:
    """Show the session until the operator leaves, a signal arrives, or the terminal is gone. In the main thread.

    The engine is stopped before this returns or raises. TEXTUAL_FPS and the like must be set before this module is
    imported: Textual reads them then.

    Args:
        controls: With an engine that has not been started.
        options: How it looks and listens.

    Raises:
        UsageProblem: An unknown theme, a keymap that cannot be used.
        PgtopError: What the engine could not go on from; the screen is closed by then.
    """
    app: PgtopApp | None = None
    try:
        app = PgtopApp(controls, options)
        with TerminalWatch(app.leave, app.discard_output) as watch:
            app.run(mouse=options.mouse)
        if isinstance(controls.engine.failure, PgtopError):
            raise controls.engine.failure
        status = 128 + watch.signalled if watch.signalled else app.return_value or app.return_code or 0
        in_force = () if options.throwaway else _in_force(app, controls)
        return ScreenOutcome(
            recording=app.source.recording, in_force=in_force, exit_status=status, on_machine=_on_machine(app)
        )
    finally:
        if app is not None:
            app.time_travel.close()
        controls.engine.stop()


def _in_force(app: PgtopApp, controls: Controls) -> tuple[ParameterChange, ...]:
    """Change left behind: as the journal says, where it can be asked, else as the screen remembers them.

    Pending changes, and changes that can lose data, are reverted as the engine stops.
    """
    changes, parameters = app.parameters.changes, app.context.services.parameters
    if changes is None or parameters is None or not changes.attempted:
        return ()
    try:
        in_force = controls.engine.call(parameters.in_force()).result(_ANSWER_S)
    except (PgtopError, RuntimeError, TimeoutError, concurrent.futures.CancelledError):
        in_force = tuple(change for change in changes.made if isinstance(change, ParameterChange))
    return tuple(change for change in in_force if change.kept and not change.loss)


def _on_machine(app: PgtopApp) -> tuple[HostChange, ...]:
    """Return settings of the machine that this session has changed and that stay."""
    changes = app.parameters.changes
    changes_made = () if changes is None else changes.made
    return tuple(change for change in changes_made if isinstance(change, HostChange) and change.kept)
