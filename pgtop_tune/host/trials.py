"""Sets of changes on trial: each has a deadline in our event loop, and a process that waits for our end."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from pgtop_tune.errors import PgtopError
from pgtop_tune.watchman import Watchman

Guard = Callable[[str, int, Path | None], Watchman]
"""Starts the process that takes a set back when we are gone: id of the set, end of the trial in milliseconds since
the epoch, directory of the journals. Raises OSError."""

LATER_S: Final = 5.0
"""After the deadline: while we live we take it back ourselves."""
_AGAIN_S: Final = 2.0


def guard_machine_set(set_id: str, until_ms: int, directory: Path | None) -> Watchman:
    """Starts a process that reverts a set of this machine; no server is asked.

    Raises:
        OSError: It cannot be started.
    """
    argv = [sys.executable, "-P", "-m", "pgtop_tune", "revert", "--machine", "--set", set_id]
    if directory is not None:
        argv += ["--journal", str(directory.absolute())]
    return Watchman(argv, os.environ, until_ms / 1000 + LATER_S)


class Trials:
    """Those of this process.

    Args:
        revert: Takes a set back.
        guard: Starts the process that does so when we are gone.
    """

    def __init__(self, revert: Callable[[str], Awaitable[object]], guard: Guard) -> None:
        self._revert: Final = revert
        self._guard: Final = guard
        self._watchmen: dict[str, Watchman] = {}
        self._deadlines: dict[str, asyncio.Task[None]] = {}

    @property
    def ids(self) -> tuple[str, ...]:
        """Sets on trial."""
        return tuple(self._watchmen)

    def guard(self, set_id: str, until_ms: int, directory: Path | None) -> None:
        """From now on the set is taken back when we are gone.

        Raises:
            OSError: The process cannot be started.
        """
        self._watchmen[set_id] = self._guard(set_id, until_ms, directory)

    def begin(self, set_id: str, within_s: float) -> None:
        """From now on the set is taken back after so many seconds. In the event loop."""
        self._deadlines[set_id] = asyncio.create_task(self._expire(set_id, within_s))

    def end(self, set_id: str) -> None:
        """The set is kept or taken back."""
        deadline = self._deadlines.pop(set_id, None)
        if deadline is not None and deadline is not asyncio.current_task():
            deadline.cancel()
        watchman = self._watchmen.pop(set_id, None)
        if watchman is not None:
            watchman.dismiss()

    async def _expire(self, set_id: str, within_s: float) -> None:
        await asyncio.sleep(within_s)
        while set_id in self._watchmen:
            try:
                await self._revert(set_id)
                return
            except PgtopError:
                await asyncio.sleep(_AGAIN_S)
