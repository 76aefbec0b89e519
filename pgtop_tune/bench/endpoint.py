"""Which server pgbench talks to, in the words of libpq."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from pgtop_tune.secret import Secret


class Endpoint(Struct, frozen=True):
    """A server, resolved: what the sampler is connected to, handed to pgbench.

    Attributes:
        host: Name, address or socket directory; "" leaves it to libpq.
        password: Given to pgbench through a file of mode 0600, never on a command line; None leaves it to libpq
            (.pgpass, PGPASSWORD of the user's own environment).
        env: Further libpq variables, over those of our own environment: PGSSLMODE, PGSSLROOTCERT, …
        keywords: libpq keywords that are no variables, or variables that an older libpq would pass over without a
            word; none is secret. They stand beside the name of the database.
    """

    host: str
    port: int
    user: str
    dbname: str
    password: Secret | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    keywords: Mapping[str, str] = field(default_factory=dict)
