"""Messages for exceptions of the drivers, with a remedy, for servers in any language."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pgtop_tune.base.errors import (
    ConnectionProblem,
    NoAnswer,
    NoSuchDatabase,
    NotLetIn,
    NotReady,
    PasswordNeeded,
    ServerProblem,
    WrongPassword,
)
from pgtop_tune.base.foreign_answers import MALFORMED, malformed
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.postgres.server.conninfo import ConnInfo, ServerEndpoint
from pgtop_tune.postgres.server.file_looks import FilesHang

if TYPE_CHECKING:
    import psycopg


_PATIENCE_S: Final = 0.5


def takes_connections(endpoint: ServerEndpoint) -> bool:
    """Return whether something listens at an endpoint whose connection timed out; blocks for at most half a second."""
    if endpoint.is_socket:
        return True
    try:
        with socket.create_connection((endpoint.hostaddr or endpoint.host, endpoint.port), _PATIENCE_S):
            return True
    except (OSError, UnicodeError):
        return False


_PASSWORD_FAILED: Final = "28P01"

_NO_DATABASE: Final = "3D000"
_FINAL: Final = frozenset({"42501", "42704"})
"""Final refusals, besides those of a login and of a missing database: another attempt cannot succeed."""

_PASSING: Final = frozenset({"57P01", "57P02", "57P03"})
"""Refusals of a server that starts, stops or recovers."""

_CONNECT_HINTS: Final[Mapping[str, str]] = {
    _PASSWORD_FAILED: "check the user and the password (PGPASSWORD, .pgpass, or type it)",
    "28000": "pass the role with -U; it must exist and be allowed to log in, and pg_hba.conf must admit it",
    _NO_DATABASE: "pass a database with -d; `psql -l` lists them",
    "53300": "close some sessions, or raise the limit: max_connections, or CONNECTION LIMIT of the role or database",
    "57P03": "the server is starting, stopping or recovering; trying again",
    "57P01": "an administrator has shut the server down; trying again",
    "42501": "the role lacks CONNECT on this database, or may not load a library that its sessions load",
    "58P01": "a library that sessions load is missing; `pgtop-tune revert` reverts a change of pgtop-tune",
    "42704": "a setting in PGOPTIONS or options= does not exist on this server",
    "08P01": "a pooler rejects PGOPTIONS and options= unless its ignore_startup_parameters lists `options`",
}
"""sqlstate → remedy; PostgreSQL appendix A."""

_NO_SUCH_CHARACTER: Final = "this database's encoding lacks a character; pass a UTF8 database with -d"
STATEMENT_HINTS: Final[Mapping[str, str]] = {"22P05": _NO_SUCH_CHARACTER}
"""sqlstate → remedy for a refused statement."""

_REASONS: Final[Mapping[str, Reason]] = {
    "42501": Reason.NO_PERMISSION,
    "42883": Reason.NOT_SUPPORTED,
    "42P01": Reason.NOT_SUPPORTED,
    "42703": Reason.NOT_SUPPORTED,
    "57014": Reason.TOO_SLOW,
    "55P03": Reason.TOO_SLOW,
    "57P03": Reason.NO_ANSWER,
}
"""sqlstate → reason why a section is missing."""

_LONGEST_WORDS: Final = 2_000
_ENDED: Final = frozenset({"25P03", "25P04", "57P05"})
"""sqlstates of a session that a limit has ended: for idling in a transaction, for a transaction, for idling."""

_OF_STATEMENTS: Final = ("22", "42", "55", "58")
"""Beginnings of sqlstates of psycopg's OperationalError that do not end the session."""

_TOO_SLOW: Final = "took longer than its time limit"


def sqlstate_of(error: BaseException) -> str:
    """Return the sqlstate of an exception of either driver; "" without one."""
    return getattr(error, "sqlstate", None) or ""


def server_words(error: BaseException) -> str:
    """Return the server's message in one line, with its detail and hint, each of limited length. Foreign text."""
    diagnosis = getattr(error, "diag", None)
    if diagnosis is not None and diagnosis.message_primary:
        parts = (diagnosis.message_primary, diagnosis.message_detail, diagnosis.message_hint)
    else:
        parts = (str(error).split("\n", 1)[0], getattr(error, "detail", None), getattr(error, "hint", None))
    return "; ".join(one_line(part, _LONGEST_WORDS) for part in parts if isinstance(part, str) and part)


