"""Live parameters: step or type, see the exact SQL, apply, read back, undo; the dashboard goes on above."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from textual import events

from pgtop_tune.errors import PgtopError
from pgtop_tune.metrics.load import CLIENT_TPS
from pgtop_tune.metrics.server import TPS, WAL_BYTES
from pgtop_tune.model.change import ChangeState, ParameterChange
from pgtop_tune.session.session import Session
from pgtop_tune.tui.changes import Changes
from pgtop_tune.tui.glyphs import Glyphs
from pgtop_tune.tui.lines import PLAIN, Line
from pgtop_tune.tui.screens.confirm import Choice, ConfirmDialog, Said
from pgtop_tune.tui.screens.dialog import Dialog
from pgtop_tune.tui.screens.parameter_list import ParameterTable, Staged
from pgtop_tune.tui.screens.undo import undo_asked
from pgtop_tune.tui.text_field import TextField
from pgtop_tune.tui.wrapping import wrapped
from pgtop_tune.tuning.knobs.knob import Knob
from pgtop_tune.units import count, ms, size

_KEYS: Final = "+ - step  Enter type  x reset  a apply  u undo  U undo all  Esc back"
_EDIT_KEYS: Final = "Enter keep  Esc forget"
_LEAST_ROWS: Final = 4
"""Heading and three parameters, however small the terminal."""


class ParameterDialog(Dialog[None]):
    """Stays open until Escape.

    Args:
        changes: The operator's hand on parameters.
        knobs: What is offered, in this order.
        session: For the line of figures that shows what a change does.
    """

    CELLS = 116

    def __init__(self, changes: Changes, knobs: tuple[Knob, ...], session: Session, glyphs: Glyphs) -> None:
        super().__init__("parameters", glyphs, keys=_KEYS, low=True)
        self._changes = changes
        self._knobs = knobs
        self._session = session
        self._table = ParameterTable(knobs)
        self._statement: tuple[str, str | None, str] | None = None
        self._said: tuple[str, str] = ("", PLAIN)
        self._busy = "asking the server"

    def on_mount(self) -> None:
        """Asks for the present values."""
        super().on_mount()
        self.run_worker(self._refresh_values(), group="parameters")

    async def _refresh_values(self) -> None:
        try:
            self._table.load(await self._changes.list(tuple(knob.name for knob in self._knobs)))
        except PgtopError as problem:
            self._said = (str(problem), "critical")
        self._busy = ""
        self.repaint()

    def content(self, cells: int) -> list[Line]:
        """The list, words on the selected row, the exact SQL, what came of the last change, figures."""
        self.captions("parameters", _KEYS if self._table.editing is None else _EDIT_KEYS)
        below: list[Line] = [(), *self._table.word_lines(cells)]
        shown = self._shown_statement()
        below += wrapped(f"apply: {shown}", cells, "strong") if shown else []
        below += wrapped(self._said[0], cells, self._said[1])
        if self._busy:
            below.append(((f"{self._busy} {self.glyphs.ellipsis}", "dim"),))
        below.append(figures_line(self._session))
        room = max(self.app.size.height - 2 - len(below), _LEAST_ROWS)
        return [*self._table.list_lines(cells, room, self.glyphs), *below]

    def _shown_statement(self) -> str:
        """The SQL for the selected row's staged value, once the control has composed it."""
        row = self._table.selected
        if row is None or row.staged is None or self._statement is None:
            return ""
        name, value, sql = self._statement
        return sql if (name, value) == (row.parameter.name, row.staged.value) else ""

    def frames_arrived(self, session: Session) -> None:
        """Newer figures."""
        self._session = session
        self.repaint()

    def on_key(self, event: events.Key) -> None:
        """Moving, stepping, typing, applying."""
        act = self._acts().get(event.key) if self._table.editing is None else self._typing(event)
        if act is None:
            return
        act()
        event.stop()
        self._compose_statement()
        self.repaint()

    def _acts(self) -> dict[str, Callable[[], None]]:
        table = self._table
        return {
            "up": lambda: table.move(-1), "k": lambda: table.move(-1),
            "down": lambda: table.move(1), "j": lambda: table.move(1),
            "home": lambda: table.move(-len(table.rows)), "end": lambda: table.move(len(table.rows)),
            "plus": lambda: self._step(1), "right": lambda: self._step(1),
            "minus": lambda: self._step(-1), "left": lambda: self._step(-1),
            "enter": table.edit,
            "x": lambda: table.stage(Staged(None)),
            "a": self._apply_asked,
            "u": lambda: self._undo(everything=False),
            "U": lambda: self._undo(everything=True),
        }  # fmt: skip

    def _typing(self, event: events.Key) -> Callable[[], None] | None:
        """Every key but those that close belongs to the value being typed."""
        field = self._table.editing
        if field is None or event.key in ("escape", "ctrl+c"):
            return None
        if event.key == "enter":
            return lambda: self._table.end_edit(keep=True)
        return partial(_press, field, event)

    def on_paste(self, event: events.Paste) -> None:
        """A value from the terminal's clipboard."""
        event.stop()
        if self._table.editing is not None:
            self._table.editing.insert(event.text)
            self.repaint()

    def action_close(self) -> None:
        """While typing it only ends the typing."""
        if self._table.editing is None:
            self.dismiss(None)
            return
        self._table.end_edit(keep=False)
        self.repaint()

    def _step(self, direction: int) -> None:
        self._said = ("", PLAIN)
        try:
            self._table.step(direction)
        except PgtopError as problem:
            self._said = (str(problem), "critical")

    def _compose_statement(self) -> None:
        row = self._table.selected
        if row is not None and row.staged is not None and not self._shown_statement():
            self.run_worker(self._ask_statement(row.parameter.name, row.staged.value), group="sql", exclusive=True)

    async def _ask_statement(self, name: str, value: str | None) -> None:
        try:
            self._statement = (name, value, await self._changes.statement(name, value))
        except PgtopError as problem:
            self._said = (str(problem), "critical")
        self.repaint()

    def _apply_asked(self) -> None:
        """Applies what is staged in the selected row, but only what its SQL has been shown for."""
        row, sql = self._table.selected, self._shown_statement()
        if self._busy or row is None:
            return
        if row.staged is None:
            self._said = ("nothing is staged here: step with + or -, or type a value with Enter", "warning")
        elif sql:
            self._busy = "applying"
            apply = self._apply(row.parameter.name, row.staged.value, row.knob.warning, sql)
            self.run_worker(apply, group="parameters")

    async def _apply(self, name: str, value: str | None, warning: str, sql: str) -> None:
        if warning and not await self.app.push_screen_wait(_second_question(name, warning, sql, self.glyphs)):
            self._busy, self._said = "", ("nothing was changed", PLAIN)
            self.repaint()
            return
        try:
            change = await self._changes.apply(name, value)
        except PgtopError as problem:
            self._busy, self._said = "", (str(problem), "critical")
            self.repaint()
            return
        self._said = result_of(change)
        self._table.forget(name)
        await self._refresh_values()

    def _undo(self, *, everything: bool) -> None:
        if not self._busy:
            self._busy = "undoing"
            self.run_worker(self._undo_now(everything=everything), group="parameters")

    async def _undo_now(self, *, everything: bool) -> None:
        words, well = await undo_asked(self.app, self._changes, self.glyphs, everything=everything)
        self._said = (words, "good" if well else "critical")
        await self._refresh_values()


