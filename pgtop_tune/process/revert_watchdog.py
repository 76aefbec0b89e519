"""The revert watchdog: runs a command when the program that started it is gone or a deadline has passed, unless it is
dismissed.

As a program: `revert_watchdog.py MOMENT PATIENCE_SECONDS LAST_WORD -- COMMAND…`, a process of its own, standard library
only; the moment is in seconds of the boot clock, which no one sets and which counts time asleep. It holds the reading
end of a pipe. A copy on it becomes the standard input of the command. The word on it means that all is well; the end of
the pipe means that its starter died, for whatever cause. Where standard input is no pipe, only its time counts.
A command that fails runs again until it succeeds, or until the patience is over: then once more, with the last word.
"""

from __future__ import annotations

import base64
import errno
import math
import os
import select
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

_FILE: Final = 3
"""Where start.py stands in the words of a command: behind the interpreter and its two options."""
WELL: Final = b"well\n"
STANDS: Final = b"stands\n"
"""The first word of the process, on its standard output; it says nothing after it."""
PATIENCE_S: Final = 3000.0
"""A server that is being restarted is back within it; after it the journal has the remaining changes."""
_PAUSES_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
"""Between attempts; the last one again and again."""
_ATTEMPT_S: Final = 600.0
"""Of one attempt, which may restart a server; one that hangs is ended, and the journal goes on from there."""

_COPY: Final = b"copy "
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_LOOK_S: Final = 10.0
"""select(2) waits on a clock that stands still while the machine sleeps."""
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
        within_s: Seconds from now at which it is run also while we live; never by default.
        outlives_us: Waits for its moment alone, not for our end.
        last_word: Added to the command when it is run for the last time, so that it says that it is not tried again.
        patience_s: How long it is tried again.
        pass_fds: Open files that the command inherits.

        Raises:
            OSError: It cannot be started, or does not run.
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
        """Wait for its first word: a change is made only once the process stands that reverts it."""
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
        raise OSError(errno.ENOEXEC, f"its process does not run{last_line and f' ({last_line})'}")

    def give(self, copy: bytes) -> None:
        """Hand the command its standard input; one that outlives us has no pipe, and gets nothing."""
        pipe = self.process.stdin
        if pipe is not None:
            try:
                pipe.write(_COPY + base64.b64encode(copy) + b"\n")
                pipe.flush()
            except OSError:
                # It has ended by itself.
                pass

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
            # Its time had come before the word did: it goes on by itself.
            pass


def watch(until_s: float, patience_s: float, last_word: str, archive: str, argv: Sequence[str]) -> int:
    """Wait on standard input, or for a moment of the boot clock; the status of the command, 0 where it did not run."""
    os.write(1, STANDS)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    listens = stat.S_ISFIFO(os.fstat(0).st_mode)
    begun, copy = bytearray(), b""
    while True:
        remaining_s = until_s - time.clock_gettime(_CLOCK)
        if remaining_s <= 0:
            return _run(argv, archive, patience_s, last_word, copy)
        ready, _, _ = select.select([0] if listens else [], [], [], min(remaining_s, _LOOK_S))
        if not ready:
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            return _run(argv, archive, patience_s, last_word, copy)
        begun += chunk
        while b"\n" in begun:
            line, _, remainder = bytes(begun).partition(b"\n")
            begun = bytearray(remainder)
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
        # The cache that the one file had unpacked was removed: it unpacks itself again.
        argv = [*argv[:_FILE], archive, *argv[_FILE + 1 :]]
    try:
        # What this process has inherited by `pass_fds` is for the command.
        return subprocess.run(argv, input=copy, check=False, timeout=_ATTEMPT_S, close_fds=False).returncode
    except subprocess.TimeoutExpired:
        return 1


if __name__ == "__main__":
    sys.exit(watch(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[6:]))