def connection_problem(error: BaseException, conninfo: ConnInfo, *, reached: bool = False) -> ConnectionProblem:
    """Return the problem of a failed connection: one sentence that names the address, and a remedy.

    Args:
        error: Exception of the driver or the network.
        conninfo: The address.
        reached: Whether something listens there, so that a missing answer is not the network's fault.
    """
    where = conninfo.describe()
    state = sqlstate_of(error)
    if state:
        kind = _kind(state)
        if state == _PASSWORD_FAILED:
            kind = PasswordNeeded if conninfo.password is None else WrongPassword
        message = server_words(error)
        return kind(f"{where}: {message}", _CONNECT_HINTS.get(state, ""))
    for class_, message, hint in _NETWORK:
        if isinstance(error, class_):
            cut = issubclass(class_, ConnectionResetError | BrokenPipeError)
            hint = _SILENT if reached and class_ is TimeoutError else hint
            kind = NoAnswer if reached and class_ is TimeoutError else NotReady if cut else ConnectionProblem
            return kind(f"{where}: {message}", hint)
    return ConnectionProblem(f"{where}: {server_words(error) or 'the connection failed without a word'}")


def refused_in_other_words(error: psycopg.OperationalError) -> bool:
    """Return whether a server's refusal is not known here, because it may be in another language."""
    return _ANSWERED.search(str(error)) is not None and not refusal_state(error)


def libpq_problem(error: psycopg.OperationalError, conninfo: ConnInfo, state: str = "") -> ConnectionProblem:
    """Return the problem of a failed connection of libpq, about the last endpoint; a server's refusal in libpq's words.

    Blocks for up to half a second for each endpoint that did not answer.

    Args:
        error: Exception of psycopg.
        conninfo: The address.
        state: The sqlstate, if it is known: libpq does not report it for a failed connection. English messages of the
            server show it.
    """
    text = str(error).partition(_ALL_OF_THEM)[0].removeprefix("connection failed: ").removeprefix("connection is bad: ")
    # The sampler imports this module and does without psycopg.
    from psycopg.errors import ConnectionTimeout

    if isinstance(error, ConnectionTimeout):
        reached = any(map(takes_connections, conninfo.endpoints))
        return connection_problem(TimeoutError(), conninfo, reached=reached)
    nobody = next((number for number in _NOBODY_THERE if f"failed: {os.strerror(number)}" in text), None)
    if nobody is not None:
        return connection_problem(OSError(nobody, ""), conninfo)
    if any(phrase in text for phrase in _NAME_NOT_KNOWN):
        return connection_problem(socket.gaierror(), conninfo)
    one_line_text = " ".join(text.split())
    message = f"{conninfo.describe()}: {one_line_text}"
    if error.pgconn is not None and error.pgconn.needs_password:
        return PasswordNeeded(message, _CONNECT_HINTS[_PASSWORD_FAILED])
    if _FORBIDDEN.search(one_line_text):
        return NotLetIn(message, "check the connection options and PG* variables: one of them excludes this server")
    state = state or refusal_state(error)
    if state == _PASSWORD_FAILED and error.pgconn is not None and error.pgconn.used_password:
        return WrongPassword(message, _CONNECT_HINTS[_PASSWORD_FAILED])
    return _kind(state)(message, _CONNECT_HINTS.get(state, ""))


def refusal_state(error: psycopg.OperationalError) -> str:
    """Return the sqlstate of a refused login from its English message; "" where that is not known."""
    return next((state for pattern, state in _REFUSALS if pattern.search(str(error))), "")


def _kind(state: str) -> type[ConnectionProblem]:
    if state == _NO_DATABASE:
        return NoSuchDatabase
    if state.startswith("28") or state in _FINAL:
        return NotLetIn
    return NotReady if state in _PASSING else ConnectionProblem


