"""Runs a command when whoever set it is gone or a moment has come, unless it is told that all is well.

As a program: `watchman.py --until EPOCH_SECONDS -- COMMAND…`, a process of its own, standard library only. It holds
the reading end of a pipe. The word on it means that all is well; the end of the pipe means that we died, however that
happened. What it runs is tried again until it succeeds.
"""

from __future__ import annotations

import math
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

WELL: Final = b"well\n"
_PAUSES_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0, *(30.0,) * 120)
"""Between attempts: a server that is being restarted is back within them. An hour; after it the journal has it."""

_GOODBYE_S: Final = 1.0


class Watchman:
    """A command that waits for our end.

    Attributes:
        process: The waiting process.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], until_s: float = math.inf) -> None:
        """Args:
        argv: What is to be run; no secrets.
        env: Its whole environment.
        until_s: Moment it is run also while we live, seconds since the epoch; never by default.

        Raises:
            OSError: It cannot be started.
        """
        self.process: Final = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__)), "--until", repr(until_s), "--", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(env),
            cwd="/",
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """All is well: nothing is run, unless it already has been."""
        pipe = self.process.stdin
        assert pipe is not None
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


def watch(until_s: float, argv: Sequence[str]) -> int:
    """Waits on standard input; the status of the command, 0 when it was not needed."""
    said = b""
    while not said.endswith(WELL):
        remaining_s = until_s - time.time()
        if remaining_s <= 0:
            return _run(argv)
        ready, _, _ = select.select([0], [], [], min(remaining_s, 3600.0))
        if not ready:
            continue
        chunk = os.read(0, 64)
        if not chunk:
            return _run(argv)
        said = (said + chunk)[-64:]
    return 0


def _run(argv: Sequence[str]) -> int:
    status = 1
    for pause_s in (0.0, *_PAUSES_S):
        time.sleep(pause_s)
        status = subprocess.run(argv, stdin=subprocess.DEVNULL, check=False).returncode
        if status == 0:
            break
    return status


if __name__ == "__main__":
    sys.exit(watch(float(sys.argv[2]), sys.argv[4:]))
