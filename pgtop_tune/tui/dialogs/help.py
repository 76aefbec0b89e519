"""Keys, from the table of actions, and what every number means, from the catalogue of metrics."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Protocol

from msgspec import Struct

from pgtop_tune.base.units import count
from pgtop_tune.metrics.catalogue import Keyed, Metric
from pgtop_tune.metrics.host_values import untold
from pgtop_tune.model.frame import Frame
from pgtop_tune.tui.actions import Action, key_name, keys_among
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, labelled, plain_text
from pgtop_tune.tui.widgets.phrase import head, padded
from pgtop_tune.tui.widgets.text_field import TextField

_KEY_CELLS: Final = 14
_AS_LESS: Final = frozenset("bfdu")
"""Letters that scroll as with Ctrl."""


def key_lines(actions: Sequence[Action], keymap: Mapping[str, str], cells: int, glyphs: Glyphs) -> list[Line]:
    """Return one line per action, under its group's heading, groups in the order of their first action.

    Args:
        actions: Actions that exist in this session.
        keymap: The operator's own keys.
        cells: Width.
        glyphs: For the headings.
    """
    groups: dict[str, list[Line]] = {}
    for action in actions:
        keys = " ".join(key_name(key) for key in keys_among(action, actions, keymap))
        groups.setdefault(action.group, []).extend(labelled(keys, action.description, cells, label_cells=_KEY_CELLS))
    return [line for group, lines in groups.items() for line in (head(((group, "title"),), cells, glyphs), *lines)]


class HelpDialog(Dialog[None]):
    """Keys first, then definitions; scrolls. Tab goes from the keys to the numbers, table by table.

    Args:
        actions: Actions that exist in this session.
        keymap: The operator's own keys.
        explained: Gives lines about the numbers for a width.
        glyphs: Characters of the drawing.
        at: Title of the number or table to begin at; "" begins with the keys.
    """

    CELLS = 96
    KEYS = "/ search  Tab next part  Home keys  Esc back"

    def __init__(
        self,
        actions: Sequence[Action],
        keymap: Mapping[str, str],
        explained: Callable[[int], Sequence[Line]],
        glyphs: Glyphs,
        at: str = "",
    ) -> None:
        super().__init__("help", glyphs)
        self._actions = tuple(actions)
        self._keymap = keymap
        self._explained = explained
        self._begin_at = at
        self._search: TextField | None = None
        self._wanted = ""
        self._found: int | None = None

    def on_mount(self) -> None:
        """Begin at the number or table that the help was opened for."""
        places = [number for number, line in enumerate(self._lines(self.cells)) if self._begins(line)]
        if self._begin_at and places:
            self.show_from(places[0])

    def _begins(self, line: Line) -> bool:
        return any(style == "title" and text.strip() == self._begin_at for text, style in line)

    def content(self, cells: int) -> list[Line]:
        """Return the keys, then the definitions. The line that was found is marked."""
        lines = self._lines(cells)
        if self._found is not None and self._found < len(lines):
            lines[self._found] = ((plain_text(lines[self._found]), "cursor"),)
        return lines

    def _lines(self, cells: int) -> list[Line]:
        return [*key_lines(self._actions, self._keymap, cells, self.glyphs), *self._explained(cells)]

    async def pressed(self, key: str, character: str | None) -> bool:
        """Scroll and search; the keys that opened the help close it."""
        if self._search is not None:
            if key in ("escape", "ctrl+c"):
                return False
            self._type(self._search, key, character)
        elif key == "slash":
            self._search = TextField()
            self._say_search()
        elif key in ("n", "N") and self._wanted:
            self._seek(forward=key == "n")
        elif key in ("question_mark", "f1", "h", "enter"):
            self.dismiss(None)
        elif key in ("tab", "shift+tab"):
            self._turn(forward=key == "tab")
        else:
            return self.scroll_key(f"ctrl+{key}" if key in _AS_LESS else key)
        return True

    def _type(self, field: TextField, key: str, character: str | None) -> None:
        """Type into the search; each letter goes to the first line that has the text."""
        if key == "enter":
            self._search = None
            self.captions("help", f"/{self._wanted}  n N next, previous  Esc back" if self._wanted else self.KEYS)
            return
        field.press(key, character)
        self._wanted = field.text.strip().lower()
        self._found = None
        self._seek(forward=True)
        self._say_search()

    def _say_search(self) -> None:
        none = "" if self._found is not None or not self._wanted else "  not found"
        self.captions(
            "help", f"/{self._search.text if self._search else ''}{self.glyphs.full}{none}  Enter ok  Esc end"
        )

    def _seek(self, *, forward: bool) -> None:
        """Go to the next or the previous line with the text, from the line found or the first in view."""
        lines = [plain_text(line).lower() for line in self._lines(self.cells)]
        places = [number for number, text in enumerate(lines) if self._wanted and self._wanted in text]
        here = self.top - 1 if self._found is None else self._found
        if forward:
            found_at = next((at for at in places if at > here), places[0] if places else None)
        else:
            found_at = next((at for at in reversed(places) if at < here), places[-1] if places else None)
        self._found = found_at
        if found_at is not None:
            self.show_from(max(found_at - 1, 0))

    def action_close(self) -> None:
        """End the search that is being typed; without one, close."""
        if self._search is None:
            self.dismiss(None)
            return
        self._search, self._wanted, self._found = None, "", None
        self.captions("help", self.KEYS)
        self.repaint()

    def _turn(self, *, forward: bool) -> None:
        """Go to the next heading of the numbers, or the one before; from the last one to the keys."""
        lines = self.content(self.cells)
        keys = len(key_lines(self._actions, self._keymap, self.cells, self.glyphs))
        parts = [
            0,
            *(at for at in range(keys, len(lines)) if lines[at] and lines[at][0][0].startswith(self.glyphs.rule)),
        ]
        if forward:
            self.show_from(next((at for at in parts if at > self.top), 0))
        else:
            self.show_from(next((at for at in reversed(parts) if at < self.top), parts[-1]))


class DescribedNumber(Protocol):
    """A row of the catalogue, whatever its kind."""

    @property
    def title(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def definition(self) -> str: ...
    @property
    def source(self) -> str: ...


class Entry(Struct, frozen=True):
    """A number that is no metric of its own."""

    title: str
    unit: str
    definition: str
    source: str


def why_untold(metric: DescribedNumber | str, frame: Frame | None) -> str:
    """Return why the source of host numbers does not have a figure; "" where it has.

    Args:
        metric: A row of the catalogue, or its id.
        frame: The newest.
    """
    id_ = metric if isinstance(metric, str) else metric.id if isinstance(metric, (Metric, Keyed)) else ""
    absent = None if frame is None else untold(frame, id_)
    return "" if absent is None else str(absent)


def explained(metric: DescribedNumber, width: int, absent: str = "") -> list[Line]:
    """Return a number: title and unit, definition, source, critical line, why it is absent; wrapped to the width."""
    unit = f" ({metric.unit})" if metric.unit else ""
    critical = getattr(metric, "critical", None)
    line = f"; red from {count(critical)}" if critical is not None else ""
    return [
        padded(((metric.title, "title"), (unit + line, "label")), width),
        *_wrapped(metric.definition, width, PLAIN),
        *_wrapped(metric.source, width, "dim"),
        *(_wrapped(f"unavailable here: {absent}", width, "warning") if absent else ()),
        ((" " * width, PLAIN),),
    ]


@lru_cache(maxsize=2048)
def _wrapped(text: str, width: int, style: str) -> Sequence[Line]:
    room = max(width - 3, 10)
    return tuple(padded((("  ", PLAIN), (part, style)), width) for part in textwrap.wrap(text, room))
