"""One line of text from the operator: a note, a moment to jump to, a password."""

from __future__ import annotations

from collections.abc import Callable

from textual import events

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.secret import Secret
from pgtop_tune.tui.dialogs.dialog import Dialog, T
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line, wrapped
from pgtop_tune.tui.widgets.text_field import TextField


class PromptDialog(Dialog[T]):
    """Returns what `accept` makes of the text, None on Escape.

    Args:
        title: What is asked for.
        hint: How to say it, one sentence.
        accept: Turns the text into the result; a PgtopError it raises is shown and the text stays for correction.
        masked: Draw asterisks.
    """

    def __init__(
        self, title: str, hint: str, accept: Callable[[str], T], glyphs: Glyphs, *, masked: bool = False
    ) -> None:
        super().__init__(title, glyphs, keys="Enter ok  Esc back")
        self._hint = hint
        self._accept = accept
        self._field = TextField(masked=masked)
        self._problem = ""

    def content(self, cells: int) -> list[Line]:
        """The field, what was wrong with it, the hint."""
        lines: list[Line] = [(("> ", "label"), *self._field.line(cells - 2))]
        lines += wrapped(self._problem, cells, "critical")
        lines += wrapped(self._hint, cells, "dim")
        return lines

    def on_key(self, event: events.Key) -> None:
        """Typing."""
        if event.key == "enter":
            event.stop()
            self._submit()
        elif self._field.press(event.key, event.character):
            event.stop()
            self._problem = ""
            self.repaint()

    def on_paste(self, event: events.Paste) -> None:
        """Text from the terminal's clipboard."""
        event.stop()
        self._field.insert(event.text)
        self.repaint()

    def _submit(self) -> None:
        try:
            result = self._accept(self._field.text)
        except PgtopError as problem:
            self._problem = str(problem)
            self.repaint()
            return
        self._field.replace("")
        self.dismiss(result)


class PasswordDialog(PromptDialog[Secret]):
    """Returns the password, a Secret from the moment it is complete; None on Escape.

    Args:
        who: Whom it is for, as the server says it: "bench@db1:5432". Foreign text.
    """

    def __init__(self, who: str, glyphs: Glyphs) -> None:
        hint = "It stays in memory for this session only, and is never written."
        super().__init__(f"password for {who}", hint, Secret, glyphs, masked=True)
