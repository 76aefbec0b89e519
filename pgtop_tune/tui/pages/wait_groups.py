"""Waits grouped by any two properties, over the screen: Enter goes into a group, Backspace out of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import UNKNOWN, mean, percent
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.statements import query_texts
from pgtop_tune.metrics.waits import PROPERTIES, Grouped, Step, WaitProperty, grouped
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, ellipsized
from pgtop_tune.tui.widgets.phrase import padded, wait_style

_HEAD: Final = 3
_FRAME_ROWS: Final = 2
_NUMBER_CELLS: Final = 17
_GROUP_TEXT: Final = 200
_STATEMENT: Final = "statement"


class GroupsView(Struct, frozen=True):
    """The operator's choices in the groups.

    Attributes:
        first, second: Indexes of the properties that groups are made by.
        path: Groups that were entered, the outermost first: each two values, and the properties they are of.
        selected: Row, from 0.
    """

    first: int = 0
    second: int = 1
    path: tuple[tuple[Step, Step], ...] = ()
    selected: int = 0

    @property
    def pair(self) -> tuple[WaitProperty, WaitProperty]:
        """The properties."""
        return PROPERTIES[self.first], PROPERTIES[self.second]

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every value of the path."""
        return tuple(step for pair in self.path for step in pair)


def _next(used: set[int], after: int) -> int:
    """Return the next property that is not taken."""
    order = [(after + 1 + step) % len(PROPERTIES) for step in range(len(PROPERTIES))]
    return next(index for index in order if index not in used)


def _entered(view: GroupsView) -> set[int]:
    return {PROPERTIES.index(wait_property) for wait_property, _ in view.steps}


def turned(view: GroupsView, *, second: bool) -> GroupsView:
    """Return the view with another first or second property: one that is in neither the path nor the other place."""
    used = _entered(view)
    if second:
        return replace(view, second=_next(used | {view.first}, view.second), selected=0)
    return replace(view, first=_next(used | {view.second}, view.first), selected=0)


def entered(view: GroupsView, groups: Grouped) -> GroupsView:
    """Return the view inside the selected group, by the next two properties; as it is where fewer are left."""
    if view.selected >= len(groups.groups) or len(PROPERTIES) - len(_entered(view)) < 4:
        return view
    values = groups.groups[view.selected].values
    first, second = view.pair
    path = (*view.path, ((first, values[0]), (second, values[1])))
    inside = replace(view, path=path, selected=0)
    used = _entered(inside)
    begin = _next(used, view.second)
    return replace(inside, first=begin, second=_next(used | {begin}, begin))


def left(view: GroupsView) -> GroupsView:
    """Return the view one group further out, by the properties that led into it."""
    if not view.path:
        return view
    (first, _), (second, _) = view.path[-1]
    return GroupsView(PROPERTIES.index(first), PROPERTIES.index(second), view.path[:-1])


def found_groups(session: Session, view: GroupsView) -> Grouped:
    """Return the groups of the view."""
    interval = session.interval
    return Grouped((), 0) if interval is None else grouped(interval, *view.pair, view.steps)


def group_lines(session: Session, view: GroupsView, cells: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return the path, the headings, and the groups around the selected one; at most `height` lines."""
    interval, groups = session.interval, found_groups(session, view)
    texts = {} if interval is None else _texts(interval, view, groups)
    column = max((cells - _NUMBER_CELLS) // 2 - 1, 4)
    path = "".join(
        f" {glyphs.pointer} {wait_property.title} {_named(wait_property, value, texts)}"
        for pair in view.path
        for wait_property, value in pair
    )
    lines: list[Line] = [
        ((ellipsized(f"all active sessions{path}", cells, glyphs.ellipsis).rstrip(), "strong"),),
        ((f"mean of {groups.looks} samples of {'all sessions' if _by_session(view) else 'waits, 60 s'}", "dim"),),
        (
            (f"{view.pair[0].title:<{column}} {view.pair[1].title:<{column}}", "title"),
            (f"{'sessions':>9}{'share':>7}", "title"),
        ),
    ]
    if not groups.groups:
        return [*lines, (("no session was active here", "dim"),)][:height]
    selected = min(view.selected, len(groups.groups) - 1)
    top = max(min(selected - (height - _HEAD) // 2, len(groups.groups) - (height - _HEAD)), 0)
    for index, group in enumerate(groups.groups[top : top + height - _HEAD], top):
        names = [
            ellipsized(_named(wait_property, value, texts), column, glyphs.ellipsis)
            for wait_property, value in zip(view.pair, group.values, strict=True)
        ]
        kind = str(group.values[0]).partition(":")[0]
        style = wait_style(kind) if view.pair[0].title in ("class", "event") else PLAIN
        numbers = f"{mean(group.sessions):>9}{percent(group.share):>5} %"
        line: Line = ((names[0] + " ", style), (names[1] + " ", PLAIN), (numbers, PLAIN))
        if index == selected:
            line = ((names[0] + " " + names[1] + " " + numbers, "cursor"),)
        lines.append(padded(line, cells))
    return lines[:height]


def _by_session(view: GroupsView) -> bool:
    return any(wait_property.by_session for wait_property in (*view.pair, *(step for step, _ in view.steps)))


def _texts(interval: Interval, view: GroupsView, groups: Grouped) -> dict[Hashable, str]:
    values = [value for group in groups.groups for wait_property, value in zip(view.pair, group.values, strict=True)
              if wait_property.title == _STATEMENT]  # fmt: skip
    return query_texts(
        interval, [*values, *(value for wait_property, value in view.steps if wait_property.title == _STATEMENT)]
    )


def _named(wait_property: WaitProperty, value: Hashable, texts: dict[Hashable, str]) -> str:
    text = texts.get(value, "") if wait_property.title == _STATEMENT else ""
    return one_line(text or str(value), _GROUP_TEXT) if value is not None else UNKNOWN


class WaitGroupsDialog(Dialog[None]):
    """Shows groups for as long as it is open; follows the frames.

    Args:
        session: The session that is shown.
        glyphs: Characters of the drawing.
    """

    CELLS = 110
    LIVE = False
    KEYS = "Tab ← → properties  Enter, Backspace into and out of a group  Esc close"

    def __init__(self, session: Session, glyphs: Glyphs) -> None:
        super().__init__("waits by two properties", glyphs)
        self._session = session
        self._view = GroupsView()

    def content(self, cells: int) -> Sequence[Line]:
        """Return the groups as they are now."""
        return group_lines(self._session, self._view, cells, self.app.size.height - _FRAME_ROWS, self.glyphs)

    def frames_arrived(self, session: Session) -> None:
        self._session = session
        self.repaint()

    async def pressed(self, key: str, character: str | None) -> bool:
        """Select a group, choose other properties, go into a group or out of it."""
        view, groups = self._view, found_groups(self._session, self._view)
        last = max(len(groups.groups) - 1, 0)
        moved = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10, "pagedown": 10, "home": -last, "g": -last,
                 "end": last, "G": last}  # fmt: skip
        if key in moved:
            view = replace(view, selected=min(max(view.selected + moved[key], 0), last))
        elif key in ("tab", "left", "right"):
            view = turned(view, second=key != "tab")
        elif key == "enter":
            view = entered(view, groups)
        elif key == "backspace":
            view = left(view)
        else:
            return False
        self._view = view
        return True
