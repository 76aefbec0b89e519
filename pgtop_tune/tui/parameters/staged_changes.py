"""Applies the staged changes: questions first, then the change, then a message with the result."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Final

from msgspec import Struct
from textual.app import App

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.changes.model.change import (
    ChangeState,
    HostChange,
    Proof,
    Reach,
    Terms,
    WantedParameter,
    WantedSetting,
)
from pgtop_tune.changes.model.change_set import (
    Change,
    ChangeSet,
    RestartOutcome,
    RestartPlan,
    RestartState,
    RestartVerdict,
)
from pgtop_tune.changes.ports import RestartControl
from pgtop_tune.changes.selection import last, parameters_in_order
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.trip_wires import WATCHED, TripWire
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.dialog import AnswerKey, ConfirmDialog, Dialog, Paragraph, copy
from pgtop_tune.tui.dialogs.entry import ChoiceField, Form, FormDialog, NumberField, PromptDialog, WordField
from pgtop_tune.tui.parameters.changes import Changes, ListScope
from pgtop_tune.tui.parameters.rows import (
    ChangeConditions,
    Circumstances,
    SettingRow,
    StagedChanges,
    check_reach,
    pending_words,
)
from pgtop_tune.tui.scene.banners import change_text
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, labelled, wrapped

# The terms of a change set: scope, deadline, trip wires and reason.

# Trip wires that suit what is seen now: lines to begin with, to be changed by the operator. Pure.

OFF: Final = "off"
HARM: Final = "harm"
SLOWER: Final = "slower"
_TIMES: Final = 3.0
_MB: Final = 2**20
_LEAST_ROOM: Final = 2**30
_BY_NAME: Final = {watched.name: watched for watched in WATCHED}


def suggested(kind: str, interval: Interval | None) -> str:
    """Return trip wires as one types them.

    Args:
        kind: HARM: transactions that fail, a disk that fills, a standby that falls behind. SLOWER: these, and a p99
            three times as high or a third of the throughput. OFF: none.
        interval: What is seen now; a number that cannot be said has no wire.
    """
    if kind == OFF or interval is None:
        return ""
    wires = []
    if kind == SLOWER:
        p99, tps = _BY_NAME["p99"].value(interval), _BY_NAME["tps"].value(interval)
        wires += [f"p99>{max(p99 * _TIMES, 1.0):.0f}ms"] if p99 else []
        wires += [f"tps<{tps / _TIMES:.0f}"] if tps and tps >= _TIMES else []
    errors, free, lag = (_BY_NAME[name].value(interval) for name in ("errors", "free", "lag"))
    # Where transactions fail already, as serializable ones may, more of them is no news.
    wires += ["errors>0"] if errors == 0 else []
    wires += [f"free<{_typed(min(free / 2, _LEAST_ROOM))}"] if free else []
    wires += [f"lag>{_typed(max(lag * _TIMES, _LEAST_ROOM))}"] if lag is not None else []
    return " ".join(wires)


def _typed(size_bytes: float) -> str:
    megabytes = round(size_bytes / _MB)
    return f"{megabytes // 1024}GB" if megabytes % 1024 == 0 else f"{megabytes}MB"


_NARROWEST: Final = "narrowest"
_OWN: Final = "own"
_WIRES: Final = (
    (HARM, "failed transactions, a full disk, a lagging standby"),
    (SLOWER, "these, and p99 or throughput three times worse than now"),
    (OFF, "only the deadline"),
    (_OWN, "as typed below"),
)


class ConditionsDialog(FormDialog[ChangeConditions]):
    """Returns the terms, None on Escape.

    Args:
        before: Conditions that the form begins with.
        around: Whose sessions the narrower reaches are about.
        session: Trip wires are suggested from what it shows.
        glyphs: Characters of the drawing.
    """

    CELLS = 100
    KEYS = "Enter ok  arrows, Tab choose  Esc back"

    def __init__(self, before: ChangeConditions, around: Circumstances, session: Session, glyphs: Glyphs) -> None:
        super().__init__("terms of a change", glyphs, low=True)
        self._around = around
        self._session = session
        self._reaches = _reaches(before, around)
        self._reach = ChoiceField("for", tuple((reach or _NARROWEST, text) for reach, _, text in self._reaches))
        chosen = [(reach, whose) for reach, whose, _ in self._reaches]
        chosen_reach = (before.reach, before.whose)
        self._reach.index = chosen.index(chosen_reach) if chosen_reach in chosen else 0
        self._seconds = NumberField("deadline", "s, then it reverts", empty="confirmed at once")
        self._seconds.fill(before.keep_within_s)
        self._kind = ChoiceField("trip wires", _WIRES)
        self._wires = WordField("wires", "")
        self._wires.text.replace(before.wires)
        self._kind.choose(_OWN if before.wires else OFF)
        self._reason = WordField("reason", "for the journal")
        self._reason.text.replace(before.reason)
        fields = (self._reach, self._seconds, self._kind, self._wires, self._reason)
        self.form = Form(fields, letters_type=True)

    def content(self, cells: int) -> list[Line]:
        """Return the form, what a trip wire can be tied to, what was wrong."""
        names = ", ".join(watched.name for watched in WATCHED)
        lines = [*self.form.lines(self.glyphs), ()]
        lines += wrapped(f"trip wires such as p99>50ms tps<1000; available: {names}", cells, "dim")
        return [*lines, *self.foot(cells)]

    def frames_arrived(self, session: Session) -> None:
        self._session = session

    async def pressed(self, key: str, character: str | None) -> bool:
        """Type, choose, or return the terms."""
        kind, typed = self._kind.value, self._wires.text.text
        if key == "enter":
            self._done()
        elif self.form.press(key, character):
            self.say()
            if self._kind.value != kind and self._kind.value != _OWN:
                self._wires.text.replace(suggested(self._kind.value, self._session.interval))
            elif self._wires.text.text != typed:
                self._kind.choose(_OWN)
        else:
            return False
        return True

    def _done(self) -> None:
        try:
            reach, whose, _ = self._reaches[self._reach.index]
            seconds = self._seconds.number(1)
            wires, reason = self._wires.text.text.strip(), self._reason.text.text.strip()
            conditions = ChangeConditions(reach=reach, whose=whose, keep_within_s=seconds, wires=wires, reason=reason)
            conditions.trip_wires()
            check_reach(conditions, self._around)
        except PgtopError as problem:
            self.say(str(problem))
        else:
            self.dismiss(conditions)

    def action_close(self) -> None:
        """Leave at once: nothing is kept without Enter."""
        self.dismiss(None)


def _reaches(before: ChangeConditions, around: Circumstances) -> list[tuple[Reach | None, str, str]]:
    """Return reach, whose, and both in words: narrowest first; roles and databases are those of connected sessions."""
    reaches: list[tuple[Reach | None, str, str]] = [(None, "", "narrowest that shows the effect")]
    if around.can_load:
        reaches.append((Reach.LOAD, "", "sessions of the next load; the server is not changed"))
    for reach, own_name, names, text in (
        (Reach.ROLE, around.role or "the role", around.roles, "new sessions of"),
        (Reach.DATABASE, around.database or "the database", around.databases, "new sessions in"),
    ):
        reaches.append((reach, "", f"{text} {own_name}"))
        further_names = dict.fromkeys((*([before.whose] if before.reach is reach else []), *names))
        reaches += [(reach, name, f"{text} {name}") for name in further_names if name not in ("", own_name)]
    return [*reaches, (Reach.SYSTEM, "", "all sessions of the server")]


# Undo and confirm: the changes concerned, the exact SQL, one key, and the result.


async def undo_asked(app: App[Any], changes: Changes, glyphs: Glyphs, *, everything: bool) -> tuple[str, bool]:
    """Ask, undo the last set of changes or all of them, and say what came of it. Runs in a worker.

    Returns:
        One sentence, and whether all is well.
    """
    try:
        in_force = await changes.in_force()
        if not in_force:
            return "no change is in force", True
        changes_to_undo = tuple(reversed(in_force if everything else last(in_force)))
        if not await app.push_screen_wait(await _question(changes, changes_to_undo, glyphs)):
            return "no change was undone", True
        if [change.id for change in await changes.in_force()] != [change.id for change in in_force]:
            return "another user has made a change meanwhile, so no change was undone: try again", False
        undone = await (changes.undo_all() if everything else changes.undo(changes_to_undo))
    except PgtopError as problem:
        return str(problem), False
    return "; ".join(_result(change) for change in undone) or "no change was undone", True


async def redo_said(changes: Changes) -> tuple[str, bool]:
    """Make again what was undone last, and say what came of it."""
    try:
        changes_made = await changes.redo()
    except PgtopError as problem:
        return str(problem), False
    return "; ".join(f"{change_text(change)} again" for change in changes_made) or "no change to redo", True


async def keep_said(changes: Changes) -> tuple[str, bool]:
    """Confirm the pending change set, and show the result."""
    if changes.pending is None:
        return "no change is pending confirmation", True
    try:
        kept = await changes.keep()
    except PgtopError as problem:
        return f"not confirmed: {problem}", False
    if not kept:
        return "too late: it has been reverted already", False
    lossy = any(not isinstance(change, HostChange) and change.loss for change in kept)
    ends = "; it can lose data, so it reverts when this program ends" if lossy else ""
    return f"confirmed: {'; '.join(change_text(change) for change in kept)}{ends}", True


async def _question(changes: Changes, to_undo: Sequence[Change], glyphs: Glyphs) -> ConfirmDialog[bool]:
    paragraphs: list[Paragraph] = []
    for change in to_undo:
        by = (
            f"   (by {change.by})"
            if change.by and change.id not in {change_made.id for change_made in changes.made}
            else ""
        )
        paragraphs.append(Paragraph(change_text(change) + by, "strong"))
        if isinstance(change, HostChange):
            paragraphs.append(Paragraph(f"{change.value_before} into {change.path}"))
        else:
            paragraphs.append(Paragraph(await changes.statement(change.name, change.auto_conf_before, change.scope)))
    title = "undo the last change" if len(to_undo) == 1 else f"undo {len(to_undo)} changes"
    return ConfirmDialog(title, paragraphs, (AnswerKey(("y", "enter"), "undo", True),), glyphs)


_EMPTY: Final = "''"


def _result(change: Change) -> str:
    if change.state is ChangeState.SUPERSEDED:
        return f"{change.name}: {change.message}"
    where = change.path if isinstance(change, HostChange) else "pg_settings"
    text = f"{change.name} is {change.shown_after or _EMPTY} again, read back from {where}"
    return f"{text} ({change.message})" if change.message else text


# The restart dialog: planned changes, checks and command; then the progress of the restart.

_STYLES: Final = {
    RestartVerdict.FINE: "good",
    RestartVerdict.UNKNOWN: "dim",
    RestartVerdict.DOUBTFUL: "warning",
    RestartVerdict.IMPOSSIBLE: "critical",
}
_ANYWAY_KEYS: Final = "! try anyway  Esc cancel"
_LABEL_CELLS: Final = 15
_LOOK_S: Final = 0.5
_PROGRESS_LINES: Final = 6


class RestartDialog(Dialog[RestartOutcome]):
    """Returns the outcome of the restart; None when no change was made.

    While the server is being restarted it cannot be closed, unless somebody else is to restart it and we only wait.

    Args:
        changes: Makes the set.
        restart: The door to the restart.
        client: The way there.
        change_set: Changes made with the restart; an empty set takes over values that wait already.
        terms: Reason, and names that were unlocked.
        glyphs: Characters of the drawing.
    """

    CELLS = 110
    KEYS = "y restart  Esc cancel"

    def __init__(
        self,
        changes: Changes,
        restart: RestartControl,
        client: EngineClient,
        change_set: ChangeSet,
        terms: Terms,
        glyphs: Glyphs,
    ) -> None:
        super().__init__("restart the server", glyphs, keys="Esc back", low=True)
        self._restart = restart
        self._client = client
        self._changes = changes
        self._wanted = change_set
        self._terms = terms
        self._plan: RestartPlan | None = None
        self._progress: list[str] = []
        self._outcome: RestartOutcome | None = None
        self._under_way = False

    def on_mount(self) -> None:
        """Ask what it would do."""
        self.set_interval(_LOOK_S, self._look_on)
        self.work(self._ask(), "checking a restart")

    def _look_on(self) -> None:
        """Draw the progress, which comes from the engine's thread."""
        if self._under_way:
            self.repaint()

    async def _ask(self) -> None:
        plan = await self._client.ask(self._restart.plan(self._wanted.parameters))
        if self._wanted.parameters or self._wanted.settings or plan.pending:
            self._plan = plan
        else:
            self.say("no change is pending a restart")

    def content(self, cells: int) -> list[Line]:
        """Return the plan, then the progress, then the outcome."""
        self.captions("restart the server", self._keys())
        lines = self.foot(cells)
        if self._plan is None:
            return lines
        for setting in self._wanted.settings:
            for command in self._changes.commands(setting.name, setting.value, survive=False):
                lines += wrapped(command, cells, "strong")
        lines += plan_lines(self._plan, cells)
        if self._under_way or self._outcome is not None:
            lines += [
                (),
                *(((f"{self.glyphs.pointer} {step}", PLAIN),) for step in self._progress[-_PROGRESS_LINES:]),
            ]
        if self._outcome is not None:
            lines += outcome_lines(self._outcome, cells)
        return lines

    def _keys(self) -> str:
        if self._plan is None or self._outcome is not None:
            return "Esc back"
        if self._under_way:
            return "wait" if self._plan.by_us else "Esc stop waiting: the changes stay pending"
        return self.KEYS if self._possible else _ANYWAY_KEYS

    async def pressed(self, key: str, character: str | None) -> bool:
        """Begin the restart, or scroll."""
        agreed = key == ("y" if self._possible else "exclamation_mark")
        if not agreed or self._plan is None or self._under_way or self._outcome is not None:
            return self.scroll_key(key)
        self._begin(anyway=not self._possible)
        return True

    @property
    def _possible(self) -> bool:
        """A set with settings of the machine is checked again once these are made: huge pages may be there then."""
        return self._plan is not None and (self._plan.possible or bool(self._wanted.settings))

    def _begin(self, *, anyway: bool) -> None:
        self._under_way = True
        self.say()
        self.work(self._apply(anyway=anyway))

    async def _apply(self, *, anyway: bool) -> None:
        try:
            self._outcome = await self._changes.restart(
                self._wanted, self._terms, self._restart, self._progress.append, anyway=anyway
            )
        finally:
            self._under_way = False

    def action_close(self) -> None:
        """Close, except in the middle of a restart of ours."""
        if self._under_way and self._plan is not None and self._plan.by_us:
            return
        self.dismiss(self._outcome)


