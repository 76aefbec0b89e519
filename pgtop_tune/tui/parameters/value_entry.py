"""Values in the list of parameters: typed, chosen from a list, stepped, or taken from the advice; and the filter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual import events

from pgtop_tune.errors import PgtopError
from pgtop_tune.tui.dialogs.choice import Choice, ChoiceDialog
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.parameters.drawing import choice_remark
from pgtop_tune.tui.parameters.row import SettingTable, Staged, words_of
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN
from pgtop_tune.tui.widgets.text_field import TextField


class ValueEntryDialog(Dialog[None]):
    """A dialog with a table of settings whose values are entered.

    Args:
        title: On the upper edge.
        glyphs: What it is drawn with.
        keys: On the lower edge.
        table: The settings.
    """

    def __init__(self, title: str, glyphs: Glyphs, keys: str, table: SettingTable) -> None:
        super().__init__(title, glyphs, keys=keys, low=True)
        self._table = table
        self._said: tuple[str, str] = ("", PLAIN)

    def _staged_anew(self) -> None:
        """Something else may be staged now."""
        raise NotImplementedError

    def _typing(self, typed: TextField, event: events.Key) -> Callable[[], None] | None:
        """Every key but those that close belongs to the value or the filter being typed."""
        if event.key in ("escape", "ctrl+c"):
            return None
        if event.key != "enter":
            return partial(self._type, typed, event)
        if self._table.editing is not None:
            return self._value_typed
        return self._filter_typed

    def _value_typed(self) -> None:
        """Stages the value if the server may take it."""
        self._said = ("", PLAIN)
        try:
            self._table.end_edit(keep=True)
        except PgtopError as problem:
            self._said = (str(problem), "critical")

    def _edit(self) -> None:
        """Types a value, or chooses it from a list where there are few."""
        row = self._table.selected
        words = () if row is None else words_of(row)
        if row is None or not words:
            self._table.edit()
            return

        def chosen(word: str | None) -> None:
            if word is not None:
                self._said = ("", PLAIN)
                self._table.stage(Staged(word))
            self._staged_anew()

        staged = row.staged.value if row.staged is not None else None
        choices = [Choice(word, *choice_remark(row, word)) for word in words]
        dialog = ChoiceDialog(row.name, choices, staged or row.parameter.setting, self.glyphs)
        self.app.push_screen(dialog, chosen)

    def _type(self, typed: TextField, event: events.Key) -> None:
        typed.press(event.key, event.character)
        if typed is self._table.filtering:
            self._table.narrow(typed.text)

    def _filter(self) -> None:
        self._table.filtering = TextField(self._table.filter)

    def _filter_typed(self) -> None:
        self._table.filtering = None

    def on_paste(self, event: events.Paste) -> None:
        """A value from the terminal's clipboard."""
        event.stop()
        typed = self._table.editing or self._table.filtering
        if typed is not None:
            typed.insert(event.text)
            if typed is self._table.filtering:
                self._table.narrow(typed.text)
            self.repaint()

    def action_close(self) -> None:
        """While typing it only ends the typing; then it takes the filter away; then it leaves."""
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
        self._said = ("", PLAIN)
        try:
            self._table.step(direction)
        except PgtopError as problem:
            self._said = (str(problem), "critical")

    def _take_advice(self) -> None:
        row = self._table.selected
        if row is not None and row.advised:
            self._table.stage(Staged(row.advised))
        elif row is not None:
            words = (
                "already has the advised value" if row.advice is not None and row.advice.value else "no advised value"
            )
            self._said = (f"{row.name}: {words}; ? shows details", "warning")
