"""The console of a PgCat, which no distribution has: a stand-in that speaks its words on the wire.

It answers the simple protocol only, with the types, commands and refusals of PgCat's src/admin.rs (1.2, 1.3).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pgtop_tune.experiment.path import PathFacts, limits
from pgtop_tune.model.pooler import PoolerAddress
from tests.support.poolers import look_once

TEXT, INT4, NUMERIC = 25, 23, 1700
ANSWERS: dict[str, tuple[str, list[tuple[object, ...]]]] = {
    "SHOW VERSION": ("version", [("PgCat 1.2.0",)]),
    "SHOW LISTS": ("list items:4", [("databases", 2), ("used_clients", 7), ("login_clients", 0), ("used_servers", 3)]),
    "SHOW POOLS": (
        "database user pool_mode cl_idle:n cl_active:n cl_waiting:n cl_cancel_req:n sv_active:n sv_idle:n sv_used:n "
        "sv_tested:n sv_login:n maxwait:n maxwait_us:n",
        [("bench", "app", "transaction", 480, 20, 7, 0, 20, 0, 0, 0, 1, 2, 250_000)],
    ),
    "SHOW STATS": (
        "instance database user total_xact_count:n total_query_count:n total_wait_time:n total_errors:n",
        [("bench_shard_0_primary", "bench", "app", 1000, 7000, 250_000, 3)],
    ),
    "SHOW DATABASES": (
        "name host port database force_user pool_size:4 min_pool_size:4 reserve_pool:4 pool_mode max_connections:4 "
        "current_connections:4 paused:4 disabled:4",
        [("bench_shard_0_primary", "10.0.0.5", "5432", "bench", "app", 40, 0, 0, "transaction", 40, 21, 0, 0)],
    ),
    "SHOW CONFIG": ("key value default changeable", [("pools.bench.pool_mode", "transaction", "-", "yes")]),
    "SHOW SERVERS": ("server_id database_name prepare_cache_size:n", [("0x01", "bench", 5), ("0x02", "bench", 0)]),
}  # fmt: skip
_TYPES = {"n": NUMERIC, "4": INT4, "": TEXT}


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def table(columns: str, rows: list[tuple[object, ...]]) -> bytes:
    """RowDescription, DataRows, CommandComplete."""
    named = [column.partition(":") for column in columns.split()]
    heads = b"".join(
        name.encode() + b"\0" + struct.pack("!ihihih", 0, 0, _TYPES[kind], -1, -1, 0) for name, _, kind in named
    )
    sent = message(b"T", struct.pack("!h", len(named)) + heads)
    for row in rows:
        cells = b"".join(struct.pack("!i", len(str(cell))) + str(cell).encode() for cell in row)
        sent += message(b"D", struct.pack("!h", len(row)) + cells)
    return sent + message(b"C", b"SHOW\0")


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    ready = message(b"Z", b"I")
    try:
        while True:
            length = struct.unpack("!i", await reader.readexactly(4))[0]
            start = await reader.readexactly(length - 4)
            if start[:4] not in (struct.pack("!i", 80877103), struct.pack("!i", 80877104)):
                break
            writer.write(b"N")
        writer.write(message(b"R", struct.pack("!i", 0)) + message(b"S", b"server_version\x001.2.0\0") + ready)
        while True:
            kind = await reader.readexactly(1)
            body = await reader.readexactly(struct.unpack("!i", await reader.readexactly(4))[0] - 4)
            if kind != b"Q":
                return
            answer = ANSWERS.get(body.rstrip(b"\0").decode().upper())
            refusal = message(b"E", b"SERROR\0VERROR\0C58000\0MUnsupported SHOW query\0\0")
            writer.write((refusal if answer is None else table(*answer)) + ready)
    except asyncio.IncompleteReadError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def stand_in() -> AsyncIterator[PoolerAddress]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    words = {"host": "127.0.0.1", "port": str(port), "user": "admin", "dbname": "pgbouncer"}
    async with server:
        yield PoolerAddress("cat", f"admin@127.0.0.1:{port}/pgbouncer", "127.0.0.1", port, words, {})


async def test_numbers_of_any_declared_type_are_read_and_what_is_kept_prepared_is_seen() -> None:
    async with stand_in() as address:
        sample = await look_once(address)
    assert (sample.kind, sample.version, sample.clients, sample.servers) == ("PgCat", "1.2.0", 7, 3)
    (pool,) = sample.pools
    assert (pool.cl_idle, pool.cl_waiting, pool.sv_active, pool.maxwait_us) == (480, 7, 20, 2_250_000)
    (counters,) = sample.counters
    assert (counters.instance, counters.xacts, counters.queries, counters.errors) == (
        "bench_shard_0_primary", 1000, 7000, 3,
    )  # fmt: skip
    assert counters.sent_bytes is None
    (database,) = sample.databases
    assert (database.host, database.port, database.pool_size, database.current_connections) == (
        "10.0.0.5",
        5432,
        40,
        21,
    )
    assert sample.settings.prepare_cache_size == 5
    assert limits(PathFacts(20, "prepared", "bench", "app", sample, unreserved=97)) == ()


async def test_a_command_it_does_not_know_leaves_out_what_it_would_have_said() -> None:
    async with stand_in() as address:
        known = ANSWERS.pop("SHOW LISTS")
        try:
            sample = await look_once(address)
        finally:
            ANSWERS["SHOW LISTS"] = known
    assert sample.clients is None
    assert len(sample.pools) == 1
