"""The sampler of a server ends when it is told to, whatever it was about to do at that moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.postgres import ServerFacts
from pgtop_tune.sampling.clock import SessionClock
from pgtop_tune.sampling.postgres_sampler import PostgresSampler
from tests.support.frames import facts

DEADLINE_S = 60.0


class Silent:
    """A server that has nothing to say, at once."""

    async def connect(self) -> ServerFacts:
        return facts()

    async def aclose(self) -> None:
        """Nothing to close."""

    def look_at_waits(self, *asked: object) -> bool:
        """Leaves it to the task."""
        return False

    def ask_ahead(self, due: object) -> tuple[()]:
        """Asks nothing beforehand."""
        return ()

    def forget_ahead(self) -> None:
        """Nothing was asked."""

    def __getattr__(self, section: str) -> Any:
        async def nothing(*asked: object) -> Unavailable:
            return NOT_YET

        return nothing


async def here(found: ServerFacts) -> ServerFacts:
    return found


@pytest.mark.parametrize("turns", range(8))
async def test_a_look_that_is_asked_for_while_it_is_told_to_end_does_not_keep_it(turns: int) -> None:
    sampler = PostgresSampler(Silent(), SessionClock(), lambda event: None, here)
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
