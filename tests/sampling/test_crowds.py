"""Of a crowd processes, the list of sessions and their locks are read less often: they are the bulk of our cost."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pgtop_tune.host.local import LocalHost
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Section
from pgtop_tune.model.absence import NOT_RECORDED, NOT_YET, Reason, Unavailable
from pgtop_tune.model.host import HostSample, ProcessSample
from pgtop_tune.model.machine import NOWHERE_ELSE, ServerPlaces
from pgtop_tune.model.postgres import Activity, PostgresSample
from pgtop_tune.sampling.host_sampler import HostSampler
from pgtop_tune.sampling.postgres_sampler import PostgresSampler, SessionClock
from tests.support.frames import backend
from tests.support.machine_tree import write
from tests.support.silent_server import SilentServer, here

TICKS = 13


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class NoServer:
    """A server nobody asks."""

    async def places(self) -> ServerPlaces | Unavailable:
        return NOWHERE_ELSE

    async def server_files(self, paths: object) -> Unavailable:
        return NOT_RECORDED


def _server(clock: Clock, sessions: int) -> PostgresSample:
    crowd = tuple(backend(os.getpid(), 0) if not at else backend(5_000_000 + at, 0) for at in range(sessions))
    return PostgresSample(activity=Activity(clock(), 0, crowd))


async def _looks_at_s(sessions: int, every_s: float = 1.0) -> list[float]:
    """When the processes in each frame were read, in seconds since the first frame."""
    clock = Clock()
    sampler = HostSampler(LocalHost(clock=clock), True, lambda: (0, 0), NoServer(), clock)
    found = []
    try:
        for _ in range(TICKS):
            seen = await sampler.look(_server(clock, sessions), (), 1.0)
            assert isinstance(seen, HostSample)
            assert isinstance(seen.processes, ProcessSample)
            assert os.getpid() in {process.pid for process in seen.processes.processes}
            found.append(seen.processes.at_s - 100.0)
            clock.now_s += every_s
    finally:
        sampler.close()
    return found


@pytest.mark.parametrize(
    ("sessions", "apart_s"), [(10, 1.0), (190, 1.0), (300, 3.0), (450, 4.0), (1000, 4.0), (5000, 4.0)]
)
async def test_the_larger_the_crowd_the_further_apart_are_the_looks_but_never_more_than_four_seconds(
    sessions: int, apart_s: float
) -> None:
    looks = await _looks_at_s(sessions)
    assert looks == [at - at % apart_s for at in range(TICKS)]


async def test_slow_frames_always_look() -> None:
    assert await _looks_at_s(5000, every_s=5.0) == [5.0 * at for at in range(TICKS)]


async def test_a_crowd_that_has_left_is_not_shown_any_more() -> None:
    clock = Clock()
    sampler = HostSampler(LocalHost(clock=clock), True, lambda: (0, 0), NoServer(), clock)
    await sampler.look(_server(clock, 600), (), 1.0)
    clock.now_s += 1.0
    seen = await sampler.look(NOT_RECORDED, (), 1.0)
    sampler.close()
    assert isinstance(seen, HostSample)
    assert isinstance(seen.processes, ProcessSample)
    assert seen.processes.at_s == clock()


def _pids(seen: HostSample | Unavailable) -> set[int]:
    assert isinstance(seen, HostSample)
    assert isinstance(seen.processes, ProcessSample)
    return {process.pid for process in seen.processes.processes}


async def test_backends_of_a_server_that_does_not_answer_are_still_its_own() -> None:
    """Without backends a sample would count their CPU time as that of other programs, and show an idle server."""
    clock, sleeping = Clock(), subprocess.Popen(["sleep", "60"])
    sampler = HostSampler(LocalHost(clock=clock), True, lambda: (0, 0), NoServer(), clock)
    server = PostgresSample(activity=Activity(clock(), 0, (backend(sleeping.pid, 0),)))
    try:
        assert sleeping.pid in _pids(await sampler.look(server, (), 1.0))
        for silent in (Unavailable(Reason.NO_ANSWER), replace(server, activity=Unavailable(Reason.NO_ANSWER))):
            clock.now_s += 1.0
            assert sleeping.pid in _pids(await sampler.look(silent, (), 1.0))
        sleeping.kill()
        sleeping.wait()
        clock.now_s += 1.0
        assert sleeping.pid not in _pids(await sampler.look(Unavailable(Reason.NO_ANSWER), (), 1.0))
    finally:
        sleeping.kill()
        sleeping.wait()
        sampler.close()


async def test_another_program_that_gets_the_pid_of_a_backend_is_none(tmp_path: Path) -> None:
    def started(at_ticks: int) -> None:
        stat = f"4242 (postgres) S 1 {'0 ' * 17}{at_ticks} 0 0 {'0 ' * 28}\n"
        write(tmp_path, {"proc/4242/stat": stat})

    clock = Clock()
    sampler = HostSampler(LocalHost(clock=clock, root=tmp_path), True, lambda: (0, 0), NoServer(), clock)
    server = PostgresSample(activity=Activity(clock(), 0, (backend(4242, 0),)))
    try:
        started(1000)
        assert 4242 in _pids(await sampler.look(server, (), 1.0))
        assert 4242 in _pids(await sampler.look(Unavailable(Reason.NO_ANSWER), (), 1.0))
        started(2000)
        assert 4242 not in _pids(await sampler.look(Unavailable(Reason.NO_ANSWER), (), 1.0))
        assert 4242 in _pids(await sampler.look(server, (), 1.0))
    finally:
        sampler.close()


async def test_what_a_session_of_a_crowd_read_and_wrote_ends_when_it_is_idle() -> None:
    """Its last rate stood on the screen for ten seconds."""
    clock, sleeping = Clock(), subprocess.Popen(["sleep", "60"])
    others = tuple(backend(5_000_000 + at, 0) for at in range(150))
    idle = replace(backend(sleeping.pid, 0), state="idle")
    sampler = HostSampler(LocalHost(clock=clock), True, lambda: (0, 0), NoServer(), clock)
    found = []
    try:
        for row in (replace(idle, state="active"), *[idle] * 20):
            server = PostgresSample(activity=Activity(clock(), 0, (row, *others)))
            seen = await sampler.look(server, (), 1.0)
            assert isinstance(seen, HostSample)
            assert isinstance(seen.processes, ProcessSample)
            (process,) = [each for each in seen.processes.processes if each.pid == sleeping.pid]
            found.append(process.read_bytes is not None)
            clock.now_s += 1.0
    finally:
        sleeping.kill()
        sleeping.wait()
        sampler.close()
    assert all(found), "as it was when it became idle, and a rate of 0"


async def test_of_an_idle_session_in_a_crowd_the_times_are_read_as_well() -> None:
    """A queue that is known of the busy ones alone is not known: that of 300 sessions was said to be 0."""
    clock, sleeping = Clock(), subprocess.Popen(["sleep", "60"])
    crowd = tuple(backend(5_000_000 + at, 0) for at in range(150))
    server = PostgresSample(activity=Activity(clock(), 0, (replace(backend(sleeping.pid, 0), state="idle"), *crowd)))
    sampler = HostSampler(LocalHost(clock=clock), True, lambda: (0, 0), NoServer(), clock)
    try:
        seen = await sampler.look(server, (), 1.0)
        assert isinstance(seen, HostSample)
        assert isinstance(seen.processes, ProcessSample)
        (idle,) = [process for process in seen.processes.processes if process.pid == sleeping.pid]
        assert idle.read_bytes is None
        assert None not in (idle.run_ms, idle.run_delay_ms)
    finally:
        sleeping.kill()
        sleeping.wait()
        sampler.close()


class Searched(LocalHost):
    """A machine that remembers when it was searched for pgbench."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.searched_s: list[float] = []
        self._at = clock

    def pgbench_processes(self, besides: object = ()) -> tuple[int, ...]:
        self.searched_s.append(self._at() - 100.0)
        return (os.getpid(),)


