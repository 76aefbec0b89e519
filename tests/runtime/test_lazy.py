"""A part that is made once, when it is first needed."""

from __future__ import annotations

import asyncio

import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.runtime.engine import Lazy


class Maker:
    """Makes a list, once it may."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.times = 0

    async def __call__(self) -> list[str]:
        self.times += 1
        await self.may.wait()
        return ["made"]


async def test_all_who_ask_get_the_one_part_and_nothing_is_made_before() -> None:
    maker = Maker()
    lazy = Lazy(maker)
    assert lazy.made is None
    assert await lazy.settled() is None
    assert maker.times == 0
    asking = [asyncio.create_task(lazy.get()) for _ in range(3)]
    maker.may.set()
    first, *others = await asyncio.gather(*asking)
    assert all(other is first for other in others)
    assert await lazy.get() is lazy.made is first
    assert maker.times == 1


async def test_those_who_use_it_see_it_before_those_who_wait() -> None:
    maker, order = Maker(), []
    lazy = Lazy(maker)
    lazy.when_made(lambda part: order.append("used"))

    async def wait() -> None:
        await lazy.get()
        order.append("waited")

    waiting = asyncio.create_task(wait())
    maker.may.set()
    await waiting
    lazy.when_made(lambda part: order.append("used later"))
    assert order == ["used", "waited", "used later"]


async def test_a_caller_that_is_cancelled_stops_nothing() -> None:
    maker = Maker()
    lazy = Lazy(maker)
    impatient = asyncio.create_task(lazy.get())
    await asyncio.sleep(0)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    maker.may.set()
    assert await lazy.settled() == ["made"]
    assert maker.times == 1


async def test_what_cannot_be_made_is_raised_in_all_who_ask() -> None:
    async def refuse() -> str:
        raise UsageProblem("no such server")

    lazy = Lazy(refuse)
    for _ in range(2):
        with pytest.raises(UsageProblem, match="no such server"):
            await lazy.get()
    assert await lazy.settled() is None
