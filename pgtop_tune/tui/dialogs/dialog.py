"""The base of all dialogs: a box of lines over the dashboard, which continues underneath; and the message for a tiny
terminal."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from msgspec import Struct
from rich.cells import cell_len
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.safe_text import pasteable, printable, printable_lines
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.actions import TOLD_S, key_name, shown_key
from pgtop_tune.tui.scene.header import ShownMessage
from pgtop_tune.tui.terminal.textual_private import OpensAtOnce, drawn_rows
from pgtop_tune.tui.widgets.canvas import LineCanvas
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, ellipsized, wrapped

T = TypeVar("T")

FRAME_CELLS = 4
"""Border and padding, left and right."""
_FRAME_ROWS = 2


class Dialog(OpensAtOnce[T]):
    """Draws `content` in a box as wide as it may be and as high as it needs to be; longer content scrolls.

    Escape, Ctrl+C, q and F10 close it without a result; where text is typed, q is a letter.

    Args:
        title: On the upper edge; our own words or foreign ones.
        glyphs: Characters of the drawing.

    Attributes:
        busy: The work under way, for the last line; "" for nothing.
    """

    CELLS: ClassVar[int] = 76
    """Width of the content where the terminal has room for it."""
    LIVE: ClassVar[bool] = True
    """Whether it follows the newest frames also while the screen is frozen."""
    KEYS: ClassVar[str] = "Esc close"
    """On the lower edge at first, "key effect" with two blanks between; the documentation lists it."""
    SHOWS_LOAD: ClassVar[bool] = False
    """Whether it says itself what becomes of a load."""
    BINDINGS: ClassVar[list[BindingType]] = [("escape,ctrl+c,q,f10", "close")]
    DEFAULT_CSS = """
    Dialog { align: center middle; background: transparent; }
    Dialog.-low { align: center bottom; }
    Dialog > Container {
        width: auto; height: auto; max-width: 100%; max-height: 100%;
        padding: 0 1; border: round $primary; border-title-color: $text; border-subtitle-color: $text-muted;
        background: $background;
    }
    Dialog.-ascii > Container { border: ascii $primary; }
    """

    def __init__(self, title: str, glyphs: Glyphs, *, keys: str = "", low: bool = False) -> None:
        super().__init__()
        self.glyphs = glyphs
        self._box_title = title
        self._box_keys = keys or self.KEYS
        self._top = 0
        self._rows = 0
        self._box = (0, 0)
        self._more = False
        self._message: ShownMessage | None = None
        self._said = ("", PLAIN)
        self.busy = ""
        self.set_class(glyphs.name == "ascii", "-ascii")
        self.set_class(low, "-low")

    def compose(self) -> ComposeResult:
        """Yield the box and its one canvas."""
        with Container():
            yield LineCanvas(self.glyphs)

    def on_mount(self) -> None:
        self._caption()
        self.repaint()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the rows of the screen below as they are: Textual would take every cell apart and colour it anew."""
        stack = self.app.screen_stack
        if self not in stack[1:]:
            return super().render_lines(crop)
        below = drawn_rows(stack[stack.index(self) - 1])
        # While the terminal changes its size, what lies below, and our own size, have still or again another one:
        # Textual ends on a row that is shorter than what it asks for.
        width = crop.right
        rows = [below[y].adjust_cell_length(width) if y < len(below) else Strip.blank(width) for y in crop.line_range]
        return [row.crop(*crop.column_span) for row in rows]

    def _caption(self) -> None:
        box = self.query_one(Container)
        title = printable(self._box_title)
        # A border title that is a str would be read as markup.
        box.border_title = Content(title)
        if self._message is not None:
            room = max(self.cells - cell_len(title) - 6, 1)
            text = f" {ellipsized(self._message.line, room, self.glyphs.ellipsis).rstrip()} "
            style = "bold" if self._message.severity == "information" else "reverse"
            box.border_title = Content.assemble(title, "  ", (text, style))
        box.border_subtitle = Content(f"PgDn more  {self._box_keys}" if self._more else self._box_keys)

    def show_message(self, message: ShownMessage | None) -> None:
        """Show a message on the upper edge, never over the keys or the content; None takes it away."""
        if message != self._message:
            self._message = message
            if self.is_mounted:
                self._caption()

    def captions(self, title: str, keys: str) -> None:
        """Change the texts on the edges."""
        if (title, keys) != (self._box_title, self._box_keys):
            self._box_title, self._box_keys = title, keys
            self._caption()

    def content(self, cells: int) -> Sequence[Line]:
        """Return the content of the box, lines of at most so many cells."""
        raise NotImplementedError

    @property
    def cells(self) -> int:
        """Width of the content on this terminal."""
        return max(min(self.CELLS, self.app.size.width - FRAME_CELLS), 1)

    @property
    def rows(self) -> int:
        """Most lines of the content that this terminal shows at once."""
        return max(self.app.size.height - _FRAME_ROWS, 1)

    def show_from(self, top: int) -> None:
        """Show the content from that line on, as far as there is enough of it."""
        self._top = max(top, 0)
        self.repaint()

    @property
    def top(self) -> int:
        """First line in view."""
        return self._top

    def repaint(self) -> None:
        """Draw the content anew; only what changed reaches the terminal."""
        if not self.is_mounted or not self.query(LineCanvas):
            # A worker may come back with an answer while the dialog is being taken down.
            return
        cells = self.cells
        lines = self.content(cells)
        self._rows = max(min(len(lines), self.rows), 1)
        self._top = max(min(self._top, len(lines) - self._rows), 0)
        if self._more != (self._top + self._rows < len(lines)):
            self._more = not self._more
            self._caption()
        canvas = self.query_one(LineCanvas)
        if self._box != (cells, self._rows):
            self._box = canvas.styles.width, canvas.styles.height = cells, self._rows
        canvas.show(lines[self._top : self._top + self._rows])

    async def on_key(self, event: events.Key) -> None:
        """Keep a key that means something here; tell of one without effect."""
        if await self.pressed(event.key, event.character):
            event.stop()
            self.repaint()
        elif event.key not in self.active_bindings:
            message = f"{shown_key(event.key, event.character)} does nothing here"
            self.app.notify(message, markup=False, timeout=TOLD_S)

    async def pressed(self, key: str, character: str | None) -> bool:
        """Do what a key does in this dialog.

        Returns:
            Whether it means something here.
        """
        return self.scroll_key(key)

    def scroll_key(self, key: str) -> bool:
        """Move longer content under the box, if the key is one that scrolls.

        Returns:
            Whether it was.
        """
        by = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -self._rows, "pagedown": self._rows, "space": self._rows,
              "ctrl+b": -self._rows, "ctrl+f": self._rows, "ctrl+u": -self._rows // 2, "ctrl+d": self._rows // 2,
              "home": -self._top, "g": -self._top, "end": 1_000_000, "G": 1_000_000}.get(key)  # fmt: skip
        if by is None:
            return False
        self.show_from(self._top + by)
        return True

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Move as the arrow keys do."""
        self.post_message(events.Key("down", None))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Move as the arrow keys do."""
        self.post_message(events.Key("up", None))

    def on_resize(self, event: events.Resize) -> None:
        """Draw anew, also the dialogs below, which are laid out now and told nothing."""
        for screen in self.app.screen_stack:
            if isinstance(screen, Dialog):
                screen.repaint()
        self.call_after_refresh(self.repaint)

    def on_screen_resume(self) -> None:
        """Draw anew: the terminal may have another size by now."""
        self.call_after_refresh(self.repaint)

    def frames_arrived(self, session: Session) -> None:
        """Take a newer session, once per tick; a dialog that shows something of the session overrides this."""

    def say(self, message: str = "", style: str = "critical") -> None:
        """Put words at the foot: what went wrong, or the result of a key; "" takes them away."""
        self._said = (message, style)

    def foot(self, cells: int, most: int | None = None) -> list[Line]:
        """Return what was said, at most so many lines of it, and what is being done."""
        message, style = self._said
        lines = wrapped(message, cells, style)[:most] if message else []
        if self.busy and self.is_current:
            lines.append(((f"{self.busy} {self.glyphs.ellipsis}", "dim"),))
        return lines

    def work(self, work: Coroutine[Any, Any, None], doing: str = "", group: str = "work") -> None:
        """Run work beside the screen, in place of work of the same group; a PgtopError of it is said.

        Args:
            work: What is done.
            doing: Stands at the foot meanwhile, in place of what was said before; "" for a quiet look.
            group: Group of workers.
        """
        if doing:
            self.busy = doing
            self.say()
        self.run_worker(self._worked(work, doing), group=group, exclusive=True)

    async def _worked(self, work: Coroutine[Any, Any, None], doing: str) -> None:
        try:
            await work
        except PgtopError as problem:
            self.say(str(problem))
        if self.busy == doing:
            self.busy = ""
        self.repaint()

    def copy(self, text: str, message: str) -> None:
        """Put text into the clipboard of the terminal, and tell so; see `copy`."""
        self.app.notify(copy(self.app, text, message), markup=False)

    def action_close(self) -> None:
        """Give up."""
        self.dismiss(None)


