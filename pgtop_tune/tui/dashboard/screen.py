"""The dashboard: one canvas per pane, who gets how many rows, and the keys of the session table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace
from textual import events

from pgtop_tune.tui.actions import Action, footer_keys
from pgtop_tune.tui.dashboard.panes import Look, dashboard_lines
from pgtop_tune.tui.dashboard.session_details import details_lines, query_of
from pgtop_tune.tui.dashboard.session_rows import SessionRow, SessionsView, moved, next_sort, scrolled, session_rows
from pgtop_tune.tui.dashboard.sessions import HEAD_ROWS
from pgtop_tune.tui.pages.registry import DASHBOARD_KEY
from pgtop_tune.tui.pages.row_details import DetailsDialog
from pgtop_tune.tui.scene.explain import PANE_METRICS, explain_lines
from pgtop_tune.tui.scene.scene import ABOVE, BELOW, MarksUnwanted, Scene, SceneScreen
from pgtop_tune.tui.terminal.clipboard import copy
from pgtop_tune.tui.widgets.phrase import head

if TYPE_CHECKING:
    from pgtop_tune.model.backend_action import BackendKey
    from pgtop_tune.tui.widgets.glyphs import Glyphs
    from pgtop_tune.tui.widgets.lines import Line


# Who gets how many rows: the dashboard grows by steps in order of importance, what is left goes to the sessions.

ORDER: Final = ("header", "host", "throughput", "latency", "tape", "budget", "wal", "sessions", "footer")
"""Panes from top to bottom."""

_STEPS: Final[tuple[tuple[tuple[str, int], ...], ...]] = (
    (("header", 1), ("footer", 1), ("sessions", 4)),
    (("throughput", 1),),
    (("host", 3),),
    (("latency", 1),),
    (("budget", 2),),
    (("wal", 1),),
    (("tape", 1),),
    (("sessions", 9),),
    (("throughput", 4), ("latency", 4)),
    (("wal", 1), ("budget", 1)),
    (("sessions", 7),),
    (("host", 1),),
    (("throughput", 1), ("latency", 1)),
    (("sessions", 4),),
    (("throughput", 2), ("latency", 2)),
    (("sessions", 6),),
    (("throughput", 2), ("latency", 2), ("budget", 1)),
    (("sessions", 8),),
    (("throughput", 2), ("latency", 2), ("host", 1)),
)
"""Rows added together or not at all; the first step that does not fit ends the growth. 24 rows take all up to the
first nine of the sessions; from 32 on both charts have room for a picture."""

_WIDE: Final = 150
"""From here on one line of the WAL pane holds everything."""


def dashboard_layout(width: int, height: int) -> tuple[tuple[str, int], ...]:
    """Panes from top to bottom with their rows; the rows add up to the height.

    Args:
        width: Cells of the screen.
        height: Rows of the screen. What is left after the steps goes to the sessions.
    """
    rows: dict[str, int] = {"sessions": 0}
    left = height
    for step in _STEPS:
        wanted = sum(count for _, count in step)
        if wanted > left:
            break
        for pane, count in step:
            rows[pane] = rows.get(pane, 0) + count
        left -= wanted
    if width >= _WIDE and rows.get("wal", 0) > 1:
        left += rows["wal"] - 1
        rows["wal"] = 1
    rows["sessions"] += left
    return tuple((pane, rows[pane]) for pane in ORDER if rows.get(pane))


_BEFORE_FOOTER: Final = ORDER.index("footer")


class Dashboard(SceneScreen):
    """Shows a scene; holds what the operator chose in the session table."""

    STACK = (*ABOVE, *ORDER[:_BEFORE_FOOTER], *BELOW, *ORDER[_BEFORE_FOOTER:])

    def __init__(
        self, glyphs: Glyphs, actions: Sequence[Action], keymap: Mapping[str, str], target: str, first: Scene
    ) -> None:
        super().__init__(glyphs, actions, keymap, target, first)
        self._keys = {moving: footer_keys(self.offered(), keymap, moving=moving) for moving in (False, True)}
        self._view = SessionsView()
        self._rows: list[SessionRow] = []
        self._layout: tuple[tuple[str, int], ...] = ()

    def heights(self, width: int, height: int) -> dict[str, int]:
        """As the layout says."""
        self._layout = dashboard_layout(width, height)
        return dict(self._layout)

    def drawn(self, width: int) -> Mapping[str, Sequence[Line]]:
        """Every visible pane."""
        self._rows = session_rows(self._scene.session, self._view)
        self._view = scrolled(self._view, self._rows, self._visible_rows)
        scene = self._scene
        look = Look(
            view=self._view,
            rows=self._rows,
            keys=self._keys[self.moving],
            recording=scene.recording,
            offset_s=scene.behind_s,
            target=self._target,
            pages=self.page_names(DASHBOARD_KEY),
            load=scene.load,
            marks=scene.marks,
            baseline=scene.baseline,
        )
        return dashboard_lines(scene.session, self._layout, width, self._glyphs, look)

    def explained(self, cells: int) -> list[Line]:
        """See `SceneScreen.explained`."""
        lines: list[Line] = []
        now = self._scene.session.now
        for pane in PANE_METRICS:
            lines += [(), head(((pane, "title"),), cells, self._glyphs), *explain_lines(pane, cells, now)]
        return lines

    def chosen_backends(self) -> tuple[BackendKey, ...]:
        """See `SceneScreen.chosen_backends`; the dashboard has no tags."""
        return () if self._view.selected is None else (self._view.selected,)

    def listed_backends(self) -> tuple[BackendKey, ...]:
        """See `SceneScreen.listed_backends`."""
        return tuple(row.key for row in self._rows) if self._view.filter else ()

    @property
    def filtered_by(self) -> str:
        """See `SceneScreen.filtered_by`."""
        return self._view.filter

    def filter_by(self, text: str) -> None:
        """See `SceneScreen.filter_by`."""
        self._choose(replace(self._view, filter=text, top=0))

    @property
    def _visible_rows(self) -> int:
        return max(dict(self._layout).get("sessions", 0) - HEAD_ROWS, 0)

    @property
    def view(self) -> SessionsView:
        """What the operator chose in the session table."""
        return self._view

    def _choose(self, view: SessionsView) -> None:
        self._view = view
        self.paint()

    def action_move(self, by: int) -> None:
        """Selects the session so many rows further down."""
        self._choose(moved(self._view, self._rows, by, self._visible_rows))

    def action_page(self, by: int) -> None:
        """Selects a page further down or up."""
        self.action_move(by * max(self._visible_rows - 1, 1))

    def action_edge(self, by: int) -> None:
        """Selects the first or the last session."""
        if self._rows:
            at = self._rows[0 if by < 0 else -1]
            self._choose(scrolled(replace(self._view, selected=at.key), self._rows, self._visible_rows))

    def action_unselect(self) -> None:
        """No selection, no filter; where there is neither, no marks."""
        if self._view.selected is None and not self._view.filter:
            self.post_message(MarksUnwanted())
        self._choose(replace(self._view, selected=None, filter="", top=0))

    def action_sort(self, by: int) -> None:
        """Sorts by the next or the previous column."""
        self._choose(next_sort(self._view, by))

    def action_idle(self) -> None:
        """Hides or shows idle sessions."""
        self._choose(replace(self._view, hide_idle=not self._view.hide_idle))

    def action_details(self) -> None:
        """Opens everything known of the selected session; selects the first one when there is none."""
        if self._view.selected is None:
            self.action_move(1)
            return
        key = self._view.selected
        known, copied = partial(details_lines, key=key), partial(query_of, key=key)
        self.app.push_screen(
            DetailsDialog(
                f"session {key[0]}",
                self._scene.session,
                lambda session, cells: known(session, cells=cells),
                copied,
                self._glyphs,
                self.keys_for(key),
            )
        )

    def action_copy(self) -> None:
        """Copies the selected session's query."""
        query = "" if self._view.selected is None else query_of(self._scene.session, self._view.selected)
        words = "select a session with the arrows first"
        if query:
            words = copy(self.app, query, "the query is in your terminal's clipboard")
        self.app.notify(words, markup=False, severity="information" if query else "warning")

    def on_click(self, event: events.Click) -> None:
        """A click on a session selects it, where the mouse is switched on."""
        at = event.y - HEAD_ROWS + self._view.top
        if event.widget is not None and event.widget.id == "sessions" and event.y >= HEAD_ROWS and at < len(self._rows):
            self._choose(replace(self._view, selected=self._rows[at].key))
