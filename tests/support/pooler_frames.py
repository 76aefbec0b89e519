"""Made-up poolers: a PgBouncer whose pool is too small, a PgCat with two servers, and one that is away."""

from __future__ import annotations

from typing import Final

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.pooler import (
    PGBOUNCER,
    PGCAT,
    ConsoleSample,
    Pool,
    PooledDatabase,
    Pooler,
    PoolerCounters,
    PoolerSample,
    PoolerSettings,
)

SETTINGS: Final = PoolerSettings(
    pool_mode="transaction", max_client_conn=1000, default_pool_size=20, reserve_pool_size=5, max_db_connections=0,
    max_user_connections=0, max_prepared_statements=200,
)  # fmt: skip
AWAY: Final = Unavailable(Reason.NO_ANSWER, "stats@db2:6432/pgbouncer: Connection refused")


def pool(database: str, user: str, **other: object) -> Pool:
    """A pool with 20 clients, nobody waiting."""
    values: dict[str, object] = {
        "id": f"{user}@{database}", "database": database, "user": user, "pool_mode": "transaction", "cl_active": 20,
        "cl_idle": None, "cl_waiting": 0, "sv_active": 8, "sv_idle": 4, "sv_used": 0, "sv_tested": 0, "sv_login": 0,
        "maxwait_us": 0,
    }  # fmt: skip
    return Pool(**(values | other))  # type: ignore[arg-type]


def counters(database: str, second: int, **other: object) -> PoolerCounters:
    """100 transactions of 3 statements a second, 2 ms each, that waited 0.5 ms."""
    values: dict[str, object] = {
        "id": database, "database": database, "user": "", "instance": "", "xacts": 100 * second,
        "queries": 300 * second, "received_bytes": 40_960 * second, "sent_bytes": 81_920 * second,
        "xact_us": 200_000 * second, "query_us": 150_000 * second, "wait_us": 50_000 * second, "assignments": None,
        "logins": None, "errors": None,
    }  # fmt: skip
    return PoolerCounters(**(values | other))  # type: ignore[arg-type]


def database(name: str, **other: object) -> PooledDatabase:
    """Of 10.0.0.5:5432, 20 connections and 5 in reserve for each pool."""
    values: dict[str, object] = {
        "id": name, "name": name, "host": "10.0.0.5", "port": 5432, "database": name, "force_user": "",
        "pool_mode": "", "pool_size": 20, "min_pool_size": 0, "reserve_pool_size": 5, "max_connections": 0,
        "current_connections": 12, "paused": 0, "disabled": 0,
    }  # fmt: skip
    return PooledDatabase(**(values | other))  # type: ignore[arg-type]


def bouncer(second: int, **other: object) -> ConsoleSample:
    """Two databases, one with two users, one crowded."""
    values: dict[str, object] = {
        "at_s": float(second), "kind": PGBOUNCER, "version": "1.25.0", "settings": SETTINGS, "clients": 541,
        "login_clients": 0, "servers": 40,
        "pools": (
            pool("app", "app"),
            pool("bench", "bench", cl_active=500, cl_waiting=460, sv_active=25, sv_idle=0, maxwait_us=1_300_000),
            pool("app", "report", cl_active=0, sv_active=0, sv_idle=3),
        ),
        "counters": (counters("app", second), counters("bench", second, xacts=2_500 * second, assignments=5 * second)),
        "databases": (database("app"), database("bench", current_connections=25)),
    }  # fmt: skip
    return ConsoleSample(**(values | other))  # type: ignore[arg-type]


def cat(second: int) -> ConsoleSample:
    """A primary and a replica behind one name."""
    shared: dict[str, object] = {"user": "app", "errors": 2 * second}
    return ConsoleSample(
        at_s=float(second), kind=PGCAT, version="1.2.0", settings=PoolerSettings(prepare_cache_size=0),
        pools=(pool("bench", "app", cl_idle=480, sv_login=1),),
        counters=(
            counters("bench", second, id="p app@bench", instance="p", **shared),
            counters("bench", second, id="r app@bench", instance="r", **shared),
        ),
        databases=(
            database("p", id="app@p", database="bench", force_user="app", pool_size=40, reserve_pool_size=0),
            database("r", id="app@r", database="bench", force_user="app", pool_size=40, reserve_pool_size=0,
                     host="10.0.0.6"),
        ),
    )  # fmt: skip


def poolers(second: int, **consoles: ConsoleSample | Unavailable) -> PoolerSample:
    """The poolers of that second, under their names; those made up where none are given."""
    found = consoles or {"bouncer": bouncer(second), "cat": cat(second), "away": AWAY}
    rows = [Pooler(name, f"stats@127.0.0.1:6432/{name}", console, "127.0.0.1", 6432) for name, console in found.items()]
    return PoolerSample(float(second), tuple(rows))
