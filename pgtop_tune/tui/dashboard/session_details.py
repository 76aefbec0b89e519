"""The details of one session: role, client, state, times, blockers and the full query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import UNKNOWN, count, percent, size, wall_clock, with_ms
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.progress import progress_rows
from pgtop_tune.metrics.statements import statement_rates
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.backend_action import BackendKey
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostFacts, ProcessCounters
from pgtop_tune.model.postgres import Activity, Backend
from pgtop_tune.model.statements import StatementText
from pgtop_tune.model.waits import CPU, LockWait
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.lines import CUT, Glyphs, Line, ellipsized, labelled, wrapped
from pgtop_tune.tui.widgets.phrase import lasting

if TYPE_CHECKING:
    from pgtop_tune.tui.dialogs.dialog import DetailsDialog, RowKey

_LABEL_CELLS: Final = 14
_LOCAL: Final = "local"
_OTHERS: Final = 5
"""Sessions held up that are listed one by one."""
_KEPT: Final = 500
"""Characters of a query that a frame has: `Backend.query`."""


def session_backend(session: Session, key: BackendKey) -> Backend | None:
    """Return the session with that key in the newest frame; None when it has ended or cannot be seen."""
    activity = None if session.interval is None else session.interval.now(sections.activity)
    backends = () if activity is None else activity.backends
    return next((backend for backend in backends if (backend.pid, backend.backend_start_ms) == key), None)


def session_lines(session: Session, key: BackendKey, cells: int) -> list[Line]:
    """Return the session's facts and its query, wrapped; or one line saying that it is gone or cannot be seen.

    Args:
        session: The session that is shown.
        key: Key of the session.
        cells: Width.
    """
    frame = session.now
    if frame is None:
        return [(("waiting for the first sample", "dim"),)]
    activity = sections.activity(frame)
    if isinstance(activity, Unavailable):
        return wrapped(str(activity), cells, "critical")
    backend = session_backend(session, key)
    if backend is None:
        return [((f"session {key[0]} has ended", "warning"),)]
    lines = [line for label, text in _facts(backend, activity.now_ms) for line in labelled(label, text, cells)]
    processes = sections.processes(frame)
    if not isinstance(processes, Unavailable):
        process = next((candidate for candidate in processes.processes if candidate.pid == backend.pid), None)
        if process is not None:
            lines += labelled("process", _process(process, _ticks_per_s(frame)), cells)
    lines += work_lines(backend, activity, session, cells)
    lines += _blockers(backend, activity, cells)
    return [*lines, *_query(backend, session, cells), *earlier_lines(backend, session, cells)]


def _query(backend: Backend, session: Session, cells: int) -> list[Line]:
    """Return the query; where it was cut also the statement, of which pg_stat_statements may have more."""
    text = backend.query or UNKNOWN
    cut = len(text) >= _KEPT
    origin = f"  cut: the first {_KEPT} characters," if cut else " "
    lines: list[Line] = [
        (),
        (("query", "title"), (f"{origin} as in pg_stat_activity", "warning" if cut else "dim")),
    ]
    lines += wrapped(text, cells)
    statement = _statement_of(backend, session) if cut else None
    if statement is None:
        return lines
    fetched, total = len(statement.query), statement.characters
    part = f"the first {count(fetched)} of" if total > fetched else "all"
    origin = f"  {part} {count(total)} characters, as in pg_stat_statements: constants replaced"
    lines += [(), (("statement", "title"), (origin, "dim"))]
    return [*lines, *wrapped(statement.query, cells)]


def _statement_of(backend: Backend, session: Session) -> StatementText | None:
    texts = None if session.interval is None else session.interval.now(sections.statement_texts)
    if texts is None or backend.query_id is None:
        return None
    return next((text for text in texts.texts if text.queryid == backend.query_id and text.query), None)


def _facts(backend: Backend, now_ms: int) -> list[tuple[str, str]]:
    def since(moment_ms: int | None) -> str:
        if moment_ms is None:
            return UNKNOWN
        return f"{lasting((now_ms - moment_ms) / 1000.0)}, since {wall_clock(moment_ms)}"

    wait = f"{backend.wait_event_type}:{backend.wait_event}" if backend.wait_event_type else _unwaiting(backend)
    leader = f", leader {backend.leader_pid}" if backend.leader_pid else ""
    where = f" in database {backend.datname}" if backend.datname else ""
    whence = "over a Unix socket" if backend.client == _LOCAL else f"from {backend.client or UNKNOWN}"
    xmin = UNKNOWN if backend.backend_xmin_age is None else f"{backend.backend_xmin_age} transactions old"
    return [
        ("pid", f"{backend.pid}  {backend.backend_type}{leader}"),
        ("user", f"{backend.usename or UNKNOWN}{where}, {whence}"),
        ("application", backend.application_name or UNKNOWN),
        ("connected", since(backend.backend_start_ms)),
        ("state", f"{backend.state or UNKNOWN}, {since(backend.state_change_ms)}"),
        ("wait", wait),
        ("transaction", f"{since(backend.xact_start_ms)}; xmin {xmin}"),
        ("query began", since(backend.query_start_ms)),
        ("query id", UNKNOWN if backend.query_id is None else str(backend.query_id)),
    ]


def _unwaiting(backend: Backend) -> str:
    return CPU if backend.state == "active" else UNKNOWN


def _ticks_per_s(frame: Frame) -> int | None:
    facts = None if isinstance(frame.host, Unavailable) else frame.host.facts
    return facts.ticks_per_s if isinstance(facts, HostFacts) else None


def _process(process: ProcessCounters, ticks_per_s: int | None) -> str:
    """Return the figures of a process since it began."""
    parts = [f"memory {size(process.rss_bytes)}"]
    if ticks_per_s:
        user_s, system_s = process.user_ticks / ticks_per_s, process.system_ticks / ticks_per_s
        parts.append(f"CPU {lasting(user_s)} user and {lasting(system_s)} system")
    return ", ".join([*parts, f"read {size(process.read_bytes)}, written {size(process.write_bytes)}"])


def _blockers(backend: Backend, activity: Activity, cells: int) -> list[Line]:
    """Return the sessions that block it, and those that it blocks, a line each."""
    by_pid = {peer.pid: peer for peer in activity.backends}
    lines: list[Line] = []
    for pid in backend.blocked_by:
        blocker = by_pid.get(pid)
        description = "a prepared transaction" if pid == 0 else "not seen"
        if blocker is not None:
            description = f"{blocker.usename or UNKNOWN}  {blocker.state or UNKNOWN}  {blocker.query or ''}"
        lines.append(_other("blocked by", f"{pid}  {description}", "critical", cells))
    waiting = [peer for peer in activity.backends if backend.pid in peer.blocked_by]
    lines += [_other("blocks", f"{waiter.pid}  {waiter.query or ''}", "warning", cells) for waiter in waiting[:_OTHERS]]
    if len(waiting) > _OTHERS:
        lines.append(_other("", f"and {len(waiting) - _OTHERS} more", "warning", cells))
    return lines


def _cut(text: str, cells: int) -> str:
    return ellipsized(text, max(cells, 1), CUT).rstrip()


def _other(label: str, text: str, style: str, cells: int) -> Line:
    return ((label.ljust(_LABEL_CELLS), "label"), (_cut(one_line(text, _TEXT), cells - _LABEL_CELLS), style))


def query_of(session: Session, key: BackendKey) -> str:
    """Return the query text of a session as the server gave it; "" when there is none."""
    backend = session_backend(session, key)
    return "" if backend is None else backend.query or ""


# What a session is at: the lock it wants, progress, parallel workers, its statement's figures, what it ran before.

_TEXT: Final = 300
_BEFORE_S: Final = 60.0
_MOST_BEFORE: Final = 5
_AGE_CELLS: Final = 12


def work_lines(backend: Backend, activity: Activity, session: Session, cells: int) -> list[Line]:
    """Return a line or two for each of them that there is."""
    interval = session.interval
    if interval is None:
        return []
    facts = [
        *_lock(backend, interval),
        *_progress(backend, interval),
        *_workers(backend, activity),
        *_figures(backend, interval),
    ]
    return [line for label, text in facts for line in labelled(label, text, cells)]


def earlier_lines(backend: Backend, session: Session, cells: int) -> list[Line]:
    """Return the last statements it was seen with before this one, newest first; none when there were none."""
    interval = session.interval
    if interval is None:
        return []
    looks = interval.recent(sections.activity, _BEFORE_S)
    seconds_ago: dict[str, float] = {}
    for look in looks:
        for earlier in look.backends:
            if (earlier.pid, earlier.backend_start_ms) == (backend.pid, backend.backend_start_ms) and earlier.query:
                seconds_ago.setdefault(one_line(earlier.query, _TEXT), looks[0].at_s - look.at_s)
    now = one_line(backend.query or "", _TEXT)
    rows = [(query, ago_s) for query, ago_s in seconds_ago.items() if query != now][:_MOST_BEFORE]
    if not rows:
        return []
    head: Line = (("before", "title"), ("  earlier statements, newest first", "dim"))
    return [(), head, *(_earlier(query, ago_s, cells) for query, ago_s in rows)]


def _earlier(query: str, ago_s: float, cells: int) -> Line:
    ago = f"{lasting(ago_s)} ago".ljust(_AGE_CELLS)
    return ((ago, "label"), (_cut(query, cells - _AGE_CELLS), ""))


def locked_object(wait: LockWait) -> str:
    """Return the object of a lock: the relation, and the part of it."""
    target = "" if wait.relation and wait.target == wait.locktype else wait.target
    return one_line(" ".join(part for part in (wait.relation, target) if part), _TEXT)


def _lock(backend: Backend, interval: Interval) -> list[tuple[str, str]]:
    locks = sections.locks(interval.newest)
    waits = () if isinstance(locks, Unavailable) else locks.waits
    wait = next((candidate for candidate in waits if candidate.pid == backend.pid), None)
    if wait is None:
        return []
    held_locks = ", ".join(f"{pid} {modes}" for pid, modes in zip(wait.holders, wait.held_modes, strict=False))
    return [
        ("waits for", f"{wait.mode} on {locked_object(wait)} ({wait.locktype})"),
        ("held by", held_locks or "none of these sessions: others are ahead in the queue"),
    ]


def _progress(backend: Backend, interval: Interval) -> list[tuple[str, str]]:
    command = next((candidate for candidate in progress_rows(interval) if candidate.row.pid == backend.pid), None)
    if command is None:
        return []
    parts = [" ".join(part for part in (command.row.command, command.row.relation) if part), command.row.phase]
    if command.percent is not None:
        parts.append(f"{percent(command.percent)} %")
    if command.remaining_s is not None:
        parts.append(f"{lasting(command.remaining_s)} left")
    return [("progress", ", ".join(one_line(part, _TEXT) for part in parts if part))]


def _workers(backend: Backend, activity: Activity) -> list[tuple[str, str]]:
    workers = [worker for worker in activity.backends if worker.leader_pid == backend.pid and worker.pid != backend.pid]
    if not workers:
        return []
    waits = [
        f"{worker.pid} {worker.wait_event_type}:{worker.wait_event}" if worker.wait_event else f"{worker.pid} CPU"
        for worker in workers
    ]
    return [("workers", ", ".join(waits))]


def _figures(backend: Backend, interval: Interval) -> list[tuple[str, str]]:
    """Return the figures of its statement, for its database and role, as pg_stat_statements counts them."""
    if backend.query_id is None:
        return []
    about = (backend.query_id, backend.usename, backend.datname, True)
    for rate in statement_rates(interval):
        row = rate.counters
        if (row.queryid, row.usename, row.datname, row.toplevel) == about:
            now = f"{count(rate.calls_per_s)} calls/s, {with_ms(rate.mean_ms)} each, {percent(rate.share)} % of time"
            mean_ms = row.exec_us / row.calls / 1000.0 if row.calls else None
            calls = "call" if row.calls == 1 else "calls"
            ever = f"{count(row.calls)} {calls} of {with_ms(mean_ms)}, at most {with_ms(row.max_exec_us / 1000.0)}"
            return [("executions", now), ("", f"{ever}, since the entry was created")]
    return []


def session_dialog(session: Session, key: BackendKey, glyphs: Glyphs, keys: Sequence[RowKey]) -> DetailsDialog:
    """Return the dialog with everything known of a session.

    Args:
        session: The session that is shown.
        key: Key of the session.
        glyphs: Characters of the drawing.
        keys: What can be done with it.
    """
    from pgtop_tune.tui.dialogs.dialog import DetailsDialog

    return DetailsDialog(
        title=f"session {key[0]}",
        session=session,
        lines=lambda session, cells: session_lines(session, key, cells),
        copied=lambda session: query_of(session, key),
        glyphs=glyphs,
        more=keys,
    )
