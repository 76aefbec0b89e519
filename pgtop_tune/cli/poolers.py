"""Admin consoles of poolers, from the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pgtop_tune.errors import UsageProblem

if TYPE_CHECKING:
    from pgtop_tune.pooler.address import PoolerAddress

_NAME: Final = re.compile(r"[A-Za-z0-9_.+-]([A-Za-z0-9_.+ -]{0,22}[A-Za-z0-9_.+-])?")
_EXAMPLE: Final = "--pooler bouncer=postgresql://stats@127.0.0.1:6432/pgbouncer"


def pooler_addresses(typed: Sequence[str] | None) -> tuple[PoolerAddress, ...]:
    """Where the consoles are, as libpq understands it.

    Args:
        typed: Values of --pooler, NAME=URI; None when there were none.

    Raises:
        UsageProblem: A name that is none, two poolers of one name, or a URI that libpq refuses.
    """
    found = [_address(words) for words in typed or ()]
    names = [address.name for address in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageProblem(f"two poolers are called {name}", "give each --pooler a name of its own")
    return tuple(found)


def _address(words: str) -> PoolerAddress:
    from pgtop_tune.pooler.address import CONSOLE_DATABASE, PoolerAddress
    from pgtop_tune.postgres.server.conninfo import resolve

    name, equals, uri = words.partition("=")
    if not equals or not _NAME.fullmatch(name) or not uri:
        # The words may hold a password: they are not repeated.
        raise UsageProblem("--pooler takes a name and the URI of its console", _EXAMPLE)
    conninfo = resolve(uri)
    database = conninfo.dbname if _names_database(uri) else CONSOLE_DATABASE
    keywords = {key: value for key, value in conninfo.as_psycopg().items() if key not in conninfo.secrets}
    places = ",".join(map(str, conninfo.endpoints))
    return PoolerAddress(
        name=name,
        described=f"{conninfo.user}@{places}/{database}",
        host=conninfo.host,
        port=conninfo.port,
        keywords={**keywords, "dbname": database},
        secrets=conninfo.secrets,
    )


def _names_database(uri: str) -> bool:
    """Whether the words say which database: without, libpq would take PGDATABASE, which is the server's."""
    if not uri.startswith(("postgresql://", "postgres://")):
        return "=" not in uri or "dbname" in uri
    parts = urlsplit(uri)
    return bool(parts.path.strip("/")) or "dbname=" in parts.query
