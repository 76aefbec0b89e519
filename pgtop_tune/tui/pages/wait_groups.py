"""Waits grouped by any two properties, over the screen: Enter goes into a group, Backspace out of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from textual import events

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import UNKNOWN, mean, percent
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.wait_paths import PROPERTIES, Grouped, Step, WaitProperty, grouped
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.pages.query_texts import query_texts
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, shortened
from pgtop_tune.tui.widgets.phrase import padded
from pgtop_tune.tui.widgets.wait_style import wait_style

_HEAD: Final = 3
_FRAME_ROWS: Final = 2
_NUMBERS: Final = 17
_TEXT: Final = 200
_STATEMENT: Final = "statement"


class GroupsView(Struct, frozen=True):
    """What the operator chose.

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


def _next(taken: set[int], after: int) -> int:
    """The next property that is not taken."""
    order = [(after + 1 + each) % len(PROPERTIES) for each in range(len(PROPERTIES))]
    return next(each for each in order if each not in taken)


def _entered(view: GroupsView) -> set[int]:
    return {PROPERTIES.index(each) for each, _ in view.steps}


def turned(view: GroupsView, *, second: bool) -> GroupsView:
    """The view with another first or second property: one that is in neither the path nor the other place."""
    taken = _entered(view)
    if second:
        return replace(view, second=_next(taken | {view.first}, view.second), selected=0)
    return replace(view, first=_next(taken | {view.second}, view.first), selected=0)


def entered(view: GroupsView, found: Grouped) -> GroupsView:
    """The view inside the selected group, by the next two properties; as it is where fewer are left."""
    if view.selected >= len(found.groups) or len(PROPERTIES) - len(_entered(view)) < 4:
        return view
    values = found.groups[view.selected].values
    first, second = view.pair
    path = (*view.path, ((first, values[0]), (second, values[1])))
    inside = replace(view, path=path, selected=0)
    taken = _entered(inside)
    begin = _next(taken, view.second)
    return replace(inside, first=begin, second=_next(taken | {begin}, begin))


def left(view: GroupsView) -> GroupsView:
    """The view one group further out, by the properties that led into it."""
    if not view.path:
        return view
    (first, _), (second, _) = view.path[-1]
    return GroupsView(PROPERTIES.index(first), PROPERTIES.index(second), view.path[:-1])


def found_groups(session: Session, view: GroupsView) -> Grouped:
    """The groups of the view."""
    interval = session.interval
    return Grouped((), 0) if interval is None else grouped(interval, *view.pair, view.steps)


def group_lines(session: Session, view: GroupsView, cells: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The path, the headings, and the groups around the selected one; at most `height` lines."""
    interval, found = session.interval, found_groups(session, view)
    texts = {} if interval is None else _texts(interval, view, found)
    column = max((cells - _NUMBERS) // 2 - 1, 4)
    path = "".join(
        f" {glyphs.pointer} {each.title} {_named(each, value, texts)}" for pair in view.path for each, value in pair
    )
    lines: list[Line] = [
        ((shortened(f"all active sessions{path}", cells, glyphs.ellipsis).rstrip(), "strong"),),
        ((f"mean of {found.looks} looks at {'all sessions' if _by_session(view) else 'waits, 60 s'}", "dim"),),
        (
            (f"{view.pair[0].title:<{column}} {view.pair[1].title:<{column}}", "title"),
            (f"{'sessions':>9}{'share':>7}", "title"),
        ),
    ]
    if not found.groups:
        return [*lines, (("no session was active here", "dim"),)][:height]
    selected = min(view.selected, len(found.groups) - 1)
    top = max(min(selected - (height - _HEAD) // 2, len(found.groups) - (height - _HEAD)), 0)
    for index, group in enumerate(found.groups[top : top + height - _HEAD], top):
        names = [
            shortened(_named(each, value, texts), column, glyphs.ellipsis)
            for each, value in zip(view.pair, group.values, strict=True)
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
    return any(each.by_session for each in (*view.pair, *(step for step, _ in view.steps)))


def _texts(interval: Interval, view: GroupsView, found: Grouped) -> dict[Hashable, str]:
    wanted = [value for group in found.groups for each, value in zip(view.pair, group.values, strict=True)
              if each.title == _STATEMENT]  # fmt: skip
    return query_texts(interval, [*wanted, *(value for each, value in view.steps if each.title == _STATEMENT)])


def _named(each: WaitProperty, value: Hashable, texts: dict[Hashable, str]) -> str:
    text = texts.get(value, "") if each.title == _STATEMENT else ""
    return one_line(text or str(value), _TEXT) if value is not None else UNKNOWN


class WaitGroupsDialog(Dialog[None]):
    """Shows groups for as long as it is open; follows the frames.

    Args:
        session: What the screen shows.
        glyphs: What it is drawn with.
    """

    CELLS = 110
    LIVE = False

    def __init__(self, session: Session, glyphs: Glyphs) -> None:
        words = "Tab ← → properties  Enter, Backspace into and out of a group  Esc close"
        super().__init__("waits by two properties", glyphs, keys=words)
        self._session = session
        self._view = GroupsView()

    def content(self, cells: int) -> Sequence[Line]:
        """The groups as they are now."""
        return group_lines(self._session, self._view, cells, self.app.size.height - _FRAME_ROWS, self.glyphs)

    def frames_arrived(self, session: Session) -> None:
        """A newer look."""
        self._session = session
        self.repaint()

    def on_key(self, event: events.Key) -> None:
        """Selecting, other properties, into a group and out of it."""
        view, found = self._view, found_groups(self._session, self._view)
        last = max(len(found.groups) - 1, 0)
        moved = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10, "pagedown": 10, "home": -last, "end": last}
        if event.key in moved:
            view = replace(view, selected=min(max(view.selected + moved[event.key], 0), last))
        elif event.key in ("tab", "left", "right"):
            view = turned(view, second=event.key != "tab")
        elif event.key == "enter":
            view = entered(view, found)
        elif event.key == "backspace":
            view = left(view)
        else:
            return
        event.stop()
        event.prevent_default()
        self._view = view
        self.repaint()
