"""Sampler of admin consoles beside the ticks: a pooler that is slow or gone delays no frame and no other pooler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from pgtop_tune.base.errors import ConnectionProblem, NotLetIn, PgtopError
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import NOT_YET, Reason, Unavailable
from pgtop_tune.model.pooler import ConsoleSample, Pooler, PoolerSample
from pgtop_tune.sampling.postgres_sampler import Resting

_RETRY_S: Final = (1.0, 2.0, 5.0, 10.0)
_STALE_S: Final = 5.0
_NONE_NAMED: Final = Unavailable(
    Reason.NO_POOLER, "no pooler named: pass --pooler bouncer=postgresql://stats@127.0.0.1:6432/pgbouncer"
)


class Console(Protocol):
    """An admin console; fits `pooler.console.PoolerConsole`."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...

    @property
    def place(self) -> tuple[str, int]: ...

    async def look(self) -> ConsoleSample: ...

    def close(self) -> None: ...


class PoolerSampler:
    """The newest look at every console, taken once a second at most.

    Args:
        consoles: Consoles that the operator named; may be empty.
        clock: Seconds on the session's monotonic clock.
    """

    def __init__(self, consoles: Sequence[Console], clock: Callable[[], float]) -> None:
        self._consoles = consoles
        self._clock = clock
        self._seen: list[ConsoleSample | Unavailable] = [NOT_YET] * len(consoles)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to sample. In the engine's loop."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch(number, console)) for number, console in enumerate(self._consoles)]

    def sample(self) -> PoolerSample | Unavailable:
        """Return the newest look at every console, without waiting. Raises the exception of a look with a bug."""
        for task in self._tasks:
            if task.done():
                task.result()
        if not self._consoles:
            return _NONE_NAMED
        now_s = self._clock()
        poolers = [
            Pooler(console.name, console.address, _fresh(look, now_s), *console.place)
            for console, look in zip(self._consoles, self._seen, strict=True)
        ]
        return PoolerSample(now_s, tuple(poolers))

    async def aclose(self) -> None:
        """End all looks and close their connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for console in self._consoles:
            console.close()

    async def _watch(self, number: int, console: Console) -> None:
        failures = 0
        # A pooler serves its console in the thread of its clients, so expensive looks are taken less often.
        resting = Resting()
        while True:
            started_s = self._clock()
            try:
                self._seen[number] = await console.look()
                failures = 0
                ended_s = self._clock()
                wait_s = resting.due_s("look", started_s, ended_s, sections.pooler.every_s) - ended_s
            except PgtopError as problem:
                wait_s = _RETRY_S[min(failures, len(_RETRY_S) - 1)]
                failures += 1
                self._seen[number] = _absence(problem)
            await asyncio.sleep(wait_s)


def _fresh(look: ConsoleSample | Unavailable, now_s: float) -> ConsoleSample | Unavailable:
    late_s = 0.0 if isinstance(look, Unavailable) else now_s - look.at_s
    return Unavailable(Reason.NO_ANSWER, f"no answer for {late_s:.0f} s") if late_s > _STALE_S else look


def _absence(problem: PgtopError) -> Unavailable:
    message = f"{problem.message} ({problem.hint})" if problem.hint else problem.message
    if isinstance(problem, NotLetIn):
        return Unavailable(Reason.NO_PERMISSION, message)
    return Unavailable(Reason.NO_ANSWER if isinstance(problem, ConnectionProblem) else Reason.FAILED, message)
