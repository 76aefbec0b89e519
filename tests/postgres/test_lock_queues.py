"""Queues for locks made by real sessions, on every major: who stands where, and what for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.blockers import LockNode, lock_tree
from pgtop_tune.model.postgres import Activity
from pgtop_tune.model.waits import LockSample
from pgtop_tune.postgres.reader import PostgresReader
from tests.postgres.conftest import place
from tests.postgres.reading import eventually, reading
from tests.support.crowd import Crowd
from tests.support.servers import conninfo


@pytest.fixture
def crowd(all_servers: Throwaway) -> Iterator[Crowd]:
    with psycopg.connect(conninfo(all_servers), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS queue")
        connection.execute("CREATE TABLE queue (id int PRIMARY KEY, n int)")
        connection.execute("INSERT INTO queue SELECT g, 0 FROM generate_series(1, 9) g")
        crowd = Crowd(conninfo(all_servers))
        yield crowd
        crowd.close()
        connection.execute("DROP TABLE queue")


async def tree(
    reader: PostgresReader, waiters: int, settled: Callable[[list[LockNode]], bool] = bool
) -> list[LockNode]:
    """The tree once so many wait and everybody's lock is known."""
    found: list[LockNode] = []

    async def there() -> bool:
        activity = await reader.read(sections.activity)
        locks = await reader.read(sections.locks)
        assert isinstance(activity, Activity)
        assert isinstance(locks, LockSample)
        found[:] = lock_tree(activity, locks)
        waiting = [node for node in found if node.wait is not None and node.wait.wait_start_ms is not None]
        return len(waiting) == waiters and settled(found)

    await eventually(there)
    return found


UPDATE = "UPDATE queue SET n = n + 1 WHERE id = {}"


async def test_two_waiters_on_one_row(all_servers: Throwaway, crowd: Crowd) -> None:
    root = crowd.session(UPDATE.format(1))
    first = crowd.waits(crowd.session(), UPDATE.format(1))
    async with reading(place(all_servers)) as reader:
        await tree(reader, 1)
        second = crowd.waits(crowd.session(), UPDATE.format(1))
        nodes = await tree(reader, 2)
    by_pid = {node.pid: node for node in nodes}
    assert nodes[0].pid == root.info.backend_pid
    assert (nodes[0].depth, nodes[0].blocks, nodes[0].idle_root) == (0, 2, True)
    assert [node.pid for node in nodes].count(first) == [node.pid for node in nodes].count(second) == 1
    wait = by_pid[first].wait
    assert wait is not None
    assert (wait.locktype, wait.mode, wait.relation) == ("transactionid", "ShareLock", "queue")
    assert wait.target.startswith("row (0,1), xid ")
    assert by_pid[first].held_modes == "ExclusiveLock"
    row = by_pid[second].wait
    assert row is not None
    assert (row.locktype, row.relation, row.target) == ("tuple", "queue", "row (0,1)")


async def test_a_chain_of_three(all_servers: Throwaway, crowd: Crowd) -> None:
    one, two, three = crowd.session(UPDATE.format(1)), crowd.session(UPDATE.format(2)), crowd.session(UPDATE.format(3))
    crowd.waits(two, UPDATE.format(1))
    crowd.waits(three, UPDATE.format(2))
    last = crowd.waits(crowd.session(), UPDATE.format(3))
    async with reading(place(all_servers)) as reader:
        # Who holds up whom is asked a moment before the locks are.
        nodes = await tree(reader, 3, lambda nodes: nodes[-1].depth == 3)
    pids = [one.info.backend_pid, two.info.backend_pid, three.info.backend_pid, last]
    assert [(node.depth, node.pid, node.blocks) for node in nodes] == [
        (depth, pid, 3 - depth) for depth, pid in enumerate(pids)
    ]


async def test_two_roots_of_one_waiter(all_servers: Throwaway, crowd: Crowd) -> None:
    lock = "LOCK TABLE queue IN SHARE MODE"
    roots = {crowd.session(lock).info.backend_pid, crowd.session(lock).info.backend_pid}
    waiter = crowd.waits(crowd.session(), "LOCK TABLE queue")
    async with reading(place(all_servers)) as reader:
        nodes = await tree(reader, 1)
    assert [node.depth for node in nodes] == [0, 1]
    assert nodes[1].pid == waiter
    assert {nodes[0].pid, *nodes[1].other_blockers} == roots
    wait = nodes[1].wait
    assert wait is not None
    assert (wait.locktype, wait.mode, wait.relation) == ("relation", "AccessExclusiveLock", "queue")
    assert set(wait.holders) == roots
    assert nodes[1].held_modes == "ShareLock"


