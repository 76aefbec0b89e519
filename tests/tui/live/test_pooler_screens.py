"""Clients that wait for a connection of a real PgBouncer stand first on page 0, beside one with room and one away."""

from __future__ import annotations

import asyncio

import psycopg

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.live_screen import WIDE
from tests.support.poolers import PgBouncer
from tests.support.servers import conninfo
from tests.tui.live.conftest import Watch


async def test_the_pool_whose_clients_wait_stands_above_the_one_with_room(server: Throwaway, watch: Watch) -> None:
    with PgBouncer(server, default_pool_size=1) as small, PgBouncer(server, default_pool_size=500) as large:
        named = [f"large={large.console()}", f"small={small.console()}", "gone=postgresql://stats@127.0.0.1:1"]
        with large.connect() as calm, small.connect() as holder, holder.transaction():
            calm.execute("SELECT 1")
            holder.execute("SELECT 1")
            clients = [await psycopg.AsyncConnection.connect(small.conninfo(), autocommit=True) for _ in range(2)]
            waiting = [asyncio.ensure_future(client.execute("SELECT 1")) for client in clients]
            async with watch(conninfo(server), size=WIDE, poolers=named) as screen:
                await screen.turn_to("poolers")
                await screen.shows(
                    r"^ large PgBouncer 1\.\d+.* waiting 0 .*at most 500 of 97",
                    r"^ small PgBouncer 1\.\d+.* clients 3/200 · waiting 2 ",
                    r"^ gone stats@127\.0\.0\.1:1/pgbouncer: Connection refused",
                    r"^ small +postgres +\S+ +2 +1 +1 +0 +1 ",
                    r"^ large +postgres +\S+ +0 +1 +0 +1 +500 ",
                )
                await screen.turn_to("poolers", "pooler-servers")
                await screen.shows(r"^ large .* 1 +1 +500 +97 +515", r"^ small .* 1 +1 +1 +97 +1\.0")
        await asyncio.gather(*waiting)
        for client in clients:
            await client.close()
