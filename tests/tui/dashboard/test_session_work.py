"""What a session is at: locks, progress, workers, the figures of its statement, and what it ran before."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import Backend
from pgtop_tune.model.waits import LockSample, LockWait
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.session_details import session_lines
from pgtop_tune.tui.widgets.lines import plain_text, width
from tests.support.frames import postgres_sample
from tests.support.relation_frames import progress
from tests.support.statement_frames import sample, session_with, statement

PID = 2_231
QUERY_ID = 77
SEEN = 4


def session_of(queries: tuple[str, ...], others: tuple[Backend, ...] = (), **sections: object) -> Session:
    """One query a second; sections are the same in all of them, or made for each second."""
    frames = []
    for second, query in enumerate(queries):
        activity = postgres_sample(second).activity
        assert not isinstance(activity, Unavailable)
        first, *rest = activity.backends
        assert first.pid == PID
        row = replace(first, query=query, query_id=QUERY_ID, usename="bench", datname="bench")
        made = {name: value(second) if callable(value) else value for name, value in sections.items()}
        frames.append({"activity": replace(activity, backends=(row, *rest, *others)), **made})
    return session_with(frames)


def details(session: Session, cells: int = 100) -> str:
    assert session.now is not None
    activity = session.now.postgres.activity  # type: ignore[union-attr]
    assert not isinstance(activity, Unavailable)
    lines = session_lines(session, (PID, activity.backends[0].backend_start_ms), cells)
    assert all(width(line) <= cells for line in lines)
    return "\n".join(" ".join(plain_text(line).split()) for line in lines)


def test_the_lock_it_waits_for_and_who_has_it() -> None:
    wait = LockWait(PID, "tuple", "ExclusiveLock", "pgbench_branches", "row (0,17)", 0, (7, 0), ("ShareLock", "X"), ())
    said = details(session_of(("UPDATE",) * SEEN, locks=LockSample(3.0, (wait,))))
    assert "waits for ExclusiveLock on pgbench_branches row (0,17) (tuple)" in said
    assert "held by 7 ShareLock, 0 X" in said


def test_how_far_its_command_is() -> None:
    said = details(session_of(("VACUUM accounts",) * SEEN, progress=progress))
    assert "progress VACUUM accounts, scanning heap, 3.0 %, 1m37s left" in said


def test_its_parallel_workers_and_what_they_wait_for() -> None:
    activity = postgres_sample(0).activity
    assert not isinstance(activity, Unavailable)
    worker = replace(activity.backends[0], leader_pid=PID, backend_type="parallel worker")
    workers = (
        replace(worker, pid=31, wait_event_type="IO", wait_event="DataFileRead"),
        replace(worker, pid=32, wait_event_type=None, wait_event=None),
    )
    assert "workers 31 IO:DataFileRead, 32 CPU" in details(session_of(("SELECT",) * SEEN, workers))


def test_the_figures_of_its_statement_are_those_of_its_role_in_its_database() -> None:
    def counters(second: int) -> object:
        rows = [
            statement(QUERY_ID, id=role, usename=role, calls=100 * second * factor, exec_us=50_000 * second * factor,
                      max_exec_us=9_000)
            for role, factor in (("bench", 1), ("other", 7))
        ]  # fmt: skip
        return sample(float(second), float(second - 1) if second else None, rows)

    said = details(session_of(("SELECT $1",) * SEEN, statement_counters=counters))
    assert "executions 100 calls/s, 0.50 ms each" in said
    assert "300 calls of 0.50 ms, at most 9.00 ms" in said


def test_what_it_was_seen_with_before_stands_below_newest_first_and_is_not_obeyed() -> None:
    said = details(session_of(("BEGIN", "UPDATE a\x1b[2J", "UPDATE a\x1b[2J", "END")))
    before = said[said.index("before earlier statements") :].splitlines()[1:]
    assert [line.split(" ago ")[1][:8] for line in before] == ["UPDATE a", "BEGIN"]
    assert "\x1b" not in said


@pytest.mark.parametrize("cells", [56, 76, 100])
def test_of_what_there_is_nothing_nothing_is_said_and_every_line_fits(cells: int) -> None:
    said = details(session_of(("SELECT 1",) * SEEN), cells)
    for label in ("waits for", "progress", "workers", "executions", "before"):
        assert not any(line.startswith(label) for line in said.splitlines())
    details(session_of(("SELECT " + "x" * 400, "SELECT 2"), progress=progress), cells)
