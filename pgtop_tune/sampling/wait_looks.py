"""Looks at what backends wait for, up to ten times a second, and adds them up from frame to frame.

A look wakes no task where that can be helped: a timer asks, and the answer is taken as it comes. The sampler's task is
called for what takes several statements, and for an answer that does not come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.tail import Blocker, TailSample
from pgtop_tune.model.waits import PROFILE_SOURCE, WaitLook, WaitSample
from pgtop_tune.sampling.running_counts import WaitCounts
from pgtop_tune.sampling.tail_looks import FLOOR_MS, TailLooks


class WaitsReader(Protocol):
    """The part of `ServerReader` that looks at waits."""

    def look_at_waits(self, floor_ms: int, one_in: int, seen: Callable[[WaitLook | None], None]) -> bool: ...

    async def waits(self, floor_ms: int, one_in: int) -> WaitLook | Unavailable: ...

    async def blockers(self, pids: Sequence[int]) -> Mapping[int, Blocker] | Unavailable: ...

    async def exact_waits(self) -> WaitLook | Unavailable: ...


_COST: Final = 10.0
_REST_S: Final = 9.0
"""Less than the window over which waits are told: however slow the server is, it has a look."""
_CROWDS: Final = ((1000, 0.65), (500, 0.5), (250, 0.3), (100, 0.2))
"""Least number of sessions, and seconds from look to look: a look at more sessions costs the server more, and counts
more of them, so that figures are as exact as with fewer. The burst sees shorter transactions."""
BURST_S: Final = 20.0
_BURST_COST: Final = 3.0
"""Somebody asked for it, and it ends soon."""
BURST_EVERY_S: Final = 0.02
BURST_FLOOR_MS: Final = 10
_BLOCKERS_COST: Final = 20.0
_BLOCKERS_REST_S: Final = 0.2
_EARLY_S: Final = 0.001
"""Timers of the event loop come so little before their moment."""
_LATE_S: Final = 4.0
"""An answer that takes longer is waited for by the task, which notices a server that is gone."""

_COUNTED_BY_THE_SERVER: Final = Unavailable(
    Reason.NOT_SUPPORTED, "pg_wait_sampling counts the waits here, and not by transaction"
)


def next_waits(
    due: float, now: float, cost_s: float, every_s: float = sections.waits.every_s, cost: float = _COST
) -> float:
    """When waits are looked at again, by the clock of the two moments.

    Args:
        due: When the look before was due; one that is late is skipped, not made up for.
        now: When it was over.
        cost_s: How long it took. Where we ourselves were stopped in the middle of it, that was no cost of the server.
        every_s: Time from look to look.
        cost: One part in so many of the time is for looks.
    """
    following = due + every_s
    return max(now + every_s if following < now else following, now + min(cost_s * (cost - 1), _REST_S))


def waits_every_s(sessions: int) -> float:
    """Time from look to look at the waits of so many sessions."""
    return next((every_s for least, every_s in _CROWDS if sessions >= least), sections.waits.every_s)


class WaitLooks:
    """Between `begin` and `end` it looks by itself.

    Args:
        reader: The connection.
        clock: The session's clock.
        call: Has the sampler's task call `catch_up`.

    Attributes:
        sessions: Sessions of the server, as far as known: a crowd is looked at less often.
        answered_s: When the last look was answered.
    """

    def __init__(self, reader: WaitsReader, clock: Callable[[], float], call: Callable[[], None]) -> None:
        self._reader = reader
        self._clock = clock
        self._call = call
        self.sessions = 0
        self.answered_s = 0.0
        self._counts = WaitCounts()
        self._tail = TailLooks()
        self._absent: Unavailable | None = None
        self._exact = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._late_at = 0.0
        self._is_awaited = False
        self._asked_s = 0.0
        self._is_due = False
        self._by_task = False
        self._blockers_due_s = 0.0
        self._burst_until_s = 0.0
        self._every_s = sections.waits.every_s
        self._cost = _COST

    def clear(self) -> None:
        """Forgets everything: the server was gone."""
        self._counts.clear()
        self._tail.clear()
        self.sessions = 0

    def begin(self) -> None:
        """The first look is due now."""
        self._loop = asyncio.get_running_loop()
        self._is_due = self._by_task = self._is_awaited = False
        self._due = self._loop.time()
        self._wake_at(self._due)

    def end(self) -> None:
        """No look any more; an answer that is still to come is passed over."""
        self._wake_never()
        self._loop = None

    def _wake_at(self, moment: float) -> None:
        self._wake_never()
        if self._loop is not None:
            self._alarm = self._loop.call_at(moment, self._alarmed)

    def _wake_never(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _alarmed(self) -> None:
        """One timer for each look: it is set with the question, and finds out whether there has been an answer."""
        self._alarm = None
        assert self._loop is not None
        now = self._loop.time()
        if self._is_awaited and now >= self._late_at:
            self._leave_to_task()
        elif self._is_awaited or now < self._due - _EARLY_S:
            self._wake_at(now + self._every_s if self._is_awaited else self._due)
        elif not self._asks():
            # The connection is taken, or cannot be asked so.
            self._is_due = True
            self._call()

    def _leave_to_task(self) -> None:
        self._wake_never()
        self._is_awaited = False
        self._is_due = self._by_task = True
        self._call()

    def _asks(self) -> bool:
        self._begin_look()
        asked = self._reader.look_at_waits(self._tail.floor_ms, self._tail.one_in, self._seen)
        if asked and self._loop is not None:
            now = self._loop.time()
            self._is_awaited, self._late_at = True, now + _LATE_S
            due = self._due + self._every_s
            self._wake_at(due if due > now else now + self._every_s)
        return asked

    def _begin_look(self) -> None:
        self._asked_s = self._clock()
        if self._asked_s < self._burst_until_s:
            self._every_s, self._cost, self._tail.floor_ms = BURST_EVERY_S, _BURST_COST, BURST_FLOOR_MS
        else:
            self._every_s, self._cost, self._tail.floor_ms = waits_every_s(self.sessions), _COST, FLOOR_MS

    def _seen(self, look: WaitLook | None) -> None:
        self._is_awaited = False
        if self._loop is None or self._by_task or self._exact:
            return
        if look is None:
            self._leave_to_task()
            return
        self._take(look)
        if self._tail.unasked and self.answered_s >= self._blockers_due_s:
            self._call()

    def _take(self, seen: WaitLook | Unavailable) -> None:
        now_s = self.answered_s = self._clock()
        self._absent = seen if isinstance(seen, Unavailable) else None
        if not isinstance(seen, Unavailable):
            self._counts.add(seen.counts)
            self._tail.look(seen.old, now_s)
        if self._loop is not None:
            cost_s = now_s - self._asked_s
            self._due = next_waits(self._due, self._loop.time(), cost_s, self._every_s, self._cost)
            if self._alarm is None:
                self._wake_at(self._due)

    async def catch_up(self) -> None:
        """Does in the task what is due. Raises as the reader does."""
        if self._is_due and (self._by_task or not self._asks()):
            self._begin_look()
            seen = await self._reader.waits(self._tail.floor_ms, self._tail.one_in)
            self._by_task = False
            self._take(seen)
        self._is_due = False
        await self._ask_for_blockers()

    async def _ask_for_blockers(self) -> None:
        """Of old transactions that wait for a lock, each once; little of the time is for it."""
        begun_s = self._clock()
        pids = self._tail.unasked
        if not pids or begun_s < self._blockers_due_s:
            return
        blockers = await self._reader.blockers(pids)
        self._tail.blocked({} if isinstance(blockers, Unavailable) else blockers)
        self.answered_s = self._clock()
        self._blockers_due_s = self.answered_s + max((self.answered_s - begun_s) * _BLOCKERS_COST, _BLOCKERS_REST_S)

    def burst(self) -> float:
        """Looks fifty times a second for so many seconds, within their budget. In the engine's loop."""
        self._burst_until_s = self._clock() + BURST_S
        return BURST_S

    async def since(self) -> WaitSample | Unavailable:
        """Since the last call: what pg_wait_sampling has counted where it is loaded, else what the looks saw."""
        exact = await self._reader.exact_waits()
        counted = not isinstance(exact, Unavailable)
        if counted != self._exact:
            self._exact = counted
            self._counts.clear()
            self._tail.clear()
            self._look_or_not()
        if isinstance(exact, Unavailable):
            return self._absent or self._counts.drain(self._clock())
        self._counts.add(exact.counts, exact.samples)
        return self._counts.drain(self._clock(), PROFILE_SOURCE)

    def _look_or_not(self) -> None:
        self._is_due = self._by_task = False
        if self._exact:
            self._wake_never()
        elif self._loop is not None:
            self._due = self._loop.time()
            self._wake_at(self._due)

    def tail_since(self) -> TailSample | Unavailable:
        """Since the last call: old transactions, by the same looks."""
        if self._exact:
            return _COUNTED_BY_THE_SERVER
        return self._absent or self._tail.drain(self._clock())