def _press(field: TextField, event: events.Key) -> None:
    field.press(event.key, event.character)


def _second_question(name: str, warning: str, sql: str, glyphs: Glyphs) -> ConfirmDialog[bool]:
    said = (Said(f"{glyphs.warning} {warning}", "warning"), Said(""), Said(sql, "strong"))
    return ConfirmDialog(f"change {name}?", said, (Choice(("y",), "apply it", True),), glyphs)


def result_of(change: ParameterChange) -> tuple[str, str]:
    """What came of a change, in words and their style."""
    if change.state is not ChangeState.APPLIED:
        return change.message or f"{change.name} was not changed", "critical"
    words = f"{change.name} is now {change.shown_after}, read back from pg_settings"
    return (f"{words}: {change.message}", "warning") if change.message else (words, "good")


def figures_line(session: Session) -> Line:
    """The numbers a change is made for, as they are now."""
    interval, second = session.interval, session.latency.newest()
    if interval is None:
        return (("waiting for the first frame", "dim"),)
    client = CLIENT_TPS(interval)
    tps = TPS(interval) if client is None else client
    figures: list[tuple[str, str]] = [("now  ", "label"), ("tps ", "label"), (count(tps).ljust(7), "strong")]
    if second is not None and client is not None:
        figures += [("p50 ", "label"), (f"{ms(second.quantiles_ms[0])} ".ljust(7), "strong")]
        figures += [("p99 ", "label"), (f"{ms(second.quantiles_ms[2])} ms".ljust(10), "strong")]
    return (*figures, ("WAL ", "label"), (f"{size(WAL_BYTES(interval))}B/s", "strong"))
