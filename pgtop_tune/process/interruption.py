"""The interruption of another process of ours: signals until it ends, because one signal can get lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Final

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.process.process_key import ProcessKey

_SIGNALS: Final = ((0.0, signal.SIGINT), (15.0, signal.SIGTERM), (60.0, signal.SIGTERM))
"""Seconds from the begin, and the signal: a program may ignore SIGINT, and the first one lets work tidy up."""
_PATIENCE_S: Final = 120.0


class Interruption:
    """The end of one process, asked for as Ctrl-C asks.

    Args:
        key: The process.
        name: Its name in messages.
        tell: Takes a line when a signal did not end it and the next one is sent.
    """

    def __init__(self, key: ProcessKey, name: str, tell: Callable[[str], object] = lambda line: None) -> None:
        self._key: Final = key
        self._name: Final = name
        self._tell: Final = tell
        self._began_s: Final = time.monotonic()
        self._sent = 0

    def goes_on(self) -> bool:
        """Send the signal that is due; return whether the process still runs.

        Raises:
            UsageProblem: It belongs to another user, or does not end within two minutes.
        """
        if not self._key.lives:
            return False
        waited_s = time.monotonic() - self._began_s
        if self._sent < len(_SIGNALS) and waited_s >= _SIGNALS[self._sent][0]:
            number = _SIGNALS[self._sent][1]
            self._send(number)
            if self._sent:
                self._tell(f"{self._name} still runs after {waited_s:.0f} s: {number.name} sent")
            self._sent += 1
        if waited_s > _PATIENCE_S:
            hint = f"`kill -KILL {self._key.pid}` ends it; the revert watchdog puts its values back"
            raise UsageProblem(f"{self._name} does not end", hint)
        return True

    def _send(self, number: signal.Signals) -> None:
        try:
            os.kill(self._key.pid, number)
            # A program that Ctrl-Z has stopped takes no signal.
            os.kill(self._key.pid, signal.SIGCONT)
        except ProcessLookupError:
            return
        except PermissionError:
            raise UsageProblem(f"{self._name} belongs to another user", "stop it as that user, or as root") from None
