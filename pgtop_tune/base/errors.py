"""Failures that a user can mend: one sentence of cause, one of remedy.

PgtopError
├── UsageProblem            the words on the command line, a configuration file, a typed value
├── ConnectionProblem       the server is not there or does not let us in
│   ├── NotReady            it is there and may let us in soon: it starts, stops or recovers
│   ├── NoAnswer            it listens, and the login does not end in time
│   ├── LockedOut           it takes the credentials and ends each new session: a library, a setting, a trigger
│   └── NotLetIn            it is there and says no: role, database, pg_hba.conf
│       ├── NoSuchDatabase  it has no database of that name
│       ├── PasswordNeeded  it would, with a password
│       └── WrongPassword   it would, with another password
├── ServerProblem           the server refused a statement
│   └── PendingElsewhere    another program has a value pending there; nothing was changed
├── NotAvailable            the server, its role or the recording does not have the rows that were asked for
├── UnsafeChange            the value can lose data and was not unlocked
├── ChangedMeanwhile        somebody else has changed it since it was looked at
├── LoadProblem             pgbench cannot be found, started, or prepared
├── ClusterProblem          a throwaway server could not be made
├── RecordingProblem        a file cannot be read or written as a recording
├── HostProblem             the kernel refused a setting, or we may not write it
└── JournalProblem          the change journal cannot be read or written; nothing was changed
"""

from __future__ import annotations


class PgtopError(Exception):
    """An expected failure, told to the user without a traceback.

    Attributes:
        message: What happened, one sentence, no full stop needed.
        hint: What to do about it; empty when the message says it all.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def __rich__(self) -> str:
        """Textual prints this in place of a traceback (and without locals, which may hold secrets)."""
        return str(self).replace("[", r"\[")


class UsageProblem(PgtopError):
    """The words on the command line, a configuration file or a typed value are off."""


class ConnectionProblem(PgtopError):
    """The server is not there or does not let us in."""


class NotReady(ConnectionProblem):
    """The server is there and may let us in soon: it starts, stops or recovers, or has just cut the connection."""


class NoAnswer(ConnectionProblem):
    """Something listens there, and the login does not end in time: a server that hangs, or another program."""


class LockedOut(ConnectionProblem):
    """The server takes the credentials and ends each new session: for a library, a setting, or a login trigger."""


class NotLetIn(ConnectionProblem):
    """The server is there and says no, and will say so again: role, password, database, pg_hba.conf."""


class NoSuchDatabase(NotLetIn):
    """The server has no database of that name."""


class PasswordNeeded(NotLetIn):
    """The server asks for a password and none was found where libpq looks for it."""


class WrongPassword(NotLetIn):
    """The server does not take the password."""


class NotAvailable(PgtopError):
    """The server, its role or the recording does not have the rows that were asked for."""


class ServerProblem(PgtopError):
    """The server refused a statement.

    Attributes:
        sqlstate: Five characters as in PostgreSQL's appendix A, or empty when it was not the server's own error.
    """

    def __init__(self, message: str, hint: str = "", sqlstate: str = "") -> None:
        super().__init__(message, hint)
        self.sqlstate = sqlstate


class PendingElsewhere(ServerProblem):
    """Another program, of this account or of another, holds the parameter: its value is pending confirmation."""


class UnsafeChange(PgtopError):
    """The value can lose data, and nobody has unlocked it."""


class ChangedMeanwhile(PgtopError):
    """Another program has changed the parameter since the operator looked at it; nothing was changed."""


class LoadProblem(PgtopError):
    """pgbench cannot be found, started or prepared."""


class ClusterProblem(PgtopError):
    """A throwaway server could not be made or started."""


class RecordingProblem(PgtopError):
    """A file cannot be read or written as a recording."""


class HostProblem(PgtopError):
    """The kernel refused a setting of the operating system, or this process may not write it."""


class JournalProblem(PgtopError):
    """The change journal cannot be read or written; the change that it was for is not made."""
