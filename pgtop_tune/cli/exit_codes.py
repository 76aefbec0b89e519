"""Exit statuses, in one place, and what a signal ends a command with."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType
from typing import Final, NoReturn

from pgtop_tune.base.errors import (
    ChangedMeanwhile,
    ClusterProblem,
    ConnectionProblem,
    HostProblem,
    JournalProblem,
    LoadProblem,
    NotAvailable,
    PgtopError,
    RecordingProblem,
    ServerProblem,
    UnsafeChange,
    UsageProblem,
)
from pgtop_tune.process.dispositions import ending_signals, handled


class ExitCode(IntEnum):
    """Exit statuses for shell scripts."""

    OK = 0
    FAILED = 1
    """check: findings at or above --fail-on. demo and revert: a server on this machine could not be created or
    started."""
    USAGE = 2
    """Usage error on the command line or in a configuration file; 2 as usual for command-line parsers."""
    CONNECTION = 3
    """The server does not answer, or refuses the login."""
    LOAD = 4
    """pgbench is missing, or its run failed."""
    RECORDING = 5
    """A recording cannot be read or written."""
    CHANGE = 6
    """A parameter or a setting of the machine could not be changed or reverted, or the journal could not be used."""
    CONDITION_HOLDS = 7
    """A condition of --fail-if holds."""
    CANNOT_TELL = 8
    """A condition of --fail-if cannot be decided: not comparable, not measured, too short, or too few runs.
    ab and tune: there is no verdict."""
    NOT_AVAILABLE = 9
    """show: the server, its role or the recording does not have the rows."""
    ABORTED = 10
    """bench run: a condition of --abort-if ended a run."""
    CRASHED = 70
    """A bug, with a traceback; 70 as EX_SOFTWARE of sysexits.h."""
    SIGNALLED = 128
    """128 plus the number of the signal: 129 hang-up, 130 interrupt, 141 stdout was closed, 143 terminate."""


class Terminated(SystemExit):
    """The end by SIGTERM or SIGHUP. Event loops let only a SystemExit through.

    Attributes:
        number: The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(ExitCode.SIGNALLED + number)
        self.number = number


def raise_terminated(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal by raising `Terminated`."""
    raise Terminated(number)


@contextmanager
def terminating() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise `Terminated` in the main thread; SIGINT raises KeyboardInterrupt as always."""
    with handled(tuple(number for number in ending_signals() if number != signal.SIGINT), raise_terminated):
        yield


_BY_PROBLEM: Final[tuple[tuple[type[PgtopError], ExitCode], ...]] = (
    (UsageProblem, ExitCode.USAGE),
    (ConnectionProblem, ExitCode.CONNECTION),
    (LoadProblem, ExitCode.LOAD),
    (RecordingProblem, ExitCode.RECORDING),
    (ServerProblem, ExitCode.CHANGE),
    (UnsafeChange, ExitCode.CHANGE),
    (ChangedMeanwhile, ExitCode.CHANGE),
    (JournalProblem, ExitCode.CHANGE),
    (HostProblem, ExitCode.CHANGE),
    (ClusterProblem, ExitCode.FAILED),
    (NotAvailable, ExitCode.NOT_AVAILABLE),
)


def exit_code(problem: PgtopError) -> ExitCode:
    """Return the exit status of a problem."""
    return next((code for kind, code in _BY_PROBLEM if isinstance(problem, kind)), ExitCode.CRASHED)
