"""The keys for sessions of the server: they act on the sessions selected at the key press, and never on sessions of the
past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgtop_tune.model.backend_action import BackendAct, BackendKey
from pgtop_tune.tui.actions import key_name, keys_of
from pgtop_tune.tui.scene.scene import SceneScreen

if TYPE_CHECKING:
    from pgtop_tune.model.statement_plan import StatementToPlan
    from pgtop_tune.runtime.session import Session
    from pgtop_tune.tui.actions import Action
    from pgtop_tune.tui.app_context import AppContext
    from pgtop_tune.tui.controls import Services
    from pgtop_tune.tui.scene.session_actions import SessionActions
    from pgtop_tune.tui.time_travel.actions import TimeTravel

_GROUP = "sessions"


class SessionKeys:
    """Cancel, terminate and EXPLAIN of what is selected.

    Args:
        context: The application.
        time_travel: The moment shown.
        offered: The actions of this session, for the name of a key.
    """

    def __init__(self, context: AppContext, time_travel: TimeTravel, offered: Sequence[Action]) -> None:
        self._context = context
        self._time_travel = time_travel
        self._offered = offered
        self._ask_signal = context.served(self._signal)
        self._ask_plan = context.served(self._explain)
        self._ask_statement_plan = context.served(self._explain_statement)

    def signal(self, name: str) -> None:
        """Cancels or terminates the chosen sessions, after a question."""
        screen = self._context.app.screen
        if isinstance(screen, SceneScreen):
            self._ask_signal(name, screen.session, screen.chosen_backends(), screen.listed_backends())

    def signal_one(self, name: str, pid: int, started_ms: int | None) -> None:
        """Cancels or terminates one session, after a question."""
        self._ask_signal(name, self._time_travel.shown, ((pid, started_ms),), ())

    def _signal(
        self,
        services: Services,
        name: str,
        session: Session,
        chosen: Sequence[BackendKey],
        listed: Sequence[BackendKey],
    ) -> None:
        if self._time_travel.in_past:
            # What a session does now may be something else by far: it is not ended for what it did then.
            keymap = self._context.options.keymap
            (live,) = (key_name(keys_of(action, keymap)[0]) for action in self._offered if action.id == "live")
            self._context.tell(f"the screen shows the past; {live} returns to live, then {name}", "warning")
        elif (actions := self._actions(services)) is not None:
            self._context.run_telling(actions.signal(BackendAct(name), session, chosen, listed), _GROUP)

    def explain(self) -> None:
        """Shows the plan of what the selected session runs."""
        screen = self._context.app.screen
        if not isinstance(screen, SceneScreen):
            return
        statement = screen.chosen_statement()
        if isinstance(statement, str):
            self._context.tell(statement, "warning")
        elif statement is not None:
            self._ask_statement_plan(statement)
        else:
            self._ask_plan(screen.session, screen.chosen_backends())

    def explain_one(self, pid: int, started_ms: int | None) -> None:
        """Shows the plan of what that session runs."""
        self._ask_plan(self._time_travel.shown, ((pid, started_ms),))

    def _explain(self, services: Services, session: Session, chosen: Sequence[BackendKey]) -> None:
        if (actions := self._actions(services)) is not None:
            self._context.run_telling(actions.explain(session, chosen), _GROUP)

    def _explain_statement(self, services: Services, statement: StatementToPlan) -> None:
        if (actions := self._actions(services)) is not None:
            self._context.run_telling(actions.explain_statement(statement), _GROUP)

    def _actions(self, services: Services) -> SessionActions | None:
        from pgtop_tune.tui.scene.session_actions import SessionActions

        if services.backends is None:
            return None
        return SessionActions(self._context.app, services.backends, self._context.client, self._context.glyphs)
