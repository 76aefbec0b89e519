"""What the commands of `bench` share: options, and a session found as psql finds it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
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
    """A session, and the connection to the host that it has reached (a typed password included).

    Of several hosts, all that follows goes to that one. The session is closed on the way out.

    Raises:
        UsageProblem: Words that libpq refuses.
        ConnectionProblem: Not there, or it does not let us in.
        LoadProblem: A statement was refused while it was open.
    """
    from pgtop_tune.base.errors import LoadProblem, PasswordNeeded, ServerProblem
    from pgtop_tune.cli.connecting import ask_password, can_ask, resolve_words
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


# The options of `bench init`, as typed.


class Dataset(StrEnum):
    """What can be made."""

    PGBENCH = "pgbench"
    BUS = "bus"


class InitWords(Struct, frozen=True):
    """None and "" where an option was not given."""

    dataset: Dataset = Dataset.PGBENCH
    foreign_keys: bool = False
    unlogged: bool = False
    force: bool = False
    skip_space_check: bool = False
    scale: int | None = None
    steps: str = ""
    fillfactor: int | None = None
    partitions: int | None = None
    partition_method: str = ""
    tablespace: str = ""
    index_tablespace: str = ""
    pgbench: Path | None = None
    size: str = ""
    seed: int | None = None
    jobs: int | None = None

    def check(self) -> None:
        """Refuses an option of the other data set, which would count for nothing.

        Raises:
            UsageProblem: Names it.
        """
        for dataset, rows in _ONLY_FOR.items():
            for name, option in rows.items():
                if dataset is not self.dataset and getattr(self, name) not in (None, ""):
                    raise UsageProblem(f"{option} is for --dataset {dataset}", "leave one of the two out")


_ONLY_FOR: Final = {
    Dataset.PGBENCH: {
        "scale": "-s",
        "steps": "-I",
        "fillfactor": "--fillfactor",
        "partitions": "--partitions",
        "partition_method": "--partition-method",
        "tablespace": "--tablespace",
        "index_tablespace": "--index-tablespace",
        "pgbench": "--pgbench",
    },
    Dataset.BUS: {"size": "--size", "seed": "--seed", "jobs": "--jobs"},
}
"""Options of one data set only."""