# A question with few answers: what would happen, word for word, and a key for each way out.

_WIDEST: Final = 156


class AnswerKey(Struct, Generic[T], frozen=True):
    """One answer.

    Attributes:
        keys: Any of these gives it; the first is shown.
        label: What it does.
        value: The result of the dialog.
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
        title: Subject of the question.
        question: Paragraphs, wrapped to the box.
        choices: The answers.
    """

    KEYS = "Esc back"

    def __init__(
        self, title: str, question: Sequence[Paragraph], choices: Sequence[AnswerKey[T]], glyphs: Glyphs
    ) -> None:
        super().__init__(title, glyphs)
        self._question = tuple(question)
        self._choices = tuple(choices)

    @property
    def cells(self) -> int:
        """Width of the content: larger where the question has longer lines."""
        longest = max(
            (cell_len(line) for paragraph in self._question for line in printable_lines(paragraph.text)), default=0
        )
        return max(min(max(longest, self.CELLS), _WIDEST, self.app.size.width - FRAME_CELLS), 1)

    def content(self, cells: int) -> list[Line]:
        """Return the question, an empty line, the answers."""
        lines: list[Line] = [
            line for paragraph in self._question for line in wrapped(paragraph.text, cells, paragraph.style)
        ]
        lines.append(())
        for choice in self._choices:
            lines.append(((key_name(choice.keys[0]).rjust(6), "key"), ("  ", ""), (choice.label, "")))
        return lines

    async def pressed(self, key: str, character: str | None) -> bool:
        """Give an answer, or scroll through a long question."""
        choice = next((choice for choice in self._choices if key in choice.keys), None)
        if choice is None:
            return self.scroll_key(key)
        self.dismiss(choice.value)
        return True


