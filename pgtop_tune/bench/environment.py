"""pgbench's environment: the user's own, with what the endpoint and we must have in it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.bench.endpoint import Endpoint
from pgtop_tune.bench.locate import Pgbench

_ESCAPED: Final = re.compile(r"[\\\s]")
_BACKSLASH: Final = r"\\\g<0>"
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


def with_settings(endpoint: Endpoint, settings: Sequence[tuple[str, str]]) -> Endpoint:
    """The endpoint for sessions that begin with these parameters, over those that PGOPTIONS has already.

    Words are split at blanks by the server, which a backslash hinders (pg_split_opts in postinit.c).
    """
    if not settings:
        return endpoint
    words = [f"-c {_ESCAPED.sub(_BACKSLASH, f'{name}={value}')}" for name, value in settings]
    before = endpoint.env.get("PGOPTIONS", os.environ.get("PGOPTIONS", ""))
    return replace(endpoint, env={**endpoint.env, "PGOPTIONS": " ".join(filter(None, (before, *words)))})
