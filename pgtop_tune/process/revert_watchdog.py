"""The revert watchdog: runs a command when the program that started it is gone or a deadline has passed, unless it is
dismissed.

As a program: `revert_watchdog.py MOMENT PATIENCE_SECONDS LAST_WORD ARCHIVE -- COMMAND…`, a process of its own that
needs only the standard library. MOMENT is in seconds of the boot clock, which cannot be set and counts the time asleep.
ARCHIVE unpacks start.py again where that was removed; "" without one. The standard input is a pipe from the starter: a
line "copy …" has the standard input of the command, the line "well" dismisses the watchdog, and the end of the pipe
means that the starter died, for whatever cause. Where the standard input is no pipe, only MOMENT counts. A command that
fails runs again until it succeeds, or until PATIENCE_SECONDS have passed: then once more, with LAST_WORD as a further
argument.
"""

from __future__ import annotations

import base64
import errno
import math
import os
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

_FILE: Final = 3
"""Index of start.py in a command: after the interpreter and its two options."""
WELL: Final = b"well\n"
STANDS: Final = b"stands\n"
"""Line that the process prints once it watches; it prints nothing else."""
PATIENCE_S: Final = 3000.0
"""Time within which a restarted server is back; changes that are not reverted by then stay in the journal."""
_PAUSES_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
"""Pauses between attempts; the last pause repeats."""
_ATTEMPT_S: Final = 600.0
"""Time limit of one attempt, which may restart a server; the next attempt continues with the rest of the journal."""

_COPY: Final = b"copy "
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_LOOK_S: Final = 10.0
"""Longest wait in select(2), whose clock stands still while the machine sleeps."""
_GOODBYE_S: Final = 1.0
_START_S: Final = 60.0


class RevertWatchdog:
    """A command that waits for our end.

    Attributes:
        process: The waiting process.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        within_s: float = math.inf,
        *,
        outlives_us: bool = False,
        last_word: str = "",
        patience_s: float = PATIENCE_S,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Args:
        argv: The command; no secrets.
        env: Its whole environment.
        within_s: Seconds from now after which the command runs even while we live; never by default.
        outlives_us: Whether the watchdog waits only for its moment, and not for our end.
        last_word: Further argument of the last attempt, so that the command can say that no other will follow.
        patience_s: Seconds for which a command that fails is tried again.
        pass_fds: Open files that the command inherits.

        Raises:
            OSError: The process cannot be started, or does not run.
        """
        # This file is run by itself, too, without the package.
        from pgtop_tune.process.own_program import file_argv, held_descriptors, one_file

        times = (repr(time.clock_gettime(_CLOCK) + within_s), repr(patience_s))
        self.process: Final = subprocess.Popen(
            [*file_argv(__file__), *times, last_word, one_file(), "--", *argv],
            stdin=subprocess.DEVNULL if outlives_us else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd="/",
            pass_fds=(*pass_fds, *held_descriptors()),
            start_new_session=True,
        )
        self._check_it_stands()

    def _check_it_stands(self) -> None:
        """Wait until the process watches: our caller makes a change only when the process that reverts it runs."""
        pipe, problems = self.process.stdout, self.process.stderr
        assert pipe is not None
        assert problems is not None
        with pipe, problems:
            poll = select.poll()
            poll.register(pipe, select.POLLIN)
            if poll.poll(1000.0 * _START_S) and pipe.read(len(STANDS)) == STANDS:
                return
            if self.process.stdin is not None:
                self.process.stdin.close()
            self.process.kill()
            self.process.wait()
            last_line = problems.read().decode(errors="replace").strip().rpartition("\n")[2]
        raise OSError(errno.ENOEXEC, f"its process does not start{last_line and f' ({last_line})'}")

    def give(self, copy: bytes) -> None:
        """Hand over the standard input of the command; a watchdog that outlives us has no pipe, and gets nothing."""
        pipe = self.process.stdin
        if pipe is not None:
            try:
                pipe.write(_COPY + base64.b64encode(copy) + b"\n")
                pipe.flush()
            except OSError:
                # It has ended by itself.
                pass

    def release(self) -> None:
        """Have the command run now, as at our end; nothing happens to a watchdog that outlives us."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def dismiss(self) -> None:
        """Dismiss the watchdog: nothing is run, unless it already has been."""
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
            # Its moment came before the dismissal: the command runs on by itself.
            pass


def watch(until_s: float, patience_s: float, last_word: str, archive: str, argv: Sequence[str]) -> int:
    """Wait for the starter's end or a moment of the boot clock, and return the command's status; 0 if dismissed."""
    has_pipe = stat.S_ISFIFO(os.fstat(0).st_mode)
    if has_pipe:
        # The pipe tells our end; the end of a session or a unit is a signal to all of its processes.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(1, STANDS)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    received, copy = bytearray(), b""
    while True:
        remaining_s = until_s - time.clock_gettime(_CLOCK)
        if remaining_s <= 0:
            return _run(argv, archive, patience_s, last_word, copy)
        ready, _, _ = select.select([0] if has_pipe else [], [], [], min(remaining_s, _LOOK_S))
        if not ready:
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            return _run(argv, archive, patience_s, last_word, copy)
        received += chunk
        while b"\n" in received:
            line, _, remainder = bytes(received).partition(b"\n")
            received = bytearray(remainder)
            if line + b"\n" == WELL:
                return 0
            if line.startswith(_COPY):
                copy = base64.b64decode(line.removeprefix(_COPY))


def _run(argv: Sequence[str], archive: str, patience_s: float, last_word: str, copy: bytes) -> int:
    until_s = time.monotonic() + patience_s
    pauses_s = iter(_PAUSES_S)
    pause_s = 0.0
    while time.monotonic() + pause_s < until_s:
        time.sleep(pause_s)
        pause_s = next(pauses_s, _PAUSES_S[-1])
        if (status := _once(argv, archive, copy)) == 0:
            return status
    return _once([*argv, last_word] if last_word else argv, archive, copy)


def _once(argv: Sequence[str], archive: str, copy: bytes) -> int:
    if archive and not os.path.isfile(argv[_FILE]):
        # The files that the archive had unpacked were removed: it unpacks them again.
        argv = [*argv[:_FILE], archive, *argv[_FILE + 1 :]]
    try:
        # The command inherits the descriptors of `pass_fds` from this process.
        return subprocess.run(argv, input=copy, check=False, timeout=_ATTEMPT_S, close_fds=False).returncode
    except (OSError, subprocess.TimeoutExpired):
        # Without room for a process, or while the program is being replaced, too.
        return 1


if __name__ == "__main__":
    sys.exit(watch(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[6:]))
