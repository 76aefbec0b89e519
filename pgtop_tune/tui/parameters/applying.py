"""Applies the staged changes: questions first, then the change, then a message with the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from textual import events
from textual.app import App

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.changes.model.change import (
    ChangeState,
    HostChange,
    Proof,
    ScopeKind,
    Terms,
    WantedParameter,
    WantedSetting,
)
from pgtop_tune.changes.model.change_set import Change, ChangeSet
from pgtop_tune.changes.model.restart import RestartOutcome, RestartPlan, RestartState, RestartVerdict
from pgtop_tune.changes.ports import RestartControl
from pgtop_tune.changes.selection import in_order
from pgtop_tune.metrics.trip_wires import TripWire
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.tui.dialogs.confirm import AnswerKey, ConfirmDialog, Paragraph
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.dialogs.prompt import PromptDialog
from pgtop_tune.tui.parameters.change_words import told
from pgtop_tune.tui.parameters.changes import Changes, ListScope
from pgtop_tune.tui.parameters.row import SettingRow
from pgtop_tune.tui.parameters.staged import Conditions, StagedChanges, pending_words
from pgtop_tune.tui.terminal.clipboard import copy
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, labelled, wrapped

# The restart dialog: planned changes, checks and command; then the progress of the restart.

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


_VALUE: Final = 40
"""Characters of a value in a message."""


class Came(Struct, frozen=True):
    """What came of it.

    Attributes:
        words: One or more sentences.
        style: Of the words.
        done: Names of parameters that are as wanted now.
    """

    words: str
    style: str
    done: tuple[str, ...] = ()


class Applying:
    """Asks and applies; coroutines run in workers of the application.

    Args:
        app: Where questions are asked.
        changes: The operator's hand.
        scope: What may be unlocked, on which terms, and the way to a restart.
        glyphs: What questions are drawn with.
    """

    def __init__(self, app: App[Any], changes: Changes, scope: ListScope, glyphs: Glyphs) -> None:
        self._app = app
        self._changes = changes
        self._scope = scope
        self._glyphs = glyphs

    async def apply(
        self,
        staged: Sequence[SettingRow],
        wanted: StagedChanges,
        sql: Sequence[str],
        *,
        shown: bool,
        lost: Sequence[str] = (),
    ) -> Came:
        """Applies the live part of a set.

        Args:
            staged: Every row with a staged value.
            wanted: The same as a set.
            sql: The exact statements.
            shown: Whether all of them stand on the screen already.
            lost: What values can lose, a sentence each.
        """
        closed = [row for row in wanted.machine if row.setting is not None and not row.setting.writable]
        if closed:
            return await self._to_paste(closed)
        rows = [*wanted.machine, *_of(staged, [each.name for each in wanted.live])]
        settings = _settings(wanted)
        conditions = self._scope.conditions or Conditions()
        try:
            wires = conditions.trip_wires()
            question = self._question(rows, wanted, conditions, sql, lost)
            warned = bool(lost) or any(row.warning for row in rows)
            if (warned or not shown) and not await self._app.push_screen_wait(question):
                return _NOTHING
            confirmed = await self.unlock(rows, ends=conditions.keep_within_s is not None)
            if confirmed is None:
                return _NOTHING
            terms = Terms(conditions.keep_within_s, conditions.reason, confirmed)
            return await self._make(wanted.live, terms, wires, settings)
        except PgtopError as problem:
            return Came(str(problem), "critical")

    async def next_load(self, staged: Sequence[SettingRow], wanted: StagedChanges) -> Came:
        """Puts what is for the next load into its sessions; nothing is changed on the server."""
        names = tuple(name for name, _ in wanted.next_load)
        try:
            if await self.unlock(_of(staged, names), ends=True) is None:
                return _NOTHING
        except PgtopError as problem:
            return Came(str(problem), "critical")
        for name, value in wanted.next_load:
            self._scope.next_load.pop(name, None)
            if value is not None:
                self._scope.next_load[name] = value
        begins = ", ".join(
            f"the server's {name}" if value is None else f"{name}={one_line(value, _VALUE)}"
            for name, value in wanted.next_load
        )
        return Came(f"the next load starts with {begins} (PGOPTIONS); b starts a load", "good", names)

    async def restart(self, staged: Sequence[SettingRow], wanted: StagedChanges) -> Came:
        """One restart for everything that is staged for the whole server, and for what waits for one already."""
        restart, client = self._scope.restart, self._scope.client
        if restart is None or client is None:
            return Came("the server cannot be restarted from here", "warning")
        closed = [row for row in wanted.machine if row.setting is not None and not row.setting.writable]
        if closed:
            return await self._to_paste(closed)
        waiting = (WantedParameter(row.name, row.staged.value) for row in wanted.restart if row.staged is not None)
        system = [each for each in (*wanted.live, *waiting) if each.scope.kind is ScopeKind.SYSTEM]
        ordered = in_order(system, {row.name.lower(): row.parameter for row in staged})
        try:
            confirmed = await self.unlock(_of(staged, [each.name for each in ordered]), ends=False)
        except PgtopError as problem:
            return Came(str(problem), "critical")
        if confirmed is None:
            return _NOTHING
        change_set = ChangeSet(parameters=ordered, settings=_settings(wanted))
        terms = Terms(reason=(self._scope.conditions or Conditions()).reason, confirmed=confirmed)
        dialog = RestartDialog(self._changes, restart, client, change_set, terms, self._glyphs)
        outcome = await self._app.push_screen_wait(dialog)
        if outcome is None:
            return Came("not restarted", PLAIN)
        done = [each.name for each in outcome.changes if each.state is ChangeState.APPLIED]
        came_up = outcome.state is RestartState.CAME_UP
        done += [each.name for each in change_set.settings] if came_up else []
        return Came(outcome.words, "good" if came_up else "critical", tuple(done))

    async def unlock(self, rows: Sequence[SettingRow], *, ends: bool) -> frozenset[str] | None:
        """Return the names of locked values, each typed; None when the operator declines.

        Args:
            rows: With what is staged.
            ends: Whether the values go by themselves; see `ValueRisk.locked`.

        Raises:
            UsageProblem: They may not be unlocked in this session.
        """
        confirmed = set()
        for row in rows:
            risk = row.risk
            if risk is None or row.staged is None or not risk.locked(ends=ends):
                continue
            what = f"{row.name} = {row.staged} {risk.words}"
            if risk.loses_data and not self._scope.allow_unsafe:
                deadline = "" if risk.locked(ends=True) else "o sets a deadline, or "
                raise UsageProblem(what, f"{deadline}start with --allow-unsafe to unlock it; nothing was changed")
            ending = "It reverts when this program ends. " if risk.loses_data else ""
            hint = f"{what}. {ending}Type {row.name} to unlock it."
            typed = await self._app.push_screen_wait(
                PromptDialog(f"unlock {row.name}", hint, _exactly(row.name), self._glyphs)
            )
            if typed is None:
                return None
            confirmed.add(row.name)
        return frozenset(confirmed)

    async def _to_paste(self, rows: Sequence[SettingRow]) -> Came:
        """Shows the commands that change settings of the machine: now, and for the next boot."""
        commands = [
            command
            for row in rows
            if row.staged is not None and row.staged.value is not None
            for command in self._changes.commands(row.name, row.staged.value)
        ]
        said = [Paragraph("This process may not change them. Run these commands as root, now and for the next boot:")]
        said += [Paragraph(command, "strong") for command in commands]
        choices = (AnswerKey(("y",), "copy to the clipboard of your terminal", True),)
        if await self._app.push_screen_wait(ConfirmDialog("settings of the machine", said, choices, self._glyphs)):
            return Came(copy(self._app, "\n".join(commands), "the commands are in your terminal's clipboard"), PLAIN)
        return _NOTHING

    async def _make(
        self,
        live: Sequence[WantedParameter],
        terms: Terms,
        wires: Sequence[TripWire],
        settings: Sequence[WantedSetting],
    ) -> Came:
        made = await self._changes.apply(live, terms, wires, settings)
        done = tuple(change.name for change in made if change.state is ChangeState.APPLIED)
        try:
            proofs = await self._changes.prove(made)
        except PgtopError:
            # What was read back stands; that no new session can be had is for the sampler to say.
            proofs = ()
        said = results_of(made)
        words = [text for text, _ in said] + [text for proof in proofs for text in proof_words(proof)]
        styles = [style for _, style in said] + ["warning" for proof in proofs if proof.overrides]
        worst = next((style for style in ("critical", "warning") if style in styles), "good")
        return Came("; ".join(words), worst, done)

    def _question(
        self,
        rows: Sequence[SettingRow],
        wanted: StagedChanges,
        conditions: Conditions,
        sql: Sequence[str],
        lost: Sequence[str],
    ) -> ConfirmDialog[bool]:
        said = [Paragraph(text, "critical") for text in lost]
        said += [
            Paragraph(f"{self._glyphs.warning} {row.warning}", "warning")
            for row in rows
            if row.warning and row.risk is None
        ]
        said += [Paragraph(text, "strong") for text in sql]
        said += [Paragraph(""), *(Paragraph(text) for text in wanted.connected), Paragraph(pending_words(conditions))]
        names = ", ".join(row.name for row in rows) if len(rows) < 3 else f"{len(rows)} parameters"
        return ConfirmDialog(f"change {names}?", said, (AnswerKey(("y",), "apply it", True),), self._glyphs)


_MANY: Final = 3
_NOTHING: Final = Came("nothing was changed", PLAIN)


def _settings(wanted: StagedChanges) -> tuple[WantedSetting, ...]:
    """The machine's half of what is staged."""
    return tuple(
        WantedSetting(row.name, row.staged.value)
        for row in wanted.machine
        if row.staged is not None and row.staged.value is not None
    )