def plan_lines(plan: RestartPlan, cells: int) -> list[Line]:
    """Return the effects of a restart: statements, checks, the command, the sessions that end.

    Args:
        plan: As asked for.
        cells: Width.
    """
    lines: list[Line] = []
    for text in plan.statements:
        lines += wrapped(text, cells, "strong")
    for pending in plan.pending:
        lines += labelled(
            "takes over", f"{pending.name} {pending.running}→{pending.after}", cells, "strong", _LABEL_CELLS
        )
    for check in plan.checks:
        hint = f" ({check.hint})" if check.hint else ""
        verdict = f"{check.verdict}: {check.words}{hint}"
        lines += labelled(check.subject, verdict, cells, _STYLES[check.verdict], _LABEL_CELLS)
    lines += labelled("managed by", plan.managed, cells, PLAIN, _LABEL_CELLS)
    lines += labelled("command", plan.command, cells, "strong", _LABEL_CELLS) if plan.command else []
    if not plan.by_us:
        lines += labelled(
            "by others", f"{plan.why_not}; this program waits for the restart", cells, "warning", _LABEL_CELLS
        )
    within = f", {plan.in_transaction} of them within a transaction" if plan.in_transaction else ""
    lines += labelled("ends", f"{plan.sessions} client sessions{within}", cells, "warning", _LABEL_CELLS)
    return lines


