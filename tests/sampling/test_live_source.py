"""The live source against real servers: what they do shows in the frames, also when they go away."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import NotLetIn
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.wiring import LiveSession
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import QPS, TPS
from pgtop_tune.metrics.waits import wait_profile
from pgtop_tune.model.absence import NOT_YET, Reason, Unavailable
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostSample, ProcessSample
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.postgres.server.conninfo import resolve
from tests.support.servers import conninfo

DEADLINE_S = 60.0


class Watcher:
    """A session sampled in the test's own loop."""

    def __init__(self, target: str, interval_s: float) -> None:
        self.session = LiveSession(resolve(target), LiveOptions(interval_s=interval_s))
        self.frames: list[Frame] = []
        self._steps = self.session.source.steps()

    async def until(self, condition: Callable[[Frame], bool]) -> Frame:
        """The first frame that fits; fails after the deadline."""
        async with asyncio.timeout(DEADLINE_S):
            async for step in self._steps:
                self.frames.extend(step.frames)
                if condition(self.frames[-1]):
                    return self.frames[-1]
        raise AssertionError("the source ended")

    async def more(self, count: int) -> Interval:
        """So many frames later; the newest has what the server answered, which on a busy machine may take longer."""
        last = self.frames[-1].sequence + count
        await self.until(lambda frame: frame.sequence >= last and counted(frame))
        return Interval(self.frames)

    def events(self, kind: EventKind) -> list[str]:
        """Texts of the events seen."""
        return [event.text for frame in self.frames for event in frame.events if event.kind is kind]


@asynccontextmanager
async def watching(target: str, interval_s: float = 0.2) -> AsyncIterator[Watcher]:
    watcher = Watcher(target, interval_s)
    try:
        yield watcher
    finally:
        await watcher.session.source.aclose()


def answered(frame: Frame) -> bool:
    return isinstance(frame.postgres, PostgresSample)


def counted(frame: Frame) -> bool:
    """Whether the counters of the database were read in time, and so were those of the frame before."""
    whole = answered(frame) and not isinstance(frame.postgres.database, Unavailable)
    return whole and all(event.kind is not EventKind.GAP for event in frame.events)


def silent(frame: Frame) -> bool:
    return isinstance(frame.postgres, Unavailable) and frame.postgres.reason is Reason.NO_ANSWER


