"""Resolves the connection options as psql does."""

from __future__ import annotations

import contextlib
import getpass
import sys
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import TYPE_CHECKING, ClassVar, TypedDict, TypeVar

from msgspec import Struct

from pgtop_tune.base.errors import LoadProblem, PasswordNeeded, ServerProblem, UsageProblem
from pgtop_tune.base.safe_text import printable
from pgtop_tune.base.secret import Secret
from pgtop_tune.cli import options
from pgtop_tune.process.handed_on import inherited_password

if TYPE_CHECKING:
    from pgtop_tune.postgres.server.conninfo import ConnInfo
    from pgtop_tune.postgres.server.resolving import Resolving
    from pgtop_tune.postgres.server.sql_session import PsycopgSession

_T = TypeVar("_T")


class ConnectionWords(Struct, frozen=True):
    """The connection options as typed: a group of options, see `options.grouped`."""

    target: options.Target = ""
    host: options.Host = ""
    port: options.Port = ""
    user: options.User = ""
    database: options.Database = ""
    no_password: options.NoPassword = False
    ask_password: options.AskPassword = False


class ConnectionOptions(ConnectionWords, frozen=True):
    """The same where the words without an option mean something else."""

    LEFT_OUT: ClassVar = frozenset({"target"})


class _Meant(TypedDict):
    target: str
    host: str
    port: str
    user: str
    password: Secret | None


def resolve_words(words: ConnectionWords, *, is_another: bool = False) -> ConnInfo:
    """The connection meant by the words.

    Args:
        words: As typed.
        is_another: It is not the operator's own server: PGPASSWORD goes there after a yes alone.

    Raises:
        UsageProblem: Words that libpq refuses, or that contradict each other.
    """
    from pgtop_tune.postgres.server.conninfo import resolve

    if is_another:
        return with_inherited_password(resolve(**_meant(words), inherits=False))
    return resolve(**_meant(words))


def begin_resolving(words: ConnectionWords) -> Resolving:
    """The same for sessions that only watch: found out beside us, while we get ready. Before threads are started.

    Raises:
        UsageProblem: Words that contradict each other; what libpq refuses is raised by the answer.
    """
    from pgtop_tune.postgres.server.resolving import Resolving

    return Resolving(**_meant(words))


def _meant(words: ConnectionWords) -> _Meant:
    if words.target and words.database:
        raise UsageProblem(f"two databases: {words.database} and {words.target}", "pass one, with or without -d")
    if words.no_password and words.ask_password:
        raise UsageProblem("-w and -W contradict each other", "pass one of them")
    return {
        "target": words.target or words.database,
        "host": words.host,
        "port": words.port,
        "user": words.user,
        "password": ask_password(words.user) if words.ask_password else None,
    }


def can_ask() -> bool:
    """Whether there is somebody to type a password."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def with_inherited_password(conninfo: ConnInfo) -> ConnInfo:
    """The connection with PGPASSWORD, where nothing else is found for its address and somebody agrees."""
    inherited = inherited_password()
    if inherited is None or conninfo.password is not None or not may_have_password(conninfo.describe()):
        return conninfo
    return conninfo.with_password(inherited)


@cache
def may_have_password(where: str) -> bool:
    """Asks once whether PGPASSWORD may be sent to another address than the operator's own; without a terminal not."""
    from pgtop_tune.cli.signals import answer_to

    if not can_ask():
        return False
    question = printable(f"PGPASSWORD is set: send it to {where}, too? [y/N] ")
    return answer_to(question).lower() in ("y", "yes")


def ask_password(user: str) -> Secret:
    """Asks on the terminal, without echo.

    Raises:
        UsageProblem: There is no terminal.
    """
    if not can_ask():
        raise UsageProblem("a password cannot be typed without a terminal", "use PGPASSWORD or .pgpass, and -w")
    return Secret(getpass.getpass(f"Password{f' for user {user}' if user else ''}: ", stream=sys.stderr))


@contextlib.asynccontextmanager
async def opened(words: ConnectionWords) -> AsyncIterator[tuple[PsycopgSession, ConnInfo]]:
    """A session, and the connection to the host that it has reached (a typed password included).

    Of several hosts, all that follows goes to that one. The session is closed on the way out.

    Raises:
        UsageProblem: Words that libpq refuses.
        ConnectionProblem: Not there, or it does not let us in.
        LoadProblem: A statement was refused while it was open.
    """
    from pgtop_tune.postgres.server.sql_session import open_sql_session

    conninfo = resolve_words(words)
    try:
        sql_session = await open_sql_session(conninfo)
    except PasswordNeeded:
        if words.no_password or not can_ask():
            raise
        conninfo = conninfo.with_password(ask_password(conninfo.user))
        sql_session = await open_sql_session(conninfo)
    try:
        yield sql_session, conninfo.only(sql_session.reached.endpoint)
    except ServerProblem as refusal:
        raise LoadProblem(refusal.message, refusal.hint) from None
    finally:
        await sql_session.aclose()


def let_in(words: ConnectionWords, act: Callable[[ConnInfo], _T], *, is_another: bool = False) -> _T:
    """Acts on the server that the words mean; where it wants a password and somebody can type one, again with it.

    Args:
        words: Which server.
        act: What to do.
        is_another: It is not the operator's own one, which PGPASSWORD is for without a question.
    """
    conninfo = resolve_words(words, is_another=is_another)
    while True:
        try:
            return act(conninfo)
        except PasswordNeeded:
            if words.no_password or not can_ask():
                raise
            conninfo = conninfo.with_password(ask_password(conninfo.user))