async def test_a_deadlock_in_the_making(all_servers: Throwaway, crowd: Crowd) -> None:
    one, two = crowd.session(UPDATE.format(1)), crowd.session(UPDATE.format(2))
    crowd.waits(one, UPDATE.format(2))
    crowd.waits(two, UPDATE.format(1))
    async with reading(place(all_servers)) as reader:
        nodes = await tree(reader, 2)
    assert {node.pid for node in nodes} == {one.info.backend_pid, two.info.backend_pid}
    assert all(node.circle for node in nodes)


async def test_advisory_locks_and_names_with_quotes(all_servers: Throwaway, crowd: Crowd) -> None:
    with psycopg.connect(conninfo(all_servers), autocommit=True) as connection:
        connection.execute('CREATE TABLE "Odd ""name""" (n int)')
        crowd.session("SELECT pg_advisory_lock(7)", 'LOCK TABLE "Odd ""name"""')
        advisory = crowd.waits(crowd.session(), "SELECT pg_advisory_lock(7)")
        table = crowd.waits(crowd.session(), 'SELECT * FROM "Odd ""name"""')
        async with reading(place(all_servers)) as reader:
            by_pid = {node.pid: node for node in await tree(reader, 2)}
        found, odd = by_pid[advisory].wait, by_pid[table].wait
        assert found is not None
        assert odd is not None
        assert (found.locktype, found.relation, found.target) == ("advisory", None, "advisory 7")
        assert odd.relation == '"Odd ""name"""'
        crowd.close()
        connection.execute('DROP TABLE "Odd ""name"""')


async def test_a_table_of_another_database_is_not_looked_up(all_servers: Throwaway) -> None:
    with psycopg.connect(conninfo(all_servers), autocommit=True) as connection:
        connection.execute("CREATE DATABASE elsewhere")
        crowd = Crowd(conninfo(all_servers, "elsewhere"))
        try:
            with psycopg.connect(conninfo(all_servers, "elsewhere"), autocommit=True) as inside:
                inside.execute("CREATE TABLE there (n int)")
            crowd.session("LOCK TABLE there")
            waiter = crowd.waits(crowd.session(), "SELECT * FROM there")
            async with reading(place(all_servers)) as reader:
                by_pid = {node.pid: node for node in await tree(reader, 1)}
            wait = by_pid[waiter].wait
            assert wait is not None
            assert wait.relation is None
            assert wait.target.endswith(" of another database")
        finally:
            crowd.close()
            connection.execute("DROP DATABASE elsewhere WITH (FORCE)")


@pytest.mark.parametrize("major", [14, 17, 18])
async def test_a_prepared_transaction_is_a_root_with_its_name(
    make_server: Callable[..., Throwaway], major: int
) -> None:
    server = make_server(major, max_prepared_transactions="5")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE TABLE queue (id int PRIMARY KEY, n int)")
        connection.execute("INSERT INTO queue VALUES (1, 0), (2, 0)")
        for number, name in ((1, "pay 'now'"), (2, "other")):
            connection.execute("BEGIN")
            connection.execute(UPDATE.format(number).encode())
            connection.execute(psycopg.sql.SQL("PREPARE TRANSACTION {}").format(psycopg.sql.Literal(name)))
    if major == 17:
        server.restart()
    crowd = Crowd(conninfo(server))
    try:
        pids = [crowd.waits(crowd.session(), UPDATE.format(number)) for number in (1, 2)]
        async with reading(place(server)) as reader:
            nodes = await tree(reader, 2)
        roots = {node.prepared: after.pid for node, after in pairwise(nodes) if node.depth == 0}
        assert roots == {"pay 'now'": pids[0], "other": pids[1]}
    finally:
        crowd.close()


async def test_nothing_is_asked_when_nobody_waits(server: Throwaway) -> None:
    async with reading(place(server)) as reader:
        await reader.read(sections.activity)
        sent = reader.own.statements
        locks = await reader.read(sections.locks)
        assert isinstance(locks, LockSample)
        assert (locks.waits, locks.left_out) == ((), 0)
        assert reader.own.statements == sent


@pytest.mark.long
async def test_the_longest_waiting_of_a_crowd_are_asked_about(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(max_connections="90")
    crowd = Crowd(conninfo(server))
    try:
        crowd.session("SELECT pg_advisory_lock(1)")
        for _ in range(70):
            crowd.waits(crowd.session(), "SELECT pg_advisory_lock(1)")
        async with reading(place(server)) as reader:
            nodes = await tree(reader, 64)
            assert nodes[0].blocks == 64
            locks = await reader.read(sections.locks)
            assert isinstance(locks, LockSample)
            assert locks.left_out == 6
    finally:
        crowd.close()
