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
"""Database name of PgBouncer's console; PgCat accepts this name and its own."""


class PoolerAddress(Struct, frozen=True):
    """Address of an admin console.

    Attributes:
        name: The operator's name for the pooler.
        described: user@host:port/database, without secrets.
        host, port: Its first endpoint.
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
        pool_mode: session, transaction or statement; "" if unknown.
        cl_active: Clients linked to a server connection, or idle (PgBouncer); with a server connection (PgCat).
        cl_idle: Idle clients (PgCat only).
        cl_waiting: Clients waiting for a server connection.
        sv_active: Server connections in use by a client.
        sv_idle: Idle server connections.
        sv_used: Server connections that have been idle for so long that they are tested before use.
        sv_tested: Server connections that run the reset or the test query.
        sv_login: Server connections that are being opened.
        maxwait_us: Wait of the client at the head of the queue.
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
        user: User; "" where all users of the database are counted together (PgBouncer).
        instance: Name of the server of the row (PgCat); otherwise "".
        wait_us: Time that clients waited for a server connection; counted when they got the connection.
        assignments: Number of server connections that clients got (PgBouncer 1.23 and later).
        logins: Logins of clients (PgBouncer 1.24 and later).
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
    """One row of SHOW DATABASES: a database name with its server.

    Attributes:
        id: Unique in the sample.
        name: Name for clients (PgBouncer); name of the server (PgCat).
        host: Host of the server; "" means its Unix socket.
        database: Name on the server.
        force_user: The user of all server connections; "" if each connection has the client's user.
        pool_size: Most server connections of one pool.
        reserve_pool_size: Additional connections while clients wait for long.
        max_connections: Most server connections of all pools of the database together; 0 means no limit.
        current_connections: Present server connections.
        paused: 1 while no query may pass.
        disabled: 1 while no client may log in (PgBouncer), or while the server is banned (PgCat).
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
    """Rows of SHOW CONFIG that limit connections.

    Attributes:
        max_prepared_statements: Setting of PgBouncer from 1.21 on; 0 means off; None in versions without the setting.
        prepare_cache_size: Largest number of prepared statements that PgCat keeps for a server connection, from SHOW
            SERVERS; 0 also before any was prepared. PgCat does not show the setting itself.
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
    """Reading of an admin console.

    Attributes:
        at_s: Time on the session's monotonic clock.
        kind: "PgBouncer", "PgCat", or the first word of the version.
        version: "1.18.0"; "" if unknown.
        clients: used_clients of SHOW LISTS: connected clients (PgBouncer), clients in a transaction (PgCat).
        login_clients: Clients during their login.
        servers: used_servers of SHOW LISTS: server connections (PgBouncer), those in use (PgCat).
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
    """A pooler that the operator named.

    Attributes:
        name: The operator's name for the pooler.
        address: user@host:port/database of the pooler's console.
        console: Reading of the console, or the reason why the reading is missing.
        host, port: Its address as given by the operator; a socket directory may replace the host.
    """

    name: str
    address: str
    console: ConsoleSample | Unavailable
    host: str = ""
    port: int | None = None


class PoolerSample(Struct, frozen=True, gc=False):
    """All poolers that the operator named (--pooler), each with its own time."""

    at_s: float
    poolers: Annotated[tuple[Pooler, ...], KeyedBy("name")] = ()
