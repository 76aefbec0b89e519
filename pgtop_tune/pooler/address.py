"""Where an admin console is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from pgtop_tune.base.secret import Secret

CONSOLE_DATABASE: Final = "pgbouncer"
"""The database by which PgBouncer knows that its console is meant; PgCat takes this name and its own."""


class PoolerAddress(Struct, frozen=True):
    """A console and how to reach it.

    Attributes:
        name: As the operator calls it.
        described: user@host:port/database, without secrets.
        host, port: The first of its places.
        keywords: libpq's keywords, none of them secret.
        secrets: Secret keywords.
    """

    name: str
    described: str
    host: str
    port: int
    keywords: Mapping[str, str]
    secrets: Mapping[str, Secret]
