"""Tables, indexes, databases and temporary files as the reader brings them from real servers."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.relations import FIRST_USER_OID, DatabaseLimits, RelationSample, TempFileSample
from pgtop_tune.postgres.readers.relations import ALL_UP_TO, RelationChoice, TableLook
from pgtop_tune.postgres.server.conninfo import resolve
from tests.postgres.conftest import Superuser, place
from tests.postgres.reading import reading
from tests.support.servers import conninfo


async def test_a_table_counts_what_was_done_to_it(all_servers: Throwaway) -> None:
    with psycopg.connect(conninfo(all_servers), autocommit=True) as connection:
        connection.execute('CREATE TABLE "Odd, name" (id int PRIMARY KEY, words text) WITH (autovacuum_enabled=off)')
        try:
            connection.execute("""INSERT INTO "Odd, name" SELECT i, repeat('x', 10) FROM generate_series(1, 1000) i""")
            connection.execute('UPDATE "Odd, name" SET id = -id WHERE id <= 100')
            connection.execute('DELETE FROM "Odd, name" WHERE id > 950')
            connection.execute('SELECT * FROM "Odd, name" WHERE id = 500')
            connection.execute('ANALYZE "Odd, name"')
            connection.close()
            async with reading(place(all_servers)) as reader:
                deadline = time.monotonic() + 60
                while True:
                    sample = await reader.read(sections.relations)
                    assert isinstance(sample, RelationSample)
                    found = {table.name: table for table in sample.tables if table.kind == "table"}
                    table = found.get("public.Odd, name")
                    if table is not None and table.n_tup_del == 50 and table.analyze_count == 1:
                        break
                    assert time.monotonic() < deadline
                assert (table.n_tup_ins, table.n_tup_upd, table.n_dead_tup) == (1000, 100, 150)
                assert (table.kind, table.tuples, table.options) == ("table", 950, ("autovacuum_enabled=off",))
                assert table.last_analyze_ms is not None
                assert abs(table.last_analyze_ms - sample.now_ms) < 60_000
                assert 0 <= sample.next_xid - table.frozen_xid < 1000
                assert found["public.Odd, name"].idx_scan >= 1
                index = next(index for index in sample.indexes if index.table_oid == table.oid)
                assert (index.name, index.table) == ("public.Odd, name_pkey", "public.Odd, name")
                assert index.is_constraint
                assert index.idx_scan == table.idx_scan
                assert any(table.kind == "toast" and table.name == "public.Odd, name" for table in sample.tables)
        finally:
            with psycopg.connect(conninfo(all_servers), autocommit=True) as cleaner:
                cleaner.execute('DROP TABLE "Odd, name"')


async def test_what_nobody_uses_stands_still(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE quiet (id int PRIMARY KEY)")
        connection.execute("CREATE TABLE spent AS SELECT pg_current_xact_id()")
    words = {name: str(value) for name, value in psycopg.conninfo.conninfo_to_dict(database).items()}
    where = resolve(words["dbname"], host=words["host"], port=words["port"], user=words["user"])
    async with reading(where) as reader:
        before = await reader.read(sections.relations)
        with psycopg.connect(database, autocommit=True) as connection:
            for _ in range(5):
                connection.execute("SELECT pg_current_xact_id()")
        after = await reader.read(sections.relations)
    assert isinstance(before, RelationSample)
    assert isinstance(after, RelationSample)
    quiet = [next(table for table in sample.tables if table.name == "public.quiet") for sample in (before, after)]
    assert quiet[0] == quiet[1]
    assert after.next_xid >= before.next_xid + 5


async def test_limits_of_databases_and_roles_are_told(superuser: Superuser, server: Throwaway) -> None:
    superuser.execute("CREATE ROLE narrow LOGIN CONNECTION LIMIT 3")
    try:
        async with reading(place(server)) as reader:
            sample = await reader.read(sections.database_limits)
        ages = superuser.execute(
            "SELECT age(datfrozenxid), mxid_age(datminmxid) FROM pg_database WHERE datname = 'postgres'"
        ).fetchone()
    finally:
        superuser.execute("DROP ROLE narrow")
    assert isinstance(sample, DatabaseLimits)
    assert [(role.name, role.connection_limit) for role in sample.role_limits] == [("narrow", 3)]
    by_name = {database.name: database for database in sample.databases}
    assert not by_name["template0"].allows_connections
    assert ages == (
        sample.next_xid - by_name["postgres"].frozen_xid,
        sample.next_multixact - by_name["postgres"].min_multixact,
    )


async def test_temporary_files_belong_to_who_made_them(superuser: Superuser, server: Throwaway) -> None:
    with psycopg.connect(conninfo(server)) as connection:
        connection.execute("SET work_mem = '64kB'")
        cursor = connection.cursor("spilled")
        cursor.execute("SELECT i, random() FROM generate_series(1, 200000) i ORDER BY 2")
        cursor.fetchone()
        async with reading(place(server)) as reader:
            sample = await reader.read(sections.temp_files)
        assert isinstance(sample, TempFileSample)
        mine = next(files for files in sample.processes if files.pid == connection.info.backend_pid)
        assert mine.files >= 1
        assert mine.bytes > 1_000_000
        cursor.close()


async def test_a_plain_role_is_told_what_opens_the_rest(server: Throwaway, role: Callable[..., str]) -> None:
    name = role()
    async with reading(place(server, user=name)) as reader:
        for closed in (sections.temp_files, sections.server_log):
            why = await reader.read(closed)
            assert isinstance(why, Unavailable)
            assert why.reason is Reason.NO_PERMISSION
            assert f"GRANT pg_monitor TO {name}" in str(why)
        open_to_all = (
            sections.relations, sections.database_limits, sections.progress, sections.replication, sections.slots,
            sections.horizon, sections.subscriptions,
        )  # fmt: skip
        for section in open_to_all:
            assert not isinstance(await reader.read(section), Unavailable)


LOOKS = st.lists(
    st.builds(
        TableLook,
        oid=st.integers(16_000, 17_500),
        used=st.integers(0, 10),
        dead=st.integers(0, 10),
        xid_age=st.integers(0, 10),
        pages=st.integers(0, 10),
    ),
    unique_by=lambda look: look.oid,
    max_size=600,
)


@given(LOOKS)
def test_a_small_database_is_shown_whole_and_a_large_one_in_part(looks: list[TableLook]) -> None:
    users = {look.oid for look in looks if look.oid >= FIRST_USER_OID}
    chosen = RelationChoice().choose(looks)
    assert chosen == sorted(set(chosen))
    assert set(chosen) <= {look.oid for look in looks}
    if len(users) <= ALL_UP_TO:
        assert users <= set(chosen)
    assert len(chosen) <= max(ALL_UP_TO, 4 * 40 + 100) + 10


def test_of_many_tables_those_used_lately_are_shown_and_stay() -> None:
    quiet = [TableLook(20_000 + number, number, 0, 0, 0) for number in range(5_000)]
    choice = RelationChoice()
    assert 20_000 not in choice.choose(quiet)
    used = [TableLook(20_000, 7, 0, 0, 0), *quiet[1:]]
    assert 20_000 in choice.choose(used)
    assert 20_000 in choice.choose(used)


def test_of_many_tables_the_worst_are_shown() -> None:
    looks = [TableLook(20_000 + number, 0, 0, 0, 0) for number in range(1_000)]
    looks[300] = TableLook(20_300, 0, 5, 0, 0)
    looks[301] = TableLook(20_301, 0, 0, 5, 0)
    looks[302] = TableLook(20_302, 0, 0, 0, 5)
    assert {20_300, 20_301, 20_302} <= set(RelationChoice().choose(looks))


@pytest.mark.long
async def test_ten_thousand_tables_cost_little(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(fsync="off", max_locks_per_transaction="1000", autovacuum="off")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        for first in range(0, 10_000, 1_000):
            connection.execute(
                f"DO $$ BEGIN FOR i IN {first}..{first + 999} LOOP "
                "EXECUTE format('CREATE TABLE t%s (id int PRIMARY KEY)', i); END LOOP; END $$"
            )
        connection.execute("INSERT INTO t77 SELECT generate_series(1, 1000)")
        connection.execute("DELETE FROM t77")
        connection.execute("SELECT pg_stat_force_next_flush()")
    async with reading(place(server)) as reader:
        costs = []
        for _ in range(5):
            before_ms, started = reader.own.statement_ms, time.process_time()
            sample = await reader.read(sections.relations)
            costs.append((reader.own.statement_ms - before_ms, (time.process_time() - started) * 1000))
    print("10,000 tables: client waits, own CPU (ms):", [(round(wait), round(cpu)) for wait, cpu in costs])
    assert isinstance(sample, RelationSample)
    assert sample.n_tables == 10_000
    assert len(sample.tables) <= 280
    assert "public.t77" in {table.name for table in sample.tables}
