"""One line of text from the operator: a note, a moment to jump to, a password."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct, field
from textual import events

from pgtop_tune.base import units
from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.secret import Secret
from pgtop_tune.tui.dialogs.dialog import Dialog, T
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, ellipsized, labelled, width, wrapped
from pgtop_tune.tui.widgets.text_field import TextField

# Fields of a small form, one line each: what keys do to them, and how they are drawn. Pure.

_LABEL_CELLS: Final = 12
_VALUE_CELLS: Final = 24
_WIDE_CELLS: Final = 60
_DIGITS: Final = "0123456789"


class ChoiceField(Struct):
    """One of several words.

    Attributes:
        options: Words that can be chosen, with a remark beside each.
        index: The chosen one.
    """

    label: str
    options: tuple[tuple[str, str], ...]
    index: int = 0

    @property
    def value(self) -> str:
        """The chosen word."""
        return self.options[self.index][0] if self.options else ""

    @property
    def remark(self) -> str:
        """The remark beside the chosen word."""
        return self.options[self.index][1] if self.options else ""

    def choose(self, value: str) -> None:
        """Choose this word; the first one when it is not among them."""
        values = [word for word, _ in self.options]
        self.index = values.index(value) if value in values else 0

    def press(self, key: str, character: str | None) -> bool:
        """Choose with left and right."""
        by = {"left": -1, "right": 1, "space": 1, "minus": -1, "plus": 1}.get(key, 0)
        if by and self.options:
            self.index = (self.index + by) % len(self.options)
        return bool(by)

    def paste(self, text: str) -> None:
        """Ignore a text: nothing is typed here."""

    def shown(self, glyphs: Glyphs, *, focused: bool) -> Line:
        """Return the chosen word, and the remark."""
        value = f"{glyphs.pointer_left} {self.value} {glyphs.pointer}" if focused else f"  {self.value}"
        return ((value.ljust(_VALUE_CELLS), "cursor" if focused else PLAIN), (f" {self.remark}", "dim"))


class NumberField(Struct):
    """A typed number; + doubles it, - halves it.

    Attributes:
        empty: Meaning of an empty field, shown in its place; "" when it must not be empty.
        fractions: Whether a decimal point may be typed.
    """

    label: str
    remark: str
    empty: str = ""
    fractions: bool = False
    text: TextField = field(default_factory=TextField)

    def press(self, key: str, character: str | None) -> bool:
        """Take digits and editing keys; + doubles, - halves. Letters are left to the dialog."""
        if character in ("+", "-"):
            self._scale(2.0 if character == "+" else 0.5)
            return True
        if character is not None and character.isprintable() and character not in _DIGITS:
            if character == "." and self.fractions:
                return self.text.press(key, character)
            return False
        return self.text.press(key, character)

    def paste(self, text: str) -> None:
        """Insert the digits of a text."""
        characters = _DIGITS + "." if self.fractions else _DIGITS
        self.text.insert("".join(character for character in text if character in characters))

    def fill(self, number: float | None) -> None:
        """Show this number; None is an empty field."""
        self.text.replace("" if number is None else units.number(number) if self.fractions else f"{number:.0f}")

    def _scale(self, factor: float) -> None:
        try:
            number = float(self.text.text or 0)
        except ValueError:
            return
        self.text.replace(f"{max(round(number * factor), 1) if number or factor > 1 else 0:d}")
        self.text.select()

    def number(self, least: float = 0.0) -> float | None:
        """Return the number; None when the field is empty and may be.

        Raises:
            UsageProblem: Not a number, or below the least.
        """
        typed = self.text.text.strip()
        if not typed and self.empty:
            return None
        try:
            number = float(typed)
        except ValueError:
            problem = f'"{typed}" is not a number' if typed else "a number is missing"
            raise UsageProblem(f"{self.label}: {problem}") from None
        if number < least:
            raise UsageProblem(f"{self.label} must be at least {units.number(least)}")
        return number

    def shown(self, glyphs: Glyphs, *, focused: bool) -> Line:
        """Return the text typed, or the meaning of an empty field."""
        empty = not self.text.text
        if focused:
            return _typed(self.text, self.empty if empty else self.remark)
        value = f"  {self.empty if empty else self.text.text}".ljust(_VALUE_CELLS)
        return ((value, "dim" if empty else PLAIN), (f" {self.remark}", "dim"))


class WordField(Struct):
    """Text of any kind.

    Attributes:
        empty: Meaning of an empty field, shown in its place.
        meaning: Returns the meaning of a text in other words; raises a PgtopError of a wrong one.
    """

    label: str
    remark: str
    empty: str = ""
    meaning: Callable[[str], str] | None = None
    text: TextField = field(default_factory=TextField)

    def press(self, key: str, character: str | None) -> bool:
        return self.text.press(key, character)

    def paste(self, text: str) -> None:
        self.text.insert(text)

    def shown(self, glyphs: Glyphs, *, focused: bool) -> Line:
        empty = not self.text.text
        # A field with a meaning has long texts, and its remark is an example.
        wide = self.meaning is not None and not empty
        if focused:
            return _typed(self.text, "" if wide else self.remark, _WIDE_CELLS if wide else _VALUE_CELLS)
        value = f"  {self.empty if empty else self.text.text}".ljust(_VALUE_CELLS)
        return ((value, "dim" if empty else PLAIN), ("" if wide else f" {self.remark}", "dim"))

    @property
    def problem(self) -> str:
        """The reason why the text is wrong; "" where it is not."""
        return self._note[1]

    def note(self, cells: int) -> list[Line]:
        """Return the meaning of the text, or what is wrong with it, for below the field."""
        meaning, problem = self._note
        text, style = (problem, "critical") if problem else (meaning, "dim")
        return labelled("", text, cells, style, _LABEL_CELLS + 4) if text else []

    @property
    def _note(self) -> tuple[str, str]:
        text = self.text.text.strip()
        if not text or self.meaning is None:
            return "", ""
        try:
            return self.meaning(text), ""
        except PgtopError as problem:
            return "", f"{problem.message}; {problem.hint}" if problem.hint else problem.message


Field = ChoiceField | NumberField | WordField


class Form(Struct):
    """Fields, and the one the keys go to.

    The text of a field that comes into focus is selected, so the first key typed replaces it.

    Attributes:
        letters_type: Any character begins typing; else letters belong to the dialog until Enter or a digit begins it.
        typing: The field in focus takes every character.
    """

    fields: Sequence[Field]
    focus: int = 0
    letters_type: bool = False
    typing: bool = False
    _before: str = ""

    def __post_init__(self) -> None:
        self._select()

    @property
    def focused(self) -> Field:
        """The field that gets the keys."""
        return self.fields[min(self.focus, len(self.fields) - 1)]

    def press(self, key: str, character: str | None) -> bool:
        """Move between fields, or type into the one in focus. Enter begins and ends typing.

        Returns:
            Whether the key meant something here.
        """
        by = {"up": -1, "shift+tab": -1, "down": 1, "tab": 1}.get(key)
        if by is not None:
            self.go_to((min(self.focus, len(self.fields) - 1) + by) % len(self.fields))
            return True
        field = self.focused
        if isinstance(field, ChoiceField):
            return field.press("right" if key == "enter" else key, character)
        if key == "enter":
            (self.end_typing if self.typing else self.type)()
            return True
        letter = character is not None and character.isprintable() and character not in _DIGITS
        if letter and not self.typing and not self.letters_type and isinstance(field, WordField):
            return False
        before = field.text.text
        handled = field.press(key, character)
        if handled and not self.typing and not field.text.selected:
            self.typing, self._before = True, before
        return handled

    def go_to(self, focus: int) -> None:
        """Give the keys to another field."""
        self.end_typing()
        self.focus = focus
        self._select()

    def type(self) -> None:
        """Begin typing."""
        field = self.focused
        if not isinstance(field, ChoiceField):
            self.typing, self._before = True, field.text.text

    def end_typing(self) -> None:
        """Keep what was typed; the next character typed replaces it."""
        self.typing = False
        self._select()

    def discard(self) -> bool:
        """Put back the text that stood in the field before typing began.

        Returns:
            Whether anything was being typed.
        """
        field, was_typing = self.focused, self.typing
        if was_typing and not isinstance(field, ChoiceField):
            field.text.replace(self._before)
        self.end_typing()
        return was_typing

    def _select(self) -> None:
        field = self.focused
        if not isinstance(field, ChoiceField):
            field.text.select()

    @property
    def wrong(self) -> int | None:
        """Number of the first field whose words are wrong; None without one."""
        wrong = (at for at, entry in enumerate(self.fields) if isinstance(entry, WordField) and entry.problem)
        return next(wrong, None)

    def lines(self, glyphs: Glyphs, cells: int = 0) -> list[Line]:
        """Return a line per field, and below words their meaning in so many cells."""
        focused = self.focused
        lines: list[Line] = []
        for entry in self.fields:
            lines.append(
                (
                    (f"{glyphs.pointer} " if entry is focused else "  ", "key"),
                    (entry.label.ljust(_LABEL_CELLS), "label"),
                    *entry.shown(glyphs, focused=entry is focused),
                )
            )
            lines += entry.note(cells) if cells and isinstance(entry, WordField) else []
        return lines


def _typed(text: TextField, remark: str, cells: int = _VALUE_CELLS) -> Line:
    typed = text.line(cells)
    blank = " " * max(cells - 2 - width(typed), 0)
    return (("  ", PLAIN), *typed, (blank, PLAIN), (f" {remark}", "dim"))


# A list of words to choose one from.

_WORD_CELLS = 20


class Choice(Struct, frozen=True):
    """One word of a `ChoiceDialog`.

    Attributes:
        word: The result of the dialog when it is chosen.
        remark: Text beside the word.
        style: Style of the remark.
    """

    word: str
    remark: str = ""
    style: str = "dim"


class ChoiceDialog(Dialog[str]):
    """Returns the chosen word, None on Escape. A letter goes to the next word that begins with it.

    Args:
        title: Name of the thing to choose.
        choices: Words in the order they are shown.
        at: The word that the cursor begins on.
        glyphs: Characters of the drawing.
    """

    CELLS = 96
    KEYS = "Enter choose  Esc back"

    def __init__(self, title: str, choices: Sequence[Choice], at: str, glyphs: Glyphs) -> None:
        super().__init__(title, glyphs)
        self._choices = tuple(choices)
        values = [choice.word for choice in choices]
        self._at = values.index(at) if at in values else 0

    def content(self, cells: int) -> list[Line]:
        """Return a line per word."""
        lines: list[Line] = []
        room = max(cells - _WORD_CELLS - 2, 1)
        for position, choice in enumerate(self._choices):
            here = position == self._at
            lines.append(
                (
                    (f"{self.glyphs.pointer} " if here else "  ", "key"),
                    (choice.word.ljust(_WORD_CELLS), "cursor" if here else PLAIN),
                    (ellipsized(f" {choice.remark}", room, self.glyphs.ellipsis), choice.style),
                )
            )
        return lines

    async def pressed(self, key: str, character: str | None) -> bool:
        """Move and choose."""
        last = len(self._choices) - 1
        to = {"up": self._at - 1, "down": self._at + 1, "home": 0, "end": last}.get(key)
        if key == "enter":
            self.dismiss(self._choices[self._at].word)
        elif to is not None:
            self._at = min(max(to, 0), last)
        else:
            return key != "q" and self._to_letter(character)
        return True

    def _to_letter(self, character: str | None) -> bool:
        places = [*range(self._at + 1, len(self._choices)), *range(self._at + 1)]
        matching = (position for position in places if character and self._choices[position].word.startswith(character))
        position = next(matching, None)
        self._at = self._at if position is None else position
        return position is not None


class PromptDialog(Dialog[T]):
    """Returns what `accept` makes of the text, None on Escape.

    Args:
        title: Name of the text that is asked for.
        hint: How to write it, one sentence.
        accept: Turns the text into the result; a PgtopError it raises is shown and the text stays for correction.
        masked: Draw asterisks.
    """

    KEYS = "Enter ok  Esc back"

    def __init__(
        self, title: str, hint: str, accept: Callable[[str], T], glyphs: Glyphs, *, masked: bool = False
    ) -> None:
        super().__init__(title, glyphs)
        self._hint = hint
        self._accept = accept
        self._field = TextField(masked=masked)

    def content(self, cells: int) -> list[Line]:
        """Return the field, the problem of the last text, and the hint."""
        field: Line = (("> ", "label"), *self._field.line(cells - 2))
        return [field, *self.foot(cells), *wrapped(self._hint, cells, "dim")]

    async def pressed(self, key: str, character: str | None) -> bool:
        """Type, or submit the text."""
        if key == "enter":
            self._submit()
        elif self._field.press(key, character):
            self.say()
        else:
            return False
        return True

    def on_paste(self, event: events.Paste) -> None:
        """Insert text from the terminal's clipboard."""
        event.stop()
        self._field.insert(event.text)
        self.repaint()

    def _submit(self) -> None:
        try:
            result = self._accept(self._field.text)
        except PgtopError as problem:
            self.say(str(problem))
            return
        self._field.replace("")
        self.dismiss(result)


