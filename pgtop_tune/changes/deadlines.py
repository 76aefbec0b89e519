"""Change sets that revert unless confirmed: each has a deadline in the event loop, and a revert watchdog."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.process.boot_clock import boot_clock_s
from pgtop_tune.process.process_key import ProcessKey, key_of
from pgtop_tune.process.revert_watchdog import RevertWatchdog

Start = Callable[[int | None], RevertWatchdog]
"""Starts the process that takes a set back when we are gone or a moment has come: milliseconds since the epoch, None
for our end only. Raises OSError."""

LATER_S: Final = 5.0
"""After the deadline: while we live we take it back ourselves."""
LAST_ATTEMPT: Final = "--last-attempt"
"""Of `pgtop-tune revert`: the revert watchdog does not try again, and the journal has to say so."""
COPY_ON_STDIN: Final = "--copy-on-stdin"
"""Of `pgtop-tune revert`: the revert watchdog hands over its copy of the set, for the case that no journal has it."""
_AGAIN_S: Final = 2.0
_LOOK_S: Final = 1.0
"""The clock of an event loop stands still while the machine sleeps."""


async def sleep_until(boot_s: float) -> None:
    """Wait for a moment of the boot clock."""
    # No event comes with a machine that wakes up.
    while (left_s := boot_s - boot_clock_s()) > 0:  # noqa: ASYNC110
        await asyncio.sleep(min(left_s, _LOOK_S))


def guard_within_s(until_ms: int | None) -> float:
    """Return the seconds from now after which the waiting process acts also while we live.

    Args:
        until_ms: The deadline, milliseconds since the epoch; None for a set that has no time limit.
    """
    return math.inf if until_ms is None else until_ms / 1000 - time.time() + LATER_S


class Deadlines:
    """Those of one door of this process.

    Args:
        revert: Takes a set back; is told why.
        again: What goes wrong and may go better a little later, besides failures that nobody foresaw.
    """

    def __init__(self, revert: Callable[[str, str], Awaitable[object]], again: type[PgtopError] = PgtopError) -> None:
        self._revert: Final = revert
        self._again: Final = again
        self._watchdogs: dict[str, RevertWatchdog] = {}
        self._starts: dict[str, Start] = {}
        self._copies: dict[str, bytes] = {}
        self._deadlines: dict[str, asyncio.Task[None]] = {}

    @property
    def ids(self) -> tuple[str, ...]:
        """Sets that are taken back when we end."""
        return tuple(dict.fromkeys((*self._watchdogs, *self._deadlines)))

    async def aclose(self) -> None:
        """Takes all of them back; what cannot be taken back now is left to the processes that wait for our end."""
        for set_id in self.ids:
            try:
                await self._revert(set_id, "the program ended before it was confirmed")
            except Exception:
                continue

    def guard(self, set_id: str, until_ms: int | None, start: Start) -> None:
        """From now on the set is taken back when we are gone.

        Raises:
            OSError: The process cannot be started.
        """
        self._watchdogs[set_id], self._starts[set_id] = start(until_ms), start

    def give(self, set_id: str, copy: bytes) -> None:
        """The process that waits for our end gets a copy of the set: its journal may be gone by then."""
        self._copies[set_id] = copy
        if set_id in self._watchdogs:
            self._watchdogs[set_id].give(copy)

    def watchdog(self, set_id: str) -> ProcessKey | None:
        """The process that reverts the set when we are gone; None where there is none."""
        watchdog = self._watchdogs.get(set_id)
        return None if watchdog is None else key_of(watchdog.process.pid)

    def begin(self, set_id: str, within_s: float) -> None:
        """The set is taken back so many seconds from now, whatever its deadline was. In the event loop."""
        earlier = self._deadlines.pop(set_id, None)
        if earlier is not None:
            earlier.cancel()
        self._deadlines[set_id] = asyncio.create_task(self._expire(set_id, boot_clock_s() + within_s))

    def put_off(self, set_id: str, until_ms: int) -> None:
        """The process that waits for our end acts at another moment.

        Raises:
            OSError: The process cannot be started; everything is as it was.
        """
        start = self._starts.get(set_id)
        if start is not None:
            earlier, self._watchdogs[set_id] = self._watchdogs[set_id], start(until_ms)
            self._watchdogs[set_id].give(self._copies.get(set_id, b""))
            earlier.dismiss()

    def lift(self, set_id: str) -> None:
        """The set has no deadline any more; it is still taken back when we are gone.

        Raises:
            OSError: The process cannot be started; everything is as it was.
        """
        start = self._starts.get(set_id)
        if start is not None:
            unlimited, copy = start(None), self._copies.get(set_id, b"")
            self.end(set_id)
            self._watchdogs[set_id], self._starts[set_id] = unlimited, start
            self.give(set_id, copy)

    def end(self, set_id: str) -> None:
        """The set is kept or taken back."""
        deadline = self._deadlines.pop(set_id, None)
        if deadline is not None and deadline is not asyncio.current_task():
            deadline.cancel()
        self._starts.pop(set_id, None)
        self._copies.pop(set_id, None)
        watchdog = self._watchdogs.pop(set_id, None)
        if watchdog is not None:
            watchdog.dismiss()

    async def _expire(self, set_id: str, boot_s: float) -> None:
        """Time is over: taken back, also when the server is away for a while."""
        await sleep_until(boot_s)
        while set_id in self._deadlines:
            try:
                await self._revert(set_id, "not confirmed in time")
                return
            except Exception as problem:
                if isinstance(problem, PgtopError) and not isinstance(problem, self._again):
                    raise
                await asyncio.sleep(_AGAIN_S)
