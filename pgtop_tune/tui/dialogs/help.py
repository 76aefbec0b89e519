"""Keys, from the table of actions, and what every number means, from the catalogue of metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from textual import events

from pgtop_tune.tui.actions import Action, key_name, keys_of
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line, labelled
from pgtop_tune.tui.widgets.phrase import head

_KEY_CELLS: Final = 14


def key_lines(actions: Sequence[Action], keymap: Mapping[str, str], cells: int, glyphs: Glyphs) -> list[Line]:
    """One line per action, under its group's heading, groups in the order of their first action.

    Args:
        actions: Those that exist in this session.
        keymap: The operator's own keys.
        cells: Width.
        glyphs: For the headings.
    """
    groups: dict[str, list[Line]] = {}
    for action in actions:
        keys = " ".join(key_name(key) for key in keys_of(action, keymap))
        groups.setdefault(action.group, []).extend(labelled(keys, action.description, cells, label_cells=_KEY_CELLS))
    return [line for group, lines in groups.items() for line in (head(((group, "title"),), cells, glyphs), *lines)]


class HelpDialog(Dialog[None]):
    """Keys first, then definitions; scrolls. Tab goes from the keys to the numbers, table by table.

    Args:
        actions: Those that exist in this session.
        keymap: The operator's own keys.
        explained: Gives lines about the numbers for a width.
    """

    CELLS = 96

    def __init__(
        self,
        actions: Sequence[Action],
        keymap: Mapping[str, str],
        explained: Callable[[int], Sequence[Line]],
        glyphs: Glyphs,
    ) -> None:
        super().__init__("help", glyphs, keys="Tab numbers  arrows, PgUp, PgDn scroll  Esc back")
        self._actions = tuple(actions)
        self._keymap = keymap
        self._explained = explained

    def content(self, cells: int) -> list[Line]:
        """See `key_lines`; then the definitions."""
        return [*key_lines(self._actions, self._keymap, cells, self.glyphs), *self._explained(cells)]

    def on_key(self, event: events.Key) -> None:
        """Scrolling; the keys that opened it close it."""
        if event.key in ("question_mark", "f1", "q", "enter"):
            event.stop()
            self.dismiss(None)
        elif event.key in ("tab", "shift+tab"):
            event.stop()
            self._turn(forward=event.key == "tab")
        elif self.scroll_key(event.key):
            event.stop()

    def _turn(self, *, forward: bool) -> None:
        """To the next heading of the numbers, or the one before; from the last one to the keys."""
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