def outcome_lines(outcome: RestartOutcome, cells: int) -> list[Line]:
    """Return the outcome, with the lines of the server's log that explain it."""
    style = "good" if outcome.state is RestartState.CAME_UP else "critical"
    lines = [*wrapped(outcome.words, cells, style)]
    for line in outcome.log:
        lines += wrapped(line, cells, "dim")
    return [*lines, *wrapped(outcome.hint, cells, "warning")] if outcome.hint else lines


_VALUE: Final = 40
"""Characters of a value in a message."""


class Came(Struct, frozen=True):
    """The outcome of an act.

    Attributes:
        text: One or more sentences.
        style: Style of the text.
        done: Names of parameters that are as wanted now.
    """

    text: str
    style: str
    done: tuple[str, ...] = ()


class ChangingDialog(Dialog[None]):
    """A dialog in which parameters are changed: one act at a time, and its result at the foot."""

    def begin(self, doing: str, work: Coroutine[Any, Any, Came | tuple[str, bool]]) -> None:
        """Act, unless something is being done; what comes of it is a sentence and whether all is well, or more."""
        if self.busy:
            work.close()
        else:
            self.work(self._settled(work), doing, "act")

    async def _settled(self, work: Coroutine[Any, Any, Came | tuple[str, bool]]) -> None:
        result = await work
        if isinstance(result, tuple):
            result = Came(result[0], "good" if result[1] else "critical")
        self.busy = ""
        self.say(result.text, result.style)
        self.settled(result.done)

    def settled(self, done: Sequence[str]) -> None:
        """React to a finished act, with the names of parameters that have their wanted values now."""
        raise NotImplementedError


