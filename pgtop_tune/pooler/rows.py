"""From the rows of an admin console to the model: by the names of columns, never by their places.

A column we do not know is left alone, one that is missing is None: PgBouncer 1.18 and 1.25, and PgCat, differ in both.
Source: PgBouncer's usage page, its src/admin.c and stats.c; PgCat's src/admin.rs and src/stats/.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pgtop_tune.model.pooler import PGCAT, Pool, PooledDatabase, PoolerCounters, PoolerSettings

Row = Mapping[str, str | None]

_DIGITS: Final = 18
"""No honest counter of 64 bits has more; a longer one is none."""
_LONGEST_WAIT_S: Final = 10**12
"""In microseconds it still has 64 bits and room to add."""
_CONSOLE: Final = frozenset({"pgbouncer", "pgcat"})
"""The console counts itself as a database."""


def version_of(rows: Sequence[Row]) -> tuple[str, str]:
    """Kind and version of SHOW VERSION: ("PgBouncer", "1.18.0"); ("", "") when it does not say."""
    kind, _, version = _text(rows[0], "version").strip().partition(" ") if rows else ("", "", "")
    return kind, version.strip()


def pools_of(rows: Iterable[Row]) -> tuple[Pool, ...]:
    """SHOW POOLS without the console's own."""
    names = _Unique()
    return tuple(
        Pool(
            id=names(f"{_text(row, 'user')}@{_text(row, 'database')}"),
            database=_text(row, "database"),
            user=_text(row, "user"),
            pool_mode=_text(row, "pool_mode"),
            cl_active=_number(row, "cl_active"),
            cl_idle=_number(row, "cl_idle"),
            cl_waiting=_number(row, "cl_waiting"),
            sv_active=_number(row, "sv_active"),
            sv_idle=_number(row, "sv_idle"),
            sv_used=_number(row, "sv_used"),
            sv_tested=_number(row, "sv_tested"),
            sv_login=_number(row, "sv_login"),
            maxwait_us=_waited_us(row),
        )
        for row in rows
        if _text(row, "database") not in _CONSOLE
    )


def counters_of(rows: Iterable[Row]) -> tuple[PoolerCounters, ...]:
    """SHOW STATS without the console's own."""
    names = _Unique()
    found = []
    for row in rows:
        database, user, instance = _text(row, "database"), _text(row, "user"), _text(row, "instance")
        if database in _CONSOLE:
            continue
        found.append(
            PoolerCounters(
                id=names(" ".join(filter(None, (instance, f"{user}@{database}" if user else database)))),
                database=database,
                user=user,
                instance=instance,
                xacts=_number(row, "total_xact_count"),
                queries=_number(row, "total_query_count"),
                received_bytes=_number(row, "total_received"),
                sent_bytes=_number(row, "total_sent"),
                xact_us=_number(row, "total_xact_time"),
                query_us=_number(row, "total_query_time"),
                wait_us=_number(row, "total_wait_time"),
                assignments=_number(row, "total_server_assignment_count"),
                logins=_number(row, "total_client_login_count"),
                errors=_number(row, "total_errors"),
            )
        )
    return tuple(found)


def databases_of(rows: Iterable[Row]) -> tuple[PooledDatabase, ...]:
    """SHOW DATABASES without the console's own."""
    names = _Unique()
    return tuple(
        PooledDatabase(
            id=names(f"{user}@{_text(row, 'name')}" if (user := _text(row, "force_user")) else _text(row, "name")),
            name=_text(row, "name"),
            host=_text(row, "host"),
            port=_number(row, "port"),
            database=_text(row, "database"),
            force_user=_text(row, "force_user"),
            pool_mode=_text(row, "pool_mode"),
            pool_size=_number(row, "pool_size"),
            min_pool_size=_number(row, "min_pool_size"),
            # Called reserve_pool up to PgBouncer 1.23, and by PgCat.
            reserve_pool_size=_number(row, "reserve_pool_size", "reserve_pool"),
            max_connections=_number(row, "max_connections"),
            current_connections=_number(row, "current_connections"),
            paused=_number(row, "paused"),
            disabled=_number(row, "disabled"),
        )
        for row in rows
        if _text(row, "name") not in _CONSOLE
    )


def lists_of(rows: Iterable[Row]) -> Mapping[str, int | None]:
    """SHOW LISTS: what is counted → how many."""
    return {_text(row, "list"): _number(row, "items") for row in rows}


def settings_of(config: Iterable[Row], servers: Iterable[Row], kind: str) -> PoolerSettings:
    """What SHOW CONFIG says of connections.

    Args:
        config: Its rows.
        servers: SHOW SERVERS of PgCat, for what it keeps prepared; of others none.
        kind: Of the pooler.
    """
    values = {_text(row, "key"): row for row in config}

    def number(key: str) -> int | None:
        return _number(values[key], "value") if key in values else None

    caches = [size for row in servers if (size := _number(row, "prepare_cache_size")) is not None]
    return PoolerSettings(
        pool_mode=_text(values["pool_mode"], "value") if "pool_mode" in values else "",
        max_client_conn=number("max_client_conn"),
        default_pool_size=number("default_pool_size"),
        reserve_pool_size=number("reserve_pool_size"),
        max_db_connections=number("max_db_connections"),
        max_user_connections=number("max_user_connections"),
        max_prepared_statements=number("max_prepared_statements"),
        prepare_cache_size=max(caches, default=0) if kind == PGCAT else None,
    )


class _Unique:
    """Makes names unique: rows are kept in tables by them, and a console may say the same twice."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def __call__(self, name: str) -> str:
        self._seen[name] += 1
        while self._seen[name] > 1:
            again = f"{name} #{self._seen[name]}"
            self._seen[name] += 1
            if again not in self._seen:
                self._seen[again] = 1
                return again
        return name


def _text(row: Row, column: str) -> str:
    return row.get(column) or ""


def _number(row: Row, *columns: str) -> int | None:
    """The first of these columns that is there, when it holds a whole number that is not negative."""
    for column in columns:
        value = row.get(column)
        if value is not None:
            return int(value) if value.isascii() and value.isdigit() and len(value) <= _DIGITS else None
    return None


def _waited_us(row: Row) -> int | None:
    """maxwait holds whole seconds and maxwait_us the rest; None when they are more than any wait."""
    seconds, rest = _number(row, "maxwait"), _number(row, "maxwait_us")
    if seconds is None or seconds > _LONGEST_WAIT_S:
        return None
    return seconds * 1_000_000 + (rest or 0)
