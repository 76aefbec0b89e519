"""Page 4: blocking sessions and their waiters, as a tree with the roots first."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.sql_quoting import literal
from pgtop_tune.base.units import UNKNOWN, age, count, ms
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.blockers import IDLE_IN_TRANSACTION, LockNode, lock_tree
from pgtop_tune.metrics.waits import lock_types
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.backend_action import BackendKey
from pgtop_tune.model.waits import PREPARED_TRANSACTION
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.session_details import locked_object, session_lines
from pgtop_tune.tui.dashboard.sessions import seldom, short_state
from pgtop_tune.tui.pages.page import (
    Page,
    PageColumn,
    PageTable,
    figure,
    foreign,
    section_rows,
    unless_hidden,
    whole,
    word,
)
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, ellipsized, fit, width
from pgtop_tune.tui.widgets.lines import labelled as labelled_lines
from pgtop_tune.tui.widgets.phrase import Phrase, absence, labelled, lasting, summed

# Waits for heavyweight locks by type of lock, on page 4: counted by the server beside the sampled ones.

_US_PER_S: Final = 1e6
_LONG: Final = "Counted when a wait ends with the lock, if it lasted longer than deadlock_timeout"


def _waited(row: Any) -> float | None:
    """Return mean sessions: microseconds per second."""
    waited = row.grown.per_s("wait_us")
    return None if waited is None else waited / _US_PER_S


def _mean_ms(waited_us: int | None, waits: int | None) -> float | None:
    return waited_us / waits / 1000.0 if waits and waited_us is not None else None


_TYPE_COLUMNS: Final = (
    word("type", "lock type", 17, foreign(lambda row: row.grown.row.locktype), "Kind of lock.",
         "pg_stat_lock.locktype"),
    figure("sampled", "sampled", 8, lambda row: row.sampled, count,
           "Mean sessions that wait for such a lock, over 10 s, short waits included.",
           "pg_stat_activity.wait_event where wait_event_type = 'Lock', sampled: observations / samples"),
    figure("waits", "waits/s", 8, lambda row: row.grown.per_s("waits"), count, f"Long waits per second. {_LONG}.",
           "Δ pg_stat_lock.waits / Δt"),
    figure("waited", "sessions", 8, _waited, count, f"Mean sessions in long waits, over 10 s. {_LONG}.",
           "Δ pg_stat_lock.wait_time / Δt"),
    figure("each", "ms/wait", 8, lambda row: _mean_ms(row.grown.sum("wait_us"), row.grown.sum("waits")), ms,
           "Milliseconds per long wait, over 10 s.", "Δ pg_stat_lock.wait_time / Δ waits"),
    figure("all-waits", "waits", 8, lambda row: row.grown.row.waits, count, "Long waits since the reset.",
           "pg_stat_lock.waits"),
    figure("all-each", "ms each", 8, lambda row: _mean_ms(row.grown.row.wait_us, row.grown.row.waits), ms,
           "Milliseconds per long wait since the reset.", "pg_stat_lock.wait_time / waits"),
    figure("fast-path", "full/s", 8, lambda row: row.grown.per_s("fastpath_exceeded"), count,
           "Locks per second that found the fast-path slots of their session full: raise max_locks_per_transaction.",
           "Δ pg_stat_lock.fastpath_exceeded / Δt"),
    figure("all-fast-path", "full", 8, lambda row: row.grown.row.fastpath_exceeded, count,
           "Locks beyond the fast path since the reset.", "pg_stat_lock.fastpath_exceeded"),
)  # fmt: skip

LOCK_TYPES: Final = PageTable(
    id="lock-types",
    title="by type",
    columns=_TYPE_COLUMNS,
    rows=section_rows(sections.lock_counters, lock_types),
    key_of=lambda row: row.grown.row.locktype,
    sort="sampled",
    quiet=lambda row: not (row.sampled or row.grown.row.waits or row.grown.row.fastpath_exceeded),
)


_TEXT: Final = 1_000
_DEEPEST: Final = 5
"""Levels that are indented; deeper ones say how deep they are."""
_LONG_MS: Final = 1_000
"""deadlock_timeout's default: who waits for longer waits for somebody who does not come back by himself."""


class LockRow(Struct, frozen=True):
    """A node of the tree at a moment of the server's clock; `root` is the pid at the top."""

    node: LockNode
    now_ms: int
    root: int

    @property
    def key(self) -> Hashable:
        """The session, or the name of a prepared transaction."""
        return self.session or (self.node.pid, self.node.prepared)

    @property
    def session(self) -> BackendKey | None:
        """The session that can be cancelled."""
        backend = self.node.backend
        return None if backend is None else (backend.pid, backend.backend_start_ms)

    def since_s(self, moment_ms: int | None) -> float | None:
        """Return the seconds since a moment."""
        return None if moment_ms is None else max(self.now_ms - moment_ms, 0) / 1000.0


