"""The application as its features see it: messages and dialogs, the session, and the way to the services."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, TypeVar

from textual.app import App

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.safe_text import printable_lines
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.actions import ACTIONS, with_keys
from pgtop_tune.tui.controls import Services
from pgtop_tune.tui.widgets.lines import ASCII, UNICODE
from pgtop_tune.tui.widgets.time_axis import CHARTED

if TYPE_CHECKING:
    from pgtop_tune.tui.controls import Controls, ScreenOptions

T = TypeVar("T")
P = ParamSpec("P")
Severity = Literal["information", "warning", "error"]
_NONE_YET: Final = Services()


class AppContext:
    """One for each application, shared by its features.

    Args:
        app: Shows dialogs and runs workers.
        controls: What the operator can reach.
        options: How it looks and listens.
        repaint: Draws what is in view anew.

    Attributes:
        live: The session, up to its newest frame.
        client: The way to the engine's thread.
        leaving: Whether the screen is on its way out: no dialog opens by itself any more.
    """

    def __init__(self, app: App[int], controls: Controls, options: ScreenOptions, repaint: Callable[[], None]) -> None:
        self.app: Final = app
        self.controls: Final = controls
        self.options: Final = options
        self.repaint: Final = repaint
        self.glyphs: Final = ASCII if options.ascii else UNICODE
        self.client: Final = EngineClient(controls.engine)
        self.live: Final = Session(CHARTED)
        self.leaving = False
        self._moved_told: set[str] = set()

    @property
    def services(self) -> Services:
        """The services that are there now; none before they are made."""
        return self.controls.services.made or _NONE_YET

    def served(self, act: Callable[Concatenate[Services, P], None]) -> Callable[P, None]:
        """Return an action that gets its services: at once, or as soon as they are made. Of actions that wait the last
        one runs.
        """

        @wraps(act)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            services = self.controls.services.made
            if services is not None:
                act(services, *args, **kwargs)
            else:
                self.app.run_worker(when_made(*args, **kwargs), group="services", exclusive=True)

        async def when_made(*args: P.args, **kwargs: P.kwargs) -> None:
            services = await self.asked(self.controls.services.get())
            if services is not None:
                act(services, *args, **kwargs)

        return run

    async def asked(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the answer of a control; None after a problem, which is told."""
        try:
            return await self.client.ask(work)
        except PgtopError as problem:
            self.tell(str(problem), "error")
            return None

    def tell(self, message: str, severity: Severity = "information", timeout_s: float = 8.0) -> None:
        """Show a passing message; it may hold foreign text."""
        self.app.notify("\n".join(printable_lines(message)), severity=severity, markup=False, timeout=timeout_s)

    def with_keys(self, text: str) -> str:
        """Return a text of ours with the operator's keys for the actions that it names in braces."""
        return with_keys(text, self.options.keymap)

    def tell_instead(self, message: str) -> None:
        """Show a message as `tell` does, in place of earlier ones: for keys that are pressed several times in a row."""
        self.app.clear_notifications()
        self.tell(message)

    def tell_moved(self, action_id: str) -> None:
        """Tell once what a key did before it was given to this action."""
        moved = next((action.moved for action in ACTIONS if action.id == action_id), "")
        if moved and action_id not in self._moved_told:
            self._moved_told.add(action_id)
            self.tell(self.with_keys(moved))

    def run_telling(self, work: Coroutine[Any, Any, tuple[str, bool]], group: str) -> None:
        """Run work that ends with a sentence and whether all is well, and tell it. One at a time in a group."""
        self.app.run_worker(self._told(work), group=group, exclusive=True)

    async def _told(self, work: Coroutine[Any, Any, tuple[str, bool]]) -> None:
        message, well = await work
        if message:
            self.tell(message, "information" if well else "error")
        self.repaint()