# What stands there when the terminal has no room for a picture.

LEAST_WIDTH: Final = 60
LEAST_HEIGHT: Final = 15


def is_too_small(size: Size) -> bool:
    """Return whether the dashboard would be a broken picture."""
    return size.width < LEAST_WIDTH or size.height < LEAST_HEIGHT


class TooSmall(Screen[None]):
    """One sentence; goes away by itself once there is room again."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,ctrl+c,f10", "app.quit", show=False)]
    DEFAULT_CSS = """
    TooSmall { overflow: hidden; }
    TooSmall > LineCanvas { width: 100%; height: 100%; }
    """

    def compose(self) -> ComposeResult:
        """Yield a canvas as large as there is."""
        yield LineCanvas()

    def on_mount(self) -> None:
        self.call_after_refresh(self._look)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._look)

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self._look)

    def _look(self) -> None:
        size = self.app.size
        if not is_too_small(size):
            if self.is_current and self.app.screen is self:
                self.dismiss(None)
            return
        sentence = (
            f"The terminal has {size.width} columns and {size.height} rows; the screen needs "
            f"{LEAST_WIDTH} and {LEAST_HEIGHT}. Sampling and recording continue. q quits."
        )
        self.query_one(LineCanvas).show(wrapped(sentence, max(size.width, 2)))


class RowKey(Struct, frozen=True):
    """A key that does something with the row shown.

    Attributes:
        keys: Any of these, as Textual names them.
        label: The first of them, as people write it.
        word: For the lower edge.
        action: Of the application; runs once the dialog is closed.
    """

    keys: tuple[str, ...]
    label: str
    word: str
    action: str


class DetailsDialog(Dialog[None]):
    """Shows one row for as long as it is open; follows the frames.

    Args:
        title: Subject of the dialog; may be foreign text.
        session: The session that is shown.
        lines: Everything known of the row, or one line saying that it is gone, for a session and a width.
        copied: The text that `y` copies.
        glyphs: Characters of the drawing.
        more: Further keys.
    """

    CELLS = 110
    LIVE = False
    KEYS = "y copy  Esc back"

    def __init__(
        self,
        title: str,
        session: Session,
        lines: Callable[[Session, int], Sequence[Line]],
        copied: Callable[[Session], str],
        glyphs: Glyphs,
        more: Sequence[RowKey] = (),
    ) -> None:
        captions = "".join(f"{key.label} {key.word}  " for key in more)
        super().__init__(title, glyphs, keys=f"y copy  {captions}Esc back")
        self._more_keys = {name: key for key in more for name in key.keys}
        self._session = session
        self._lines = lines
        self._copied = copied

    def content(self, cells: int) -> Sequence[Line]:
        return self._lines(self._session, cells)

    def frames_arrived(self, session: Session) -> None:
        self._session = session
        self.repaint()

    async def pressed(self, key: str, character: str | None) -> bool:
        """Scroll, copy, close, or do what a key of the row does."""
        more = self._more_keys.get(key) or self._more_keys.get(character or "")
        if more is not None:
            self.dismiss(None)
            await self.app.run_action(more.action)
        elif key == "y":
            if copied := self._copied(self._session):
                self.copy(copied, "copied to your terminal's clipboard")
        elif key == "enter":
            self.dismiss(None)
        else:
            return self.scroll_key(key)
        return True


def copy(app: App[Any], text: str, message: str) -> str:
    """Put text into the clipboard, without what a terminal would obey or hide.

    Args:
        app: The application that has the terminal.
        text: Anything; foreign.
        message: Message about it: "the query is in your terminal's clipboard".

    Returns:
        That, with the number of characters that were left out, if any were.
    """
    kept, left_out = pasteable(text)
    app.copy_to_clipboard(kept)
    if not left_out:
        return message
    return f"{message}, without {left_out} control character{'s' if left_out > 1 else ''}"
