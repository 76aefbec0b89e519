"""A line of text being typed: the effect of keys on it, and its drawing.

Own rather than Textual's Input: no blinking cursor (bytes on an idle line), and a password leaves nothing behind in a
widget's reactive value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from rich.cells import cell_len

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.tui.widgets.lines import Line, clip

LIMIT: Final = 1_000
"""Characters taken at most; a paste of a megabyte is cut."""


class TextField(Struct):
    """Text and cursor.

    Attributes:
        text: The typed text.
        cursor: Characters before the cursor.
        masked: Draw every character as an asterisk.
        selected: The whole text is selected: the first character typed replaces it, a cursor key keeps it.
    """

    text: str = ""
    cursor: int = 0
    masked: bool = False
    selected: bool = False

    def __post_init__(self) -> None:
        self.cursor = len(self.text)

    def __repr__(self) -> str:
        """Return it without the text, which may be a password."""
        return f"TextField({len(self.text)} characters)"

    def press(self, key: str, character: str | None) -> bool:
        """Take a key by Textual's name and the character it stands for.

        Returns:
            Whether the key meant something here.
        """
        edit = _EDITS.get(key)
        if edit is not None:
            if self.selected and key in _ERASING:
                self.replace("")
            self.selected = False
            edit(self)
            return True
        if character is not None and len(character) == 1 and character.isprintable():
            self.insert(character)
            return True
        return False

    def insert(self, text: str) -> None:
        """Put text at the cursor, or in place of a selected text; of several lines (a paste) it makes one."""
        if self.selected:
            self.replace("")
        # A pasted password keeps its blanks; only its line end goes.
        text = text.rstrip("\r\n") if self.masked else one_line(text, LIMIT) if len(text) > 1 else text
        text = text[: max(LIMIT - len(self.text), 0)]
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    def replace(self, text: str) -> None:
        """Take another text, the cursor behind it."""
        self.text, self.cursor, self.selected = text, len(text), False

    def select(self) -> None:
        """Select the whole text, if there is any."""
        self.cursor, self.selected = len(self.text), bool(self.text)

    def line(self, cells: int, cursor_style: str = "cursor") -> Line:
        """Return the part of the text around the cursor, at most so many cells."""
        text = "*" * len(self.text) if self.masked else self.text
        if self.selected:
            return ((clip(text, cells), cursor_style),)
        before, under, after = text[: self.cursor], text[self.cursor : self.cursor + 1], text[self.cursor + 1 :]
        while before and cell_len(before) + max(cell_len(under), 1) > cells:
            before = before[1:]
        while after and cell_len(before) + cell_len(under) + cell_len(after) > cells:
            after = after[:-1]
        return ((before, ""), (under or " ", cursor_style), (after, ""))


def _backspace(field: TextField) -> None:
    if field.cursor:
        field.text = field.text[: field.cursor - 1] + field.text[field.cursor :]
        field.cursor -= 1


def _delete(field: TextField) -> None:
    field.text = field.text[: field.cursor] + field.text[field.cursor + 1 :]


def _word_back(field: TextField) -> None:
    kept = field.text[: field.cursor].rstrip()
    kept = kept[: kept.rfind(" ") + 1]
    field.text, field.cursor = kept + field.text[field.cursor :], len(kept)


def _kill_before(field: TextField) -> None:
    field.text, field.cursor = field.text[field.cursor :], 0


def _kill_after(field: TextField) -> None:
    field.text = field.text[: field.cursor]


def _move(by: int) -> Callable[[TextField], None]:
    def move(field: TextField) -> None:
        field.cursor = min(max(field.cursor + by, 0), len(field.text))

    return move


_EDITS: Final[dict[str, Callable[[TextField], None]]] = {
    "backspace": _backspace, "ctrl+h": _backspace, "delete": _delete, "ctrl+d": _delete,
    "ctrl+w": _word_back, "ctrl+u": _kill_before, "ctrl+k": _kill_after,
    "left": _move(-1), "right": _move(1), "ctrl+b": _move(-1), "ctrl+f": _move(1),
    "home": _move(-LIMIT), "ctrl+a": _move(-LIMIT), "end": _move(LIMIT), "ctrl+e": _move(LIMIT),
}  # fmt: skip
"""Keys of readline, as far as one line needs them."""
_ERASING: Final = frozenset(("backspace", "ctrl+h", "delete", "ctrl+d", "ctrl+w", "ctrl+u", "ctrl+k"))
