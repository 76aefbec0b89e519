"""The sampler of a server ends when it is told to, whatever it was about to do at that moment."""

from __future__ import annotations

import asyncio

import pytest

from pgtop_tune.sampling.postgres_sampler import PostgresSampler, SessionClock
from tests.support.silent_server import SilentServer, here

DEADLINE_S = 60.0


@pytest.mark.parametrize("turns", range(8))
async def test_a_look_that_is_asked_for_while_it_is_told_to_end_does_not_keep_it(turns: int) -> None:
    sampler = PostgresSampler(SilentServer(), SessionClock(), lambda event: None, here)
    running = asyncio.create_task(sampler.run())
    await sampler.look(DEADLINE_S)
    looking = asyncio.create_task(sampler.look(DEADLINE_S))
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait((running,), timeout=DEADLINE_S)
    looking.cancel()
    if not done:
        running.cancel()
    assert done
