"""What is left over and holds on: prepared and open transactions, temporary files, as the screens name them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import sql

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.crowd import Crowd
from tests.support.live_screen import NARROW, WIDE
from tests.support.servers import conninfo
from tests.tui.live.conftest import Watch

GID = "pay 'now'"


@dataclass(frozen=True)
class LeftOver:
    """A server, and the pids of who waits, writes, looks back and sorts on it."""

    where: str
    waiter: int
    writer: int
    snapshot: int
    sorter: int


@pytest.fixture
def left_over(make_server: Callable[..., Throwaway]) -> Iterator[LeftOver]:
    """The writer's transaction is the oldest, then the snapshot and the prepared one; 20 more have come since."""
    where = conninfo(make_server(max_prepared_transactions="5"))
    crowd = Crowd(where)
    try:
        with psycopg.connect(where, autocommit=True) as other:
            other.execute("CREATE TABLE kept (id int PRIMARY KEY, n int)")
            other.execute("INSERT INTO kept VALUES (1, 0), (2, 0)")
            writer = crowd.session("UPDATE kept SET n = 1 WHERE id = 2")
            other.execute("SELECT pg_current_xact_id()")
            snapshot = crowd.session("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM kept")
            preparing = crowd.session(autocommit=True)
            preparing.execute("BEGIN")
            preparing.execute("UPDATE kept SET n = 2 WHERE id = 1")
            preparing.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(GID)))
            for _ in range(20):
                other.execute("SELECT pg_current_xact_id()")
            sorter = crowd.session("SET work_mem = '64kB'")
            cursor = sorter.cursor("spilled")
            cursor.execute("SELECT i, random() FROM generate_series(1, 100000) i ORDER BY 2")
            cursor.fetchone()
            yield LeftOver(
                where=where,
                waiter=crowd.queues(crowd.session(), "UPDATE kept SET n = 3 WHERE id = 1"),
                writer=writer.info.backend_pid,
                snapshot=snapshot.info.backend_pid,
                sorter=sorter.info.backend_pid,
            )
            other.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(GID)))
    finally:
        crowd.close()


async def test_what_is_left_over_is_named_on_the_pages_it_concerns(left_over: LeftOver, watch: Watch) -> None:
    async with watch(left_over.where) as screen:
        await screen.turn_to("locks")
        for size in (NARROW, WIDE):
            await screen.resize(size)
            await screen.shows(
                r"^ waiting 1 · roots 1 ",
                r"^ prepared transaction 'pay ''now''' blocks 1",
                r"^ prepared +prepared +- .*prepared transaction",
                rf"^ > {left_over.waiter} +\S+ active +kept row \(0,1\), xid .*UPDATE kept",
            )
            await screen.turn_to("repl", "horizon")
            place = r" +\S+ postgres@postgres " if size is WIDE else ""
            await screen.shows(
                r"^ senders 0 · slots 0",
                rf"^ {left_over.writer} +idle in transaction +2\d{place} +UPDATE kept SET n = 1",
                rf"^ {left_over.snapshot} +idle in transaction +2\d{place} +SELECT count",
                rf"^ {left_over.sorter} +idle in transaction +2\d{place} ",
                rf"^ pay 'now' +prepared +2\d{place} +-",
            )
            if size is WIDE:
                await screen.shows(
                    rf"vacuum held back 2\d transactions by session {left_over.writer}, idle in transaction *$"
                )
            await screen.turn_to("repl", "prepared")
            await screen.shows(r"^ pay 'now' +\S+ +2\d postgres +postgres ")
            await screen.turn_to("tables", "temp-files")
            await screen.shows(rf"^ +{left_over.sorter} +\d+ +[\d.]+ MB")
            await screen.turn_to("locks")
