"""A list of words to choose one from."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from textual import events

from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, shortened

_WORD_CELLS = 20


class Choice(Struct, frozen=True):
    """One of them.

    Attributes:
        word: What is returned.
        remark: Said beside it.
        style: Of the remark.
    """

    word: str
    remark: str = ""
    style: str = "dim"


class ChoiceDialog(Dialog[str]):
    """Returns the chosen word, None on Escape. A letter goes to the next word that begins with it.

    Args:
        title: What is chosen.
        choices: In the order they are shown.
        at: The word that the cursor begins on.
        glyphs: What it is drawn with.
    """

    CELLS = 96

    def __init__(self, title: str, choices: Sequence[Choice], at: str, glyphs: Glyphs) -> None:
        super().__init__(title, glyphs, keys="Enter choose  Esc back")
        self._choices = tuple(choices)
        words = [choice.word for choice in choices]
        self._at = words.index(at) if at in words else 0

    def content(self, cells: int) -> list[Line]:
        """A line per word."""
        lines: list[Line] = []
        room = max(cells - _WORD_CELLS - 2, 1)
        for place, choice in enumerate(self._choices):
            here = place == self._at
            lines.append(
                (
                    (f"{self.glyphs.pointer} " if here else "  ", "key"),
                    (choice.word.ljust(_WORD_CELLS), "cursor" if here else PLAIN),
                    (shortened(f" {choice.remark}", room, self.glyphs.ellipsis), choice.style),
                )
            )
        return lines

    def on_key(self, event: events.Key) -> None:
        """Moving and choosing."""
        last = len(self._choices) - 1
        to = {"up": self._at - 1, "down": self._at + 1, "home": 0, "end": last}.get(event.key)
        if event.key == "enter":
            self.dismiss(self._choices[self._at].word)
        elif to is not None:
            self._at = min(max(to, 0), last)
        elif not self._to_letter(event.character):
            return
        event.stop()
        self.repaint()

    def _to_letter(self, character: str | None) -> bool:
        places = [*range(self._at + 1, len(self._choices)), *range(self._at + 1)]
        found = (place for place in places if character and self._choices[place].word.startswith(character))
        place = next(found, None)
        self._at = self._at if place is None else place
        return place is not None
