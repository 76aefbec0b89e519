"""A change that is not kept is taken back also when we are killed: by `pgtop-tune revert` in a process that waits."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pgtop_tune.changes.deadlines import LAST_ATTEMPT, guard_moment_s
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.process.revert_watchdog import RevertWatchdog


def guard_set(
    conninfo: ConnInfo,
    set_id: str,
    until_ms: int | None,
    directory: Path | None,
    *,
    with_restart: bool = False,
    outlives_us: bool = False,
) -> RevertWatchdog:
    """Starts the process that reverts a set when we are gone, or when its time is over.

    The server and the password go along in the environment, which only this user and root can read.

    Args:
        conninfo: The server.
        set_id: Of the journal.
        until_ms: The deadline, milliseconds since the epoch; None without one.
        directory: Of the journals; paths.journal_dir() by default.
        with_restart: Restarts the server where the old values need it.
        outlives_us: Waits for the deadline alone, and reverts only where nobody has confirmed the set by then.

    Raises:
        OSError: It cannot be started.
    """
    argv = [sys.executable, "-P", "-m", "pgtop_tune", "revert", "--set", set_id, "--no-password"]
    if with_restart:
        argv.append("--restart")
    if outlives_us:
        argv.append("--overdue")
    if directory is not None:
        argv += ["--journal", str(directory.absolute())]
    # A service wins over variables, and what it says is in them already.
    env = {name: value for name, value in os.environ.items() if name != "PGSERVICE"} | conninfo.for_ourselves()
    moment_s = guard_moment_s(until_ms)
    return RevertWatchdog(argv, env, moment_s, outlives_us=outlives_us, last_word=LAST_ATTEMPT)
