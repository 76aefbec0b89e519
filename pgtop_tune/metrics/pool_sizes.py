"""How many server connections a pooler may open, by server, from the sizes of its pools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from pgtop_tune.model.pooler import PGCAT, ConsoleSample, Pool, PooledDatabase

Pair = tuple[str, str]
"""Database and user: what a pool is for."""


class ServerShare(Struct, frozen=True):
    """What a pooler may take of one server.

    Attributes:
        host: Of the server as the pooler knows it; "" is its Unix socket, or a database the pooler has not met yet.
        pools: Pools that lead there.
        now: Server connections that are open; None where it is not told.
        most: How many there may be; None when a size is not known.
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


def server_shares(console: ConsoleSample, coming: Iterable[Pair] = ()) -> list[ServerShare]:
    """By server, the greatest share first.

    Args:
        console: What the pooler says.
        coming: Pools that are not there yet and will be, for a check before a run.

    Source: of PgBouncer for each pair of database and user pool_size + reserve_pool_size, of a database at most
    max_db_connections, of all of them at most max_user_connections a user. Of PgCat the pool_size of each of its
    servers. SHOW POOLS, DATABASES, CONFIG.
    """
    shares = _of_rows(console) if console.kind == PGCAT else _of_pairs(console, coming)
    return sorted(shares, key=lambda share: (-(share.most or 0), share.place))


def size_of(console: ConsoleSample, pool: Pool) -> int | None:
    """Server connections a pool may have, the reserve included; of PgCat those to all servers behind it."""
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


def _of_pairs(console: ConsoleSample, coming: Iterable[Pair]) -> list[ServerShare]:
    known = {row.name: row for row in console.databases}
    users: dict[str, set[str]] = {name: set() for name in known}
    for database, user in [*((pool.database, pool.user) for pool in console.pools), *coming]:
        row = known.get(database)
        users.setdefault(database, set()).add((row and row.force_user) or user)
    places: dict[tuple[str, int | None], list[str]] = {}
    for name in users:
        row = known.get(name) or _like(console.databases)
        places.setdefault((row.host, row.port) if row else ("", None), []).append(name)
    return [_share(console, place, {name: users[name] for name in names}, known) for place, names in places.items()]


def _like(databases: Iterable[PooledDatabase]) -> PooledDatabase | None:
    """Where a database leads that the pooler has not met: where all others do, if they agree."""
    rows = list(databases)
    return rows[0] if len({(row.host, row.port) for row in rows}) == 1 else None


def _share(
    console: ConsoleSample,
    place: tuple[str, int | None],
    users: Mapping[str, set[str]],
    known: Mapping[str, PooledDatabase],
) -> ServerShare:
    most = _sum(_of_database(console, known.get(name), len(of)) for name, of in users.items())
    by_user = console.settings.max_user_connections
    if most is not None and by_user:
        most = min(most, by_user * len(set().union(*users.values())))
    now = _sum(known[name].current_connections for name in users if name in known)
    return ServerShare(*place, sum(len(of) for of in users.values()), now, most)


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
    found = list(numbers)
    return None if None in found else sum(number or 0 for number in found)
