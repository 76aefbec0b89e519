"""A question with few answers: what would happen, word for word, and a key for each way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from msgspec import Struct
from rich.cells import cell_len
from textual import events

from pgtop_tune.base.safe_text import printable_lines
from pgtop_tune.tui.actions import key_name
from pgtop_tune.tui.dialogs.dialog import FRAME_CELLS, Dialog
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line, wrapped

T = TypeVar("T")

_WIDEST: Final = 156


class AnswerKey(Struct, Generic[T], frozen=True):
    """One answer.

    Attributes:
        keys: Any of these gives it; the first is shown.
        label: What it does.
        value: What the dialog returns.
    """

    keys: tuple[str, ...]
    label: str
    value: T


class Paragraph(Struct, frozen=True):
    """A paragraph of the question in one style; may be foreign text."""

    text: str
    style: str = ""


class ConfirmDialog(Dialog[T]):
    """Returns the value of the chosen answer, None on Escape.

    Args:
        title: What is asked about.
        question: Paragraphs, wrapped to the box.
        choices: The answers.
    """

    def __init__(
        self, title: str, question: Sequence[Paragraph], choices: Sequence[AnswerKey[T]], glyphs: Glyphs
    ) -> None:
        super().__init__(title, glyphs, keys="Esc back")
        self._question = tuple(question)
        self._choices = tuple(choices)

    @property
    def cells(self) -> int:
        """See `Dialog.cells`; wider where the question has longer lines."""
        longest = max((cell_len(line) for said in self._question for line in printable_lines(said.text)), default=0)
        return max(min(max(longest, self.CELLS), _WIDEST, self.app.size.width - FRAME_CELLS), 1)

    def content(self, cells: int) -> list[Line]:
        """The question, an empty line, the answers."""
        lines: list[Line] = [line for said in self._question for line in wrapped(said.text, cells, said.style)]
        lines.append(())
        for choice in self._choices:
            lines.append(((key_name(choice.keys[0]).rjust(6), "key"), ("  ", ""), (choice.label, "")))
        return lines

    def on_key(self, event: events.Key) -> None:
        """An answer, or scrolling through a long question."""
        for choice in self._choices:
            if event.key in choice.keys:
                event.stop()
                self.dismiss(choice.value)
                return
        if self.scroll_key(event.key):
            event.stop()
