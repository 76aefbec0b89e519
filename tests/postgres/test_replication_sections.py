"""A primary, a streaming standby, slots, a subscriber, transactions that stay open: all of it real."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from operator import attrgetter
from typing import TypeVar

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.replication import receiver_lag, sender_lags, slot_states
from pgtop_tune.metrics.vacuum import holders
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.backend_action import BackendOutcome, PreparedAct, PreparedKey
from pgtop_tune.model.postgres import Activity, PostgresSample
from pgtop_tune.model.relations import DatabaseLimits, RelationSample
from pgtop_tune.model.replication import HorizonSample, ReplicationSample, SlotSample, SubscriptionSample
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.statements.backend_control import PostgresBackends
from tests.postgres.conftest import place
from tests.support.frames import frame
from tests.support.servers import conninfo
from tests.support.standby import standby_of

DEADLINE_S = 60.0
T = TypeVar("T")
BOUNDED = "options='-c statement_timeout=30s'"
"""A statement that hangs fails the test."""


def bounded(server: Throwaway) -> str:
    return f"{conninfo(server)} {BOUNDED}"


async def eventually(read: Callable[[], Awaitable[object]], kind: type[T], fits: Callable[[T], bool]) -> T:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = await read()
        assert isinstance(found, kind), found
        if fits(found):
            return found
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.05)


async def connected(server: Throwaway) -> PostgresReader:
    reader = PostgresReader(place(server), time.monotonic)
    await reader.connect()
    return reader


def interval(**readings: object) -> Interval:
    sample = replace(PostgresSample(), **readings)
    return Interval((frame(0, postgres=sample),))


@pytest.mark.parametrize("major", [14, pytest.param(17, marks=pytest.mark.long), 18, 19])
async def test_a_standby_is_seen_from_both_sides(
    make_server: Callable[..., Throwaway], server: Throwaway, major: int
) -> None:
    primary = make_server(major)
    # A pg_basebackup copies older servers and not newer ones.
    standby = standby_of(primary, make_server, "kept", max(primary.binaries, server.binaries, key=attrgetter("major")))
    on_primary, on_standby = await connected(primary), await connected(standby)
    try:
        with psycopg.connect(bounded(primary), autocommit=True) as connection:
            connection.execute("CREATE TABLE copied AS SELECT generate_series(1, 1000) AS id")

            def caught_up(sample: ReplicationSample) -> bool:
                return len(sample.senders) == 1 and sample.senders[0].replay_lsn_bytes == sample.lsn_bytes

            sample = await eventually(partial(on_primary.read, sections.replication), ReplicationSample, caught_up)
            assert sample.receiver is None
            (sender,) = sample.senders
            assert (sender.state, sender.sync_state, sender.client) == ("streaming", "async", "local")
            (lag,) = sender_lags(interval(replication=sample))
            assert lag.total_bytes == 0

            def replayed(seen: ReplicationSample) -> bool:
                # The primary may have written more WAL since.
                got = 0 if seen.receiver is None else seen.receiver.received_lsn_bytes or 0
                behind = receiver_lag(interval(replication=seen))
                return got >= sample.lsn_bytes and behind is not None and behind.unreplayed_bytes == 0

            received = await eventually(partial(on_standby.read, sections.replication), ReplicationSample, replayed)
            assert received.receiver is not None
            assert received.receiver.status == "streaming"
            assert received.receiver.slot_name == "kept"
            assert received.receiver.sender.endswith(":5432")
            behind = receiver_lag(interval(replication=received))
            assert behind is not None
            assert behind.delay_s == 0.0

            slots = await on_primary.read(sections.slots)
            assert isinstance(slots, SlotSample)
            (state,) = slot_states(interval(slots=slots))
            assert (state.slot.slot_name, state.slot.slot_type) == ("kept", "physical")
            assert state.slot.active_pid == sender.pid
            assert state.retained_bytes is not None

            with psycopg.connect(bounded(standby), autocommit=True) as pausing:
                pausing.execute("SELECT pg_wal_replay_pause()")
                connection.execute("INSERT INTO copied SELECT generate_series(1, 20000)")
                paused = await eventually(
                    partial(on_standby.read, sections.replication),
                    ReplicationSample,
                    lambda seen: (
                        seen.receiver is not None
                        and seen.receiver.replay_state == "paused"
                        and (seen.receiver.received_lsn_bytes or 0) - (seen.receiver.replay_lsn_bytes or 0) > 100_000
                    ),
                )
                late = receiver_lag(interval(replication=paused))
                assert late is not None
                assert late.unreplayed_bytes is not None
                assert late.unreplayed_bytes > 100_000
                pausing.execute("SELECT pg_wal_replay_resume()")

        for section in (
            sections.relations, sections.database_limits, sections.slots, sections.subscriptions,
            sections.horizon, sections.progress, sections.temp_files,
        ):  # fmt: skip
            assert not isinstance(await on_standby.read(section), Unavailable)
        relations = await on_standby.read(sections.relations)
        assert isinstance(relations, RelationSample)
        assert "public.copied" in {table.name for table in relations.tables}
        limits = await on_standby.read(sections.database_limits)
        assert isinstance(limits, DatabaseLimits)
        assert limits.next_xid > max(database.frozen_xid for database in limits.databases)
    finally:
        await on_primary.aclose()
        await on_standby.aclose()


async def test_a_query_on_a_standby_with_feedback_holds_back_the_primary(
    make_server: Callable[..., Throwaway], server: Throwaway
) -> None:
    primary = make_server(hot_standby_feedback="on", wal_receiver_status_interval="1s")
    standby = standby_of(primary, make_server, "kept", server.binaries)
    reader = await connected(primary)
    try:
        with (
            psycopg.connect(bounded(standby)) as reading,
            psycopg.connect(bounded(primary), autocommit=True) as other,
        ):
            reading.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reading.execute("SELECT count(*) FROM pg_class")
            for _ in range(50):
                other.execute("SELECT pg_current_xact_id()")

            def held(slots: SlotSample) -> bool:
                return any((holder.age or 0) >= 50 for holder in holders(interval(slots=slots)))

            slots = await eventually(partial(reader.read, sections.slots), SlotSample, held)
            holder = holders(interval(slots=slots))[0]
            assert (holder.kind, holder.name) == ("slot", "kept")
    finally:
        await reader.aclose()


@pytest.mark.parametrize("major", [14, 18, 19])
async def test_everybody_who_holds_back_vacuum_is_named_and_a_prepared_transaction_is_ended(
    make_server: Callable[..., Throwaway], major: int
) -> None:
    server = make_server(major, max_prepared_transactions="5", wal_level="logical")
    reader = await connected(server)
    try:
        with (
            psycopg.connect(bounded(server), autocommit=True) as other,
            psycopg.connect(bounded(server)) as writer,
            psycopg.connect(bounded(server)) as snapshot,
        ):
            other.execute("CREATE TABLE kept (id int)")
            writer.execute("INSERT INTO kept VALUES (1)")
            other.execute("SELECT pg_current_xact_id()")
            snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            snapshot.execute("SELECT count(*) FROM kept")
            with psycopg.connect(bounded(server), autocommit=True) as preparing:
                preparing.execute("BEGIN")
                preparing.execute("INSERT INTO kept VALUES (2)")
                preparing.execute("PREPARE TRANSACTION 'left over'")
            for _ in range(20):
                other.execute("SELECT pg_current_xact_id()")
            horizon = await eventually(
                partial(reader.read, sections.horizon), HorizonSample, lambda sample: len(sample.prepared) == 1
            )
            activity, slots = await reader.read(sections.activity), await reader.read(sections.slots)
            assert isinstance(activity, Activity)
            assert isinstance(slots, SlotSample)
            found = holders(interval(horizon=horizon, activity=activity, slots=slots))
            ages = {holder.name: holder.age for holder in found}
            assert ages[str(writer.info.backend_pid)] >= 23
            assert ages[str(snapshot.info.backend_pid)] >= ages["left over"] >= 21
            kinds = {holder.name: holder.kind for holder in found}
            assert kinds[str(writer.info.backend_pid)] == "idle in transaction"
            assert kinds["left over"] == "prepared"
            words = {holder.name: holder.activity for holder in found}
            assert words[str(writer.info.backend_pid)] == "INSERT INTO kept VALUES (1)"
            assert horizon.n_open == len(horizon.open) == 2
            (row,) = horizon.prepared
            left_over = PreparedKey(gid=row.gid, database=row.database, prepared_ms=row.prepared_ms)
            other.execute("CREATE ROLE stranger LOGIN")
            ours, stranger = PostgresBackends(place(server)), PostgresBackends(place(server, user="stranger"))
            outcome, detail = await stranger.end_prepared(PreparedAct.ROLLBACK, left_over)
            assert (outcome, f"role {row.owner}" in detail) == (BackendOutcome.NOT_PERMITTED, True)
            later = replace(left_over, prepared_ms=left_over.prepared_ms + 1)
            outcomes = [
                (await ours.end_prepared(PreparedAct.ROLLBACK, key))[0] for key in (later, left_over, left_over)
            ]
            assert outcomes == [BackendOutcome.GONE, BackendOutcome.DONE, BackendOutcome.GONE]
        assert isinstance(await reader.read(sections.horizon), HorizonSample)
    finally:
        await reader.aclose()


async def test_a_vacuum_under_way_is_known_to_hold_back_nobody(database: str, server: Throwaway) -> None:
    reader = await connected(server)
    try:
        with psycopg.connect(f"{database} {BOUNDED}", autocommit=True) as vacuuming:
            vacuuming.execute("CREATE TABLE wide AS SELECT repeat('x', 500) FROM generate_series(1, 60000)")
            vacuuming.execute("SET vacuum_cost_delay = '20ms'; SET vacuum_cost_limit = 50")
            pid = vacuuming.info.backend_pid
            with psycopg.connect(f"{database} {BOUNDED}", autocommit=True) as canceller:
                waiting = asyncio.get_running_loop().run_in_executor(None, _quietly, vacuuming, "VACUUM wide")
                seen = await eventually(
                    partial(reader.read, sections.horizon),
                    HorizonSample,
                    lambda sample: pid in {open.pid for open in sample.open},
                )
                assert next(open.is_vacuum for open in seen.open if open.pid == pid)
                canceller.execute("SELECT pg_cancel_backend(%s)", (pid,))
                await waiting
    finally:
        await reader.aclose()


def _quietly(connection: psycopg.Connection[tuple[object, ...]], text: str) -> None:
    try:
        connection.execute(text.encode())
    except psycopg.errors.QueryCanceled:
        pass


@pytest.mark.parametrize("major", [14, pytest.param(16, marks=pytest.mark.long), 18, 19])
async def test_a_logical_slot_and_its_subscriber_are_seen(make_server: Callable[..., Throwaway], major: int) -> None:
    publisher = make_server(major, wal_level="logical", logical_decoding_work_mem="64kB")
    subscriber = make_server(major)
    on_publisher, on_subscriber = await connected(publisher), await connected(subscriber)
    try:
        with (
            psycopg.connect(bounded(publisher), autocommit=True) as source,
            psycopg.connect(bounded(subscriber), autocommit=True) as target,
        ):
            for side in (source, target):
                side.execute("CREATE TABLE orders (id int PRIMARY KEY, words text)")
            source.execute("CREATE PUBLICATION sold FOR TABLE orders")
            where = f"host={publisher.socket_dir} port={publisher.port} user={publisher.user} dbname=postgres"
            target.execute(f"CREATE SUBSCRIPTION bought CONNECTION '{where}' PUBLICATION sold".encode())
            source.execute("INSERT INTO orders SELECT i, repeat('x', 200) FROM generate_series(1, 20000) i")
            workers = await eventually(
                partial(on_subscriber.read, sections.subscriptions),
                SubscriptionSample,
                lambda sample: any(worker.kind == "apply" and worker.message_ms for worker in sample.workers),
            )
            assert workers.workers[0].name == "bought"
            assert workers.workers[0].apply_errors == (None if major < 15 else 0)
            assert workers.workers[0].sequence_errors == (None if major < 19 else 0)
            slots = await eventually(
                partial(on_publisher.read, sections.slots),
                SlotSample,
                lambda sample: any((slot.spill_bytes or 0) + (slot.stream_bytes or 0) > 0 for slot in sample.slots),
            )
            bought = next(slot for slot in slots.slots if slot.slot_name == "bought")
            assert (bought.slot_type, bought.plugin, bought.database) == ("logical", "pgoutput", "postgres")
            assert bought.active_pid is not None
            senders = await on_publisher.read(sections.replication)
            assert isinstance(senders, ReplicationSample)
            assert "bought" in {sender.application_name for sender in senders.senders}
            target.execute("ALTER SUBSCRIPTION bought DISABLE")
            await eventually(
                partial(on_subscriber.read, sections.subscriptions),
                SubscriptionSample,
                lambda sample: [worker.kind for worker in sample.workers] == ["disabled"],
            )
            target.execute("DROP SUBSCRIPTION bought")
            source.execute("SELECT pg_create_logical_replication_slot('forgotten', 'pgoutput')")
            idle = await on_publisher.read(sections.slots)
            assert isinstance(idle, SlotSample)
            (state,) = slot_states(interval(slots=idle))
            assert (state.slot.active_pid, state.slot.slot_name) == (None, "forgotten")
            assert state.catalog_xmin_age is not None
            assert (state.slot.inactive_since_ms is not None) == (major >= 17)
    finally:
        await on_publisher.aclose()
        await on_subscriber.aclose()


@pytest.mark.parametrize("major", [18, 19])
async def test_a_table_that_cannot_be_copied_counts_as_an_error(
    make_server: Callable[..., Throwaway], major: int
) -> None:
    publisher, subscriber = make_server(major, wal_level="logical"), make_server(major)
    reader = await connected(subscriber)
    try:
        with (
            psycopg.connect(bounded(publisher), autocommit=True) as source,
            psycopg.connect(bounded(subscriber), autocommit=True) as target,
        ):
            for side in (source, target):
                side.execute("CREATE TABLE orders AS SELECT 1 AS id")
                side.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
            source.execute("CREATE PUBLICATION sold FOR TABLE orders")
            where = f"host={publisher.socket_dir} port={publisher.port} user={publisher.user} dbname=postgres"
            target.execute(f"CREATE SUBSCRIPTION bought CONNECTION '{where}' PUBLICATION sold".encode())
            await eventually(
                partial(reader.read, sections.subscriptions),
                SubscriptionSample,
                lambda sample: any(worker.sync_errors for worker in sample.workers),
            )
            target.execute("DROP SUBSCRIPTION bought")
    finally:
        await reader.aclose()


async def test_a_plain_role_is_told_that_senders_are_hidden(
    make_server: Callable[..., Throwaway], server: Throwaway
) -> None:
    primary = make_server()
    standby_of(primary, make_server, "kept", server.binaries)
    with psycopg.connect(bounded(primary), autocommit=True) as connection:
        connection.execute("CREATE ROLE nobody_special LOGIN")
    reader = PostgresReader(place(primary, user="nobody_special"), time.monotonic)
    await reader.connect()
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not isinstance(why := await reader.read(sections.replication), Unavailable):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert why.reason is Reason.NO_PERMISSION
        assert "GRANT pg_monitor TO nobody_special" in why.detail
    finally:
        await reader.aclose()
