"""Connections: the options as psql has them, passwords, and sessions on the server that they mean."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import (
    ConnectionProblem,
    LoadProblem,
    NoSuchDatabase,
    PasswordNeeded,
    ServerProblem,
    UsageProblem,
)
from pgtop_tune.base.safe_text import printable
from pgtop_tune.base.secret import Secret
from pgtop_tune.cli import options
from pgtop_tune.cli.output import can_ask, tell
from pgtop_tune.process.handed_on import inherited_password

if TYPE_CHECKING:
    from pgtop_tune.bench.places import SshAddress
    from pgtop_tune.model.pooler import PoolerAddress
    from pgtop_tune.postgres.server.conninfo import ConnInfo
    from pgtop_tune.postgres.server.resolver import Resolving
    from pgtop_tune.postgres.server.sql_session import PsycopgSession

_T = TypeVar("_T")


class ConnectionWords(Struct, frozen=True):
    """Connection options as typed."""

    target: options.Target = ""
    target_user: options.TargetUser = ""
    host: options.Host = ""
    port: options.Port = ""
    user: options.User = ""
    database: options.Database = ""
    no_password: options.NoPassword = False
    ask_password: options.AskPassword = False


class ConnectionOptions(ConnectionWords, frozen=True):
    """Connection options of a command whose words without an option are no database."""

    LEFT_OUT: ClassVar = frozenset({"target", "target_user"})


PLACES: Final = ("target", "target_user")
"""Words without an option, in their order."""


def with_places(connection: ConnectionOptions, typed_words: Sequence[str]) -> ConnectionOptions:
    """Return the options with a database and a user. Raises UsageProblem for more words."""
    if len(typed_words) > len(PLACES):
        raise UsageProblem(f"{typed_words[-1]!r} is one word too many", "pass a database and a user")
    return replace(connection, **dict(zip(PLACES, typed_words, strict=False)))


def resolve_words(connection: ConnectionWords, *, is_another: bool = False) -> ConnInfo:
    """Return the connection of the options.

    Args:
        is_another: It is not the operator's own server: PGPASSWORD goes there only after a yes.

    Raises:
        UsageProblem: libpq refuses an option, or options contradict each other.
    """
    from pgtop_tune.postgres.server.conninfo import resolve

    conninfo = resolve(**_keywords(connection), inherits=not is_another)
    return with_inherited_password(conninfo) if is_another else conninfo


def begin_resolving(connection: ConnectionWords) -> Resolving:
    """Begin to resolve the options in a child while we import; before threads are started.

    Raises:
        UsageProblem: Options contradict each other; what libpq refuses is raised by the answer.
    """
    from pgtop_tune.postgres.server.resolver import Resolving

    return Resolving(**_keywords(connection))


def warn_of_passfile() -> None:
    """Warn once of a password file that others may read; libpq ignores it, and would say so at each connection."""
    from pgtop_tune.postgres.server.client_files import readable_by_others

    if path := readable_by_others():
        tell(f'WARNING: password file "{path}" has group or world access; permissions should be u=rw (0600) or less')
        os.environ["PGPASSFILE"] = f"{os.devnull}/none"


def _keywords(connection: ConnectionWords) -> dict[str, Any]:
    # As psql: DBNAME USERNAME, and behind -d USERNAME alone.
    positional = [word for word in (connection.target, connection.target_user) if word]
    database = connection.database or (positional.pop(0) if positional else "")
    user = connection.user or (positional.pop(0) if positional else "")
    if positional:
        raise UsageProblem(
            f"more databases or users than one: {positional[0]} is too many",
            "pass -d DATABASE -U USER, or DATABASE USER",
        )
    if connection.no_password and connection.ask_password:
        raise UsageProblem("-w and -W contradict each other", "pass one of them")
    warn_of_passfile()
    host, port = _place(connection.host, connection.port)
    return {
        "target": database,
        "host": host,
        "port": port,
        "user": user,
        "password": ask_password(user) if connection.ask_password else None,
    }


_HOST_AND_PORT: Final = re.compile(r"(?:\[([^\[\]/]+)\]|([^\[\]:/@]+))(?::(\d{1,5}))?", re.ASCII)


def _place(hosts: str, port: str) -> tuple[str, str]:
    """Return -h and -p of "[::1]", "db1:5433" or a list of such, as libpq takes them; other words stay as they are.

    Raises:
        UsageProblem: A port is given twice.
    """
    typed_hosts = [_HOST_AND_PORT.fullmatch(host) for host in hosts.split(",")]
    if not hosts or None in typed_hosts:
        return hosts, port
    matches = [match for match in typed_hosts if match is not None]
    ports = [match[3] or "" for match in matches]
    if any(ports) and port:
        raise UsageProblem(f"-h {hosts} and -p {port} both give a port", "pass one of them")
    return ",".join(match[1] or match[2] for match in matches), ",".join(ports) if any(ports) else port


def with_inherited_password(conninfo: ConnInfo) -> ConnInfo:
    """Return the connection, with PGPASSWORD where its address has no other password and the operator agrees."""
    password = inherited_password()
    if password is None or conninfo.password is not None or not may_have_password(conninfo.describe()):
        return conninfo
    return conninfo.with_password(password)


@cache
def may_have_password(target: str) -> bool:
    """Ask once whether PGPASSWORD may be sent to another address than the operator's own; False without a terminal."""
    from pgtop_tune.cli.signals import says_yes

    return can_ask() and says_yes(printable(f"PGPASSWORD is set: send it to {target}, too?"))


