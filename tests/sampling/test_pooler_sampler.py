"""Poolers in the frames of a session: real PgBouncers, one that goes away, and a console that never answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pgtop_tune.cli.connections import pooler_addresses
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.wiring import LiveSession
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.absence import NOT_YET, Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.pooler import ConsoleSample, PoolerSample, PoolerSettings
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.sampling.pooler_sampler import PoolerSampler
from tests.support.poolers import PgBouncer
from tests.support.servers import conninfo

DEADLINE_S = 60.0


@asynccontextmanager
async def watching(target: str, *poolers: str) -> AsyncIterator[AsyncIterator[Frame]]:
    options = LiveOptions(interval_s=0.2, poolers=pooler_addresses(poolers))
    session = LiveSession(resolve(target), options)

    async def frames() -> AsyncIterator[Frame]:
        async with asyncio.timeout(DEADLINE_S):
            async for step in session.source.steps():
                for frame in step.frames:
                    yield frame

    try:
        yield frames()
    finally:
        await session.source.aclose()


def consoles(frame: Frame) -> dict[str, ConsoleSample | Unavailable]:
    assert isinstance(frame.pooler, PoolerSample)
    return {pooler.name: pooler.console for pooler in frame.pooler.poolers}


async def test_each_pooler_is_in_the_frames_by_its_name_and_the_server_beside_it(server: Throwaway) -> None:
    with PgBouncer(server) as one, PgBouncer(server, default_pool_size=9) as two:
        names = f"one={one.console()}", f"two={two.console()}"
        async with watching(conninfo(server), *names) as frames:
            async for frame in frames:
                found = consoles(frame)
                if not any(isinstance(console, Unavailable) for console in found.values()):
                    break
            sizes = {name: console.settings.default_pool_size for name, console in found.items()}
            assert sizes == {"one": 5, "two": 9}
            assert isinstance(frame.pooler, PoolerSample)
            assert [pooler.address for pooler in frame.pooler.poolers] == [
                f"stats@127.0.0.1:{bouncer.port}/pgbouncer" for bouncer in (one, two)
            ]


async def test_a_pooler_that_goes_away_says_so_and_the_server_goes_on(server: Throwaway) -> None:
    with PgBouncer(server) as bouncer:
        async with watching(conninfo(server), f"bouncer={bouncer.console()}") as frames:
            async for frame in frames:
                console = consoles(frame)["bouncer"]
                if isinstance(console, ConsoleSample) and isinstance(frame.postgres, PostgresSample):
                    break
            bouncer.stop()
            async for frame in frames:
                console = consoles(frame)["bouncer"]
                if isinstance(console, Unavailable) and "refused" in console.detail:
                    break
            assert console.reason is Reason.NO_ANSWER
            assert isinstance(frame.postgres, PostgresSample)


async def test_without_a_pooler_the_frame_says_how_to_name_one(server: Throwaway) -> None:
    async with watching(conninfo(server)) as frames:
        frame = await anext(frames)
    assert isinstance(frame.pooler, Unavailable)
    assert frame.pooler.reason is Reason.NO_POOLER
    assert "--pooler" in frame.pooler.detail


class Silent:
    """A console that never answers."""

    name, address, place = "silent", "nobody@nowhere/none", ("nowhere", 6432)

    def __init__(self) -> None:
        self.looks = 0

    async def look(self) -> ConsoleSample:
        self.looks += 1
        await asyncio.Event().wait()
        raise AssertionError

    def close(self) -> None:
        pass


class Broken(Silent):
    """One that fails by a fault of ours."""

    async def look(self) -> ConsoleSample:
        raise ZeroDivisionError


async def test_a_console_that_never_answers_holds_up_no_frame_and_is_asked_once() -> None:
    silent = Silent()
    sampler = PoolerSampler((silent,), lambda: 0.0)
    sampler.start()
    for _ in range(5):
        await asyncio.sleep(0)
        found = sampler.sample()
    assert isinstance(found, PoolerSample)
    assert found.poolers[0].console == NOT_YET
    assert silent.looks == 1
    await sampler.aclose()


async def test_a_fault_of_ours_is_not_taken_for_a_pooler_that_is_away() -> None:
    sampler = PoolerSampler((Broken(),), lambda: 0.0)
    sampler.start()
    for _ in range(5):
        await asyncio.sleep(0)
    with pytest.raises(ZeroDivisionError):
        sampler.sample()
    await sampler.aclose()


async def test_a_look_that_is_long_ago_is_not_shown_as_now() -> None:
    now_s = 0.0

    class Once(Silent):
        async def look(self) -> ConsoleSample:
            if self.looks:
                return await super().look()
            self.looks += 1
            return ConsoleSample(now_s, "PgBouncer", "1.25.0", PoolerSettings())

    sampler = PoolerSampler((Once(),), lambda: now_s)
    sampler.start()
    await asyncio.sleep(0.01)
    found = sampler.sample()
    assert isinstance(found, PoolerSample)
    assert isinstance(found.poolers[0].console, ConsoleSample)
    now_s = 6.0
    found = sampler.sample()
    assert isinstance(found, PoolerSample)
    assert found.poolers[0].console == Unavailable(Reason.NO_ANSWER, "no answer for 6 s")
    await sampler.aclose()
