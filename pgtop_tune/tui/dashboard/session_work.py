"""What a session is at: the lock it wants, progress, parallel workers, its statement's figures, what it ran before."""

from __future__ import annotations

from typing import Final

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.progress import progress_rows
from pgtop_tune.metrics.statements import statement_rates
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import Activity, Backend
from pgtop_tune.model.waits import LockWait
from pgtop_tune.runtime.session import Session
from pgtop_tune.safe_text import one_line
from pgtop_tune.tui.widgets.lines import Line, clip
from pgtop_tune.tui.widgets.phrase import lasting
from pgtop_tune.tui.widgets.wrapping import labelled
from pgtop_tune.units import count, percent, with_ms

_TEXT: Final = 300
_BEFORE_S: Final = 60.0
_MOST_BEFORE: Final = 5
_AGE_CELLS: Final = 12


def work_lines(backend: Backend, activity: Activity, session: Session, cells: int) -> list[Line]:
    """A line or two for each of them that there is."""
    interval = session.interval
    if interval is None:
        return []
    told = [
        *_lock(backend, interval),
        *_progress(backend, interval),
        *_workers(backend, activity),
        *_figures(backend, interval),
    ]
    return [line for label, text in told for line in labelled(label, text, cells)]


def earlier_lines(backend: Backend, session: Session, cells: int) -> list[Line]:
    """The last statements it was seen with before this one, newest first; none when there were none."""
    interval = session.interval
    if interval is None:
        return []
    looks = interval.recent(sections.activity, _BEFORE_S)
    found: dict[str, float] = {}
    for look in looks:
        for each in look.backends:
            if (each.pid, each.backend_start_ms) == (backend.pid, backend.backend_start_ms) and each.query:
                found.setdefault(one_line(each.query, _TEXT), looks[0].at_s - look.at_s)
    now = one_line(backend.query or "", _TEXT)
    rows = [(query, ago_s) for query, ago_s in found.items() if query != now][:_MOST_BEFORE]
    if not rows:
        return []
    head: Line = (("before", "title"), ("  earlier statements, newest first", "dim"))
    return [(), head, *(_earlier(query, ago_s, cells) for query, ago_s in rows)]


def _earlier(query: str, ago_s: float, cells: int) -> Line:
    ago = f"{lasting(ago_s)} ago".ljust(_AGE_CELLS)
    return ((ago, "label"), (clip(query, max(cells - _AGE_CELLS, 1)).rstrip(), ""))


def locked_object(wait: LockWait) -> str:
    """What a lock is on: the relation, and what of it."""
    target = "" if wait.relation and wait.target == wait.locktype else wait.target
    return one_line(" ".join(part for part in (wait.relation, target) if part), _TEXT)


def _lock(backend: Backend, interval: Interval) -> list[tuple[str, str]]:
    locks = sections.locks(interval.newest)
    waits = () if isinstance(locks, Unavailable) else locks.waits
    wait = next((each for each in waits if each.pid == backend.pid), None)
    if wait is None:
        return []
    held = ", ".join(f"{pid} {modes}" for pid, modes in zip(wait.holders, wait.held_modes, strict=False))
    return [
        ("waits for", f"{wait.mode} on {locked_object(wait)} ({wait.locktype})"),
        ("held by", held or "none of these sessions: others are ahead in the queue"),
    ]


def _progress(backend: Backend, interval: Interval) -> list[tuple[str, str]]:
    found = next((each for each in progress_rows(interval) if each.row.pid == backend.pid), None)
    if found is None:
        return []
    parts = [" ".join(part for part in (found.row.command, found.row.relation) if part), found.row.phase]
    if found.percent is not None:
        parts.append(f"{percent(found.percent)} %")
    if found.remaining_s is not None:
        parts.append(f"{lasting(found.remaining_s)} left")
    return [("progress", ", ".join(one_line(part, _TEXT) for part in parts if part))]


def _workers(backend: Backend, activity: Activity) -> list[tuple[str, str]]:
    workers = [each for each in activity.backends if each.leader_pid == backend.pid and each.pid != backend.pid]
    if not workers:
        return []
    waits = [
        f"{each.pid} {each.wait_event_type}:{each.wait_event}" if each.wait_event else f"{each.pid} CPU"
        for each in workers
    ]
    return [("workers", ", ".join(waits))]


def _figures(backend: Backend, interval: Interval) -> list[tuple[str, str]]:
    """Of its statement, in its database and by its role, as pg_stat_statements counts it."""
    if backend.query_id is None:
        return []
    about = (backend.query_id, backend.usename, backend.datname, True)
    for rate in statement_rates(interval):
        row = rate.counters
        if (row.queryid, row.usename, row.datname, row.toplevel) == about:
            now = (
                f"{count(rate.calls_per_s)} calls/s, {with_ms(rate.mean_ms)} each, {percent(rate.share)} % of all time"
            )
            mean_ms = row.exec_us / row.calls / 1000.0 if row.calls else None
            ever = f"{count(row.calls)} calls of {with_ms(mean_ms)}, at most {with_ms(row.max_exec_us / 1000.0)}"
            return [("executions", now), ("", f"{ever}, since the entry was made")]
    return []