_REFUSALS: Final = (
    (re.compile(r"FATAL: .*(password|\w+) authentication failed for user"), _PASSWORD_FAILED),
    (re.compile(r"FATAL: .*role \".*\" (does not exist|is not permitted to log in)"), "28000"),
    (re.compile(r"FATAL: .*pg_hba\.conf"), "28000"),
    (re.compile(r"FATAL: .*database \".*\" does not exist"), _NO_DATABASE),
    (re.compile(r"FATAL: .*permission denied for database"), "42501"),
    (re.compile(r"FATAL: .*unrecognized configuration parameter"), "42704"),
    (re.compile(r"FATAL: .*unsupported startup parameter"), "08P01"),
    (re.compile(r"FATAL: .*(too many (clients|connections)|remaining connection slots)"), "53300"),
    (re.compile(r"FATAL: .*the database system is "), "57P03"),
)
"""Messages in the server's sources for refused logins, and their sqlstates."""

_FORBIDDEN: Final = re.compile(
    r"authentication method requirement|channel binding (is )?required|requirepeer specifies|certificate verify failed"
    r"|server certificate for .* does not match"
)
"""Messages of libpq when a keyword excludes the server: require_auth, channel_binding, requirepeer, sslmode."""

_ALL_OF_THEM: Final = "\nMultiple connection attempts failed"
"""Beginning of psycopg's repetition of its message for each endpoint."""
_NAME_NOT_KNOWN: Final = ("failed to resolve host", "could not translate host name")
"""Messages of psycopg and of libpq."""
_NOBODY_THERE: Final = (errno.ENOENT, errno.ECONNREFUSED, errno.EACCES, errno.ECONNRESET)

_ANSWERED: Final = re.compile(r": \S+:  ")
"""Pattern of a server's message in libpq's, severity first, in the server's language."""

_SILENT: Final = (
    "the server there hangs or waits for a lock (see pg_locks in an open session), or it is another program"
)
_NETWORK: Final[tuple[tuple[type[BaseException], str, str], ...]] = (
    (socket.gaierror, "unknown host name", "check -h / PGHOST and DNS"),
    (UnicodeError, "invalid host name", "check -h / PGHOST"),
    (
        FileNotFoundError,
        "nothing is listening on this socket",
        "check that the server runs, or pass another socket directory or host with -h",
    ),
    (ConnectionRefusedError, "nothing is listening on this port", "check that the server runs, and the port"),
    (
        PermissionError,
        "this user may not use the socket",
        "run this command as a user with access to the socket's directory",
    ),
    (TimeoutError, "no answer in time", "check the address, and whether a firewall drops the packets"),
    (ConnectionResetError, "the connection was cut", "the server may be restarting; trying again"),
    (BrokenPipeError, "the connection was cut", "the server may be restarting; trying again"),
)


def absence(error: BaseException) -> Unavailable:
    """Return the absence of a section whose query the server refused."""
    hangs = isinstance(error, FilesHang)
    reason = Reason.NO_ANSWER if hangs else _REASONS.get(sqlstate_of(error), Reason.FAILED)
    message = server_words(error)
    return Unavailable(reason, f"{message} ({_TOO_SLOW})" if reason is Reason.TOO_SLOW else message)


def not_text(error: UnicodeError) -> ServerProblem:
    """Return the problem of a value of ours that is no text, or a value of the server that is not in its encoding."""
    if isinstance(error, UnicodeEncodeError):
        return ServerProblem("a name or a value contains bytes that are not text", "type it in the terminal's encoding")
    return ServerProblem("the server sent bytes that are invalid in the encoding of the database")


class PlainWords:
    """Context that turns psycopg's exceptions into ours."""

    def __init__(self, conninfo: ConnInfo) -> None:
        self._conninfo = conninfo

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            return
        if isinstance(error, UnicodeError):
            raise not_text(error) from None
        # The sampler imports this module and does without psycopg.
        import psycopg

        state = sqlstate_of(error)
        lost = isinstance(error, psycopg.OperationalError) and not state.startswith(_OF_STATEMENTS)
        if lost or state in _ENDED:
            raise ConnectionProblem(f"{self._conninfo.describe()}: {server_words(error)}") from None
        if isinstance(error, psycopg.Error):
            raise ServerProblem(server_words(error), STATEMENT_HINTS.get(state, ""), state) from None
        if isinstance(error, MALFORMED):
            raise malformed(error) from None
