"""The identity of a process beyond its pid: the same pid may belong to another program later. Linux: /proc/PID/stat."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from msgspec import Struct

_PROC: Final = Path("/proc")
_STATE: Final = 0
_START: Final = 19
"""Fields 3 and 22 of proc_pid_stat(5), counted after the name in parentheses."""


class ProcessKey(Struct, frozen=True):
    """One process, of all that ever had its pid.

    Attributes:
        pid: As the program itself sees it.
        start_ticks: Clock ticks from boot to its start (proc_pid_stat(5), field 22).
        boot_id: /proc/sys/kernel/random/boot_id.
        namespace: The pid namespace ("pid:[4026531836]"): a container has pids of its own. "" where the kernel does not
            say.
    """

    pid: int
    start_ticks: int
    boot_id: str
    namespace: str

    @property
    def is_of_here(self) -> bool:
        """Whether its pid means something to this process: same boot of the same machine, same pid namespace."""
        return (self.boot_id, self.namespace) == (boot_id(), _namespace())

    @property
    def lives(self) -> bool:
        """Whether it runs; one that has ended and was not collected does not."""
        return self.is_of_here and key_of(self.pid) == self


def key_of(pid: int) -> ProcessKey | None:
    """The process that has this pid now; None where none runs."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[_STATE] in "ZX":
        return None
    return ProcessKey(pid=pid, start_ticks=int(fields[_START]), boot_id=boot_id(), namespace=_namespace())


def own_key() -> ProcessKey:
    """This process."""
    found = key_of(os.getpid())
    assert found is not None
    return found


def boot_id() -> str:
    """Of this boot of the machine: what ran before it is gone."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> str:
    try:
        return os.readlink(_PROC / "self/ns/pid")
    except OSError:
        return ""
