"""A change set of this machine goes back also when we are killed; see `changes/server/revert_guard`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from pgtop_tune.changes.deadlines import LAST_ATTEMPT, guard_moment_s
from pgtop_tune.process.revert_watchdog import RevertWatchdog

Guard = Callable[[str, int | None, Path | None], RevertWatchdog]
"""Starts the process that takes a set back when we are gone: id of the set, end of the trial in milliseconds since
the epoch, directory of the journals. Raises OSError."""


def guard_machine_set(
    set_id: str, until_ms: int | None, directory: Path | None, *, outlives_us: bool = False
) -> RevertWatchdog:
    """Starts a process that reverts a set of this machine; no server is asked.

    Args:
        set_id: Of the journal.
        until_ms: The deadline, milliseconds since the epoch; None without one.
        directory: Of the journals; paths.journal_dir() by default.
        outlives_us: Waits for the deadline alone, and reverts only where nobody has confirmed the set by then.

    Raises:
        OSError: It cannot be started.
    """
    argv = [sys.executable, "-P", "-m", "pgtop_tune", "revert", "--machine", "--set", set_id]
    if outlives_us:
        argv.append("--overdue")
    if directory is not None:
        argv += ["--journal", str(directory.absolute())]
    moment_s = guard_moment_s(until_ms)
    return RevertWatchdog(argv, os.environ, moment_s, outlives_us=outlives_us, last_word=LAST_ATTEMPT)
