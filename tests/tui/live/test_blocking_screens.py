"""Sessions that hold each other up, as the screens show them: roots first, everybody below the one he waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from tests.support.crowd import Crowd
from tests.support.live_screen import NARROW, WIDE
from tests.tui.live.conftest import Watch

UPDATE = "UPDATE queue SET n = n + 1 WHERE id = {}"


@dataclass(frozen=True)
class Queue:
    """Pids of a queue.

    Attributes:
        where: Connection string of its database.
        root: Has row 1, for `first`.
        first: Waits for the root; `second` and `third` wait behind it for the row.
        third: Has row 2, for `last`.
        other_root: Has a table, for `reader`.
    """

    where: str
    root: int
    first: int
    second: int
    third: int
    last: int
    other_root: int
    reader: int


@pytest.fixture
def queue(database: str) -> Iterator[Queue]:
    """Two roots, five waiters; waits for a transaction, for a row, for a table."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE queue (id int PRIMARY KEY, n int)")
        connection.execute("CREATE TABLE other (id int)")
        connection.execute("INSERT INTO queue SELECT g, 0 FROM generate_series(1, 9) g")
    crowd = Crowd(database)
    try:
        root = crowd.session(UPDATE.format(1)).info.backend_pid
        other_root = crowd.session("LOCK TABLE other").info.backend_pid
        yield Queue(
            where=database,
            root=root,
            first=crowd.queues(crowd.session(), UPDATE.format(1)),
            second=crowd.queues(crowd.session(), UPDATE.format(1)),
            third=crowd.queues(crowd.session(UPDATE.format(2)), UPDATE.format(1)),
            last=crowd.queues(crowd.session(), UPDATE.format(2)),
            other_root=other_root,
            reader=crowd.queues(crowd.session(), "SELECT * FROM other"),
        )
    finally:
        crowd.close()


async def test_everybody_stands_below_the_one_he_waits_for(queue: Queue, watch: Watch) -> None:
    async with watch(queue.where) as screen:
        await screen.turn_to("locks")
        await screen.shows(
            r"^ waiting 5 · roots 2 · longest wait ",
            rf"^ {queue.root} postgres idle in transaction for .* blocks 4: UPDATE queue SET n",
            r"^ PID +waits state +object +query",
            rf"^ {queue.root} +idle tx +- +UPDATE queue",
            rf"^ > {queue.first} +\S+ active +queue row \(0,1\), xid.* UPDATE queue",
            rf"^   > {queue.second} +\S+ active +queue row \(0,1\) +UPDATE queue",
            rf"^   > {queue.third} +\S+ active +queue row \(0,1\) +UPDATE queue",
            rf"^     > {queue.last} +\S+ active +queue row \(0,2\), xid.* UPDATE queue",
            rf"^ {queue.other_root} +idle tx +- +LOCK TABLE other",
            rf"^ > {queue.reader} +\S+ active +other +SELECT \* FROM other",
        )
        await screen.resize(WIDE)
        await screen.shows(
            rf"^ {queue.root} postgres idle in transaction for .* blocks 4: UPDATE queue SET n = n \+ 1 WHERE id = 1",
            rf"^ {queue.other_root} postgres idle in transaction for .* blocks 1: LOCK TABLE other",
            r"^ PID +waits state +object +holds +since wants +(?:held as +)?query",
            rf"^ {queue.root} +idle tx +- +4 ",
            rf"^ > {queue.first} .* xid.* +3 +[\d.]+ Share ",
            rf"^   > {queue.second} .* \(0,1\) +0 +[\d.]+ Excl ",
            rf"^   > {queue.third} .* \(0,1\) +1 +[\d.]+ Excl +(?:Excl +)?UPDATE",
            rf"^     > {queue.last} .* xid.* +0 +[\d.]+ Share ",
            rf"^ {queue.other_root} +idle tx +- +1 ",
            rf"^ > {queue.reader} .* other +0 +[\d.]+ AccShare ",
        )


async def test_a_waiter_opened_says_what_it_waits_for_and_who_has_it(queue: Queue, watch: Watch) -> None:
    async with watch(queue.where) as screen:
        await screen.turn_to("locks")
        await screen.shows(rf"^ > {queue.reader}")
        await screen.open_details("end")
        await screen.shows(
            r"waits for +AccessShareLock on other \(relation\)", rf"held by +{queue.other_root} AccessExclusiveLock"
        )


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_who_is_blocked_is_told_on_dashboard_sessions_and_waits(
    queue: Queue, watch: Watch, size: tuple[int, int]
) -> None:
    async with watch(queue.where, size) as screen:
        await screen.shows(
            r"^ Lock:t\w+ +[\d.]+ .*Lock:t\w+ +[\d.]+ .*Lock:relation +[\d.]+",
            rf"^─ sessions \d+/100 · active 5 · (idle in tx 2 · )?blocked 5 \(root {queue.root}(, 1 more)?\)",
            # Who holds up most others stands first.
            rf"^ +{queue.root} .* idle tx +Client:ClientRead ",
            *([] if size is NARROW else [rf"^ +>{queue.first} .* active +Lock:transactionid "]),
        )
        await screen.turn_to("sessions")
        blockers = ["", "", ""] if size is NARROW else [rf".*{queue.root} ", rf".*{queue.first} ", r".*\+1 "]
        await screen.shows(
            rf"^ +{queue.root} .* idle tx +Client:ClientRead",
            rf"^ +>{queue.first} .* active +Lock:transactionid{blockers[0]}",
            rf"^ +>{queue.second} .* active +Lock:tuple{blockers[1]}",
            rf"^ +>{queue.third} .* active +Lock:tuple{blockers[2]}",
            rf"^ +>{queue.last} .* active +Lock:transactionid",
            rf"^ +{queue.other_root} .* idle tx +Client:ClientRead",
            rf"^ +>{queue.reader} .* active +Lock:relation",
        )
        await screen.turn_to("waits")
        long = r"^ Lock:\w+ +(?:1\.[89]\d|2|2\.00) +40 "
        short = r"^ Lock:relation +(?:0\.9\d|1|1\.00) +20 "
        mean = await screen.shows(r"█ Lock +[45]", r"^ wait +in 10 s ", long, long, short)
        assert {line.string.split()[0] for line in mean[2:4]} == {"Lock:transactionid", "Lock:tuple"}