def _rows(session: Session) -> Sequence[LockRow] | Unavailable:
    frame = session.now
    activity = NOT_YET if frame is None else sections.activity(frame)
    if frame is None or isinstance(activity, Unavailable):
        return activity if isinstance(activity, Unavailable) else NOT_YET
    locks = sections.locks(frame)
    tree = lock_tree(activity, None if isinstance(locks, Unavailable) else locks)
    rows: list[LockRow] = []
    for node in tree:
        rows.append(LockRow(node, activity.now_ms, rows[-1].root if node.depth else node.pid))
    return rows


def _of_backend(name: str) -> Callable[[Any], str]:
    def text(row: LockRow) -> str:
        value = None if row.node.backend is None else getattr(row.node.backend, name)
        return one_line(value, _TEXT) if value else ""

    return text


def _place(row: LockRow) -> str:
    node = row.node
    name = "prepared" if node.pid == PREPARED_TRANSACTION else str(node.pid)
    if not node.depth:
        return name
    return "  " * (node.depth - 1) + "> " + name if node.depth <= _DEEPEST else f"{'  ' * _DEEPEST}{node.depth}> {name}"


def _state(row: LockRow) -> str:
    if row.node.pid == PREPARED_TRANSACTION:
        return "prepared"
    return UNKNOWN if row.node.backend is None else row.node.backend.state or row.node.backend.backend_type


def _state_style(row: LockRow) -> str:
    if row.node.idle_root or row.node.pid == PREPARED_TRANSACTION:
        return "critical"
    return "warning" if row.node.backend is not None and row.node.backend.state in IDLE_IN_TRANSACTION else PLAIN


def _mode(text: str) -> str:
    """Return modes in at most ten cells each: "AccessExclusiveLock" is AccessExcl."""
    return ", ".join(_SHORT_MODES.get(mode, mode.removesuffix("Lock")) for mode in text.split(", ")) if text else ""


_SHORT_MODES: Final = {
    "AccessShareLock": "AccShare",
    "RowExclusiveLock": "RowExcl",
    "ShareUpdateExclusiveLock": "ShUpdExcl",
    "ShareRowExclusiveLock": "ShRowExcl",
    "ExclusiveLock": "Excl",
    "AccessExclusiveLock": "AccExcl",
}
"""The others are short enough without their last word."""


def _wait_of(name: str) -> Callable[[Any], str]:
    return lambda row: "" if row.node.wait is None else one_line(getattr(row.node.wait, name) or "", _TEXT)


def _query(row: LockRow) -> str:
    if row.node.pid == PREPARED_TRANSACTION:
        return f"prepared transaction {literal(row.node.prepared)}" if row.node.prepared else "a prepared transaction"
    return _of_backend("query")(row)


def _age(id: str, title: str, field: str, definition: str, *, visible: bool = True) -> PageColumn:
    def value(row: LockRow) -> float | None:
        return None if row.node.backend is None else row.since_s(getattr(row.node.backend, field))

    return figure(
        id, title, 6, value, age, definition, f"now − pg_stat_activity.{field.removesuffix('_ms')}", visible=visible
    )


_COLUMNS: Final = (
    PageColumn("pid", "PID", 14, _place, "Blocking sessions: each waiter is below the first session that blocks it. "
        "Red: they wait for each other, a deadlock that the server ends after deadlock_timeout.",
        "pg_blocking_pids(pid)", value=lambda row: row.node.pid, largest_first=False,
        style=lambda row: "wait-lock" if row.node.depth and not row.node.circle else "critical"),
    PageColumn("waited", "waits", 6, lambda row: "" if row.node.waited_ms is None else age(row.node.waited_ms / 1000.0),
        "Time that it has waited for this lock, in seconds where no unit is shown.",
        "now − pg_locks.waitstart, of the first moments pg_stat_activity.query_start",
        value=lambda row: row.node.waited_ms,
        style=lambda row: "warning" if (row.node.waited_ms or 0) >= _LONG_MS else PLAIN, align="right", unit="ms"),
    PageColumn("state", "state", 8, lambda row: short_state(_state(row)),
        "State of the session. A root that is idle in transaction blocks "
        "all sessions below it while its client does nothing.", "pg_stat_activity.state",
        value=_state, largest_first=False, style=_state_style),
    word("object", "object", 22, lambda row: "" if row.node.wait is None else locked_object(row.node.wait),
         "Locked object. A row by table, block and line; names only in the connected database.",
         "pg_locks.locktype, relation, page, tuple, transactionid, classid, objid", share=0.25),
    figure("blocks", "holds", 5, lambda row: float(row.node.blocks), count,
           "Sessions below it, directly or through others.", "pg_blocking_pids(pid)"),
    _age("in-state", "since", "state_change_ms", "Time in the current state."),
    word("wants", "wants", 10, lambda row: _mode(_wait_of("mode")(row)), "Mode of the lock it waits for, shortened.",
         "pg_locks.mode where not granted", raw=_wait_of("mode")),
    word("held", "held as", 18, lambda row: _mode(row.node.held_modes),
         "Lock modes that the session above holds; - if that session is only ahead in the queue.",
         "pg_locks.mode where granted", raw=lambda row: row.node.held_modes),
    word("type", "lock type", 13, _wait_of("locktype"), "Kind of lock it waits for.", "pg_locks.locktype",
         visible=False),
    word("others", "also", 12, lambda row: " ".join(map(str, row.node.other_blockers)),
        "Further sessions that block it; 0 is "
        "a prepared transaction.", "pg_blocking_pids(pid)", raw=lambda row: row.node.other_blockers),
    _age("xact", "xact", "xact_start_ms", "Age of its transaction."),
    word("user", "user", 10, _of_backend("usename"), "Role of the session.", "pg_stat_activity.usename"),
    word("database", "db", 10, _of_backend("datname"), "Database of the session.", "pg_stat_activity.datname"),
    word("application", "application", 16, _of_backend("application_name"), "Name that the client gives itself.",
         "pg_stat_activity.application_name", visible=False),
    word("client", "client", 15, _of_backend("client"), "Address of the client; local is a Unix socket.",
         "pg_stat_activity.client_addr", visible=False),
    word("query", "query", 20, _query, "Statement of the session, or the last one if it is not active.",
         "pg_stat_activity.query", elastic=True, share=0.3),
    figure("depth", "depth", 5, attrgetter("node.depth"), count, "Level in the tree; 0 is a root.",
           "pg_blocking_pids(pid)", visible=False),
    figure("root", "root", 7, attrgetter("root"), whole, "Process at the top of its tree; 0 is a prepared transaction.",
           "pg_blocking_pids(pid)", visible=False),
)  # fmt: skip


