"""Poolers: clients waiting for a server connection, their waits, throughput, and the connections a pooler may open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Keyed, rate
from pgtop_tune.metrics.server import number
from pgtop_tune.model.absence import NOT_RECORDED, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.pooler import PGCAT, ConsoleSample, Pool, PooledDatabase, Pooler, PoolerCounters, PoolerSample

_RESERVED: Final = ("superuser_reserved_connections", "reserved_connections")


def console_of(name: str) -> Callable[[Frame], ConsoleSample | Unavailable]:
    """Return the function that reads the console of a pooler from a frame."""

    def reach(frame: Frame) -> ConsoleSample | Unavailable:
        sample = frame.pooler
        if isinstance(sample, Unavailable):
            return sample
        return next((pooler.console for pooler in sample.poolers if pooler.name == name), NOT_RECORDED)

    return reach


def poolers(interval: Interval) -> tuple[Pooler, ...]:
    """Return the poolers of the newest frame, including those that do not answer."""
    sample = interval.now(sections.pooler)
    return () if sample is None else sample.poolers


def _consoles(interval: Interval) -> Iterator[tuple[str, ConsoleSample]]:
    for pooler in poolers(interval):
        if not isinstance(pooler.console, Unavailable):
            yield pooler.name, pooler.console


class Traffic(Struct, frozen=True):
    """One row of SHOW STATS with its rates since the reading before.

    Attributes:
        pooler: Name of the pooler.
        counters: The row.
        xacts_per_s, queries_per_s, received_per_s, sent_per_s, logins_per_s, errors_per_s: Rates; None across a restart,
            and for counters that this pooler does not have.
        xact_ms, query_ms: Mean time of ended transactions and queries, on the server's side of the pooler.
        wait_ms: Mean wait for a server connection: per assignment where the pooler counts these (PgBouncer 1.23), else
            per transaction.
    """

    pooler: str
    counters: PoolerCounters
    xacts_per_s: float | None
    queries_per_s: float | None
    received_per_s: float | None
    sent_per_s: float | None
    logins_per_s: float | None
    errors_per_s: float | None
    xact_ms: float | None
    query_ms: float | None
    wait_ms: float | None

    @property
    def key(self) -> tuple[str, str]:
        """Identity of the row."""
        return self.pooler, self.counters.id


def traffic(interval: Interval) -> list[Traffic]:
    """Return the rows of SHOW STATS of all poolers with their rates; empty without a pooler."""
    return [row for name, console in _consoles(interval) for row in _traffic_of(interval, name, console)]


def _traffic_of(interval: Interval, name: str, console: ConsoleSample) -> Iterator[Traffic]:
    pair = interval.pair(console_of(name))
    before = {} if pair is None else {row.id: row for row in pair[0].counters}
    seconds = 0.0 if pair is None else pair[1].at_s - pair[0].at_s
    for row in console.counters:
        change = _Change(before.get(row.id), row, seconds)
        assigned = "xacts" if row.assignments is None else "assignments"
        yield Traffic(
            name,
            row,
            xacts_per_s=change.per_s("xacts"),
            queries_per_s=change.per_s("queries"),
            received_per_s=change.per_s("received_bytes"),
            sent_per_s=change.per_s("sent_bytes"),
            logins_per_s=change.per_s("logins"),
            errors_per_s=change.per_s("errors"),
            xact_ms=change.mean_ms("xact_us", "xacts"),
            query_ms=change.mean_ms("query_us", "queries"),
            wait_ms=change.mean_ms("wait_us", assigned),
        )


class _Change(Struct, frozen=True):
    """Two readings of a row of counters."""

    older: PoolerCounters | None
    newer: PoolerCounters
    seconds: float

    def per_s(self, counter: str) -> float | None:
        """Return the increase of a counter per second."""
        if self.older is None:
            return None
        return rate(getattr(self.older, counter), getattr(self.newer, counter), 0.0, self.seconds)

    def mean_ms(self, microseconds: str, counter: str) -> float | None:
        """Return the mean time of an event in milliseconds; None without events."""
        spent, counted = self.per_s(microseconds), self.per_s(counter)
        return None if spent is None or not counted else spent / counted / 1000.0


class PoolRow(Struct, frozen=True):
    """A pool with its size and its traffic.

    Attributes:
        pooler: Name of the pooler.
        pool: The row of SHOW POOLS.
        size: Most server connections, including the reserve; None where they are not known.
        servers: Present server connections.
        traffic: Traffic of its database; None where several pools share the counters, or there are none.
    """

    pooler: str
    pool: Pool
    size: int | None
    servers: int
    traffic: Traffic | None

    @property
    def key(self) -> tuple[str, str]:
        """Identity of the row."""
        return self.pooler, self.pool.id

    @property
    def waited_ms(self) -> float | None:
        """Wait of the client at the head of the queue."""
        return None if self.pool.maxwait_us is None else self.pool.maxwait_us / 1000.0

    @property
    def full_percent(self) -> float | None:
        """Server connections in use, in per cent of the maximum."""
        return None if not self.size or self.pool.sv_active is None else 100.0 * self.pool.sv_active / self.size


def pool_rows(interval: Interval) -> list[PoolRow]:
    """Return the pools of all poolers, the worst first: most clients waiting, longest wait, fullest."""
    rows = [row for name, console in _consoles(interval) for row in _pools_of(interval, name, console)]
    return sorted(rows, key=_badness, reverse=True)


def _pools_of(interval: Interval, name: str, console: ConsoleSample) -> Iterator[PoolRow]:
    by_pair: dict[tuple[str, str], list[Traffic]] = {}
    for row in _traffic_of(interval, name, console):
        by_pair.setdefault((row.counters.database, row.counters.user), []).append(row)
    for pool in console.pools:
        alone = sum(neighbour.database == pool.database for neighbour in console.pools) == 1
        rows = by_pair.get((pool.database, pool.user)) or (by_pair.get((pool.database, "")) if alone else None) or []
        lent = (pool.sv_active, pool.sv_idle, pool.sv_used, pool.sv_tested, pool.sv_login)
        yield PoolRow(
            pooler=name,
            pool=pool,
            size=size_of(console, pool),
            servers=sum(count or 0 for count in lent),
            traffic=rows[0] if len(rows) == 1 else None,
        )


def _badness(row: PoolRow) -> tuple[int, int, float, float]:
    xacts = row.traffic.xacts_per_s if row.traffic else None
    return row.pool.cl_waiting or 0, row.pool.maxwait_us or 0, row.full_percent or 0.0, xacts or 0.0


class ShareRow(Struct, frozen=True):
    """Server connections that a pooler may open, beside the limit of the watched server.

    Attributes:
        limit: Connections of the watched server that are not reserved; None where they are not known.
    """

    pooler: str
    share: ServerShare
    limit: int | None

    @property
    def key(self) -> tuple[str, str]:
        """Identity of the row."""
        return self.pooler, self.share.place

    @property
    def percent(self) -> float | None:
        """Most connections in per cent of the limit."""
        most = self.share.most
        return None if most is None or not self.limit else 100.0 * most / self.limit


def share_rows(interval: Interval) -> list[ShareRow]:
    """Return the server connections that each pooler may open, by server; empty without a pooler.

    The limit is always that of the watched server, because a pooler knows servers by their addresses only.
    """
    limit = unreserved_connections(interval)
    return [ShareRow(name, share, limit) for name, console in _consoles(interval) for share in server_shares(console)]


def unreserved_connections(interval: Interval) -> int | None:
    """Return max_connections less superuser_reserved_connections and reserved_connections (16 and later)."""
    most = number(interval, "max_connections")
    if most is None:
        return None
    return max(int(most - sum(number(interval, name) or 0 for name in _RESERVED)), 0)


def _clients(console: ConsoleSample) -> float | None:
    counted = [count for pool in console.pools for count in (pool.cl_active, pool.cl_idle, pool.cl_waiting)]
    return float(sum(count or 0 for count in counted))


def _waiting(console: ConsoleSample) -> float | None:
    return float(sum(pool.cl_waiting or 0 for pool in console.pools))


def _servers(console: ConsoleSample) -> float | None:
    counts = [row.current_connections for row in console.databases]
    return None if None in counts else float(sum(count or 0 for count in counts))


def _longest_ms(console: ConsoleSample) -> float | None:
    return max((pool.maxwait_us or 0 for pool in console.pools), default=0) / 1000.0


def _by_pooler(value: Callable[[ConsoleSample], float | None]) -> Callable[[Interval], dict[str, float]]:
    def values(interval: Interval) -> dict[str, float]:
        numbers = {name: value(console) for name, console in _consoles(interval)}
        return {name: number for name, number in numbers.items() if number is not None}

    return values


def _summed(rate_of: Callable[[Traffic], float | None]) -> Callable[[Interval], dict[str, float]]:
    def values(interval: Interval) -> dict[str, float]:
        sums: dict[str, float] = {}
        for row in traffic(interval):
            value = rate_of(row)
            if value is not None:
                sums[row.pooler] = sums.get(row.pooler, 0.0) + value
        return sums

    return values


def waiting_clients(sample: PoolerSample) -> float:
    """Count clients that wait for a server connection, of all poolers that answer."""
    consoles = (pooler.console for pooler in sample.poolers)
    return sum(_waiting(pooler) or 0.0 for pooler in consoles if not isinstance(pooler, Unavailable))


CLIENTS = Keyed(
    "pooler.clients", "clients", "", "Clients of all pools, active, idle and waiting; without clients of the admin console.",
    "SHOW POOLS: Σ cl_active + cl_idle + cl_waiting", _by_pooler(_clients),
)  # fmt: skip
WAITING = Keyed(
    "pooler.waiting", "waiting", "", "Clients waiting for a server connection. If clients always wait, the pool is too small for the load, or the server too slow for the pool.",
    "SHOW POOLS: Σ cl_waiting", _by_pooler(_waiting), critical=1.0,
)  # fmt: skip
MAX_WAIT = Keyed(
    "pooler.max_wait", "longest wait", "ms", "Longest wait of a queued client.",
    "SHOW POOLS: max(maxwait, maxwait_us)", _by_pooler(_longest_ms), critical=1000.0,
)  # fmt: skip
SERVERS = Keyed(
    "pooler.servers", "server connections", "", "Connections of the pooler to servers, in use or idle.",
    "SHOW DATABASES: Σ current_connections", _by_pooler(_servers),
)  # fmt: skip
XACTS = Keyed(
    "pooler.xacts", "xact/s", "1/s", "Transactions through the pooler per second, also in session mode.",
    "SHOW STATS: Σ Δ total_xact_count / Δt", _summed(lambda row: row.xacts_per_s),
)  # fmt: skip
QUERIES = Keyed(
    "pooler.queries", "query/s", "1/s", "Statements through the pooler per second.",
    "SHOW STATS: Σ Δ total_query_count / Δt", _summed(lambda row: row.queries_per_s),
)  # fmt: skip

METRICS: Final = (CLIENTS, WAITING, MAX_WAIT, SERVERS, XACTS, QUERIES)


# Server connections that a pooler may open, by server, from the sizes of its pools.

DatabaseUser = tuple[str, str]
"""Database and user of a pool."""


class ServerShare(Struct, frozen=True):
    """Connections that a pooler may open to one server.

    Attributes:
        host: Host of the server in the pooler's configuration; "" is its Unix socket, or a database that the pooler has
            not served yet.
        port: Port of the server.
        pools: Number of pools of this server.
        now: Open server connections; None where they are not known.
        most: Most server connections; None when a size is not known.
    """

    host: str
    port: int | None
    pools: int
    now: int | None
    most: int | None

    @property
    def place(self) -> str:
        """host:port. Foreign text."""
        host = self.host or "socket"
        return host if self.port is None else f"{host}:{self.port}"


def server_shares(console: ConsoleSample, coming: Iterable[DatabaseUser] = ()) -> list[ServerShare]:
    """Return the connections that a pooler may open, by server, the most first.

    Args:
        console: Reading of the pooler's console.
        coming: Pools that do not exist yet and will, for a check before a run.

    Source: for PgBouncer pool_size + reserve_pool_size for each pair of database and user, at most max_db_connections
    for a database, and max_user_connections for a user. For PgCat the pool_size of each of its servers. SHOW POOLS,
    DATABASES, CONFIG.
    """
    shares = _of_rows(console) if console.kind == PGCAT else _of_pairs(console, coming)
    return sorted(shares, key=lambda share: (-(share.most or 0), share.place))


def size_of(console: ConsoleSample, pool: Pool) -> int | None:
    """Return the most server connections of a pool, including the reserve; for PgCat those to all of its servers."""
    if console.kind == PGCAT:
        rows = [row for row in console.databases if (row.database, row.force_user) == (pool.database, pool.user)]
        return _sum(row.pool_size for row in rows) if rows else None
    row = next((row for row in console.databases if row.name == pool.database), None)
    return _of_database(console, row, 1)


def _of_rows(console: ConsoleSample) -> list[ServerShare]:
    places: dict[tuple[str, int | None], list[PooledDatabase]] = {}
    for row in console.databases:
        places.setdefault((row.host, row.port), []).append(row)
    return [
        ServerShare(
            host=host,
            port=port,
            pools=len(rows),
            now=_sum(row.current_connections for row in rows),
            most=_sum(r.pool_size for r in rows),
        )
        for (host, port), rows in places.items()
    ]


def _of_pairs(console: ConsoleSample, coming: Iterable[DatabaseUser]) -> list[ServerShare]:
    databases = {row.name: row for row in console.databases}
    users: dict[str, set[str]] = {name: set() for name in databases}
    for database, user in [*((pool.database, pool.user) for pool in console.pools), *coming]:
        row = databases.get(database)
        users.setdefault(database, set()).add((row and row.force_user) or user)
    places: dict[tuple[str, int | None], list[str]] = {}
    for name in users:
        row = databases.get(name) or _like(console.databases)
        places.setdefault((row.host, row.port) if row else ("", None), []).append(name)
    return [
        _share(console, address, {name: users[name] for name in names}, databases) for address, names in places.items()
    ]


def _like(databases: Iterable[PooledDatabase]) -> PooledDatabase | None:
    """Return the row of the common server of all databases, for a database that the pooler has not served yet."""
    rows = list(databases)
    return rows[0] if len({(row.host, row.port) for row in rows}) == 1 else None


def _share(
    console: ConsoleSample,
    address: tuple[str, int | None],
    users: Mapping[str, set[str]],
    databases: Mapping[str, PooledDatabase],
) -> ServerShare:
    most = _sum(_of_database(console, databases.get(name), len(of)) for name, of in users.items())
    by_user = console.settings.max_user_connections
    if most is not None and by_user:
        most = min(most, by_user * len(set().union(*users.values())))
    now = _sum(databases[name].current_connections for name in users if name in databases)
    return ServerShare(*address, sum(len(of) for of in users.values()), now, most)


def _of_database(console: ConsoleSample, row: PooledDatabase | None, pools: int) -> int | None:
    settings = console.settings
    size = settings.default_pool_size if row is None else row.pool_size
    reserve = settings.reserve_pool_size if row is None else row.reserve_pool_size
    limit = settings.max_db_connections if row is None else row.max_connections
    if size is None:
        return None
    most = pools * (size + (reserve or 0))
    return min(most, limit) if limit else most


def _sum(numbers: Iterable[int | None]) -> int | None:
    counts = list(numbers)
    return None if None in counts else sum(number or 0 for number in counts)
