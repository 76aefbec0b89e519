"""The revert watchdog: runs a command when the program that started it is gone or a deadline has passed, unless it is
dismissed.

As a program: `revert_watchdog.py EPOCH_SECONDS PATIENCE_SECONDS LAST_WORD -- COMMAND…`, a process of its own, standard
library only. It holds the reading end of a pipe. The word on it means that all is well; the end of the pipe means that
its starter died, for whatever cause. Where standard input is no pipe, only its time counts. A command that fails runs
again until it succeeds, or until the patience is over: then once more, with the last word.
"""

from __future__ import annotations

import math
import os
import select
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

WELL: Final = b"well\n"
PATIENCE_S: Final = 3000.0
"""A server that is being restarted is back within it; after it the journal has what is left to do."""
_PAUSES_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
"""Between attempts; the last one again and again."""
_ATTEMPT_S: Final = 600.0
"""Of one attempt, which may restart a server; one that hangs is ended, and the journal goes on from there."""

_GOODBYE_S: Final = 1.0


class RevertWatchdog:
    """A command that waits for our end.

    Attributes:
        process: The waiting process.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        until_s: float = math.inf,
        *,
        outlives_us: bool = False,
        last_word: str = "",
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Args:
        argv: What is to be run; no secrets.
        env: Its whole environment.
        until_s: Moment it is run also while we live, seconds since the epoch; never by default.
        outlives_us: Waits for its moment alone, not for our end.
        last_word: Added to the command when it is run for the last time, so that it says that nobody tries again.
        patience_s: How long it is tried again.

        Raises:
            OSError: It cannot be started.
        """
        times = (repr(until_s), repr(patience_s))
        self.process: Final = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__)), *times, last_word, "--", *argv],
            stdin=subprocess.DEVNULL if outlives_us else subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(env),
            cwd="/",
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """All is well: nothing is run, unless it already has been."""
        pipe = self.process.stdin
        if pipe is None:
            self.process.terminate()
            self.process.wait()
            return
        try:
            pipe.write(WELL)
            pipe.close()
        except OSError:
            # It has ended by itself.
            pass
        try:
            self.process.wait(_GOODBYE_S)
        except subprocess.TimeoutExpired:
            # Its time had come before the word did: it goes on by itself.
            pass


def watch(until_s: float, patience_s: float, last_word: str, argv: Sequence[str]) -> int:
    """Waits on standard input; the status of the command, 0 when it was not needed."""
    listens = stat.S_ISFIFO(os.fstat(0).st_mode)
    said = b""
    while not said.endswith(WELL):
        remaining_s = until_s - time.time()
        if remaining_s <= 0:
            return _run(argv, patience_s, last_word)
        # A clock that is set, or a machine that sleeps, is noticed within the hour.
        ready, _, _ = select.select([0] if listens else [], [], [], min(remaining_s, 3600.0))
        if not ready:
            continue
        chunk = os.read(0, 64)
        if not chunk:
            return _run(argv, patience_s, last_word)
        said = (said + chunk)[-64:]
    return 0


def _run(argv: Sequence[str], patience_s: float, last_word: str) -> int:
    until_s = time.monotonic() + patience_s
    pauses_s = iter(_PAUSES_S)
    pause_s = 0.0
    while time.monotonic() + pause_s < until_s:
        time.sleep(pause_s)
        pause_s = next(pauses_s, _PAUSES_S[-1])
        if (status := _once(argv)) == 0:
            return status
    return _once([*argv, last_word] if last_word else argv)


def _once(argv: Sequence[str]) -> int:
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, check=False, timeout=_ATTEMPT_S).returncode
    except subprocess.TimeoutExpired:
        return 1


if __name__ == "__main__":
    sys.exit(watch(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[5:]))