class Applying:
    """Asks and applies; coroutines run in workers of the application.

    Args:
        app: Where questions are asked.
        changes: The operator's hand.
        scope: What may be unlocked, on which terms, and the way to a restart.
        glyphs: Characters of the questions.
    """

    def __init__(self, app: App[Any], changes: Changes, scope: ListScope, glyphs: Glyphs) -> None:
        self._app = app
        self._changes = changes
        self._scope = scope
        self._glyphs = glyphs

    async def apply(
        self,
        staged: Sequence[SettingRow],
        staged_set: StagedChanges,
        sql: Sequence[str],
        *,
        sql_shown: bool,
        lost: Sequence[str] = (),
    ) -> Came:
        """Apply the live part of a set.

        Args:
            staged: Every row with a staged value.
            staged_set: The same as a set.
            sql: The exact statements.
            sql_shown: Whether all of them stand on the screen already.
            lost: Losses that values can cause, a sentence each.
        """
        if staged_set.needs_root:
            return await self._to_paste(staged_set.settings)
        rows = [*staged_set.machine, *_of(staged, [change.name for change in staged_set.live])]
        conditions = self._scope.conditions or ChangeConditions()
        try:
            wires = conditions.trip_wires()
            question = self._question(rows, staged_set, conditions, sql, lost)
            warned = bool(lost) or any(row.warning for row in rows)
            if (warned or not sql_shown) and not await self._app.push_screen_wait(question):
                return _NOTHING
            confirmed = await self.unlock(rows, ends=conditions.keep_within_s is not None)
            if confirmed is None:
                return _NOTHING
            terms = Terms(conditions.keep_within_s, conditions.reason, confirmed)
            return await self._make(staged_set.live, terms, wires, staged_set.settings)
        except PgtopError as problem:
            return Came(str(problem), "critical")

    async def next_load(self, staged: Sequence[SettingRow], staged_set: StagedChanges) -> Came:
        """Put what is for the next load into its sessions; nothing is changed on the server."""
        names = tuple(name for name, _ in staged_set.next_load)
        try:
            if await self.unlock(_of(staged, names), ends=True) is None:
                return _NOTHING
        except PgtopError as problem:
            return Came(str(problem), "critical")
        for name, value in staged_set.next_load:
            self._scope.next_load.pop(name, None)
            if value is not None:
                self._scope.next_load[name] = value
        begins = ", ".join(
            f"the server's {name}" if value is None else f"{name}={one_line(value, _VALUE)}"
            for name, value in staged_set.next_load
        )
        return Came(f"the next load starts with {begins} (PGOPTIONS)", "good", names)

    async def restart(self, staged: Sequence[SettingRow], staged_set: StagedChanges) -> Came:
        """Return one restart for everything that is staged for the whole server, and for what waits for one already."""
        restart, client = self._scope.restart, self._scope.client
        if restart is None or client is None:
            return Came("the server cannot be restarted from here", "warning")
        if staged_set.needs_root:
            return await self._to_paste(staged_set.settings)
        waiting = (WantedParameter(row.name, row.staged.value) for row in staged_set.restart if row.staged is not None)
        system = [change for change in (*staged_set.live, *waiting) if change.scope.is_system]
        ordered = parameters_in_order(system, {row.name.lower(): row.parameter for row in staged})
        try:
            confirmed = await self.unlock(_of(staged, [change.name for change in ordered]), ends=False)
        except PgtopError as problem:
            return Came(str(problem), "critical")
        if confirmed is None:
            return _NOTHING
        change_set = ChangeSet(parameters=ordered, settings=staged_set.settings)
        terms = Terms(reason=(self._scope.conditions or ChangeConditions()).reason, confirmed=confirmed)
        dialog = RestartDialog(self._changes, restart, client, change_set, terms, self._glyphs)
        outcome = await self._app.push_screen_wait(dialog)
        if outcome is None:
            return Came("not restarted", PLAIN)
        done = [change.name for change in outcome.changes if change.state is ChangeState.APPLIED]
        came_up = outcome.state is RestartState.CAME_UP
        done += [setting.name for setting in change_set.settings] if came_up else []
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
            value = f"{row.name} = {row.staged} {risk.words}"
            if risk.loses_data and not self._scope.allow_unsafe:
                deadline = "" if risk.locked(ends=True) else "o sets a deadline, or "
                raise UsageProblem(value, f"{deadline}start with --allow-unsafe to unlock it; no change was made")
            ending = "It reverts when this program ends. " if risk.loses_data else ""
            hint = f"{value}. {ending}Type {row.name} to unlock it."
            typed = await self._app.push_screen_wait(
                PromptDialog(f"unlock {row.name}", hint, _exactly(row.name), self._glyphs)
            )
            if typed is None:
                return None
            confirmed.add(row.name)
        return frozenset(confirmed)

    async def _to_paste(self, settings: Sequence[WantedSetting]) -> Came:
        """Show the commands that change settings of the machine: now, and for the next boot."""
        commands = [command for setting in settings for command in self._changes.commands(setting.name, setting.value)]
        paragraphs = [
            Paragraph(
                "This process may not change these settings. Run these commands as root, now and for the next boot:"
            )
        ]
        paragraphs += [Paragraph(command, "strong") for command in commands]
        choices = (AnswerKey(("y",), "copy to the clipboard of your terminal", True),)
        if await self._app.push_screen_wait(
            ConfirmDialog("settings of the machine", paragraphs, choices, self._glyphs)
        ):
            return Came(copy(self._app, "\n".join(commands), "the commands are in your terminal's clipboard"), PLAIN)
        return _NOTHING

    async def _make(
        self,
        live: Sequence[WantedParameter],
        terms: Terms,
        wires: Sequence[TripWire],
        settings: Sequence[WantedSetting],
    ) -> Came:
        changes_made = await self._changes.apply(live, terms, wires, settings)
        done = tuple(change.name for change in changes_made if change.state is ChangeState.APPLIED)
        try:
            proofs = await self._changes.prove(changes_made)
        except PgtopError:
            # What was read back stands; that no new session can be had is for the sampler to say.
            proofs = ()
        results = results_of(changes_made)
        texts = [text for text, _ in results] + [text for proof in proofs for text in proof_words(proof)]
        styles = [style for _, style in results] + ["warning" for proof in proofs if proof.overrides]
        worst = next((style for style in ("critical", "warning") if style in styles), "good")
        return Came("; ".join(texts), worst, done)

    def _question(
        self,
        rows: Sequence[SettingRow],
        staged_set: StagedChanges,
        conditions: ChangeConditions,
        sql: Sequence[str],
        lost: Sequence[str],
    ) -> ConfirmDialog[bool]:
        paragraphs = [Paragraph(text, "critical") for text in lost]
        paragraphs += [
            Paragraph(f"{self._glyphs.warning} {row.warning}", "warning")
            for row in rows
            if row.warning and row.risk is None
        ]
        paragraphs += [Paragraph(text, "strong") for text in sql]
        paragraphs += [
            Paragraph(""),
            *(Paragraph(text) for text in staged_set.connected),
            Paragraph(pending_words(conditions)),
        ]
        names = ", ".join(row.name for row in rows) if len(rows) < 3 else f"{len(rows)} parameters"
        return ConfirmDialog(f"change {names}?", paragraphs, (AnswerKey(("y",), "apply it", True),), self._glyphs)


