"""The dashboard: one canvas per pane, what each pane draws in how many rows, and the keys of the session table."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.metrics.statements import StatementRate
from pgtop_tune.runtime.window import Marks
from pgtop_tune.tui.actions import DASHBOARD_KEY, Action, FooterKeys, key_name, keys_of
from pgtop_tune.tui.dashboard.beside import TopStatements, beside_row, beside_sessions
from pgtop_tune.tui.dashboard.host import host_lines
from pgtop_tune.tui.dashboard.latency import CLOCK_ROWS, has_latency, latency_lines
from pgtop_tune.tui.dashboard.session_details import query_of, session_dialog
from pgtop_tune.tui.dashboard.session_rows import (
    EVERYTHING,
    SessionRow,
    SessionsView,
    background_line,
    folded,
    next_sort,
    scrolled,
    selection_moved,
    session_rows,
)
from pgtop_tune.tui.dashboard.sessions import HEAD_ROWS, ON_DASHBOARD, alike_phrases, sessions_lines
from pgtop_tune.tui.dashboard.throughput import throughput_lines
from pgtop_tune.tui.dashboard.waits import budget_lines, stacked_waits, waits_axis
from pgtop_tune.tui.dashboard.wal import wal_lines
from pgtop_tune.tui.scene.header import NO_PAGES, PageNames, footer_line, header_line
from pgtop_tune.tui.scene.scene import ABOVE, BELOW, FINDING, MarksUnwanted, RowChosen, Scene, SceneScreen, word_at
from pgtop_tune.tui.widgets.lines import PLAIN
from pgtop_tune.tui.widgets.phrase import head, padded
from pgtop_tune.tui.widgets.time_axis import SPANS_S, SPARK_ROWS, axis_ticks, tape_line, time_axis

if TYPE_CHECKING:
    from pgtop_tune.compare.overlay.curves import OverlayWatch
    from pgtop_tune.model.backend_action import BackendKey
    from pgtop_tune.runtime.load_control import LoadState
    from pgtop_tune.runtime.ports import RecordingState
    from pgtop_tune.runtime.session import Session
    from pgtop_tune.tui.widgets.lines import Glyphs, Line

# What each pane draws.


def dashboard_tape(
    session: Session,
    width: int,
    glyphs: Glyphs,
    *,
    chart_rows: int,
    marks: Iterable[tuple[float, bool]] = (),
    span_s: float = SPANS_S[0],
    clock: bool = False,
) -> Line:
    """Return the tape of events under both charts, in their columns.

    Args:
        session: The session with the events.
        width: Cells.
        glyphs: Characters.
        chart_rows: Rows of a chart above: the tape has the same time axis.
        marks: As `Marks.moments`.
        span_s: Seconds of `SPANS_S`, as of the charts above.
        clock: Whether times of day stand where no event does.
    """
    axis = time_axis(session, width, chart_rows, span_s)
    ticks = axis_ticks(session, axis) if clock else {}
    events = [(at_s, event) for at_s, event in session.events if at_s >= axis.since_s]
    return padded(tape_line(events, axis, glyphs, marks, ticks), width)


_LOAD: Final = "load"
"""The word in the footer beside the key that starts a load."""


class DashboardState(Struct, frozen=True):
    """Everything that the dashboard knows beyond the frames.

    Attributes:
        view: Order, filter and selection of the sessions.
        rows: The sessions that are listed; None computes them.
        background: The processes that share one line (`folded`), where `rows` is given.
        background_key: The key that lists these processes; "" where there is none.
        span_s: Seconds that the charts show at least, of `SPANS_S`.
        keys: Keys of the footer.
        recording: Whether frames are being written; None where they cannot be.
        offset_s: How far the moment shown lies before the newest one; None at the newest.
        target: The server that was asked for, shown while none has answered yet.
        pages: Names of the pages in the footer.
        load: State of the load that frames do not show.
        marks: Marked windows.
        baseline: An earlier run under the charts.
        statements: The most expensive statements; None leaves the sessions alone on their pane.
    """

    view: SessionsView = SessionsView()
    rows: Sequence[SessionRow] | None = None
    background: Sequence[SessionRow] = ()
    background_key: str = ""
    span_s: float = SPANS_S[0]
    keys: FooterKeys = FooterKeys()
    recording: RecordingState | None = None
    offset_s: float | None = None
    target: str = ""
    pages: PageNames = NO_PAGES
    load: LoadState | None = None
    marks: Marks = Marks()
    baseline: OverlayWatch | None = None
    statements: TopStatements | None = None


_APART: Final = "  "
_BESIDE_FROM: Final = 160
"""Cells of a screen from which on the chart of waits stands beside the others."""
_STATEMENTS_FROM: Final = 200
"""Cells from which on statements and locks stand beside the sessions, below the chart of waits."""
_WAITS_SHARE: Final = 0.36
"""Part of the cells that the chart of waits has there."""


def chart_widths(width: int, rows: int) -> tuple[int, int]:
    """Return the cells of throughput and latency, and of the chart of waits beside them: 0 where there is no room.

    Args:
        width: Cells of the screen.
        rows: Rows of a pane.
    """
    if width < _BESIDE_FROM or rows <= SPARK_ROWS:
        return width, 0
    right = int(width * _WAITS_SHARE)
    return width - right - len(_APART), right


def session_widths(width: int) -> tuple[int, int]:
    """Return the cells of the sessions, and of statements and locks beside them: 0 where there is no room."""
    right = int(width * _WAITS_SHARE) if width >= _STATEMENTS_FROM else 0
    return width - right - len(_APART) if right else width, right


class _Picture(Struct, frozen=True):
    """The input of every pane of a picture.

    Attributes:
        rows: Rows of each pane.
        waits: The chart of waits that stands beside throughput and latency; () where it has no room.
    """

    session: Session
    rows: Mapping[str, int]
    width: int
    glyphs: Glyphs
    state: DashboardState
    waits: Sequence[Line] = ()

    def beside_waits(self, lines: list[Line], waits: Sequence[Line]) -> list[Line]:
        """Return a chart with its part of the chart of waits."""
        return (
            [(*line, (_APART, PLAIN), *waits_line) for line, waits_line in zip(lines, waits, strict=True)]
            if waits
            else lines
        )


def _header(picture: _Picture, height: int) -> list[Line]:
    state = picture.state
    return [
        header_line(
            picture.session, picture.width, picture.glyphs, recording=state.recording, offset_s=state.offset_s,
            target=state.target, load=state.load,
        )
    ]  # fmt: skip


def _throughput(picture: _Picture, height: int) -> list[Line]:
    width, _ = chart_widths(picture.width, height)
    state = picture.state
    drawn = throughput_lines(picture.session, width, height, picture.glyphs, state.baseline, state.span_s)
    return picture.beside_waits(drawn, picture.waits[:height])


def _latency(picture: _Picture, height: int) -> list[Line]:
    state = picture.state
    load_key = next((key for key, word in (*state.keys.deeds, *state.keys.more) if word == _LOAD), "")
    width, right = chart_widths(picture.width, height)
    drawn = latency_lines(picture.session, width, height, picture.glyphs, state.baseline, load_key, state.span_s)
    return picture.beside_waits(drawn, picture.waits[-height:] if right else ())


def _tape(picture: _Picture, height: int) -> list[Line]:
    rows, state = picture.rows.get("throughput", 1), picture.state
    width, _ = chart_widths(picture.width, rows)
    line = dashboard_tape(
        picture.session, width, picture.glyphs, chart_rows=rows, marks=state.marks.moments, span_s=state.span_s,
        clock=picture.rows.get("latency", 0) < CLOCK_ROWS,
    )  # fmt: skip
    return [padded(line, picture.width)]


def _sessions(picture: _Picture, height: int) -> list[Line]:
    session, width, glyphs, state = picture.session, picture.width, picture.glyphs, picture.state
    rows, background = state.rows, state.background
    if rows is None:
        rows, background = folded(session_rows(session, state.view), state.view)
    of_sessions, right = session_widths(width) if state.statements is not None else (width, 0)
    line: Line = ()
    if background:
        out_of_view = rows[state.view.top + max(height - HEAD_ROWS - 1, 0) :]
        line = background_line(
            background, of_sessions, glyphs, state.background_key, alike_phrases(out_of_view, glyphs)
        )
    lines = sessions_lines(session, of_sessions, height, glyphs, view=state.view, rows=rows, background=line)
    if state.statements is None or not right:
        return lines
    beside = beside_sessions(session, state.statements, right, height, glyphs)
    return [(*line, (_APART, PLAIN), *more) for line, more in zip(lines, beside, strict=True)]


def _alone(draw: Callable[[Session, int, int, Glyphs], list[Line]]) -> Callable[[_Picture, int], list[Line]]:
    """Return the function of a pane that needs nothing beyond the frames."""
    return lambda picture, height: draw(picture.session, picture.width, height, picture.glyphs)


PANES: Final[Mapping[str, Callable[[_Picture, int], list[Line]]]] = {
    "header": _header,
    "host": _alone(host_lines),
    "throughput": _throughput,
    "latency": _latency,
    "tape": _tape,
    "budget": _alone(budget_lines),
    "wal": _alone(wal_lines),
    "sessions": _sessions,
    "footer": lambda picture, height: [footer_line(picture.state.keys, picture.width, picture.state.pages)],
}
"""Panes from top to bottom, and what draws each in so many rows."""
_NOTHING_CHOSEN: Final = DashboardState()


def dashboard_lines(
    session: Session,
    layout: Sequence[tuple[str, int]],
    width: int,
    glyphs: Glyphs,
    state: DashboardState = _NOTHING_CHOSEN,
) -> dict[str, list[Line]]:
    """Return the lines of every pane of a layout; each pane gets exactly its rows, each line exactly `width` cells.

    Args:
        session: The session that is drawn.
        layout: As `dashboard_layout` gives it.
        width: Cells of the screen.
        glyphs: Characters.
        state: What the dashboard knows beyond the frames.
    """
    rows = dict(layout)
    throughput, latency = rows.get("throughput", 0), rows.get("latency", 0)
    _, right = chart_widths(width, throughput)
    # The chart of waits is as high as both charts together.
    height = throughput + (latency if latency > SPARK_ROWS else 0)
    waits = stacked_waits(session, right, height, glyphs, state.span_s) if right else ()
    picture = _Picture(session=session, rows=rows, width=width, glyphs=glyphs, state=state, waits=waits)
    return {pane: PANES[pane](picture, count) for pane, count in layout}


# Rows of each pane of the dashboard: figures have their few, sessions as many as they need, charts the rest.

_STEPS: Final[tuple[tuple[tuple[str, int], ...], ...]] = (
    (("sessions", 4),),
    (("throughput", 1),),
    (("host", 3),),
    (("latency", 1),),
    (("budget", 2),),
    (("wal", 1),),
    (("tape", 1),),
)
"""On a screen too low for charts: rows added together or not at all; the first step that does not fit ends it."""
_CHARTS_FROM: Final = 20
"""Rows from which on throughput and latency are charts."""
_SHARE: Final = 3
"""One row in so many belongs to the charts at least."""
_LEAST: Final = 8
"""Fewest rows of the charts."""
_FEWEST_SESSIONS: Final = 4
_WIDE: Final = 150
"""Cells from which on one line of the WAL pane holds everything."""
_ROOMY: Final = 32
_LARGE: Final = 48
_HUGE: Final = 64
MANY: Final = 1_000
"""A number of sessions that fills every row there is."""


def dashboard_layout(
    width: int, height: int, sessions: int = MANY, *, measured: bool = True
) -> tuple[tuple[str, int], ...]:
    """Return panes from top to bottom with their rows; the rows add up to the height.

    Args:
        width: Cells of the screen.
        height: Rows of the screen.
        sessions: Rows that the pane of sessions can fill; charts take what it does not need.
        measured: Whether there are latencies; without any one line says so, and throughput has both charts' rows.
    """
    rows = {"header": 1, "footer": 1}
    free_rows = height - sum(rows.values())
    if height < _CHARTS_FROM:
        rows["sessions"] = 0
        for step in _STEPS:
            needed = sum(count for _, count in step)
            if needed > free_rows:
                break
            for pane, count in step:
                rows[pane] = rows.get(pane, 0) + count
            free_rows -= needed
        rows["sessions"] += free_rows
    else:
        rows |= _figures(width, height)
        free_rows = height - sum(rows.values())
        charts = min(max(free_rows - sessions, height // _SHARE, _LEAST), free_rows - _FEWEST_SESSIONS)
        rows["throughput"], rows["latency"] = _charts(charts) if measured else (charts - 1, 1)
        rows["sessions"] = free_rows - rows["throughput"] - rows["latency"]
    return tuple((pane, rows[pane]) for pane in PANES if rows.get(pane))


def _figures(width: int, height: int) -> dict[str, int]:
    taller = (height >= _ROOMY) + (height >= (_HUGE if width >= _WIDE else _LARGE))
    return {
        "host": 3 + (height >= _ROOMY) + (height >= _HUGE),
        "tape": 1,
        "budget": 2 + taller,
        "wal": 2 if height >= _ROOMY and width < _WIDE else 1,
    }


def _charts(rows: int) -> tuple[int, int]:
    """Return the rows of both panes, with equally high pictures: latency has one more where it shows times of day."""
    chart_rows = (rows - 1) // 2
    return (chart_rows, chart_rows + 1) if chart_rows + 1 >= CLOCK_ROWS else (rows // 2, rows // 2)


_ROUNDED: Final = 4
_SLACK: Final = 7


def sessions_wanted(count: int, before: int) -> int:
    """Return the rows that the pane of sessions asks for, rounded up: the layout stands still while they come and go.

    Args:
        count: Rows of sessions there are.
        before: Rows asked for until now.
    """
    return before if before - _SLACK <= count <= before else -(-count // _ROUNDED) * _ROUNDED


_OVER_TIME: Final = ("throughput", "latency", "tape")
"""Panes whose columns are moments; the first decides the axis."""
_SORT_OF_HEADING: Final = {
    "PID": "pid", "CPU%": "cpu", "RkB/s": "read", "WkB/s": "write", "xact": "xact", "stmt": "stmt", "state": "activity",
    "wait": "activity",
}  # fmt: skip


class Dashboard(SceneScreen):
    """Shows a scene; holds what the operator chose in the session table."""

    STACK = (*ABOVE, "header", FINDING, *[pane for pane in PANES if pane not in ("header", "footer")], *BELOW, "footer")

    def __init__(
        self, glyphs: Glyphs, actions: Sequence[Action], keymap: Mapping[str, str], target: str, first: Scene
    ) -> None:
        super().__init__(glyphs, actions, keymap, target, first)
        self._view = SessionsView()
        self._rows: list[SessionRow] = []
        self._background: list[SessionRow] = []
        self._background_key = next(
            (key_name(keys_of(row, keymap)[0]) for row in actions if row.id == "background"), ""
        )
        self._wanted = MANY
        self._measured = False
        self._statements = TopStatements()
        self._span_s = SPANS_S[0]
        self._layout: tuple[tuple[str, int], ...] = ()

    def heights(self, width: int, height: int) -> dict[str, int]:
        # The line for messages is taken from the sessions, not from the charts.
        rows = dict(dashboard_layout(width, height + self.message_rows, self._wanted, measured=self._measured))
        rows["sessions"] -= self.message_rows
        self._layout = tuple(rows.items())
        return rows

    def show(self, scene: Scene) -> None:
        """Draw another scene; give other heights where the sessions need many more or far fewer rows, and with the
        first latency.
        """
        super().show(scene)
        wanted_rows, measured = self._wanted, has_latency(scene.session)
        if not self._view.filter and (self._rows or self._background):
            wanted_rows = sessions_wanted(len(self._rows) + bool(self._background) + HEAD_ROWS, self._wanted)
        if (wanted_rows, measured) != (self._wanted, self._measured):
            self._wanted, self._measured = wanted_rows, measured
            if self.is_mounted:
                self._arrange()
                self.paint_soon()

    def drawn(self, width: int) -> Mapping[str, Sequence[Line]]:
        """Return every visible pane."""
        scene = self._scene
        self._rows, self._background = folded(session_rows(scene.session, self._view), self._view)
        self._view = scrolled(self._view, self._rows, self.visible_rows)
        state = DashboardState(
            view=self._view,
            rows=self._rows,
            background=self._background,
            background_key=self._background_key,
            span_s=self._span_s,
            keys=self.footer_keys(arrows=True),
            recording=scene.recording,
            offset_s=scene.behind_s,
            target=self._target,
            pages=self.page_names(DASHBOARD_KEY),
            load=scene.load,
            marks=scene.marks,
            baseline=scene.baseline,
            statements=self._statements,
        )
        return dashboard_lines(scene.session, self._layout, width, self._glyphs, state)

    def explained(self, cells: int) -> list[Line]:
        from pgtop_tune.tui.dashboard.explain import HEADINGS, explain_lines

        lines: list[Line] = []
        now = self._scene.session.now
        for pane, heading in HEADINGS.items():
            lines += [(), head(((heading, "title"),), cells, self._glyphs), *explain_lines(pane, cells, now)]
        return lines

    @property
    def help_at(self) -> str:
        """The column that the operator sorted by; the sessions where one is chosen; else the pane on top."""
        from pgtop_tune.tui.dashboard.explain import HEADINGS

        if self._view.sort != EVERYTHING.sort:
            headings = [word for word, sort in _SORT_OF_HEADING.items() if sort == self._view.sort]
            return next(column.title for column in ON_DASHBOARD if column.title.split()[0] in headings)
        return HEADINGS["sessions" if self.has_selection or self._view.filter else "header"]

    def chosen_backends(self) -> tuple[BackendKey, ...]:
        """Return the selected session; the dashboard has no tags."""
        return () if self._view.selected is None else (self._view.selected,)

    def listed_backends(self) -> tuple[BackendKey, ...]:
        return tuple(row.key for row in self._rows) if self._view.filter else ()

    @property
    def table_in_view(self) -> str:
        return "sessions"

    @property
    def has_selection(self) -> bool:
        return self._view.selected is not None

    @property
    def selected(self) -> Hashable:
        return self._view.selected

    @property
    def filtered_by(self) -> str:
        return self._view.filter

    def filter_by(self, text: str) -> None:
        self._choose(replace(self._view, filter=text, top=0))

    @property
    def visible_rows(self) -> int:
        """Rows of sessions that are in view."""
        below = max(int(bool(self._background)), self.covered_rows)
        return max(dict(self._layout).get("sessions", 0) - HEAD_ROWS - below, 0)

    @property
    def view(self) -> SessionsView:
        """The operator's choices in the session table."""
        return self._view

    def _choose(self, view: SessionsView) -> None:
        self._view = view
        self.paint()

    def action_move(self, by: int) -> None:
        """Select the session so many rows further down."""
        self._choose(selection_moved(self._view, self._rows, by, self.visible_rows))

    def action_edge(self, by: int) -> None:
        """Select the first or the last session."""
        if self._rows:
            at = self._rows[0 if by < 0 else -1]
            self._choose(scrolled(replace(self._view, selected=at.key), self._rows, self.visible_rows))

    def action_unselect(self) -> None:
        """Clear selection and filter; where there is neither, clear the marks."""
        if self._view.selected is None and not self._view.filter:
            self.post_message(MarksUnwanted())
        self._choose(replace(self._view, selected=None, filter="", top=0))

    async def action_sideways(self, by: int) -> None:
        """Go one frame back or forward: no column is hidden here."""
        await self.app.run_action(f"app.step({by})")

    def action_sort(self, by: int) -> None:
        """Sort by the next or the previous column."""
        self._choose(next_sort(self._view, by))

    def action_idle(self) -> None:
        """Hide or show idle sessions."""
        self._choose(replace(self._view, hide_idle=not self._view.hide_idle))

    def action_background(self) -> None:
        """List the server's background processes, or fold them into a line."""
        self._choose(replace(self._view, background=not self._view.background))

    def action_zoom(self) -> None:
        """Show charts of another time: the next of `SPANS_S`."""
        self._span_s = SPANS_S[(SPANS_S.index(self._span_s) + 1) % len(SPANS_S)]
        self.paint()

    async def action_details(self) -> None:
        """Open everything known of the selected session; without one, of the bottleneck."""
        if self._view.selected is None:
            await self.open_bottleneck()
            return
        key = self._view.selected
        self.app.push_screen(session_dialog(self._scene.session, key, self._glyphs, self.keys_for(key)))

    def action_copy(self) -> None:
        """Copy the selected session's query."""
        query = "" if self._view.selected is None else query_of(self._scene.session, self._view.selected)
        copied = "the query is in your terminal's clipboard"
        self.copy_or_warn(query, copied, "select a session with the arrows first")

    def moment_at(self, pane: str, x: int, y: int) -> float | None:
        rows, session = dict(self._layout), self._scene.session
        if pane not in _OVER_TIME or session.now is None:
            return None
        of_charts = rows.get(_OVER_TIME[0], 0)
        width, _ = chart_widths(self.app.size.width, of_charts)
        right, of_waits = chart_widths(self.app.size.width, rows[pane])[1], x - width - len(_APART)
        if right and of_waits >= 0:
            return waits_axis(session, right, self._span_s).moment_of(of_waits)
        return time_axis(session, width, of_charts, self._span_s).moment_of(x)

    def clicked_in(self, pane: str, x: int, y: int) -> None:
        """Select a session, or sort by a heading; beside them, open a statement or select the session of a lock."""
        at = y - HEAD_ROWS + self._view.top
        if pane != "sessions":
            return
        if x >= session_widths(self.app.size.width)[0]:
            self._clicked_beside(y)
        elif y == HEAD_ROWS - 1:
            name = _SORT_OF_HEADING.get(word_at(self._drawn[pane][y], x))
            self._choose(self._view if name is None else replace(self._view, sort=name, top=0))
        elif HEAD_ROWS <= y < HEAD_ROWS + self.visible_rows and at < len(self._rows):
            self._choose(replace(self._view, selected=self._rows[at].key))

    def _clicked_beside(self, y: int) -> None:
        height = dict(self._layout)["sessions"]
        row = None if y >= height - self.covered_rows else beside_row(self._scene.session, self._statements, height, y)
        if isinstance(row, StatementRate):
            self.post_message(RowChosen("statements", row.counters.id))
        elif row is not None and row.backend is not None:
            key = row.pid, row.backend.backend_start_ms
            if any(listed.key == key for listed in self._rows):
                self._choose(scrolled(replace(self._view, selected=key), self._rows, self.visible_rows))
