"""The key of experiments: what is staged against what is in force; progress, verdict, and B kept where it is better."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.runtime.experiment_control import ExperimentState

if TYPE_CHECKING:
    from pgtop_tune.diagnosis.finding import Deed
    from pgtop_tune.runtime.experiment_control import ExperimentRequest, ExperimentView
    from pgtop_tune.tui.app_context import AppContext
    from pgtop_tune.tui.controls import Services
    from pgtop_tune.tui.load.actions import LoadActions
    from pgtop_tune.tui.parameters.actions import ParameterActions

P = ParamSpec("P")


class ExperimentActions:
    """Experiments from the screen.

    Args:
        context: The application.
        parameters: What is staged is proposed there.
        load: What an experiment needs is started there.
    """

    def __init__(self, context: AppContext, parameters: ParameterActions, load: LoadActions) -> None:
        self._context = context
        self._parameters = parameters
        self._load = load
        self._put_aside = {False: 0, True: 0}
        """Number of the newest verdict that was read; of ours, and of other programs'."""
        self._confirmed: frozenset[str] = frozenset()
        context.controls.services.when_made(self._take_services)

    def _take_services(self, services: Services) -> None:
        for view in (services.experiments, services.other_experiments):
            if view is not None:
                self._context.controls.engine.attach(view)

    @property
    def _state(self) -> ExperimentState:
        """State of this screen's experiment."""
        control = self._context.services.experiments
        return ExperimentState() if control is None else control.state()

    @property
    def _view(self) -> ExperimentView | None:
        """The experiment under way, this screen's first; else one whose verdict has not been closed."""
        services = self._context.services
        views = [view for view in (services.experiments, services.other_experiments) if view is not None]
        states = [(view, view.state()) for view in views]
        under_way = (view for view, state in states if state.under_way)
        unread = (view for view, state in states if state.number > self._put_aside[bool(state.where)])
        return next(chain(under_way, unread), None)

    @property
    def shown(self) -> ExperimentState | None:
        """The experiment under way on this server, or one whose verdict nobody has put aside."""
        view = self._view
        return None if view is None else view.state()

    @property
    def running(self) -> str:
        """The values that an experiment of this screen compares; "" while there is none."""
        from pgtop_tune.tui.scene.banners import values_words

        state = self._state
        return values_words(state.values, self._context.glyphs) if state.under_way else ""

    def open(self, services: Services) -> None:
        """Open the details of the experiment in view; without one, the dialog that begins one."""
        experiments, changes = services.experiments, self._parameters.changes
        if experiments is None or changes is None:
            return
        glyphs = self._context.glyphs
        view = self._view
        if view is not None:
            from pgtop_tune.tui.experiment.dialogs import ProgressDialog

            dialog = ProgressDialog(view, self._context.client, glyphs, lambda: self.keep(services))
            self._context.app.push_screen(dialog, self._read)
            return
        from pgtop_tune.tui.experiment.dialogs import StartDialog

        self._context.app.push_screen(
            StartDialog(
                experiments=experiments,
                changes=changes,
                scope=self._parameters.panel,
                client=self._context.client,
                session=self._context.live,
                busy=lambda: self._load.going_on,
                glyphs=glyphs,
                ways={"b": lambda: self._load.open(services), "p": lambda: self._parameters.open(services)},
            ),
            self._begun,
        )

    def open_with(self, services: Services, deed: Deed) -> None:
        """Stage what a finding wants to try, and open the dialog that compares it with the value in force."""
        self._context.run_telling(self._opened_with(services, deed), "experiment")

    async def _opened_with(self, services: Services, deed: Deed) -> tuple[str, bool]:
        try:
            problem = "" if self._view is not None else await self._parameters.stage(deed)
        except PgtopError as raised:
            problem = str(raised)
        if not problem:
            self.open(services)
        return problem, False

    def _begun(self, request: ExperimentRequest | None) -> None:
        if request is not None:
            self._confirmed = request.confirmed
            self._context.repaint()

    def _read(self, read: ExperimentState | None) -> None:
        """Put a verdict aside."""
        if read is not None:
            self._put_aside[bool(read.where)] = read.number
        self._context.repaint()

    def keep(self, services: Services) -> None:
        """Make a better B a change in force; without one, confirm the pending change."""
        state = self.shown
        if state is None or not state.better or state.under_way or self._parameters.pending is not None:
            self._parameters.keep(services)
        else:
            self._context.run_telling(self._kept(state), "experiment")

    async def _kept(self, state: ExperimentState) -> tuple[str, bool]:
        from pgtop_tune.changes.model.change import Terms, WantedParameter
        from pgtop_tune.metrics.setting_risks import risk_of
        from pgtop_tune.tui.parameters.rows import KEEP_WITHIN_S
        from pgtop_tune.tui.parameters.staged_changes import results_of

        changes = self._parameters.changes
        assert changes is not None
        parameters = [WantedParameter(value.name, value.b) for value in state.values]
        # A value that is not safe and was not unlocked is tried: it gets a deadline.
        tried = any(risk_of(value.name, value.b) and value.name not in self._confirmed for value in state.values)
        terms = Terms(KEEP_WITHIN_S if tried else None, "ab: B is better", self._confirmed)
        try:
            changes_made = await changes.apply(parameters, terms)
        except PgtopError as problem:
            return f"B is not kept: {problem}", False
        self._read(state)
        return "; ".join(text for text, _ in results_of(changes_made)), True

    async def stop(self) -> None:
        """End an experiment under way, with everything put back.

        Raises:
            PgtopError: It could not be ended, or something could not be put back.
        """
        control = self._context.services.experiments
        if control is not None and control.state().under_way:
            await self._context.client.ask(control.stop())
            if problem := control.state().problem:
                raise PgtopError(problem)

    def unless_running(self, act: Callable[Concatenate[Services, P], None]) -> Callable[Concatenate[Services, P], None]:
        """Return the action, refused while an experiment has a value of its own in force."""

        def run(services: Services, /, *args: P.args, **kwargs: P.kwargs) -> None:
            experiment = self.shown
            if experiment is not None and experiment.under_way:
                message = self._context.with_keys("an experiment is running: {experiment} shows and stops it")
                self._context.tell(message, "warning")
            else:
                act(services, *args, **kwargs)

        return run