class PasswordDialog(PromptDialog[Secret]):
    """Returns the password, a Secret from the moment it is complete; None on Escape.

    Args:
        account: Role and server, as the server names them: "bench@db1:5432". Foreign text.
    """

    def __init__(self, account: str, glyphs: Glyphs) -> None:
        hint = "It stays in memory for this session only and is never written to disk."
        super().__init__(f"password for {account}", hint, Secret, glyphs, masked=True)


class FormDialog(Dialog[T]):
    """A dialog with a form: typing into its fields, pasting, and taking back what is being typed.

    Attributes:
        form: Its fields; subclasses set it.
    """

    form: Form

    def changed(self) -> None:
        """React to another value of a field, by a paste or by Escape."""

    def paste(self, text: str) -> None:
        """Paste into the field in focus."""
        self.form.focused.paste(text)

    def on_paste(self, event: events.Paste) -> None:
        """Paste text from the terminal's clipboard into the field in focus."""
        event.stop()
        self.paste(event.text)
        self.changed()
        self.repaint()

    def action_close(self) -> None:
        """Discard the value that is being typed; without one, leave."""
        if not self.form.discard():
            self.leave()
        else:
            self.changed()
            self.repaint()

    def leave(self) -> None:
        """Close the dialog without a result."""
        self.dismiss(None)
