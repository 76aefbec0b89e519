"""Looks that may hang (a dead network mount) or take long: each in a daemon thread, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """The latest result of a look that is repeated now and then; who asks never waits for it.

    Daemon threads, because a thread of an executor that hangs would keep the program from ending.

    Args:
        look: Makes a result; must not raise.
        every_s: From the start of one look to the start of the next; a look that hangs is not joined by another.
        clock: Seconds on the session's monotonic clock.
    """

    def __init__(self, look: Callable[[], T], every_s: float, clock: Callable[[], float]) -> None:
        self._look = look
        self._every_s = every_s
        self._clock = clock
        self._started_s: float | None = None
        self._thread: threading.Thread | None = None
        self._found: T | None = None

    def latest(self, wait_s: float = 0.0) -> T | None:
        """The newest result, None before the first; starts the next look when it is due.

        Args:
            wait_s: How long a look that is under way may be waited for.
        """
        if not self._busy() and (self._started_s is None or self._clock() - self._started_s >= self._every_s):
            self._started_s = self._clock()
            self._thread = threading.Thread(target=self._run, daemon=True, name="slow look")
            self._thread.start()
        if wait_s and self._thread is not None:
            self._thread.join(wait_s)
        return self._found

    @property
    def waiting_s(self) -> float:
        """How long the look under way has taken so far; 0 when there is none."""
        return self._clock() - self._started_s if self._busy() and self._started_s is not None else 0.0

    def _busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        self._found = self._look()
