"""The server of a load: its address in the words of libpq, pgbench's environment, and the port for SQL sessions on it.

bench imports no driver; `SqlSession` is the port to one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base import start_options
from pgtop_tune.base.secret import Secret
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.model.instance import AnsweringServer
from pgtop_tune.process import handed_on

_PLACES: Final = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGTARGETSESSIONATTRS", "PGLOADBALANCEHOSTS", "PGSERVICE")
"""Variables about the operator's server; of a load's, the endpoint has them all."""
_OVER_TLS: Final = frozenset({"require", "verify-ca", "verify-full"})
_PATIENCE: Final = {"PGCONNECT_TIMEOUT": "60"}
"""Without it pgbench waits for ever behind a proxy that keeps a connection and says nothing."""


def environment(endpoint: LoadEndpoint, pgbench: Pgbench, passfile: Path | None) -> dict[str, str]:
    """Return variables to start pgbench with.

    Args:
        passfile: Holds the endpoint's password, None when it has none; then .pgpass of the user counts.

    Returns:
        LC_ALL is C: pgbench prints figures with the locale's decimal comma, and translates its messages. A connection
        may take a minute, unless the user says otherwise.
    """
    inherited = {
        name: value for name, value in handed_on.environment().items() if not (endpoint.env and name in _PLACES)
    }
    variables = _PATIENCE | inherited | dict(endpoint.env) | pgbench.environment() | {"LC_ALL": "C"}
    if passfile is not None:
        variables["PGPASSFILE"] = str(passfile)
    return variables


def far_environment(endpoint: LoadEndpoint, passfile: Path | None) -> dict[str, str]:
    """Return variables to start pgbench with on another machine, over those it has there; none of them is secret.

    Args:
        passfile: As in `environment`, over there.
    """
    public = {name: value for name, value in endpoint.env.items() if name != "PGPASSWORD"}
    variables = _PATIENCE | public | {"LC_ALL": "C"}
    return variables | ({"PGPASSFILE": str(passfile)} if passfile is not None else {})


async def safe_path(sql_session: SqlSession) -> tuple[tuple[str, str], ...]:
    """Return settings for sessions in which names mean what PostgreSQL ships; none where they do anyway.

    The owner of a database may put a schema before pg_catalog (ALTER DATABASE … SET search_path), or tables with
    pgbench's names into a schema that comes first: its functions would run with the rights of the role that starts the
    load.

    Raises:
        ServerProblem: No schema is safe for a superuser.
    """
    path = await sql_session.safe_path()
    return (("search_path", path),) if path else ()


async def unlimited(sql_session: SqlSession) -> tuple[tuple[str, str], ...]:
    """Return settings for long sessions: without the time limits that role, database or server set.

    None through a pooler, which lets no such settings through. Raises as `SqlSession.execute`.
    """
    return tuple((name, "0") for name in await sql_session.limits())


def with_settings(endpoint: LoadEndpoint, settings: Sequence[tuple[str, str]]) -> LoadEndpoint:
    """Return the endpoint for sessions that begin with these parameters, over those that PGOPTIONS has already."""
    if not settings:
        return endpoint
    before = endpoint.env.get("PGOPTIONS", os.environ.get("PGOPTIONS", ""))
    return replace(endpoint, env={**endpoint.env, "PGOPTIONS": start_options.with_settings(before, dict(settings))})


class LoadEndpoint(Struct, frozen=True):
    """A server, resolved: what the sampler is connected to, handed to pgbench.

    Attributes:
        host: Name, address or socket directory; "" leaves it to libpq.
        password: Given to pgbench through a file of mode 0600, never on a command line or in the environment; None
            leaves it to .pgpass.
        env: Further libpq variables, over those of our own environment: PGSSLMODE, PGSSLROOTCERT, …
        keywords: libpq keywords that are no variables, or variables that an older libpq would pass over without a
            word; none is secret. They stand beside the name of the database.
        further: (host, port) of the other hosts that clients try, in this order; none pins them to one server.
    """

    host: str
    port: int
    user: str
    dbname: str
    password: Secret | None = None
    env: Mapping[str, str] = {}
    keywords: Mapping[str, str] = {}
    further: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        named = [(f"[{host}]" if ":" in host else host, port) for host, port in ((self.host, self.port), *self.further)]
        return ",".join(f"{name}:{port}" for name, port in named)

    @property
    def of_this_machine(self) -> bool:
        """Return whether another machine would find another server at that address: a Unix socket, or loopback."""
        host = self.env.get("PGHOSTADDR") or self.host
        return host in ("", "localhost", "::1") or host.startswith(("/", "@", "127."))

    @property
    def one_host(self) -> str:
        """Return the only name or address of a server that is reached over a network; "" where there is no such."""
        host = self.env.get("PGHOSTADDR") or self.host
        return "" if host.startswith(("/", "@")) or "," in host else host

    @property
    def over_tls(self) -> bool:
        """Return whether every session must be encrypted."""
        return self.env.get("PGSSLMODE") in _OVER_TLS


class SqlSession(Protocol):
    """One session in autocommit, for one task at a time. A call that is cancelled is cancelled on the server too."""

    async def execute(self, sql: str) -> None:
        """Run statements that give no rows; several separated by semicolons are one transaction.

        Names are those of pg_catalog unless a schema stands before them.

        Raises:
            ServerProblem: Refused, in the server's words.
            ConnectionProblem: The connection is gone.
        """
        ...

    async def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Return rows of a statement; parameters are written `%s`, a per cent sign then `%%`. Raises as `execute`."""
        ...

    async def server(self) -> AnsweringServer:
        """Return the server that answers. Raises as `execute`."""
        ...

    async def timeline(self) -> str:
        """Return the timeline that the server writes, as in WAL file names; "" on a standby, or where that is refused.

        Raises:
            ConnectionProblem: The connection is gone.
        """
        ...

    async def search_path(self) -> tuple[str, ...]:
        """Return the search path of other sessions of this role in this database; this session looks in pg_catalog."""
        ...

    async def safe_path(self) -> str:
        """Return a search_path for other programs' sessions in which no stranger's object hides another.

        Returns:
            "" where that of other sessions will do.

        Raises:
            ServerProblem: There is none.
        """
        ...

    async def limits(self) -> tuple[str, ...]:
        """Return the server's parameters that end a statement or a session after a while; none through a pooler."""
        ...

    async def count_rows(self, table: str) -> int:
        """Return rows of a table, whose name is quoted; nothing of it is planned or evaluated. Raises as `execute`."""
        ...

    async def aclose(self) -> None: ...