async def test_a_pgbench_of_others_is_searched_for_when_its_sessions_are_others_and_now_and_then() -> None:
    clock = Clock()
    host = Searched(clock)
    sampler = HostSampler(host, True, lambda: (0, 0), NoServer(), clock)
    try:
        for second in range(70):
            pid = 5_000_001 if second < 42 else 5_000_002
            theirs = replace(backend(pid, 0), application_name="pgbench")
            found = await sampler.look(PostgresSample(activity=Activity(clock(), 0, (theirs,))), (), 1.0)
            assert isinstance(found, HostSample)
            assert isinstance(found.processes, ProcessSample)
            assert os.getpid() in {thread.pid for thread in found.processes.threads}, "it is known all the time"
            clock.now_s += 1.0
    finally:
        sampler.close()
    assert host.searched_s == [0.0, 30.0, 45.0]


class Crowd(SilentServer):
    """A server with many sessions; remembers when what was read."""

    def __init__(self, clock: Clock, sessions: int) -> None:
        self.read_s: dict[str, list[float]] = {}
        self._clock = clock
        self._sessions = tuple(backend(5_000_000 + at, 0) for at in range(sessions))

    async def read(self, section: Section[Any]) -> Any:
        self.read_s.setdefault(section.name, []).append(self._clock() - 100.0)
        return Activity(self._clock(), 0, self._sessions) if section is sections.activity else NOT_YET


@pytest.mark.parametrize(("sessions", "apart_s"), [(499, 1.0), (500, 2.0), (3000, 2.0)])
async def test_locks_are_read_with_the_list_of_the_sessions_that_they_are_about(sessions: int, apart_s: float) -> None:
    clock = Clock()
    server = Crowd(clock, sessions)
    sampler = PostgresSampler(server, cast(SessionClock, clock), lambda event: None, here)
    running = asyncio.create_task(sampler.run())
    try:
        for _ in range(TICKS):
            assert isinstance(await sampler.look(60.0), PostgresSample)
            clock.now_s += 1.0
    finally:
        running.cancel()
        await asyncio.wait((running,))
    expected = [at for at in map(float, range(TICKS)) if at % apart_s == 0]
    assert server.read_s[sections.activity.name] == expected
    assert server.read_s[sections.locks.name] == expected
    assert server.read_s[sections.database.name] == [float(at) for at in range(TICKS)]
