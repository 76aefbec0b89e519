"""Sessions joined with their processes: which are shown, in which order, and which one the operator has selected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import percent
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import CLIENT_BACKEND
from pgtop_tune.metrics.blockers import culprits, lock_tree
from pgtop_tune.metrics.catalogue import Interval, Keyed
from pgtop_tune.metrics.host import PROCESS_CPU, PROCESS_READ_BYTES, PROCESS_WRITE_BYTES
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.backend_action import BackendKey
from pgtop_tune.model.postgres import HIDDEN_QUERY, Activity, Backend
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, first_in_view, next_row
from pgtop_tune.tui.widgets.phrase import Phrase, dot, fitting, padded

# Background processes of the server as one line under the sessions: how many, and those that do something.

_BUSY_PERCENT: Final = 0.5
"""CPU of a process that is named."""
_NAMED: Final = 4


def folded(rows: Sequence[SessionRow], view: SessionsView) -> tuple[list[SessionRow], list[SessionRow]]:
    """Return the rows that are listed, and those that share the line of background processes.

    All are listed while the operator has opened that line or filters. A process that waits for a session is listed,
    and the selected one.
    """
    if view.background or view.filter:
        return list(rows), []
    listed: list[SessionRow] = []
    background: list[SessionRow] = []
    for row in rows:
        backend = row.backend
        hidden = backend.query == HIDDEN_QUERY or backend.backend_type in ("", CLIENT_BACKEND)
        folds = row.rank == AUXILIARY and not hidden and not backend.blocked_by and row.key != view.selected
        (background if folds else listed).append(row)
    return listed, background


def background_line(
    rows: Sequence[SessionRow], width: int, glyphs: Glyphs, key: str = "", before: Sequence[Phrase] = ()
) -> Line:
    """Return the line of background processes: "8 background processes: checkpointer 1.2 % CPU · a lists them".

    Args:
        rows: The processes.
        width: Cells.
        glyphs: Characters.
        key: Lists them; "" is not said.
        before: Stands on the left of them.
    """
    cpu = [(row.figure(PROCESS_CPU) or 0.0, row.backend.backend_type) for row in rows]
    busy = sorted((figure for figure in cpu if figure[0] >= _BUSY_PERCENT), key=lambda figure: -figure[0])
    phrases = [*before, Phrase(((f"{len(rows)} background process{'' if len(rows) == 1 else 'es'}", "dim"),))]
    phrases += [
        Phrase(((f"{one_line(backend_type, 30)} {percent(share)} % CPU", "label"),), rank)
        for rank, (share, backend_type) in enumerate(busy[:_NAMED], 3)
    ]
    if key:
        phrases.append(Phrase(((key, "key"), (" lists them", "dim")), 2))
    return padded(((" ", PLAIN), *fitting(phrases, width - 2, dot(glyphs))), width)


ROOT: Final = -1
BUSY: Final = 0
IN_TRANSACTION: Final = 1
AUXILIARY: Final = 2
IDLE: Final = 3
_RANKS: Final = {
    "active": BUSY,
    "fastpath function call": BUSY,
    "idle in transaction": IN_TRANSACTION,
    "idle in transaction (aborted)": IN_TRANSACTION,
    "idle": IDLE,
}
"""Everything else has no state: auxiliary processes, and sessions we may not look into."""
_RUNNING: Final = ("active", "fastpath function call")

SETTLED_MS: Final = 1000
"""A younger state says nothing: a session of fast OLTP is found active, idle in transaction or idle by chance. It
counts as busy until it has been idle for so long, and short transactions stand in the order of pids: rows stay put."""


class SessionRow(Struct, frozen=True):
    """A backend with what its process did; numbers are None where unknown.

    Of hundreds of rows a screen shows some dozens: a figure is computed when it is read. `rank` is one of ROOT … IDLE.
    """

    backend: Backend
    rank: int
    now_ms: int
    """The server's clock when it was seen."""
    interval: Interval
    """Figures of its process are computed from these frames."""
    stale: bool = False
    """Of an earlier frame: the server has not answered since."""
    below: int = 0
    """Level below the session that holds it up, which stands above it; 0 of all others."""
    alike: tuple[SessionRow, ...] = ()
    """Sessions for which this row stands, itself among them; its ages are those of the first."""

    def figure(self, metric: Keyed[int]) -> float | None:
        """Return a figure of its process, one of `PROCESS_CPU` and the like; the sum of those for which it stands."""
        figures = metric(self.interval)
        if not self.alike:
            return figures.get(self.backend.pid)
        parts = [figures[row.backend.pid] for row in self.alike if row.backend.pid in figures]
        return sum(parts) if parts else None

    @property
    def kind(self) -> Hashable:
        """Properties that sessions have in common that are alike."""
        of = self.backend
        return of.state, of.wait_event, of.usename, of.datname, of.application_name, of.query_id or of.query

    @property
    def xact_s(self) -> float | None:
        """Age of its transaction."""
        return _age_s(self.now_ms, self.backend.xact_start_ms)

    @property
    def statement_s(self) -> float | None:
        """Age of its statement while active; otherwise how long it has been in its state."""
        backend = self.backend
        return _age_s(self.now_ms, backend.query_start_ms if self.running else backend.state_change_ms)

    @property
    def state_s(self) -> float | None:
        """Time in its state."""
        return _age_s(self.now_ms, self.backend.state_change_ms)

    @property
    def connected_s(self) -> float | None:
        """Time since it connected."""
        return _age_s(self.now_ms, self.backend.backend_start_ms)

    @property
    def running(self) -> bool:
        """Return whether it executes a statement at this moment."""
        return self.backend.state in _RUNNING

    @property
    def lingers(self) -> bool:
        """Return whether it is idle in a transaction, for a second or while others wait for it."""
        return self.rank in (ROOT, IN_TRANSACTION) and _RANKS.get(self.backend.state or "") == IN_TRANSACTION

    @property
    def key(self) -> BackendKey:
        """The identity of the session, to which selection and dangerous actions are bound; no session's for several."""
        return -self.backend.pid if self.alike else self.backend.pid, self.backend.backend_start_ms


