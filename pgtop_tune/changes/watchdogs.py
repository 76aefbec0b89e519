"""Revert watchdogs of change sets: each reverts its set when this program is gone, or well after the deadline.

The deadline itself is kept by `confirm/pending_sets`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pgtop_tune.base.errors import JournalProblem
from pgtop_tune.process import handed_on
from pgtop_tune.process.own_program import own_argv
from pgtop_tune.process.process_key import ProcessKey, key_of
from pgtop_tune.process.revert_watchdog import RevertWatchdog

if TYPE_CHECKING:
    from pgtop_tune.changes.journal import Journal
    from pgtop_tune.postgres.server.conninfo import ConnInfo

Start = Callable[[int | None], RevertWatchdog]
"""Starts the revert watchdog of a set for a deadline: milliseconds since the epoch, None for none. Raises OSError."""

MachineStart = Callable[[str, int | None, Path | None], RevertWatchdog]
"""Starts the revert watchdog of a set of the machine: its id, the deadline, the directory of the journals."""

LATER_S: Final = 5.0
"""How long after the deadline a watchdog acts while its program lives: that reverts the set itself."""
RESTART_S: Final = 900.0
"""The longest a restart may take, which may be another user's: for making a set, and for reverting it."""
ENDED: Final = "the program ended before it was confirmed"
"""Why a set is reverted at the end of its program."""
LAST_ATTEMPT: Final = "--last-attempt"
"""Of `pgtop-tune revert`: the revert watchdog does not try again, and the journal has to say so."""
COPY_ON_STDIN: Final = "--copy-on-stdin"
"""Of `pgtop-tune revert`: the revert watchdog hands over its copy of the set, for the case that no journal has it."""


def guard_set(
    conninfo: ConnInfo,
    set_id: str,
    until_ms: int | None,
    directory: Path | None,
    *,
    with_restart: bool = False,
    outlives_us: bool = False,
) -> RevertWatchdog:
    """Start the revert watchdog of a set with a half of the server.

    The server and its password go along in a descriptor: neither argument list nor environment has them.

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
    argv = ["--set", set_id, "--no-password", *(["--restart"] if with_restart else ())]
    within_s = _within_s(until_ms, RESTART_S if with_restart else LATER_S)
    with handed_on.descriptor(connection=conninfo.as_json()) as secrets:
        env = {**handed_on.environment(), handed_on.VARIABLE: str(secrets)}
        return _start(argv, env, within_s, directory, outlives_us=outlives_us, pass_fds=(secrets,))


def guard_machine_set(
    set_id: str, until_ms: int | None, directory: Path | None, *, outlives_us: bool = False
) -> RevertWatchdog:
    """Start the revert watchdog of a set of this machine; no server is asked. See `guard_set`."""
    argv = ["--machine", "--set", set_id]
    within_s = _within_s(until_ms, LATER_S)
    return _start(argv, handed_on.environment(), within_s, directory, outlives_us=outlives_us)


def _within_s(until_ms: int | None, later_s: float) -> float:
    return math.inf if until_ms is None else until_ms / 1000 - time.time() + later_s


def _start(
    words: list[str],
    env: dict[str, str],
    within_s: float,
    directory: Path | None,
    *,
    outlives_us: bool,
    pass_fds: tuple[int, ...] = (),
) -> RevertWatchdog:
    argv = [*own_argv(), "revert", *words, "--overdue" if outlives_us else COPY_ON_STDIN]
    if directory is not None:
        argv += ["--journal", str(directory.absolute())]
    return RevertWatchdog(argv, env, within_s, outlives_us=outlives_us, last_word=LAST_ATTEMPT, pass_fds=pass_fds)


class Watchdogs:
    """The revert watchdogs of one door of this process.

    Args:
        revert: Reverts a set; takes its id and the reason.
    """

    def __init__(self, revert: Callable[[str, str], Awaitable[object]]) -> None:
        self._revert: Final = revert
        self._watchdogs: dict[str, RevertWatchdog] = {}
        self._starts: dict[str, Start] = {}
        self._copies: dict[str, bytes] = {}

    @property
    def ids(self) -> tuple[str, ...]:
        """Sets that are reverted when this program ends."""
        return tuple(self._watchdogs)

    async def aclose(self) -> None:
        """Revert all of them; a set that cannot be reverted now is left to its watchdog."""
        for set_id in self.ids:
            with suppress(Exception):
                await self._revert(set_id, ENDED)

    def guard(self, set_id: str, until_ms: int | None, start: Start) -> None:
        """Have the set reverted when this program is gone.

        Raises:
            OSError: The watchdog cannot be started.
        """
        self._watchdogs[set_id], self._starts[set_id] = start(until_ms), start

    def give(self, set_id: str, copy: bytes) -> None:
        """Give a copy of the set to its watchdog: its journal may be gone by then."""
        self._copies[set_id] = copy
        if set_id in self._watchdogs:
            self._watchdogs[set_id].give(copy)

    def watchdog(self, set_id: str) -> ProcessKey | None:
        """Return the watchdog of a set; None where there is none."""
        watchdog = self._watchdogs.get(set_id)
        return None if watchdog is None else key_of(watchdog.process.pid)

    def put_off(self, set_id: str, until_ms: int | None) -> None:
        """Give the set another deadline; None for none: it is reverted at the end of this program only.

        Raises:
            OSError: The watchdog cannot be started; everything is as it was.
        """
        start = self._starts.get(set_id)
        if start is not None:
            earlier, self._watchdogs[set_id] = self._watchdogs[set_id], start(until_ms)
            self._watchdogs[set_id].give(self._copies.get(set_id, b""))
            earlier.dismiss()

    def put_off_in(self, journal: Journal, set_id: str, deadline: Mapping[str, Any]) -> None:
        """Give the set another deadline, and write its watchdog down.

        Raises:
            JournalProblem: It cannot be started or written down.
        """
        try:
            self.put_off(set_id, deadline["until_ms"])
        except OSError as error:
            raise JournalProblem(f"the revert watchdog cannot be started: {error.strerror}") from None
        owner = journal.text().owners.get(set_id)
        if owner is not None:
            journal.write(replace(owner, watchdog=self.watchdog(set_id)))

    def end(self, set_id: str) -> None:
        """Dismiss the watchdog: the set is confirmed or reverted."""
        self._starts.pop(set_id, None)
        self._copies.pop(set_id, None)
        watchdog = self._watchdogs.pop(set_id, None)
        if watchdog is not None:
            watchdog.dismiss()