async def test_every_section_is_there_on_a_server_of_ours(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(fsync="on")  # on a disk
    async with watching(conninfo(server)) as watcher:
        await watcher.until(answered)
        frame = await watcher.until(answered)
        assert isinstance(frame.postgres, PostgresSample)
        sections = {name: getattr(frame.postgres, name) for name in PostgresSample.__struct_fields__}
        # Servers made here write their log to stderr, where no SQL reaches it; lock counters came with 19.
        assert {name for name, section in sections.items() if isinstance(section, Unavailable)} == {
            "server_log",
            "lock_counters",
        }
        assert frame.postgres.server.local
        assert frame.postgres.server.postmaster_pid == server.postmaster_pid
        pids = {process.pid for process in frame.host.processes.processes}
        assert {server.postmaster_pid, os.getpid()} <= pids
        assert any("data" in disk.roles for disk in frame.host.disks.disks)


async def test_the_first_picture_waits_for_no_more_than_it_shows(server: Throwaway) -> None:
    # An interval that a busy machine, too, answers in.
    async with watching(conninfo(server), 5.0) as watcher:
        first = (await watcher.until(answered)).postgres
        assert isinstance(first, PostgresSample)
        assert (first.databases, first.relations, first.io) == (NOT_YET, NOT_YET, NOT_YET)
        dashboard = (first.activity, first.locks, first.database, first.wal, first.checkpoints, first.parameters)
        assert not any(isinstance(section, Unavailable) for section in dashboard)


async def test_transactions_of_others_are_counted_and_ours_are_not(make_server: Callable[..., Throwaway]) -> None:
    database = conninfo(make_server(autovacuum="off"))
    async with watching(database, 0.5) as watcher:
        await watcher.until(answered)
        quiet = await watcher.more(8)
        assert sum(TPS(Interval(watcher.frames[: n + 1])) or 0.0 for n in range(3, len(watcher.frames))) < 4.0
        before = quiet.newest
        done = 0
        with psycopg.connect(database, autocommit=True) as connection:
            for _ in range(400):
                connection.execute("SELECT 1")
                done += 1

        def seen(frame: Frame) -> bool:
            # A session that ends counts its transactions a moment later.
            return answered(frame) and (TPS(Interval((before, frame))) or 0.0) * since(frame) > 0.9 * done

        def since(frame: Frame) -> float:
            return frame.postgres.database.at_s - before.postgres.database.at_s

        await watcher.until(seen)
        await watcher.more(2)
        window = [frame for frame in watcher.frames if frame.sequence >= before.sequence]
        seconds = since(window[-1])
        counted = TPS(Interval((window[0], window[-1])))
        assert counted is not None
        assert counted * seconds == pytest.approx(done, rel=0.1, abs=10)
        statements = QPS(Interval((window[0], window[-1])))
        assert statements is not None
        # Read a moment later than the transactions, and on a busy machine much later.
        seconds = window[-1].postgres.statements.at_s - window[0].postgres.statements.at_s
        assert statements * seconds == pytest.approx(done, rel=0.15, abs=15)


async def test_a_lock_wait_shows_with_its_root(database: str) -> None:
    # The holder is left first: its rollback ends what the waiter's own waits for.
    with psycopg.connect(database) as waiter, psycopg.connect(database) as holder:
        holder.execute("CREATE TABLE locked (id int)")
        holder.commit()
        holder.execute("LOCK TABLE locked")
        thread = threading.Thread(target=lambda: waiter.execute("SELECT * FROM locked"))
        async with watching(database) as watcher:
            thread.start()
            frame = await watcher.until(
                lambda frame: answered(frame) and any(row.blocked_by for row in frame.postgres.activity.backends)
            )
            blocked = next(row for row in frame.postgres.activity.backends if row.blocked_by)
            assert blocked.pid == waiter.info.backend_pid
            assert blocked.blocked_by == (holder.info.backend_pid,)
            waits = {wait.label: wait.sessions for wait in wait_profile(await watcher.more(5), 0.9)}
            assert waits["Lock:relation"] == pytest.approx(1.0, abs=0.35)
        holder.rollback()
        thread.join(DEADLINE_S)


async def test_a_restart_is_survived_and_named(fresh_server: Throwaway) -> None:
    async with watching(conninfo(fresh_server)) as watcher:
        await watcher.until(answered)
        await asyncio.to_thread(fresh_server.restart)
        await watcher.until(silent)
        back = await watcher.until(answered)
        await watcher.more(2)
        assert watcher.events(EventKind.RESTART) == ["server restarted"]
        assert watcher.events(EventKind.CONNECTION) == ["server gone"]
        assert TPS(Interval([frame for frame in watcher.frames if frame.sequence <= back.sequence])) is None
        away = [frame for frame in watcher.frames if silent(frame)]
        assert all(not isinstance(frame.host, Unavailable) for frame in away)


async def test_a_hung_server_stops_nothing_but_its_own_numbers(fresh_server: Throwaway) -> None:
    async with watching(conninfo(fresh_server)) as watcher:
        first = await watcher.until(answered)
        pids = [fresh_server.postmaster_pid, *watcher.session._own_sessions.pids]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            hung = await watcher.until(silent)
            assert hung.postgres.detail.startswith("no answer for ")
            assert not isinstance(hung.host, Unavailable)
            await watcher.until(lambda frame: frame.sequence >= hung.sequence + 3)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        again = await watcher.until(answered)
        assert again.sequence > first.sequence


async def test_a_server_that_says_no_ends_the_session_with_its_words(server: Throwaway) -> None:
    async with watching(conninfo(server, "no_such_database")) as watcher:
        with pytest.raises(NotLetIn, match=r"no_such_database.*does not exist"):
            await watcher.until(answered)


async def test_a_server_that_is_not_there_is_waited_for(make_server: Callable[..., Throwaway]) -> None:
    server = make_server()
    target = conninfo(server)
    os.kill(server.postmaster_pid, signal.SIGSTOP)
    os.rename(Path(str(server.socket_dir)) / ".s.PGSQL.5432", Path(str(server.socket_dir)) / "hidden")
    try:
        async with watching(target) as watcher:
            away = await watcher.until(silent)
            assert "trying again in" in away.postgres.detail
            assert not isinstance(away.host, Unavailable)
            os.rename(Path(str(server.socket_dir)) / "hidden", Path(str(server.socket_dir)) / ".s.PGSQL.5432")
            os.kill(server.postmaster_pid, signal.SIGCONT)
            await watcher.until(answered)
    finally:
        os.kill(server.postmaster_pid, signal.SIGCONT)


async def test_late_ticks_are_skipped_and_the_real_interval_is_kept(database: str) -> None:
    async with watching(database) as watcher:
        await watcher.until(answered)
        await watcher.more(1)
        watcher.session.source.set_interval(0.0001)
        assert watcher.session.source.interval_s == 0.2
        await asyncio.sleep(0.7)
        count = len(watcher.frames)
        await watcher.more(1)
        before, after = watcher.frames[count - 1 : count + 1]
        assert after.sequence - before.sequence >= 3
        assert after.elapsed_s - before.elapsed_s > 0.6


async def test_throughput_of_a_short_interval_is_over_a_second(database: str) -> None:
    stopped = threading.Event()
    done = 0

    def work() -> None:
        nonlocal done
        with psycopg.connect(database, autocommit=True) as connection:
            while not stopped.wait(0.002):
                # What reads no table is not published until the session ends.
                connection.execute("SELECT oid FROM pg_database")
                done += 1

    thread = threading.Thread(target=work)
    thread.start()
    known: list[float] = []
    try:
        async with watching(database) as watcher:
            await watcher.until(answered)
            await watcher.more(10)
            begun, begun_s = done, time.monotonic()

            def all_known(frame: Frame) -> bool:
                rate = TPS(Interval(watcher.frames)) if counted(frame) else None
                known.extend([] if rate is None else [rate])
                return len(known) >= 20

            await watcher.until(all_known)
            per_s = (done - begun) / (time.monotonic() - begun_s)
    finally:
        stopped.set()
        thread.join()
    assert statistics.median(known) == pytest.approx(per_s, rel=0.4)
    assert sum(value < per_s / 4 for value in known) < len(known) / 4, known


async def test_a_shorter_interval_brings_the_next_frame_forward(database: str) -> None:
    async with watching(database, interval_s=60.0) as watcher:
        await watcher.until(answered)
        await watcher.until(lambda frame: frame.sequence >= 1)
        async with asyncio.timeout(30):
            following = asyncio.ensure_future(watcher.more(1))
            await asyncio.sleep(0)
            watcher.session.source.set_interval(0.2)
            await following


async def test_a_longer_interval_begins_with_the_frame_that_is_due(database: str) -> None:
    async with watching(database, interval_s=0.2) as watcher:
        await watcher.until(answered)
        async with asyncio.timeout(30):
            following = asyncio.ensure_future(watcher.until(lambda frame: True))
            await asyncio.sleep(0)
            watcher.session.source.set_interval(60.0)
            await following


async def test_a_pgbench_that_somebody_else_started_is_among_the_processes(server: Throwaway, tmp_path: Path) -> None:
    script = tmp_path / "one.sql"
    script.write_text("SELECT 1;\n")
    command = [str(server.bin_dir / "pgbench"), "-n", "-R", "20", "-T", "300", "-f", str(script), conninfo(server)]
    pgbench = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with watching(conninfo(server)) as watcher:

            def seen(frame: Frame) -> bool:
                host = frame.host
                return isinstance(host, HostSample) and isinstance(host.processes, ProcessSample) and any(
                    thread.pid == pgbench.pid for thread in host.processes.threads
                )  # fmt: skip

            frame = await watcher.until(seen)
            assert isinstance(frame.host, HostSample)
            assert isinstance(frame.host.processes, ProcessSample)
            assert pgbench.pid in [process.pid for process in frame.host.processes.processes]
    finally:
        pgbench.kill()
        await pgbench.wait()