class SessionsView(Struct, frozen=True):
    """The operator's choices in the session table.

    Attributes:
        sort: A key of `SORTS`.
        reverse: Turns the order round; unknown values stay last.
        filter: Text that a row must contain, upper and lower case alike; "" for all.
        hide_idle: Leaves out sessions that have been idle for a second or more.
        background: Lists background processes of the server, which share one line otherwise.
        selected: The selected session, also while it is not shown.
        top: First row shown.
    """

    sort: str = "activity"
    reverse: bool = False
    filter: str = ""
    hide_idle: bool = False
    background: bool = False
    selected: BackendKey | None = None
    top: int = 0


EVERYTHING: Final = SessionsView()
"""Nothing chosen."""


def _long_xact_first(row: SessionRow) -> float | None:
    start_ms = row.backend.xact_start_ms
    return None if start_ms is None or row.now_ms - start_ms < SETTLED_MS else float(start_ms)


def _largest(value: float | None) -> float | None:
    return None if value is None else -value


SORTS: Final[dict[str, Callable[[SessionRow], float | None]]] = {
    "activity": _long_xact_first,
    "pid": lambda row: float(row.backend.pid),
    "cpu": lambda row: _largest(row.figure(PROCESS_CPU)),
    "read": lambda row: _largest(row.figure(PROCESS_READ_BYTES)),
    "write": lambda row: _largest(row.figure(PROCESS_WRITE_BYTES)),
    "xact": lambda row: _largest(row.xact_s),
    "stmt": lambda row: _largest(row.statement_s),
}
"""Sort orders, in the order of their columns on screen: what is compared, smallest first."""


def session_rows(session: Session, view: SessionsView = EVERYTHING) -> list[SessionRow]:
    """Return the sessions to show, in order: those of the newest frame that has them, which `SessionRow.stale` tells.

    By activity those that hold up others come first, then busy ones, idle ones last; sorted by pid they mix. Ties go to
    the lower pid.
    """
    interval, frame = session.interval, session.sessions_seen
    activity = None if frame is None else sections.activity(frame)
    if interval is None or frame is None or activity is None or isinstance(activity, Unavailable):
        return []
    stale = frame is not session.now
    of_processes, now_ms = Interval([frame]) if stale else interval, activity.now_ms
    pattern = view.filter.casefold()
    blockers = {pid for backend in activity.backends for pid in backend.blocked_by}
    roots = culprits(activity) if blockers else frozenset()
    rows = []
    for backend in activity.backends:
        rank = _RANKS.get(backend.state or "", AUXILIARY)
        changed_ms = backend.state_change_ms
        if rank not in (BUSY, AUXILIARY) and changed_ms is not None and now_ms - changed_ms < SETTLED_MS:
            rank = BUSY
        if blockers and backend.pid in roots:
            rank = ROOT
        elif rank == IDLE and backend.pid in blockers:
            # A lock of the session, not of a transaction: who holds others up is not at rest.
            rank = BUSY
        if view.hide_idle and rank == IDLE:
            continue
        if pattern and not any(pattern in text.casefold() for text in searched_texts(backend)):
            continue
        rows.append(SessionRow(backend, rank, now_ms, of_processes, stale))
    ordered = _ordered(rows, view)
    return _as_tree(ordered, activity, roots) if roots and view.sort == "activity" and not view.reverse else ordered