def _details(session: Session, row: Any, cells: int, glyphs: Glyphs) -> list[Line]:
    node = row.node
    lines: list[Line] = []
    if node.pid == PREPARED_TRANSACTION:
        name = literal(node.prepared) if node.prepared else "name"
        lines += labelled_lines("prepared", f"blocks {node.blocks}; it has no session and survives restarts", cells)
        lines += labelled_lines(
            "ends with", f"COMMIT PREPARED {name} or ROLLBACK PREPARED {name}, in its database", cells
        )
    if row.session is not None:
        lines += session_lines(session, row.session, cells)
    return lines or [((f"process {node.pid} is not among the visible sessions", "warning"),)]


def _summary(session: Session, cells: int, height: int, glyphs: Glyphs) -> list[Line]:
    rows = unless_hidden(_rows)(session)
    frame = session.now
    if isinstance(rows, Unavailable) or frame is None or height < 1:
        return []
    locks = sections.locks(frame)
    roots = [row for row in rows if row.node.depth == 0 and not row.node.circle]
    waited = [row.node.waited_ms for row in rows if row.node.waited_ms is not None]
    circle = [str(row.node.pid) for row in rows if row.node.circle]
    left_out = 0 if isinstance(locks, Unavailable) else locks.left_out
    counts = [
        Phrase(labelled("waiting", str(len(waited)), "wait-lock" if waited else PLAIN)),
        Phrase(labelled("roots", str(len(roots))), 1),
        Phrase(labelled("longest wait", lasting(max(waited) / 1000.0)) if waited else (), 2),
        Phrase((("deadlock in the making: " + " ".join(circle), "critical"),) if circle else (), 1),
        Phrase(((f"{left_out} more waiting sessions are not shown", "warning"),) if left_out else (), 3),
        seldom(session.interval),
        Phrase((("pg_locks: ", "label"), *absence(locks)) if isinstance(locks, Unavailable) else (), 1),
    ]
    lines: list[Line] = [summed(counts, cells, glyphs)]
    lines += [_root(row, cells, glyphs) for row in roots[: height - 1]]
    return lines[:height]


def _root(row: LockRow, cells: int, glyphs: Glyphs) -> Line:
    node = row.node
    if node.pid == PREPARED_TRANSACTION:
        return fit(((f" {_query(row)}", "critical"), (f" blocks {node.blocks}", "label")), cells)
    since = "" if node.backend is None else f" for {lasting(row.since_s(node.backend.state_change_ms))}"
    role = "" if node.backend is None else f" {one_line(node.backend.usename or UNKNOWN, 40)}"
    lead: Line = (
        (f" {_place(row)}", "strong"),
        (f"{role} ", "label"),
        (_state(row) + since, _state_style(row)),
        (f" blocks {node.blocks}: ", "label"),
    )
    room = cells - width(lead)
    return fit(lead, cells) if room < 1 else (*lead, (ellipsized(_query(row), room, glyphs.ellipsis), PLAIN))


TABLE: Final = PageTable(
    id="locks",
    title="lock tree",
    columns=_COLUMNS,
    rows=unless_hidden(_rows),
    key_of=lambda row: row.key,
    details=_details,
    copied=_query,
    called=lambda row: f"PID {row.node.pid}" if row.node.pid != PREPARED_TRANSACTION else "prepared transaction",
    backend_of=attrgetter("session"),
    empty="no session waits for a lock",
    about="Sessions that hold up others stand here as a tree, each waiter below its blocker, while one waits "
    "for a lock.",
    leads=True,
)

PAGE: Final = Page(
    key="4",
    id="locks",
    title="locks",
    tables=(TABLE, LOCK_TYPES),
    summary=_summary,
    summary_rows=lambda width, height: 5 if height >= 40 else 3 if height >= 30 else 2,
)
