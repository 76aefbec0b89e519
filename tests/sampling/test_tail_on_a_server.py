"""The tail of real loads with slow transactions planted in it: its causes by transactions, and who is behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.tail import Tail, by_wait, tail
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import LoadSpec, ScriptChoice
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.latency import tail_phrases_in_full
from pgtop_tune.tui.widgets.lines import plain_text
from tests.sampling.test_live_source import Watcher, answered, watching
from tests.support.recordings import write
from tests.support.servers import conninfo

LOCKED_MS, SLEPT_MS = 300, 1500
LOCKED_SHARE = 75.0
"""Of the tail's transactions: weights 6 and 2. Of its time they have 37 %."""
TABLES = f"""
DROP TABLE IF EXISTS waited_for;
CREATE TABLE waited_for AS SELECT 1 AS id;
CREATE OR REPLACE FUNCTION wait_for_the_row() RETURNS void LANGUAGE plpgsql SET lock_timeout = '{LOCKED_MS}ms' AS $$
BEGIN
    UPDATE waited_for SET id = id;
EXCEPTION WHEN lock_not_available THEN NULL;
END $$
"""


@contextmanager
def waiting_for_a_row(target: str, sessions: int) -> Iterator[None]:
    """Sessions of a load that wait for a row for as long as somebody has it."""
    connections = [psycopg.connect(f"{target} application_name=pgbench", autocommit=True) for _ in range(sessions)]

    def update(connection: psycopg.Connection[tuple[object, ...]]) -> None:
        with suppress(psycopg.Error):
            connection.execute("UPDATE waited_for SET id = id")

    threads = [threading.Thread(target=update, args=(each,)) for each in connections]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for connection, thread in zip(connections, threads, strict=True):
            connection.cancel_safe()
            thread.join(30)
            connection.close()


def tail_of(watcher: Watcher, age_ms: float) -> Tail | None:
    return tail(Interval(watcher.frames), age_ms)


@pytest.mark.parametrize("major", [14, 18, 19])
async def test_old_transactions_wait_behind_the_session_that_has_the_row(
    server_for_major: Callable[[int], Throwaway], major: int
) -> None:
    target = conninfo(server_for_major(major))
    with psycopg.connect(target, autocommit=True) as psql:
        psql.execute(TABLES.encode())
    with psycopg.connect(target) as holder:
        holder.execute("UPDATE waited_for SET id = id")
        root = holder.info.backend_pid
        async with watching(target) as watcher:
            await watcher.until(answered)
            with waiting_for_a_row(target, 6):

                def known(frame: Frame) -> bool:
                    found = tail_of(watcher, 200.0)
                    roots = {cause.root_pid for cause in found.causes} if found else set()
                    return found is not None and found.open >= 7 and root in roots

                await watcher.until(known)
                found = tail_of(watcher, 200.0)
                holder.rollback()
    assert found is not None
    first = by_wait(found.causes)[0]
    assert first.wait_event_type == "Lock"
    assert (first.root_pid, first.root) == (root, "idle in transaction")
    assert sum(cause.share for cause in found.causes) == pytest.approx(100.0)


@pytest.mark.long
async def test_a_planted_tail_is_found_with_its_shares(server: Throwaway, tmp_path: Path) -> None:
    target = conninfo(server)
    with psycopg.connect(target, autocommit=True) as psql:
        psql.execute(TABLES.encode())
    scripts = {
        "quick": "SELECT pg_sleep(0.002);",
        "locked": "SELECT wait_for_the_row();",
        "slept": "SELECT pg_sleep(1.5);",
    }
    for name, text in scripts.items():
        (tmp_path / f"{name}.sql").write_text(f"{text}\n")
    chosen = tuple(
        ScriptChoice(str(tmp_path / f"{name}.sql"), weight)
        for name, weight in {"quick": 92, "locked": 6, "slept": 2}.items()
    )
    with psycopg.connect(target) as holder:
        holder.execute("UPDATE waited_for SET id = id")
        async with watching(target, 1.0) as watcher:
            await watcher.until(answered)
            await watcher.session.load.start(LoadSpec(clients=16, threads=2, scripts=chosen))

            def enough(frame: Frame) -> bool:
                found = tail_of(watcher, 200.0)
                return found is not None and found.transactions > 250

            await watcher.until(enough)
            found = tail_of(watcher, 200.0)
            await watcher.session.load.stop()
            frames = list(watcher.frames)
            holder.rollback()
    assert found is not None
    locked = [cause for cause in found.causes if cause.wait_event_type == "Lock"]
    assert sum(cause.share for cause in locked) == pytest.approx(LOCKED_SHARE, abs=12.0)
    by_looks = 100.0 * sum(cause.looks for cause in locked) / found.looks
    assert by_looks < LOCKED_SHARE - 20.0, "looks see the long sleeps more often"
    behind = sum(cause.share for cause in locked if cause.root == "idle in transaction")
    assert behind > 0.8 * sum(cause.share for cause in locked)
    path = write(tmp_path / "tail.jsonl.gz", frames)
    again = [frame for _, frame in RecordingReader(path).frames()]
    assert tail(Interval(again), 200.0) == tail(Interval(frames), 200.0)
    session = Session()
    for frame in frames[: len(frames) - 1]:
        session.apply(Step((frame,)))
    assert "tail over" in plain_text(tail_phrases_in_full(session)[0].line)


async def test_a_burst_looks_further_and_ends_by_itself(server: Throwaway) -> None:
    async with watching(conninfo(server), 0.5) as watcher:
        await watcher.until(answered)

        def floor(frame: Frame) -> int:
            found = sections.tail(frame)
            return 0 if isinstance(found, Unavailable) else found.floor_ms

        def every_ms(frame: Frame) -> float:
            found = sections.tail(frame)
            return 0.0 if isinstance(found, Unavailable) else found.every_ms

        before = await watcher.until(lambda frame: floor(frame) == 50)
        assert watcher.session.source.burst() > 0
        await watcher.until(lambda frame: floor(frame) == 10 and every_ms(frame) < every_ms(before))
