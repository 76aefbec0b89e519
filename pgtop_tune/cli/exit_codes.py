"""Exit statuses, in one place."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from pgtop_tune.errors import (
    ChangedMeanwhile,
    ClusterProblem,
    ConnectionProblem,
    HostProblem,
    JournalProblem,
    LoadProblem,
    PgtopError,
    RecordingProblem,
    ServerProblem,
    UnsafeChange,
    UsageProblem,
)


class ExitCode(IntEnum):
    """What a shell script can tell apart."""

    OK = 0
    FAILED = 1
    """check: findings from --fail-on on. demo and revert: a server of this machine could not be made or started."""
    USAGE = 2
    """Words on the command line or in a configuration file; 2 as every command-line parser has it."""
    CONNECTION = 3
    """No server, or it does not let us in."""
    LOAD = 4
    """pgbench missing, or its run failed."""
    RECORDING = 5
    """A recording cannot be read or written."""
    CHANGE = 6
    """A parameter or a setting of the machine could not be changed or reverted, or the journal could not be used."""
    CONDITION_HOLDS = 7
    """A condition of --fail-if holds."""
    CANNOT_TELL = 8
    """A condition of --fail-if cannot be told: not comparable, not measured, too short, or too few runs."""
    CRASHED = 70
    """A bug, with a traceback; 70 as EX_SOFTWARE of sysexits.h."""
    SIGNALLED = 128
    """Plus the number of the signal: 129 hang-up, 130 interrupt, 141 nobody reads stdout any more, 143 terminate."""


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
)


def exit_code(problem: PgtopError) -> ExitCode:
    """The exit status for a problem that ends a command."""
    return next((code for kind, code in _BY_PROBLEM if isinstance(problem, kind)), ExitCode.CRASHED)