def ask_password(user: str) -> Secret:
    """Ask for a password on the terminal, without echo. Raises UsageProblem without a terminal."""
    if not can_ask():
        raise UsageProblem("a password cannot be typed without a terminal", "use PGPASSWORD or .pgpass, and -w")
    return Secret(getpass.getpass(f"Password{f' for user {user}' if user else ''}: ", stream=sys.stderr))


@contextlib.asynccontextmanager
async def opened(
    connection: ConnectionWords, *, follows: bool = False
) -> AsyncIterator[tuple[PsycopgSession, ConnInfo]]:
    """Yield a session, and the connection to the host that it has reached, with a typed password.

    Args:
        connection: As typed.
        follows: Yield the connection with all its hosts.

    Raises:
        UsageProblem: libpq refuses an option.
        ConnectionProblem: The server is not there, or refuses the login.
        LoadProblem: The server refused a statement of the session.
    """
    from pgtop_tune.postgres.server.sql_session import open_sql_session

    conninfo = resolve_words(connection)
    try:
        sql_session = await open_sql_session(conninfo)
    except PasswordNeeded:
        if connection.no_password or not can_ask():
            raise
        conninfo = conninfo.with_password(ask_password(conninfo.user))
        sql_session = await open_sql_session(conninfo)
    try:
        yield sql_session, conninfo if follows else conninfo.only(sql_session.reached.endpoint)
    except ServerProblem as refusal:
        raise LoadProblem(refusal.message, refusal.hint) from None
    finally:
        await sql_session.aclose()


def check_database(connection: ConnectionWords) -> None:
    """Raise NoSuchDatabase where the server lacks the database; every other refusal is for the command to meet."""
    import asyncio

    async def look() -> None:
        async with opened(connection):
            pass

    try:
        asyncio.run(look())
    except NoSuchDatabase:
        if connection.database:
            hint = f"-d is the database, as in psql; the time between samples is -i {connection.database}"
            raise NoSuchDatabase(f'there is no database "{connection.database}"', hint) from None
        number = connection.target.replace(".", "", 1).isdecimal()
        hint = f"the time between samples is -i {connection.target}; COLUMNS is the width" if number else ""
        raise NoSuchDatabase(f'there is no command and no database "{connection.target}"', hint) from None
    except (ConnectionProblem, LoadProblem):
        return


