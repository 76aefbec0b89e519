"""The identity of a process beyond its pid, which may belong to another program later; the boot that it belongs to; its
interruption.

Without /proc ps(1) has the start to the second; where ps has no start either (a container that hides /proc) the pid
alone counts: a process of that pid is taken for the one that was meant, and is left alone.

Source: /proc/PID/stat; clock_gettime(2), CLOCK_BOOTTIME; time_namespaces(7).
"""

from __future__ import annotations

import getpass
import os
import signal
import socket
import subprocess
import time
from calendar import timegm
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem

_PROC: Final = Path("/proc")
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC counts time asleep."""
_PS_TIMEOUT_S: Final = 5.0
_STATE: Final = 0
_START: Final = 19
"""Fields 3 and 22 of proc_pid_stat(5), counted after the name in parentheses."""


class ProcessKey(Struct, frozen=True):
    """One process, of all that ever had its pid.

    Attributes:
        pid: As the program itself sees it.
        start_ticks: Clock ticks from boot to its start (proc_pid_stat(5), field 22). Without /proc seconds from the
            epoch, 0 where they are not known.
        boot_id: /proc/sys/kernel/random/boot_id; "" without /proc.
        namespace: The pid namespace ("pid:[4026531836]"): a container has pids of its own. "" where the kernel does not
            say.
    """

    pid: int
    start_ticks: int
    boot_id: str
    namespace: str

    @property
    def is_of_here(self) -> bool:
        """Return whether the pid is valid for this process: same boot of the same machine, same pid namespace."""
        return (self.boot_id, self.namespace) == (boot_id(), _namespace())

    @property
    def lives(self) -> bool:
        """Return whether it runs; one that has ended and was not collected does not."""
        return self.is_of_here and process_key_of(self.pid) == self


def process_key_of(pid: int) -> ProcessKey | None:
    """Return the process that has this pid now; None where none runs."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None if has_proc() else _key_without_proc(pid)
    if fields[_STATE] in "ZX":
        return None
    return ProcessKey(pid=pid, start_ticks=int(fields[_START]), boot_id=boot_id(), namespace=_namespace())


def own_key() -> ProcessKey:
    """Return the key of this process."""
    own_process = process_key_of(os.getpid()) if has_proc() else _own_key_without_proc(os.getpid())
    assert own_process is not None
    return own_process


def boot_id() -> str:
    """Return the id of this boot: processes from before it are gone. "" where unknown."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return ""


def boot_clock_s() -> float:
    """Return the seconds since the machine was started, time asleep included: a clock that cannot be set."""
    return time.clock_gettime(_CLOCK)


def boot_clock_mark() -> str:
    """Return the name of this clock: processes with the same one read the same time. "" where nothing says."""
    boot = boot_id()
    try:
        # A container may have an offset of its own.
        namespace = os.readlink("/proc/self/ns/time")
    except OSError:
        namespace = ""
    return f"{boot} {namespace}".strip() if boot else ""


def own_name() -> str:
    """Return this process as journals name it: "user@host, pid"."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}, {os.getpid()}"


def has_proc() -> bool:
    """Return whether processes can be looked at in /proc."""
    return (_PROC / "self/stat").exists()


def _key_without_proc(pid: int) -> ProcessKey | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # it is there, and another user's
    state, _, started = _ps(pid).partition(" ")
    if state.startswith("Z"):
        return None
    return ProcessKey(pid=pid, start_ticks=_epoch_s(started), boot_id=boot_id(), namespace=_namespace())


@lru_cache(maxsize=2)
def _own_key_without_proc(pid: int) -> ProcessKey | None:
    """Return our own key, which does not change: it is asked for every other second."""
    return _key_without_proc(pid)


def _ps(pid: int) -> str:
    """Return state and start: "Ss Mon Nov 23 15:35:30 2026"; "" where ps does not know."""
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    try:
        answer = subprocess.run(
            ["ps", "-o", "state=", "-o", "lstart=", "-p", str(pid)],
            capture_output=True, text=True, errors="replace", timeout=_PS_TIMEOUT_S, env=environment, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return " ".join(answer.stdout.split()) if answer.returncode == 0 else ""


def _epoch_s(started: str) -> int:
    try:
        return timegm(time.strptime(started, "%a %b %d %H:%M:%S %Y"))
    except ValueError:
        return 0


def _namespace() -> str:
    try:
        return os.readlink(_PROC / "self/ns/pid")
    except OSError:
        return ""


# The interruption of another process of ours: signals until it ends, because one signal can get lost.

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
            hint = f"run `kill -KILL {self._key.pid}`; the revert watchdog then restores the values"
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
