"""The load key, a load that starts with the screen, and what is told of loads while their dialog is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pgtop_tune.metrics.load import failure_of, under_way
from pgtop_tune.model.bench import LoadSpec, RunState
from pgtop_tune.runtime.load_control import LoadChange
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.scene.scene import SceneScreen

if TYPE_CHECKING:
    from pgtop_tune.model.bench import BenchRun
    from pgtop_tune.runtime.load_control import LoadControl, LoadState
    from pgtop_tune.tui.app_context import AppContext
    from pgtop_tune.tui.controls import Services
    from pgtop_tune.tui.load.dialog import LoadEntries
    from pgtop_tune.tui.parameters.actions import ParameterActions


_COUNTS_S: Final = 300
"""A run of this length counts: it holds enough seconds after the ramp, and perhaps a checkpoint."""


def first_spec(started: LoadSpec | None) -> LoadSpec:
    """Return the load that the first dialog begins with: a run that counts.

    Args:
        started: The load that began with the screen; one until stopped gets an end here.
    """
    spec = started or LoadSpec()
    return spec if spec.duration_s or spec.transactions else replace(spec, duration_s=_COUNTS_S)


class LoadActions:
    """Load from the screen.

    Args:
        context: The application.
        parameters: What sessions of the next load begin with is chosen there.
    """

    def __init__(self, context: AppContext, parameters: ParameterActions) -> None:
        self._context = context
        self._parameters = parameters
        self._entries: LoadEntries | None = None
        self._told_overload = 0
        self._failed_run = 0
        self._shown_series = 0

    def open(self, services: Services) -> None:
        """Open the dialog."""
        from pgtop_tune.tui.load.dialog import LoadDialog, LoadEntries

        if services.load is not None:
            entries = self._entries or LoadEntries(first_spec(self._context.options.start_load))
            spec = replace(entries.spec, settings=tuple(self._parameters.panel.next_load.items()))
            dialog = LoadDialog(
                services.load, self._context.client, self._context.live, replace(entries, spec=spec),
                self._context.glyphs,
            )  # fmt: skip
            self._context.app.push_screen(dialog, self._keep)

    def _keep(self, entries: LoadEntries | None) -> None:
        self._entries = entries or self._entries

    def begin(self) -> None:
        """Start the load that was asked for with the screen, if there is one."""
        spec = self._context.options.start_load
        if spec is not None:
            self._context.app.run_worker(self._start(spec), group="start")

    async def _start(self, spec: LoadSpec) -> None:
        services = await self._context.asked(self._context.controls.services.get())
        if services is not None and services.load is not None:
            await self._context.asked(services.load.start(spec))

    def change(self, services: Services, change: str) -> None:
        """Change the load under way by a quarter, or pause it.

        Args:
            change: As `LoadChange`.
        """
        if services.load is not None:
            self._context.app.run_worker(self._change(services.load, LoadChange(change)), group="load-change")

    async def _change(self, load: LoadControl, change: LoadChange) -> None:
        level = await self._context.asked(load.change(change))
        if level is not None:
            self._context.tell_instead(f"load {level.words}")

    @property
    def running(self) -> BenchRun | None:
        """The load under way, if it is ours to stop: a recorded one is not."""
        return under_way(self._context.live.now) if self._context.services.load is not None else None

    @property
    def going_on(self) -> str:
        """Steps, a search, or a data set in the making; "" for none."""
        if self._context.services.load is None:
            return ""
        state = self._context.services.load.state()
        return {"steps": state.title, "search": state.title, "making": f"making {state.title}"}.get(state.doing, "")

    async def stop(self) -> None:
        """End what is under way.

        Raises:
            PgtopError: It could not be ended.
        """
        load = self._context.services.load
        if load is not None and (self.running is not None or self.going_on):
            await self._context.client.ask(load.stop())

    def look(self) -> None:
        """Tell of a load that has failed, and show the results of one that has ended. After each frame."""
        if self._context.services.load is not None:
            self._look_at_failure()
            self._look_at_overload(self._context.services.load.state())
            self._look_at_results()

    def _look_at_failure(self) -> None:
        """Tell of a load that fails while its dialog is closed, in pgbench's own words."""
        failed = failure_of(self._context.live.now)
        if failed is not None and failed.run > self._failed_run:
            self._failed_run = failed.run
            if not self._dialog_tells:
                message = failed.message or "pgbench gave no reason"
                self._context.tell(f"load {failed.run} failed: {message}", "error")

    def _look_at_overload(self, state: LoadState) -> None:
        """Tell once of an overload that does not end the load."""
        if state.overload and state.series is not None and self._told_overload < state.series.number:
            self._told_overload = state.series.number
            if not self._dialog_tells:
                self._context.tell(state.overload, "warning")

    @property
    def _dialog_tells(self) -> bool:
        screen = self._context.app.screen
        return isinstance(screen, Dialog) and screen.SHOWS_LOAD

    def _look_at_results(self) -> None:
        """Show the results once, when nothing is being typed. A failure was told already."""
        load = self._context.services.load
        series = None if load is None else load.state().series
        if series is None or not series.over or series.number <= self._shown_series or self._context.leaving:
            return
        screen = self._context.app.screen
        if self._dialog_tells or (isinstance(screen, SceneScreen) and not screen.typing):
            self._shown_series = series.number
            if series.search or (series.results and (series.axis or series.results[0].state is not RunState.FAILED)):
                from pgtop_tune.tui.load.results_dialog import ResultsDialog

                self._context.app.push_screen(ResultsDialog(series, self._context.glyphs))
