"""Runs the screen from first paint to last, and closes the engine whatever happens in between."""

from __future__ import annotations

import concurrent.futures
from typing import Final

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.changes.model.change import HostChange, ParameterChange
from pgtop_tune.tui.app import PgtopApp
from pgtop_tune.tui.controls import Controls, ScreenOptions, ScreenOutcome
from pgtop_tune.tui.terminal.liveness import TerminalWatch

_ANSWER_S: Final = 3.0


def run_screen(controls: Controls, options: ScreenOptions) -> ScreenOutcome:
    """Shows the session until the operator leaves, a signal arrives, or the terminal is gone. In the main thread.

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
    """Changes left behind: as the journal says, where it can be asked, else as the screen remembers them.

    Pending changes, and changes that can lose data, are reverted as the engine stops.
    """
    changes, parameters = app.parameters.changes, app.context.services.parameters
    if changes is None or parameters is None or not changes.attempted:
        return ()
    try:
        found = controls.engine.call(parameters.in_force()).result(_ANSWER_S)
    except (PgtopError, RuntimeError, TimeoutError, concurrent.futures.CancelledError):
        found = tuple(change for change in changes.made if isinstance(change, ParameterChange))
    return tuple(change for change in found if change.kept and not change.loss)


def _on_machine(app: PgtopApp) -> tuple[HostChange, ...]:
    """Settings of the machine that this session has changed and that stay."""
    changes = app.parameters.changes
    made = () if changes is None else changes.made
    return tuple(change for change in made if isinstance(change, HostChange) and change.kept)