_MANY: Final = 3
_NOTHING: Final = Came("no change was made", PLAIN)


def _of(rows: Sequence[SettingRow], names: Sequence[str]) -> list[SettingRow]:
    return [row for row in rows if row.name in names]


def _exactly(name: str) -> Any:
    def accept(text: str) -> str:
        if text.strip() != name:
            raise UsageProblem(f"that is not {name}", "Esc makes no change")
        return name

    return accept


def result_of(change: Change) -> tuple[str, str]:
    """Return the outcome of a change, in words and their style."""
    if change.state is not ChangeState.APPLIED:
        return change.message or f"{change.name} was not changed", "critical"
    where = change.path if isinstance(change, HostChange) else "pg_settings"
    text = f"{change.name} is now {change.shown_after or _EMPTY}, read back from {where}"
    return (f"{text}: {change.message}", "warning") if change.message else (text, "good")


def results_of(changes_made: Sequence[Change]) -> list[tuple[str, str]]:
    """Return the outcomes of a set, in words and their styles; many plain successes share one sentence."""
    plain = [change for change in changes_made if change.state is ChangeState.APPLIED and not change.message]
    if len(plain) < _MANY:
        return [result_of(change) for change in changes_made]
    text = f"read back as requested: {'; '.join(map(change_text, plain))}"
    return [(text, "good"), *(result_of(change) for change in changes_made if change not in plain)]


def proof_words(proof: Proof) -> list[str]:
    """Return what overrides a change, the remedy, and the sessions that still have the old value."""
    texts = [*proof.overrides, *proof.advice]
    if proof.behind:
        sessions, whose = ("1 session has", "its") if proof.behind == 1 else (f"{proof.behind} sessions have", "their")
        texts.append(f"{sessions} the old {proof.name} until {whose} statement ends")
    return texts
