"""What binds at the moment shown, kept steady frame by frame, and the key that opens the list of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pgtop_tune.tui.scene.scene import SceneScreen

if TYPE_CHECKING:
    from pgtop_tune.diagnosis.diagnosing import Diagnosing
    from pgtop_tune.diagnosis.finding import Advice, Diagnosis
    from pgtop_tune.model.backend_action import BackendKey
    from pgtop_tune.runtime.session import Session
    from pgtop_tune.tui.app_context import AppContext
    from pgtop_tune.tui.parameters.actions import ParameterActions
    from pgtop_tune.tui.time_travel.actions import TimeTravel


class Findings:
    """Says what binds, of the newest frame and of another moment that is shown.

    Args:
        context: The application.
        time_travel: The moment shown.
        parameters: Where a parameter is staged.
    """

    def __init__(self, context: AppContext, time_travel: TimeTravel, parameters: ParameterActions) -> None:
        self._context = context
        self._time_travel = time_travel
        self._parameters = parameters
        self._live: Diagnosing | None = None
        self._past: Diagnosing | None = None

    def begin(self) -> None:
        """From now on there are findings: the first picture does not wait for their rules."""
        from pgtop_tune.diagnosis.diagnosing import Diagnosing

        live = self._context.live
        self._live, self._past = Diagnosing(), Diagnosing()
        live.watch = self._live.look
        if live.interval is not None:
            self._live.look_through(live.interval)

    def diagnose(self, session: Session) -> Diagnosis | None:
        """Return what binds at the newest frame of a session: of a moment of the past what was said then.

        None before `begin`, before the first frame, and while what leads up to it is being read.
        """
        if self._live is None or self._past is None or session.interval is None:
            return None
        said = self._live.said_of(session.interval.newest)
        if said is not None or session.incomplete:
            return said
        return self._past.look(session.interval)

    @property
    def shown(self) -> Diagnosis | None:
        """That of the moment shown."""
        return self.diagnose(self._time_travel.shown)

    def open(self) -> None:
        """All findings, their evidence and the next step."""
        from pgtop_tune.tui.findings.dialog import FindingsDialog

        dialog = FindingsDialog(self._time_travel.shown, self.diagnose, self._step, self._context.glyphs)
        self._context.app.push_screen(dialog)

    def _step(self, advice: Advice) -> Callable[[], None] | None:
        """What Enter does; None where it cannot be done, as in the past and in a replay."""
        from pgtop_tune.diagnosis.finding import ParameterAdvice

        if not isinstance(advice, ParameterAdvice):
            return partial(self._show_session, advice.backend)
        if self._time_travel.in_past or all(knob.name != advice.name for knob in self._context.controls.knobs()):
            return None
        return partial(self._context.served(self._parameters.open), advice)

    def _show_session(self, key: BackendKey) -> None:
        from pgtop_tune.tui.dashboard.session_details import details_lines, query_of
        from pgtop_tune.tui.pages.row_details import DetailsDialog

        screen = self._context.app.screen
        keys = screen.keys_for(key) if isinstance(screen, SceneScreen) else ()
        known = partial(details_lines, key=key)
        self._context.app.push_screen(
            DetailsDialog(
                f"session {key[0]}",
                self._time_travel.shown,
                lambda session, cells: known(session, cells=cells),
                partial(query_of, key=key),
                self._context.glyphs,
                keys,
            )
        )
