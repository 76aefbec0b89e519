"""Of a crowd the processes are read in turns of some seconds: reading them all each tick was a fifth of our CPU."""

from __future__ import annotations

import os

import pytest

from pgtop_tune.host.local import LocalHost
from pgtop_tune.model.absence import NOT_RECORDED, Unavailable
from pgtop_tune.model.host import HostSample, ProcessSample
from pgtop_tune.model.machine import NOWHERE_ELSE, ServerPlaces
from pgtop_tune.model.postgres import Activity, PostgresSample
from pgtop_tune.sampling.host_sampler import HostSampler
from tests.support.frames import backend

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
