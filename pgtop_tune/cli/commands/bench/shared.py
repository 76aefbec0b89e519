"""What the commands of `bench` share: options, and a session found as psql finds it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgtop_tune.cli.connecting import ConnectionWords

if TYPE_CHECKING:
    from pgtop_tune.postgres.server.conninfo import ConnInfo
    from pgtop_tune.postgres.server.sql_session import PsycopgSession


class Format(StrEnum):
    """How a list is written to stdout."""

    TEXT = "text"
    JSON = "json"


class TableFormat(StrEnum):
    """How a table of figures is written to stdout."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


ProfilesDirectory = Annotated[
    Path | None,
    typer.Option(
        "--profiles",
        metavar="DIR",
        show_default=False,
        help="Another directory of profiles (*.toml); takes precedence.",
    ),
]


# A session for the commands of `bench`: found as psql finds it, with a password typed where one is missing.


@contextlib.asynccontextmanager
async def opened(words: ConnectionWords) -> AsyncIterator[tuple[PsycopgSession, ConnInfo]]:
    """A session, and the connection it was made with (a typed password included); closed on the way out.

    Raises:
        UsageProblem: Words that libpq refuses.
        ConnectionProblem: Not there, or it does not let us in.
        LoadProblem: A statement was refused while it was open.
    """
    from pgtop_tune.cli.connecting import ask_password, can_ask, resolve_words
    from pgtop_tune.errors import LoadProblem, PasswordNeeded, ServerProblem
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
        yield sql_session, conninfo
    except ServerProblem as refusal:
        raise LoadProblem(refusal.message, refusal.hint) from None
    finally:
        await sql_session.aclose()
