"""The restart dialog: planned changes, checks and command; then the progress of the restart."""

from __future__ import annotations

from typing import Final

from textual import events

from pgtop_tune.changes.model.change import Terms
from pgtop_tune.changes.model.change_set import ChangeSet
from pgtop_tune.changes.model.restart import RestartOutcome, RestartPlan, RestartState, RestartVerdict
from pgtop_tune.changes.ports import RestartControl
from pgtop_tune.errors import PgtopError
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.parameters.changes import Changes
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, labelled, wrapped

_STYLES: Final = {
    RestartVerdict.FINE: "good",
    RestartVerdict.UNKNOWN: "dim",
    RestartVerdict.DOUBTFUL: "warning",
    RestartVerdict.IMPOSSIBLE: "critical",
}
_KEYS: Final = "y restart  Esc change nothing"
_ANYWAY_KEYS: Final = "! try anyway  Esc change nothing"
_LABEL_CELLS: Final = 15
_LOOK_S: Final = 0.5
_PROGRESS_LINES: Final = 6


class RestartDialog(Dialog[RestartOutcome]):
    """Returns what came of it; None when no change was made.

    While the server is being restarted it cannot be closed, unless somebody else is to restart it and we only wait.

    Args:
        changes: Makes the set.
        restart: The door to the restart.
        client: The way there.
        wanted: Changed with it; an empty set takes over values that wait already.
        terms: Why, and what was unlocked.
        glyphs: What it is drawn with.
    """

    CELLS = 110

    def __init__(
        self,
        changes: Changes,
        restart: RestartControl,
        client: EngineClient,
        wanted: ChangeSet,
        terms: Terms,
        glyphs: Glyphs,
    ) -> None:
        super().__init__("restart the server", glyphs, keys="Esc back", low=True)
        self._restart = restart
        self._client = client
        self._changes = changes
        self._wanted = wanted
        self._terms = terms
        self._plan: RestartPlan | None = None
        self._progress: list[str] = []
        self._outcome: RestartOutcome | None = None
        self._problem = ""
        self._under_way = False

    def on_mount(self) -> None:
        """Asks what it would do."""
        super().on_mount()
        self.set_interval(_LOOK_S, self._look_on)
        self.run_worker(self._ask(), group="restart")

    def _look_on(self) -> None:
        """What is done next is told in the engine's thread."""
        if self._under_way:
            self.repaint()

    async def _ask(self) -> None:
        try:
            self._plan = await self._client.ask(self._restart.plan(self._wanted.parameters))
        except PgtopError as problem:
            self._problem = str(problem)
        else:
            nothing = not self._wanted.parameters and not self._wanted.settings and not self._plan.pending
            self._problem = "no change is pending a restart" if nothing else ""
            self._plan = None if nothing else self._plan
        self.repaint()

    def content(self, cells: int) -> list[Line]:
        """The plan, then the progress, then the outcome."""
        self.captions("restart the server", self._keys())
        lines = [*wrapped(self._problem, cells, "critical")] if self._problem else []
        if self._plan is None:
            return lines or [((f"checking a restart {self.glyphs.ellipsis}", "dim"),)]
        for each in self._wanted.settings:
            for command in self._changes.commands(each.name, each.value, survive=False):
                lines += wrapped(command, cells, "strong")
        lines += plan_lines(self._plan, cells)
        if self._under_way or self._outcome is not None:
            lines += [
                (),
                *(((f"{self.glyphs.pointer} {words}", PLAIN),) for words in self._progress[-_PROGRESS_LINES:]),
            ]
        if self._outcome is not None:
            lines += outcome_lines(self._outcome, cells)
        return lines

    def _keys(self) -> str:
        if self._plan is None or self._outcome is not None:
            return "Esc back"
        if self._under_way:
            return "wait" if self._plan.by_us else "Esc stop waiting: the changes stay pending"
        return _KEYS if self._possible else _ANYWAY_KEYS

    def on_key(self, event: events.Key) -> None:
        """Yes, or scrolling."""
        plan = self._plan
        if plan is not None and not self._under_way and self._outcome is None:
            if event.key == "y" and self._possible:
                self._begin(anyway=False)
                event.stop()
                return
            if event.key == "exclamation_mark" and not self._possible:
                self._begin(anyway=True)
                event.stop()
                return
        if self.scroll_key(event.key):
            event.stop()

    @property
    def _possible(self) -> bool:
        """A set with settings of the machine is checked again once these are made: huge pages may be there then."""
        return self._plan is not None and (self._plan.possible or bool(self._wanted.settings))

    def _begin(self, *, anyway: bool) -> None:
        self._under_way, self._problem = True, ""
        self.run_worker(self._apply(anyway=anyway), group="restart")
        self.repaint()

    async def _apply(self, *, anyway: bool) -> None:
        try:
            self._outcome = await self._changes.restart(
                self._wanted, self._terms, self._restart, self._progress.append, anyway=anyway
            )
        except PgtopError as problem:
            self._problem = str(problem)
        self._under_way = False
        self.repaint()

    def action_close(self) -> None:
        """Not in the middle of a restart of ours."""
        if self._under_way and self._plan is not None and self._plan.by_us:
            return
        self.dismiss(self._outcome)


def plan_lines(plan: RestartPlan, cells: int) -> list[Line]:
    """What a restart would do: statements, checks, the command, who is cut off.

    Args:
        plan: As asked for.
        cells: Width.
    """
    lines: list[Line] = []
    for text in plan.statements:
        lines += wrapped(text, cells, "strong")
    for each in plan.pending:
        lines += labelled("takes over", f"{each.name} {each.running}→{each.after}", cells, "strong", _LABEL_CELLS)
    for check in plan.checks:
        hint = f" ({check.hint})" if check.hint else ""
        words = f"{check.verdict}: {check.words}{hint}"
        lines += labelled(check.subject, words, cells, _STYLES[check.verdict], _LABEL_CELLS)
    lines += labelled("managed by", plan.managed, cells, PLAIN, _LABEL_CELLS)
    lines += labelled("command", plan.command, cells, "strong", _LABEL_CELLS) if plan.command else []
    if not plan.by_us:
        lines += labelled("by others", f"{plan.why_not}; this waits for the restart", cells, "warning", _LABEL_CELLS)
    within = f", {plan.in_transaction} of them within a transaction" if plan.in_transaction else ""
    lines += labelled("ends", f"{plan.sessions} client sessions{within}", cells, "warning", _LABEL_CELLS)
    return lines


def outcome_lines(outcome: RestartOutcome, cells: int) -> list[Line]:
    """What came of it, with the lines of the server's log that explain it."""
    style = "good" if outcome.state is RestartState.CAME_UP else "critical"
    lines = [*wrapped(outcome.words, cells, style)]
    for line in outcome.log:
        lines += wrapped(line, cells, "dim")
    return [*lines, *wrapped(outcome.hint, cells, "warning")] if outcome.hint else lines
