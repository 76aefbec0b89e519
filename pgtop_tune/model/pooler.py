"""Readings of connection poolers from their admin consoles: pools, counters, databases, settings.

Source: SHOW POOLS, STATS, DATABASES, LISTS, CONFIG, VERSION of PgBouncer (usage page, 1.18 to 1.25) and of PgCat (its
admin database, 1.2 and 1.3). A column that a version does not have is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Struct

from pgtop_tune.base.secret import Secret
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.recorded_as import KeyedBy

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


PGBOUNCER: Final = "PgBouncer"
PGCAT: Final = "PgCat"


class Pool(Struct, frozen=True, gc=False):
    """One row of SHOW POOLS: the connections of one user to one database.

    Attributes:
        id: Unique in the sample: "user@database".
        pool_mode: session, transaction or statement; "" where it is not told.
        cl_active: Clients linked to a server connection, or idle (PgBouncer); with a server connection (PgCat).
        cl_idle: Clients that ask for nothing (PgCat only).
        cl_waiting: Clients waiting for a server connection.
        sv_active: Server connections in use by a client.
        sv_idle: Idle server connections.
        sv_used: Idle for so long that they are tested before they are lent.
        sv_tested: Running the reset or the test query.
        sv_login: Being opened.
        maxwait_us: How long the client at the head of the queue has waited.
    """

    id: str
    database: str
    user: str
    pool_mode: str
    cl_active: int | None
    cl_idle: int | None
    cl_waiting: int | None
    sv_active: int | None
    sv_idle: int | None
    sv_used: int | None
    sv_tested: int | None
    sv_login: int | None
    maxwait_us: int | None


class PoolerCounters(Struct, frozen=True, gc=False):
    """One row of SHOW STATS: of a database (PgBouncer), of a server, database and user (PgCat). Counted up.

    Attributes:
        id: Unique in the sample.
        user: "" where all users of the database are counted together (PgBouncer).
        instance: Name of the server the row is about (PgCat); "".
        wait_us: Time clients waited for a server connection; counted when they got it.
        assignments: How often a client got a server connection (PgBouncer 1.23 and later).
        logins: Clients let in (PgBouncer 1.24 and later).
        errors: Errors (PgCat).
    """

    id: str
    database: str
    user: str
    instance: str
    xacts: int | None
    queries: int | None
    received_bytes: int | None
    sent_bytes: int | None
    xact_us: int | None
    query_us: int | None
    wait_us: int | None
    assignments: int | None
    logins: int | None
    errors: int | None


class PooledDatabase(Struct, frozen=True, gc=False):
    """One row of SHOW DATABASES: where a name leads to.

    Attributes:
        id: Unique in the sample.
        name: As clients ask for it (PgBouncer); of the server (PgCat).
        host: Of the server; "" is its Unix socket.
        database: Name on the server.
        force_user: The one user all connections are made as; "".
        pool_size: Most server connections of one pool.
        reserve_pool_size: Further ones while clients wait for long.
        max_connections: Most server connections of all pools of the database together; 0 is no limit.
        current_connections: Server connections now.
        paused: 1 while no query is let through.
        disabled: 1 while nobody is let in (PgBouncer), or while the server is banned (PgCat).
    """

    id: str
    name: str
    host: str
    port: int | None
    database: str
    force_user: str
    pool_mode: str
    pool_size: int | None
    min_pool_size: int | None
    reserve_pool_size: int | None
    max_connections: int | None
    current_connections: int | None
    paused: int | None
    disabled: int | None


class PoolerSettings(Struct, frozen=True, gc=False):
    """Rows of SHOW CONFIG that decide how many connections there may be.

    Attributes:
        max_prepared_statements: Of PgBouncer from 1.21 on; 0 is off; None where there is no such setting.
        prepare_cache_size: Largest number of prepared statements PgCat keeps for a server connection, of SHOW SERVERS;
            0 also where nothing was prepared yet. PgCat does not show the setting itself.
    """

    pool_mode: str = ""
    max_client_conn: int | None = None
    default_pool_size: int | None = None
    reserve_pool_size: int | None = None
    max_db_connections: int | None = None
    max_user_connections: int | None = None
    max_prepared_statements: int | None = None
    prepare_cache_size: int | None = None


class ConsoleSample(Struct, frozen=True, gc=False):
    """One look at an admin console.

    Attributes:
        at_s: Moment on the session's monotonic clock.
        kind: "PgBouncer", "PgCat", or the first word of what it calls itself.
        version: "1.18.0"; "" where it is not told.
        clients: Of SHOW LISTS, used_clients: connected clients (PgBouncer), those in a transaction (PgCat).
        login_clients: Clients that are not let in yet.
        servers: Of SHOW LISTS, used_servers: server connections (PgBouncer), those lent (PgCat).
    """

    at_s: float
    kind: str
    version: str
    settings: PoolerSettings
    clients: int | None = None
    login_clients: int | None = None
    servers: int | None = None
    pools: Annotated[tuple[Pool, ...], KeyedBy("id")] = ()
    counters: Annotated[tuple[PoolerCounters, ...], KeyedBy("id")] = ()
    databases: Annotated[tuple[PooledDatabase, ...], KeyedBy("id")] = ()


class Pooler(Struct, frozen=True, gc=False):
    """A pooler the operator named.

    Attributes:
        name: As the operator calls it.
        address: user@host:port/database of its console.
        console: What it says, or why it does not.
        host, port: Where it listens, as the operator gave it; a socket directory may stand for the host.
    """

    name: str
    address: str
    console: ConsoleSample | Unavailable
    host: str = ""
    port: int | None = None


class PoolerSample(Struct, frozen=True, gc=False):
    """All poolers the operator named (--pooler), each with a clock of its own."""

    at_s: float
    poolers: Annotated[tuple[Pooler, ...], KeyedBy("name")] = ()