def let_in(
    connection: ConnectionWords,
    act: Callable[[ConnInfo], _T],
    *,
    is_another: bool = False,
    resolving: Resolving | None = None,
) -> _T:
    """Act on the server of the options; act again with a typed password where the server asks for one.

    Args:
        is_another: As for `resolve_words`.
        resolving: The options where their resolution has begun already.
    """
    conninfo = resolve_words(connection, is_another=is_another) if resolving is None else resolving.answer()
    while True:
        try:
            return act(conninfo)
        except PasswordNeeded:
            if connection.no_password or not can_ask():
                raise
            conninfo = conninfo.with_password(ask_password(conninfo.user))


def live_options(session: options.SessionWords, **more: Any) -> options.LiveOptions:
    """Return the options of the session.

    Args:
        session: As typed.
        more: Further fields of LiveOptions.

    Raises:
        UsageProblem: An option or the configuration file cannot be read.
    """
    load_from: tuple[SshAddress, ...] = ()
    if session.load_from:
        from pgtop_tune.bench.places import parse_address

        load_from = tuple(map(parse_address, session.load_from))
        if len(set(load_from)) < len(load_from):
            raise UsageProblem("--load-from names a machine twice", "pass each machine once")
    return options.LiveOptions(
        pgbench=session.pgbench,
        load_from=load_from,
        disk_caps=() if "disk_cap" in session.LEFT_OUT else options.disk_caps(session.disk_cap),
        host_source=session.host_source,
        poolers=pooler_addresses(session.pooler),
        **more,
    )


# Admin consoles of poolers, from the command line.

_NAME: Final = re.compile(r"[A-Za-z0-9_.+-]([A-Za-z0-9_.+ -]{0,22}[A-Za-z0-9_.+-])?")


def pooler_addresses(typed: Sequence[str] | None) -> tuple[PoolerAddress, ...]:
    """Return the consoles of --pooler NAME=URI.

    Raises:
        UsageProblem: A name is wrong or used twice, or libpq refuses a URI.
    """
    addresses = tuple(map(_pooler_address, typed or ()))
    names = [address.name for address in addresses]
    for name in names:
        if names.count(name) > 1:
            raise UsageProblem(f"two poolers are called {name}", "give each --pooler a different name")
    return addresses


def _pooler_address(typed: str) -> PoolerAddress:
    from pgtop_tune.model.pooler import CONSOLE_DATABASE, PoolerAddress
    from pgtop_tune.postgres.server.conninfo import resolve

    name, equals, uri = typed.partition("=")
    if not equals or not _NAME.fullmatch(name) or not uri:
        # The text may hold a password: it is not repeated.
        raise UsageProblem(
            "--pooler takes a name and the URI of its console",
            "--pooler bouncer=postgresql://stats@127.0.0.1:6432/pgbouncer",
        )
    conninfo = with_inherited_password(resolve(uri, inherits=False))
    database = conninfo.dbname if _names_database(uri) else CONSOLE_DATABASE
    keywords = {key: value for key, value in conninfo.as_psycopg().items() if key not in conninfo.secrets}
    endpoints = ",".join(map(str, conninfo.endpoints))
    return PoolerAddress(
        name=name,
        described=f"{conninfo.user}@{endpoints}/{database}",
        host=conninfo.host,
        port=conninfo.port,
        keywords={**keywords, "dbname": database},
        secrets=conninfo.secrets,
    )


def _names_database(uri: str) -> bool:
    """Return True for a URI with a database; without one, libpq would take PGDATABASE, which is the server's."""
    if not uri.startswith(("postgresql://", "postgres://")):
        return "=" not in uri or "dbname" in uri
    parts = urlsplit(uri)
    return bool(parts.path.strip("/")) or "dbname=" in parts.query
