"""Starts a program again and again until it is at work, in a process of its own under the guard.

Run as a file, not imported: `python -I -S attempts.py --every 0.05 --log PREFIX [options] -- argv…`. An attempt has
failed when the program ends with status 1, or with status 2 and nothing in its log, which are the files PREFIX.PID
and PREFIX.PID.1 …: pgbench could not connect all clients, or lost all of them before the first transaction. The files
of a failed attempt are removed, and the next one begins `--every` seconds after the begin of the last, or at once
after an attempt that took longer. With `--variable`, pgbench gets the number of the attempt as a variable of that
name. With `--wait USR1`, the first attempt waits for that signal.

On stderr, READY says that it waits, AGAIN (on stdout, too) follows the output of a failed attempt, and "NUMBER PID
LONGEST_S" tells of an attempt that still runs after `STAYS_S`, and of the last one: its number, its process, and the
longest time between the begins of two attempts. These lines begin with the value of the variable TOKEN, which the
program does not get: a server that makes it print such a line does not know the value. The exit status is that of the
last program, 128 + n where signal n ended it. SIGALRM and SIGINT reach the program by the process group, and end the
attempts.
"""

from __future__ import annotations

import glob
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn, TextIO

STAYS_S: Final = 0.5
TOKEN: Final = "PGTOP_TUNE_ATTEMPTS"
READY: Final = "ready"
AGAIN: Final = "again"
NOT_CONNECTED: Final = 1
LOST: Final = 2
_FAILED_TO_START: Final = 127
_WRONG_USAGE: Final = 64
_PR_SET_PDEATHSIG: Final = 1
_OPTIONS: Final = frozenset({"--every", "--log", "--variable", "--wait"})


class AttemptsOrder(NamedTuple):
    """The command line."""

    argv: tuple[str, ...]
    every_s: float
    log: str
    variable: str = ""
    waits: bool = False


def parse_order(arguments: list[str]) -> AttemptsOrder:
    """Return the order of the command line. Raises ValueError where it is not one."""
    if "--" not in arguments:
        raise ValueError("no command after --")
    at = arguments.index("--")
    options = dict(zip(arguments[:at:2], arguments[1:at:2], strict=True))
    if not {"--every", "--log"} <= options.keys() <= _OPTIONS or not arguments[at + 1 :]:
        raise ValueError("wrong options, or no command after --")
    return AttemptsOrder(
        argv=tuple(arguments[at + 1 :]),
        every_s=float(options["--every"]),
        log=options["--log"],
        variable=options.get("--variable", ""),
        waits="--wait" in options,
    )


def _death_signal() -> Callable[[], object]:
    """Return a function that has a child end with its parent, also where that is killed."""
    if not sys.platform.startswith("linux"):
        return lambda: None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)


class AttemptLoop:
    """The attempts of one order."""

    def __init__(self, order: AttemptsOrder) -> None:
        self._order = order
        self._token = os.environ.pop(TOKEN, "")
        self._number = 0
        self._longest_s = 0.0
        self._begun, self._ending = not order.waits, False
        self._die_with_us = _death_signal()
        self._wake, wake_in = os.pipe()
        os.set_blocking(wake_in, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)
        signal.signal(signal.SIGUSR1, self._begin)

    def run(self) -> int:
        """Return the exit status of the last attempt."""
        if self._order.waits:
            self._report(READY)
        while not (self._begun or self._ending):
            select.select([self._wake], [], [])
            os.read(self._wake, 512)
        if self._ending:
            return NOT_CONNECTED
        before_s: float | None = None
        while True:
            began_s = time.monotonic()
            self._longest_s = max(self._longest_s, began_s - (began_s if before_s is None else before_s))
            before_s = began_s
            self._number += 1
            pid = self._start()
            status = self._wait(pid)
            files = self._files(pid)
            failed = status == NOT_CONNECTED or (status == LOST and not any(map(os.path.getsize, files)))
            if self._ending or not failed:
                self._tell(pid)
                return 128 - status if status < 0 else status
            for name in files:
                os.unlink(name)
            self._report(AGAIN, sys.stdout, sys.stderr)
            time.sleep(max(began_s + self._order.every_s - time.monotonic(), 0.0))
            if self._ending:
                self._tell(pid)
                return status

    def _files(self, pid: int) -> list[str]:
        """Return the files of its log, one for each thread: PREFIX.PID, PREFIX.PID.1 …"""
        prefix = f"{glob.escape(self._order.log)}.{pid}"
        return [*glob.glob(prefix), *glob.glob(f"{prefix}.*")]

    def _start(self) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGALRM, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL)
            self._die_with_us()
            program, *arguments = self._order.argv
            variable = ["-D", f"{self._order.variable}={self._number}"] if self._order.variable else []
            if os.getppid() == parent:
                os.execv(program, [program, *variable, *arguments])
        finally:
            os._exit(_FAILED_TO_START)

    def _wait(self, pid: int) -> int:
        """Return the status of a program once it has ended; negative for the signal that ended it."""
        stays_s: float | None = STAYS_S
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            ready, _, _ = select.select([self._wake], [], [], stays_s)
            if ready:
                os.read(self._wake, 512)
            elif stays_s is not None:
                self._tell(pid)
                stays_s = None

    def _tell(self, pid: int) -> None:
        self._report(f"{self._number} {pid} {self._longest_s:.3f}")

    def _report(self, report: str, *streams: TextIO) -> None:
        for stream in streams or (sys.stderr,):
            stream.write(f"{self._token}{report}\n")
            stream.flush()

    def _begin(self, *_: object) -> None:
        self._begun = True

    def _end(self, *_: object) -> None:
        self._ending = True


def main() -> NoReturn:
    """Run the command line; see the module's text."""
    try:
        order = parse_order(sys.argv[1:])
    except ValueError as problem:
        sys.stderr.write(f"attempts: {problem}\n")
        sys.exit(_WRONG_USAGE)
    os._exit(AttemptLoop(order).run())


if __name__ == "__main__":
    main()