def _of(rows: Sequence[SettingRow], names: Sequence[str]) -> list[SettingRow]:
    return [row for row in rows if row.name in names]


def _exactly(name: str) -> Any:
    def accept(text: str) -> str:
        if text.strip() != name:
            raise UsageProblem(f"that is not {name}", "Escape changes nothing")
        return name

    return accept


def result_of(change: Change) -> tuple[str, str]:
    """What came of a change, in words and their style."""
    if change.state is not ChangeState.APPLIED:
        return change.message or f"{change.name} was not changed", "critical"
    where = change.path if isinstance(change, HostChange) else "pg_settings"
    words = f"{change.name} is now {change.shown_after}, read back from {where}"
    return (f"{words}: {change.message}", "warning") if change.message else (words, "good")


def results_of(made: Sequence[Change]) -> list[tuple[str, str]]:
    """What came of a set, in words and their styles; of many that went as wanted, one sentence."""
    plain = [change for change in made if change.state is ChangeState.APPLIED and not change.message]
    if len(plain) < _MANY:
        return [result_of(change) for change in made]
    words = f"read back as wanted: {'; '.join(map(told, plain))}"
    return [(words, "good"), *(result_of(change) for change in made if change not in plain)]


def proof_words(proof: Proof) -> list[str]:
    """What stands against a change, what to do about it, and who has not got it yet."""
    found = [*proof.overrides, *proof.advice]
    if proof.behind:
        who, whose = ("1 session has", "its") if proof.behind == 1 else (f"{proof.behind} sessions have", "their")
        found.append(f"{who} the old {proof.name} until {whose} statement ends")
    return found
