"""pgbench's environment: the user's own, with what the endpoint and we must have in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune import start_options
from pgtop_tune.bench.endpoint import Endpoint
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.ports import SqlSession

_PATIENCE: Final = {"PGCONNECT_TIMEOUT": "60"}
"""Without it pgbench waits for ever behind a proxy that keeps a connection and says nothing."""


def environment(endpoint: Endpoint, pgbench: Pgbench, passfile: Path | None) -> dict[str, str]:
    """Variables to start pgbench with.

    Args:
        passfile: Holds the endpoint's password, None when it has none; then PGPASSWORD and .pgpass of the user count.

    Returns:
        LC_ALL is C: pgbench prints figures with the locale's decimal comma, and translates its messages. A connection
        may take a minute, unless the user says otherwise.
    """
    variables = _PATIENCE | os.environ | dict(endpoint.env) | pgbench.environment() | {"LC_ALL": "C"}
    if endpoint.env:
        # A service wins over variables; what it says is in them, unless the user has said otherwise.
        variables.pop("PGSERVICE", None)
    if passfile is not None:
        variables.pop("PGPASSWORD", None)
        variables["PGPASSFILE"] = str(passfile)
    return variables


def far_environment(endpoint: Endpoint, passfile: Path | None) -> dict[str, str]:
    """Variables to start pgbench with on another machine, over those it has there; none of them is secret.

    Args:
        passfile: As in `environment`, over there.
    """
    variables = {name: value for name, value in endpoint.env.items() if name != "PGPASSWORD"} | {"LC_ALL": "C"}
    return variables | ({"PGPASSFILE": str(passfile)} if passfile is not None else {})


async def safe_path(hand: SqlSession) -> tuple[tuple[str, str], ...]:
    """Settings for sessions in which names mean what PostgreSQL ships; none where they do anyway.

    The owner of a database may put a schema before pg_catalog (ALTER DATABASE … SET search_path), or tables with
    pgbench's names into a schema that comes first: its functions would run with the rights of the role that starts the
    load.

    Raises:
        ServerProblem: No schema is safe for a superuser.
    """
    path = await hand.safe_path()
    return (("search_path", path),) if path else ()


def with_settings(endpoint: Endpoint, settings: Sequence[tuple[str, str]]) -> Endpoint:
    """The endpoint for sessions that begin with these parameters, over those that PGOPTIONS has already."""
    if not settings:
        return endpoint
    before = endpoint.env.get("PGOPTIONS", os.environ.get("PGOPTIONS", ""))
    return replace(endpoint, env={**endpoint.env, "PGOPTIONS": start_options.with_settings(before, dict(settings))})
