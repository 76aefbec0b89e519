"""Waiting for what other processes do: a condition with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def eventually(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    """Whether the condition comes true before the deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not collected does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children(pid: int) -> list[int]:
    """Processes that a process has started, and that have not lost it."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, task.read_text().split())
    return found


def revert_watchdogs(pid: int) -> list[int]:
    """The processes that wait for a program's end to revert its changes."""
    return [child for child in children(pid) if b"revert_watchdog.py" in Path(f"/proc/{child}/cmdline").read_bytes()]


def descendants(pid: int) -> list[int]:
    """The process, and those that have come from it and not lost it."""
    return [pid, *(each for child in children(pid) for each in descendants(child))]


def shows(pid: int, secret: str) -> list[str]:
    """Where /proc shows a secret of a process and of its descendants: argument lists and environments."""
    files = [Path(f"/proc/{each}/{name}") for each in descendants(pid) for name in ("cmdline", "environ")]
    return [str(file) for file in files if file.exists() and secret.encode() in file.read_bytes()]