def _as_tree(rows: list[SessionRow], activity: Activity, roots: Collection[int]) -> list[SessionRow]:
    """Return the rows with those that wait for a root below it, each below its first blocker."""
    by_pid = {row.backend.pid: row for row in rows}
    levels: dict[int, int] = {}
    inside = False
    for node in lock_tree(activity, None):
        # A prepared transaction has no row to stand below.
        inside = node.pid in roots and node.pid in by_pid if node.depth == 0 else inside
        if inside:
            levels[node.pid] = node.depth
    tree = [
        replace(by_pid[pid], below=level) if level else by_pid[pid] for pid, level in levels.items() if pid in by_pid
    ]
    return [*tree, *(row for row in rows if row.backend.pid not in levels)]


def _age_s(now_ms: int, since_ms: int | None) -> float | None:
    return None if since_ms is None else max(now_ms - since_ms, 0) / 1000.0


def searched_texts(backend: Backend) -> list[str]:
    """Return the texts that a filter looks into."""
    texts = (
        backend.usename, backend.datname, backend.application_name, backend.state, backend.query, backend.backend_type,
        f"{backend.wait_event_type}:{backend.wait_event}" if backend.wait_event_type else None, backend.client,
        str(backend.pid),
    )  # fmt: skip
    return [text for text in texts if text]


def _by_activity(row: SessionRow) -> tuple[int, bool, float, int]:
    """Return most screens have this order, of a thousand rows."""
    backend = row.backend
    start_ms = backend.xact_start_ms
    if start_ms is None or row.now_ms - start_ms < SETTLED_MS:
        return row.rank, True, 0.0, backend.pid
    return row.rank, False, start_ms, backend.pid


def _ordered(rows: list[SessionRow], view: SessionsView) -> list[SessionRow]:
    if view.sort == "activity" and not view.reverse:
        return sorted(rows, key=_by_activity)
    compared = SORTS[view.sort]
    by_activity = view.sort == "activity"
    mixed = view.sort == "pid"
    sign = -1.0 if view.reverse else 1.0

    def order(row: SessionRow) -> tuple[int, bool, float, int]:
        value = compared(row)
        group = row.rank if by_activity else 0 if mixed else int(row.rank == IDLE)
        return group, value is None, 0.0 if value is None else sign * value, row.backend.pid

    return sorted(rows, key=order)


ALIKE: Final = 5
"""Sessions of a kind from which on they stand on one line."""


def by_kind(rows: Sequence[SessionRow]) -> list[list[SessionRow]]:
    """Return the sessions that are alike, in the order of the first of each kind."""
    kinds: dict[Hashable, list[SessionRow]] = {}
    for row in rows:
        kinds.setdefault(row.kind, []).append(row)
    return list(kinds.values())


def with_idle_folded(rows: Sequence[SessionRow]) -> list[SessionRow]:
    """Return the rows, those of idle sessions that are alike as one, in the place of the first."""
    folded_rows = {
        alike[0].key: replace(alike[0], alike=tuple(alike))
        for alike in by_kind([row for row in rows if row.rank == IDLE])
        if len(alike) >= ALIKE
    }
    hidden = {row.key for folded_row in folded_rows.values() for row in folded_row.alike[1:]}
    return [folded_rows.get(row.key, row) for row in rows if row.key not in hidden]


def cursor_of(rows: Sequence[SessionRow], view: SessionsView) -> int | None:
    """Return the index of the selected session; None when none is selected or it is not among the rows."""
    if view.selected is None:
        return None
    return next((index for index, row in enumerate(rows) if row.key == view.selected), None)


def scrolled(view: SessionsView, rows: Sequence[SessionRow], visible: int) -> SessionsView:
    """Return the view with its first row such that no row is left empty and the selected one is shown."""
    top = first_in_view(view.top, cursor_of(rows, view), len(rows), visible)
    return view if top == view.top else replace(view, top=top)


def selection_moved(view: SessionsView, rows: Sequence[SessionRow], by: int, visible: int) -> SessionsView:
    """Return the view with the selection moved by so many rows, see `next_row`."""
    if not rows:
        return view
    at = next_row(view.top, cursor_of(rows, view), by, len(rows), visible)
    return scrolled(replace(view, selected=rows[at].key), rows, visible)


def next_sort(view: SessionsView, by: int) -> SessionsView:
    """Return the view sorted by the next (or previous) of `SORTS`, from the top."""
    names = list(SORTS)
    return replace(view, sort=names[(names.index(view.sort) + by) % len(names)], top=0)
