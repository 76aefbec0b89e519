"""The parameter dialog: step or type values, see the exact SQL of the change set, apply it, confirm or undo it."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace
from textual import events

from pgtop_tune.advice.facts import AdviceFacts, MachineLook
from pgtop_tune.advice.proposal import propose
from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.diagnosis.finding import Deed
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.durability import WINDOW, lost_in_a_crash
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.parameter_values import parse
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.dialog import DetailsDialog, copy
from pgtop_tune.tui.dialogs.entry import Choice, ChoiceDialog
from pgtop_tune.tui.parameters.changes import Changes, ListScope
from pgtop_tune.tui.parameters.drawing import (
    advised_anew,
    choice_remark,
    list_lines,
    machine_rows,
    parameter_lines,
    parameter_rows,
    server_facts,
    word_lines,
)
from pgtop_tune.tui.parameters.rows import (
    ChangeConditions,
    Circumstances,
    SettingRow,
    SettingTable,
    Staged,
    StagedChanges,
    circumstances,
    figures_line,
    fits,
    set_lines,
    staged_changes,
    words_of,
)
from pgtop_tune.tui.parameters.staged_changes import (
    HARM,
    Applying,
    ChangingDialog,
    ConditionsDialog,
    keep_said,
    redo_said,
    suggested,
    undo_asked,
)
from pgtop_tune.tui.scene.banners import danger_line, pending_line
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line
from pgtop_tune.tui.widgets.text_field import TextField

# The risk of a staged value, a loss in numbers of now, and whether it is locked. Pure.

_COMMIT: Final = "synchronous_commit"
_OFF: Final = "off"


def loss_words(row: SettingRow, rows: Sequence[SettingRow], interval: Interval | None) -> str:
    """Return the risk of the staged value, a loss in numbers of now; "" where it is safe.

    Args:
        row: The parameter.
        rows: All of them: of asynchronous commits the loss depends on wal_writer_delay, staged or in force.
        interval: For numbers of now.
    """
    if row.staged is None:
        return ""
    by_name = {entry.name: entry for entry in rows}
    commit, delay = by_name.get(_COMMIT), by_name.get(WINDOW)
    if row.name in (_COMMIT, WINDOW) and commit is not None and delay is not None and _value(commit) == _OFF:
        try:
            lost = lost_in_a_crash(parse(_value(delay), delay.parameter.unit, integer=True), interval)
        except UsageProblem:
            lost = ""
        if lost:
            return f"can lose {lost}"
    return "" if row.risk is None else row.risk.words


def lock_words(row: SettingRow, conditions: ChangeConditions, *, allow_unsafe: bool) -> str:
    """Return whether the staged value is locked, and what unlocks it; "" where it is safe.

    Args:
        row: The parameter.
        conditions: A deadline replaces unlocking where the value may be tried.
        allow_unsafe: Whether losses may be unlocked in this session.
    """
    risk = row.risk
    if risk is None:
        return ""
    if not risk.locked(ends=conditions.keep_within_s is not None):
        once_confirmed = ", and once confirmed when this program ends" if risk.loses_data else ""
        return f"reverts at its deadline{once_confirmed}"
    deadline = "" if risk.locked(ends=True) else "o sets a deadline, or "
    permitted = allow_unsafe or not risk.loses_data
    unlock = "a, then type its name" if permitted else "start with --allow-unsafe to unlock it"
    return f"locked: {deadline}{unlock}"


def _value(row: SettingRow) -> str:
    staged = None if row.staged is None else row.staged.value
    return row.parameter.setting if staged is None else staged


_SHORT_KEYS: Final = "+ - Enter v x  a apply A restart o terms  ? more  / filter  u undo  Esc"
_EDIT_KEYS: Final = "Enter ok  Esc discard"
_FILTER_KEYS: Final = "Enter ok  Esc all parameters"
_ROOMY: Final = 110
_LEAST_ROWS: Final = 4
"""Heading, a group and two parameters, however small the terminal."""
_ROWS_FIRST: Final = 12
"""Lines of the list before words on the selected row get more than two."""
_TALL: Final = 34
"""Rows from which on a third of the dashboard stays in view."""
_ROOMY_ROWS: Final = 24
_ADVICE_EVERY: Final = 10
"""Frames between two looks at what advice is derived from."""


async def staged_by(deed: Deed, changes: Changes, scope: ListScope, session: Session) -> str:
    """Stage the value that a finding proposes, without the list; the reason why not, "" when it is staged.

    Raises:
        PgtopError: The server does not answer, or its value is nothing to start from.
    """
    knobs = tuple(knob for knob in scope.knobs if knob.name == deed.target)
    parameters, in_force = await changes.list((deed.target,)), await changes.in_force()
    machine = await changes.settings()
    facts = server_facts(session.interval, machine, None)
    rows = parameter_rows(knobs, parameters, in_force, scope.next_load)
    if not rows:
        return _absent(deed.target)
    for row in rows:
        advised = row if facts is None else advised_anew(row, facts, propose(facts))
        staged = staged_for(advised, deed)
        if staged is not None:
            kept_rows = tuple(staged_row for staged_row in scope.staged if staged_row.name != row.name)
            scope.staged = (*kept_rows, replace(advised, staged=staged))
            return ""
    return f"{deed.target}: no value is advised: stage one in the list of parameters"


def _absent(name: str) -> str:
    return f"this server has no parameter {name}: nothing is staged"


def staged_for(row: SettingRow, deed: Deed) -> Staged | None:
    """Return the value that a finding proposes for its parameter; None without one."""
    return row.towards(deed.direction) if deed.value is None else row.meaning(Staged(deed.value))


class ParameterDialog(ChangingDialog):
    """Stays open until Escape.

    Args:
        changes: Lists and changes parameters.
        scope: Parameters that are listed, and the terms of changes.
        session: For advice, and for the line of figures that shows what a change does.
        glyphs: Characters of the drawing.
        advice: The value that a finding proposes: the cursor begins there, with the value staged.
    """

    CELLS = 194
    KEYS = (
        "+ - step  Enter edit  v advised  x reset  a apply  A restart  o terms  ? details  / filter  u undo  Esc back"
    )

    def __init__(
        self,
        changes: Changes,
        scope: ListScope,
        session: Session,
        glyphs: Glyphs,
        advice: Deed | None = None,
    ) -> None:
        super().__init__("parameters", glyphs, low=True)
        self._table = SettingTable(scope.staged)
        self._wanted = advice
        self._changes = changes
        self._scope = scope
        self._session = session
        self._sample: object = None
        self._frames = 0
        self._machine: MachineLook | Unavailable = NOT_YET
        self._facts: AdviceFacts | None = None
        self._page = 1
        self._set = StagedChanges()
        self._eager: StagedChanges | None = None
        self._sql: tuple[StagedChanges, tuple[str, ...]] = (StagedChanges(), ())
        self._tells_pending = False

    def on_mount(self) -> None:
        """Ask for the present values."""
        if self._scope.conditions is None:
            self._scope.conditions = ChangeConditions(wires=suggested(HARM, self._session.interval))
        self._sample = self._seen()
        self.work(self._refresh_values(), "querying the server")

    def narrow(self, name: str) -> None:
        """Show only parameters with that text."""
        self._table.narrow(name)

    @property
    def _conditions(self) -> ChangeConditions:
        return self._scope.conditions or ChangeConditions()

    @property
    def _around(self) -> Circumstances:
        return circumstances(self._session.now, can_load=self._scope.can_load)

    def _seen(self) -> object:
        """Return the look at the parameters that the newest frame has."""
        return None if self._session.now is None else sections.parameters(self._session.now)

    async def _refresh_values(self) -> None:
        names = tuple(knob.name for knob in self._scope.knobs)
        parameters, in_force = await self._changes.list(names), await self._changes.in_force()
        machine = await self._changes.settings()
        rows = parameter_rows(self._scope.knobs, parameters, in_force, self._scope.next_load)
        rows += [] if isinstance(machine, Unavailable) else machine_rows(machine, in_force)
        self._machine = machine
        self._table.load(self._advised(rows))
        self._stage_wanted()
        self._staged_anew()

    def _stage_wanted(self) -> None:
        """Stage the advice of a finding, once, with the first answer of the server."""
        advice, self._wanted = self._wanted, None
        row = None if advice is None else self._row(advice.target)
        if advice is None:
            return
        if row is None:
            self.say(_absent(advice.target), "warning")
            return
        self._table.select(advice.target)
        if row.staged is None:
            staged = staged_for(row, advice)
            self._table.stage(staged)
            self.say("" if staged else f"{row.name}: no advised value; type one with Enter", "warning")

    def content(self, cells: int) -> list[Line]:
        """Return the list, words on the selected row, the exact SQL, what came of the last change, figures."""
        self._caption_keys(cells)
        height = self.app.size.height
        banner = int(danger_line(self._session, cells, self.glyphs) is not None)
        total = height - 2 - banner if height < _TALL else height * 2 // 3
        below = set_lines(self._set, self._sql_shown, self._conditions, cells, self.glyphs, roomy=total >= _ROOMY_ROWS)
        pending = self._changes.pending
        if pending is not None:
            below.append(pending_line(pending, time.time_ns() // 1_000_000, cells, self.glyphs))
        below += [*self.foot(cells, 4), figures_line(self._session)]
        most = max(total - len(below) - _ROWS_FIRST, 2)
        details = word_lines(self._table.selected, cells, self.glyphs, most, self._lost(self._table.selected))
        room = max(total - len(below) - len(details) - 1, _LEAST_ROWS)
        self._page = max(room - _LEAST_ROWS, 1)
        return [*list_lines(self._table, cells, room, self.glyphs), self._filter_line(cells), *details, *below]

    def _lost(self, row: SettingRow | None) -> str:
        """Return the risk of the staged value of a row, and whether it is locked."""
        if row is None or not (risk := loss_words(row, self._table.rows, self._session.interval)):
            return ""
        lock = lock_words(row, self._conditions, allow_unsafe=self._scope.allow_unsafe)
        return f"{lock and f'{lock}; '}{risk}"

    def _caption_keys(self, cells: int) -> None:
        keys = self.KEYS if cells >= _ROOMY else _SHORT_KEYS
        keys = _EDIT_KEYS if self._table.editing is not None else keys
        keys = _FILTER_KEYS if self._table.filtering is not None else keys
        staged = len(self._table.staged)
        title = f"parameters {self.glyphs.separator} {staged} staged" if staged else "parameters"
        self.captions(title, keys)

    def _filter_line(self, cells: int) -> Line:
        if self._table.filtering is not None:
            return (("/", "key"), *self._table.filtering.line(cells - 2))
        return ((f"/{self._table.filter}", "label"),) if self._table.filter else ()

    @property
    def _sql_shown(self) -> tuple[str, ...] | None:
        """The SQL of what is staged, once the control has composed it."""
        composed_for, sql = self._sql
        return sql if composed_for is self._set else None

    @property
    def _all_in_view(self) -> bool:
        sql = self._sql_shown
        return sql is not None and fits(sql, self.cells)

    def frames_arrived(self, session: Session) -> None:
        """Draw newer figures; read a value again at once when another user has changed it."""
        self._session = session
        self._frames += 1
        if self._tells_pending and self._changes.pending is None:
            # The set was reverted: its values are in force no more.
            self._tells_pending = False
            self.say()
        if self._seen() is not self._sample and not self.busy:
            self._sample = self._seen()
            self._refresh()
        elif self._frames % _ADVICE_EVERY == 0:
            self._advise()
        self.repaint()

    def _advise(self) -> None:
        self._table.load(self._advised(self._table.rows))
        self._staged_anew()

    def _advised(self, rows: Sequence[SettingRow]) -> list[SettingRow]:
        """Return the rows with what is advised now."""
        facts = server_facts(self._session.interval, self._machine, self._facts)
        if facts is None:
            return list(rows)
        self._facts, proposal = facts, propose(facts)
        return [advised_anew(row, facts, proposal) for row in rows]

    async def pressed(self, key: str, character: str | None) -> bool:
        """Move, step, type, apply, and whatever else `_acts` has for the key."""
        field = self._table.editing or self._table.filtering
        act = self._acts().get(key) if field is None else self._typing(field, key, character)
        if act is None:
            return False
        act()
        self._staged_anew()
        return True

    def _acts(self) -> dict[str, Callable[[], None]]:
        table, page = self._table, self._page
        return {
            "up": lambda: table.move(-1), "k": lambda: table.move(-1),
            "down": lambda: table.move(1), "j": lambda: table.move(1),
            "pageup": lambda: table.move(-page), "pagedown": lambda: table.move(page),
            "home": lambda: table.move(-len(table.rows)), "g": lambda: table.move(-len(table.rows)),
            "end": lambda: table.move(len(table.rows)), "G": lambda: table.move(len(table.rows)),
            "tab": lambda: table.turn_group(1), "shift+tab": lambda: table.turn_group(-1),
            "plus": lambda: self._step(1), "right": lambda: self._step(1),
            "minus": lambda: self._step(-1), "left": lambda: self._step(-1),
            "enter": self._edit,
            "v": self._take_advice,
            "x": lambda: table.stage(Staged(None)),
            "backspace": lambda: table.stage(None), "delete": lambda: table.stage(None),
            "slash": self._filter,
            **dict.fromkeys(("question_mark", "f1", "h"), self._details),
            "o": self._choose_conditions,
            "y": self._copy,
            "a": self._apply_asked,
            "A": self._restart_asked,
            "Y": lambda: self.begin("keeping", keep_said(self._changes)),
            "u": lambda: self.begin("undoing", self._undone(everything=False)),
            "U": lambda: self.begin("undoing", self._undone(everything=True)),
            "ctrl+r": lambda: self.begin("applying again", redo_said(self._changes)),
        }  # fmt: skip

    def _typing(self, field: TextField, key: str, character: str | None) -> Callable[[], None] | None:
        """Return what a key does to the value or the filter being typed; None for the keys that close."""
        if key in ("escape", "ctrl+c"):
            return None
        if key != "enter":
            return partial(self._type, field, key, character)
        if self._table.editing is not None:
            return self._value_typed
        return self._filter_typed

    def _value_typed(self) -> None:
        """Stage the value if the server may take it."""
        self.say()
        try:
            self._table.end_edit(keep=True)
        except PgtopError as problem:
            self.say(str(problem))

    def _edit(self) -> None:
        """Type a value, or choose it from a list where there are few."""
        row = self._table.selected
        offered = () if row is None else words_of(row)
        if row is None or not offered:
            self._table.edit()
            return

        def chosen(word: str | None) -> None:
            if word is not None:
                self.say()
                self._table.stage(Staged(word))
            self._staged_anew()

        staged = row.staged.value if row.staged is not None else None
        choices = [Choice(word, *choice_remark(row, word)) for word in offered]
        dialog = ChoiceDialog(row.name, choices, staged or row.parameter.setting, self.glyphs)
        self.app.push_screen(dialog, chosen)

    def _type(self, field: TextField, key: str, character: str | None) -> None:
        field.press(key, character)
        if field is self._table.filtering:
            self._table.narrow(field.text)

    def _filter(self) -> None:
        self._table.filtering = TextField(self._table.filter)

    def _filter_typed(self) -> None:
        self._table.filtering = None

    def on_paste(self, event: events.Paste) -> None:
        """Paste a value from the terminal's clipboard."""
        event.stop()
        typed = self._table.editing or self._table.filtering
        if typed is not None:
            typed.insert(event.text)
            if typed is self._table.filtering:
                self._table.narrow(typed.text)
            self.repaint()

    def action_close(self) -> None:
        """End typing; without it, take the filter away; without one, leave."""
        table = self._table
        if table.editing is not None:
            table.end_edit(keep=False)
        elif table.filtering is not None or table.filter:
            table.filtering = None
            table.narrow("")
        else:
            self.dismiss(None)
            return
        self.repaint()

    def _step(self, direction: int) -> None:
        self.say()
        try:
            self._table.step(direction)
        except PgtopError as problem:
            self.say(str(problem))

    def _take_advice(self) -> None:
        row = self._table.selected
        if row is not None and row.advised:
            self._table.stage(Staged(row.advised))
        elif row is not None:
            message = (
                "already has the advised value" if row.advice is not None and row.advice.value else "no advised value"
            )
            self.say(f"{row.name}: {message}; ? shows details", "warning")

    def _undone(self, *, everything: bool) -> Coroutine[Any, Any, tuple[str, bool]]:
        return undo_asked(self.app, self._changes, self.glyphs, everything=everything)

    def _details(self) -> None:
        row = self._table.selected
        if row is not None:
            name = row.name

            def lines(session: Session, cells: int) -> list[Line]:
                return parameter_lines(self._row(name) or row, cells, self.glyphs)

            title = f"{row.group}: {name}"
            self.app.push_screen(DetailsDialog(title, self._session, lines, lambda session: name, self.glyphs))

    def _row(self, name: str) -> SettingRow | None:
        return next((row for row in self._table.rows if row.name == name), None)

    def _choose_conditions(self) -> None:
        def chosen(conditions: ChangeConditions | None) -> None:
            self._scope.conditions = conditions or self._scope.conditions
            self._staged_anew()

        self.app.push_screen(ConditionsDialog(self._conditions, self._around, self._session, self.glyphs), chosen)

    def _copy(self) -> None:
        sql = self._sql_shown
        if sql:
            self.say(copy(self.app, "\n".join(sql), "the SQL is in your terminal's clipboard"), PLAIN)
        else:
            self.app.notify("nothing is staged: there is no SQL to copy", markup=False)

    def _staged_anew(self) -> None:
        """Put what is staged into a set, and compose its SQL where the set is another one."""
        self._scope.staged = self._table.staged
        staged_set = staged_changes(self._table.staged, self._conditions, self._around)
        if staged_set != self._set:
            self._set = staged_set
        if self._sql_shown is None:
            self.work(self._ask_sql(self._set), group="sql")
        self.repaint()

    async def _ask_sql(self, staged_set: StagedChanges) -> None:
        sql = await self._changes.statements(staged_set.live) if staged_set.live else ()
        self._sql = (staged_set, (*self._changes.commands_now(staged_set.settings), *sql))
        if self._eager is staged_set and staged_set is self._set:
            self._apply_asked(sql_shown=False)

    def _apply_asked(self, *, sql_shown: bool = True) -> None:
        """Apply what is staged; what its SQL has not been shown for yet, once that is composed and agreed to."""
        sql, staged_set = self._sql_shown, self._set
        if self.busy:
            return
        if not self._table.staged:
            self.say("no staged changes: step with + or -, or type a value with Enter", "warning")
        elif staged_set.changes_now and sql is None:
            self._eager = staged_set
        elif staged_set.changes_now and sql is not None:
            self._eager = None
            lost = [f"{row.name} = {row.staged} {self._lost(row)}" for row in self._table.staged if self._lost(row)]
            work = self._applying.apply(
                self._table.staged, staged_set, sql, sql_shown=sql_shown and self._all_in_view, lost=lost
            )
            self.begin("applying", work)
        elif staged_set.next_load:
            self.begin("applying", self._applying.next_load(self._table.staged, staged_set))
        elif staged_set.restart:
            self.say("the staged changes need a restart: A checks one", "warning")

    def _restart_asked(self) -> None:
        """Restart once for everything staged for the whole server, and for values that wait already."""
        self.begin("restarting", self._applying.restart(self._table.staged, self._set))

    @property
    def _applying(self) -> Applying:
        return Applying(self.app, self._changes, self._scope, self.glyphs)

    def settled(self, done: Sequence[str]) -> None:
        self._tells_pending = self._changes.pending is not None
        self._table.forget(done)
        self._refresh()

    def _refresh(self) -> None:
        self.work(self._refresh_values(), group="values")
