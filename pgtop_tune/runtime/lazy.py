"""A lazy part: made once, when it is first needed, for all callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """A part that is made in one event loop; coroutines run there.

    Args:
        make: Makes it. What it raises is raised in all who wait.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._make = make
        self._making: asyncio.Task[T] | None = None
        self._made: T | None = None
        self._uses: list[Callable[[T], None]] = []

    @staticmethod
    def ready(part: T) -> Lazy[T]:
        """A part that is there already."""

        async def give() -> T:
            return part

        lazy = Lazy(give)
        lazy._made = part
        return lazy

    @property
    def made(self) -> T | None:
        """The part, None before it is made. Thread-safe."""
        return self._made

    def when_made(self, use: Callable[[T], None]) -> None:
        """Calls this as soon as the part is made, before all who wait for it; at once when it is there.

        To be called before the loop runs, or within it.
        """
        if self._made is None:
            self._uses.append(use)
        else:
            use(self._made)

    async def get(self) -> T:
        """Waits for the part; the first call begins to make it. A caller that is cancelled stops nothing."""
        if self._made is not None:
            return self._made
        if self._making is None:
            self._making = asyncio.create_task(self._finish())
        return await asyncio.shield(self._making)

    async def _finish(self) -> T:
        made = self._made = await self._make()
        for use in self._uses:
            use(made)
        return made

    async def settled(self) -> T | None:
        """What was made, once a making that has begun is over; None when none has begun, or it failed."""
        if self._making is not None:
            await asyncio.wait((self._making,))
        return self._made
