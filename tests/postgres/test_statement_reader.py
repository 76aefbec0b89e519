"""pg_stat_statements on real servers: deltas equal what was done, few of thousands are kept, texts are fetched once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.growth import growth
from pgtop_tune.metrics.statements import COUNTED
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.statements import OWN_MARK, StatementCounters, StatementSample, StatementTexts
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.readers import statements as statements_module
from pgtop_tune.postgres.readers.statements import variant
from tests.postgres.conftest import place
from tests.postgres.reading import reading
from tests.support.servers import conninfo

Connection = psycopg.Connection[tuple[object, ...]]


async def look(reader: PostgresReader) -> StatementSample:
    found = await reader.read(sections.statement_counters)
    assert isinstance(found, StatementSample), found
    return found


async def texts(reader: PostgresReader) -> dict[int, str]:
    found = await reader.read(sections.statement_texts)
    assert isinstance(found, StatementTexts), found
    return {text.queryid: text.query for text in found.texts}


def grown(older: StatementSample, newer: StatementSample) -> dict[str, dict[str, int]]:
    """By id what each entry counted between two looks."""
    assert newer.before_s == older.at_s
    before = {row.id: row for row in (*older.statements, *newer.before)}
    found = {row.id: growth(before.get(row.id), row, COUNTED) for row in newer.statements}
    return {name: by for name, by in found.items() if by}


@pytest.fixture
def worker(all_servers: Throwaway) -> Iterator[Connection]:
    """A session on each major in turn that sends every statement as it is."""
    with psycopg.connect(conninfo(all_servers), autocommit=True) as connection:
        connection.prepare_threshold = None
        connection.execute("SELECT pg_stat_statements_reset()")
        yield connection


def shape(number: int) -> str:
    """A statement of its own kind for each number below 8,192: types of constants make the query id."""
    return "SELECT " + ",".join("1" if number >> bit & 1 else "true" for bit in range(13))


async def test_what_a_statement_did_is_what_it_counted(all_servers: Throwaway, worker: Connection) -> None:
    worker.execute("CREATE TEMP TABLE taken (n int)")
    async with reading(place(all_servers)) as reader:
        worker.execute("INSERT INTO taken SELECT generate_series(1, 10)")
        await look(reader)
        older = await look(reader)
        for _ in range(7):
            worker.execute("INSERT INTO taken SELECT generate_series(1, 10)")
        worker.execute("SELECT count(*) FROM taken AS new_kind_of_statement")
        newer = await look(reader)
        by_text = {name: found for found, name in (await texts(reader)).items()}
        did = grown(older, newer)
        inserted = next(
            by
            for id, by in did.items()
            if id.startswith(f"{by_text['INSERT INTO taken SELECT generate_series($1, $2)']}/")
        )
        assert (inserted["calls"], inserted["rows"]) == (7, 70)
        assert inserted["exec_us"] > 0
        assert newer.changed >= 2
        (counted,) = (
            row for row in newer.statements
            if row.queryid == by_text["SELECT count(*) FROM taken AS new_kind_of_statement"]
        )  # fmt: skip
        assert did[counted.id]["calls"] == 1
        assert (counted.usename, counted.datname, counted.toplevel) == (all_servers.user, "postgres", True)
        assert counted.min_exec_us <= counted.max_exec_us <= counted.exec_us + 1


async def test_columns_follow_the_version_of_the_extension_not_of_the_server(
    all_servers: Throwaway, worker: Connection
) -> None:
    available = worker.execute(
        "SELECT version FROM pg_available_extension_versions WHERE name = 'pg_stat_statements'"
    ).fetchall()
    versions = sorted(str(row[0]) for row in available if tuple(map(int, str(row[0]).split("."))) >= (1, 9))
    assert "1.9" in versions
    for version in versions:
        worker.execute("DROP DATABASE IF EXISTS old_extension")
        worker.execute("CREATE DATABASE old_extension")
        with psycopg.connect(conninfo(all_servers, "old_extension"), autocommit=True) as inside:
            inside.execute("DROP EXTENSION IF EXISTS pg_stat_statements")
            inside.execute('CREATE SCHEMA "Odd ""{schema}"')
            inside.execute(
                sql.SQL("CREATE EXTENSION pg_stat_statements SCHEMA {} VERSION {}").format(
                    sql.Identifier('Odd "{schema}'), sql.Literal(version)
                )
            )
            async with reading(place(all_servers, "old_extension")) as reader:
                (row, *_) = (await look(reader)).statements
                minor = int(version.split(".")[1])
                assert (row.jit_us is not None, row.temp_blk_us is not None) == (minor >= 10, minor >= 10), version
                assert (row.stats_since_ms is not None) == (minor >= 11), version
                assert (row.wal_buffers_full is not None) == (minor >= 12), version
                plans = (row.generic_plan_calls, row.custom_plan_calls)
                assert (None not in plans, plans == (None, None)) == (minor >= 13, minor < 13), version
                assert await texts(reader)
    worker.execute("DROP DATABASE old_extension WITH (FORCE)")


async def test_generic_and_custom_plans_are_counted_apart(
    server_for_major: Callable[[int], Throwaway],
) -> None:
    server = server_for_major(19)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        connection.execute("SELECT pg_stat_statements_reset()")
        async with reading(place(server)) as reader:
            await look(reader)
            older = await look(reader)
            for mode, times in (("force_generic_plan", 3), ("force_custom_plan", 5)):
                connection.execute(f"SET plan_cache_mode = {mode}")
                for number in range(times):
                    connection.execute("SELECT %s::int AS planned_kind", (number,), prepare=True)
            connection.execute("SELECT 1 AS not_prepared", prepare=False)
            newer = await look(reader)
            named = await texts(reader)
            did = {named.get(int(name.split("/")[0]), ""): by for name, by in grown(older, newer).items()}
    prepared = next(by for text, by in did.items() if "planned_kind" in text)
    assert (prepared["calls"], prepared["generic_plan_calls"], prepared["custom_plan_calls"]) == (8, 3, 5)
    plain = next(by for text, by in did.items() if "not_prepared" in text)
    assert (plain["calls"], plain["generic_plan_calls"], plain["custom_plan_calls"]) == (1, 0, 0)


async def test_times_temporary_files_and_wal_arrive_in_their_columns(
    all_servers: Throwaway, worker: Connection
) -> None:
    async with reading(place(all_servers)) as reader:
        await look(reader)
        older = await look(reader)
        worker.execute("SET work_mem = '64kB'")
        worker.execute("SET jit_above_cost = 0")
        worker.execute("DROP TABLE IF EXISTS wide_rows")
        worker.execute("CREATE TABLE wide_rows (n int, words text)")
        worker.execute("INSERT INTO wide_rows SELECT n, repeat('x', 100) FROM generate_series(1, 20000) n")
        worker.execute("SELECT * FROM wide_rows ORDER BY words, n DESC OFFSET 19999")
        worker.execute("SELECT pg_sleep(0.05)")
        newer = await look(reader)
        named = await texts(reader)
        did = {named.get(int(name.split("/")[0]), "")[:20]: by for name, by in grown(older, newer).items()}
        worker.execute("DROP TABLE wide_rows")
    assert did["INSERT INTO wide_row"]["wal_bytes"] > 2_000_000
    assert did["INSERT INTO wide_row"]["wal_records"] >= 20_000
    assert did["INSERT INTO wide_row"]["shared_blks_dirtied"] > 200
    assert did["SELECT * FROM wide_r"]["temp_blks_written"] > 200
    assert 50_000 <= did["SELECT pg_sleep($1)"]["exec_us"] < 5_000_000


@pytest.mark.ends_of_majors
async def test_of_three_thousand_statements_few_are_kept_and_the_rest_is_counted(
    all_servers: Throwaway, worker: Connection
) -> None:
    for number in range(3_000):
        worker.execute(shape(number))
    async with reading(place(all_servers)) as reader:
        first = await look(reader)
        assert first.before_s is None
        assert len(first.statements) <= statements_module.FIRST_OF_ALL_TIMES
        for number in range(3_000):
            worker.execute(shape(number))
        worker.execute("SELECT pg_sleep(0.2)")
        newer = await look(reader)
        most = statements_module.KEPT_AT_MOST + statements_module.FIRST_OF_ALL_TIMES
        assert len(newer.statements) <= most
        assert newer.changed >= 3_000
        assert newer.left_out >= 3_000 - most
        named = await texts(reader)
        assert "SELECT pg_sleep($1)" in named.values(), "the one that took longest is among those kept"
        assert len(named) <= most
        again = await look(reader)
        assert again.changed < 50
        standing = [row for row in again.statements if row in newer.statements]
        assert len(standing) > len(again.statements) / 2


async def test_no_more_than_the_bound_is_kept_however_often_the_first_ones_change(
    server: Throwaway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements_module, "KEPT_AT_MOST", 10)
    monkeypatch.setattr(statements_module, "FIRST_OF_ALL_TIMES", 0)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.prepare_threshold = None
        async with reading(place(server)) as reader:
            await look(reader)
            for first in range(0, 60, 15):
                for number in range(first, first + 15):
                    connection.execute(shape(number))
                found = await look(reader)
                assert 0 < len(found.statements) <= 10
                assert found.left_out >= 5


async def test_every_counter_is_the_column_of_its_name(all_servers: Throwaway, worker: Connection) -> None:
    worker.execute("SET work_mem = '64kB'")
    worker.execute("DROP TABLE IF EXISTS many_rows")
    worker.execute("CREATE TABLE many_rows (n int, words text)")
    worker.execute("INSERT INTO many_rows SELECT n, repeat('x', 100) FROM generate_series(1, 9000) n")
    worker.execute("SELECT * FROM many_rows ORDER BY words, n DESC OFFSET 8999")
    worker.execute("DROP TABLE many_rows")
    async with reading(place(all_servers)) as reader:
        rows = {row.queryid: row for row in (await look(reader)).statements}
    with worker.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        cursor.execute("SELECT * FROM pg_stat_statements WHERE query LIKE '%many_rows%'")
        kept = 0
        for entry in cursor.fetchall():
            row = rows[entry["queryid"]]
            same = {name for name in COUNTED if name in entry}
            assert {name: getattr(row, name) for name in same} == {name: int(entry[name]) for name in same}
            times = {
                "exec_us": ("total_exec_time",), "plan_us": ("total_plan_time",), "min_exec_us": ("min_exec_time",),
                "max_exec_us": ("max_exec_time",),
                "blk_read_us": ("blk_read_time", "shared_blk_read_time", "local_blk_read_time"),
                "blk_write_us": ("blk_write_time", "shared_blk_write_time", "local_blk_write_time"),
                "temp_blk_us": ("temp_blk_read_time", "temp_blk_write_time"),
                "jit_us": ("jit_generation_time", "jit_inlining_time", "jit_optimization_time", "jit_emission_time"),
            }  # fmt: skip
            for name, columns in times.items():
                if (value := getattr(row, name)) is not None:
                    in_view = sum(entry.get(column, 0.0) for column in columns)
                    assert value == pytest.approx(1000 * in_view, abs=1), name
            kept += 1
    assert kept >= 4


async def test_an_old_entry_used_once_has_an_older_reading(all_servers: Throwaway, worker: Connection) -> None:
    worker.execute("SELECT 1, 'quick'")
    for number in range(40):
        worker.execute(f"SELECT pg_sleep(0.01){', 1' * number}")
    async with reading(place(all_servers)) as reader:
        first = await look(reader)
        worker.execute("SELECT 1, 'quick'")
        newer = await look(reader)
        queryid = next(found for found, text in (await texts(reader)).items() if text == "SELECT $1, $2")
        (row,) = (row for row in newer.statements if row.queryid == queryid)
        assert row.id not in {each.id for each in first.statements}, "not among those with most time"
        assert newer.unknown_before == ()
        assert grown(first, newer)[row.id]["calls"] == 1


async def test_a_reset_never_makes_a_rate(all_servers: Throwaway, worker: Connection) -> None:
    async with reading(place(all_servers)) as reader:
        for _ in range(50):
            worker.execute("SELECT 1, 2, 3")
        await look(reader)
        worker.execute("SELECT 1, 2, 3")
        older = await look(reader)
        worker.execute("SELECT pg_stat_statements_reset()")
        worker.execute("SELECT 1, 2, 3")
        newer = await look(reader)
        for by in grown(older, newer).values():
            assert by["calls"] <= 25


async def test_our_own_statements_are_known_from_the_second_look_on(all_servers: Throwaway, worker: Connection) -> None:
    """The screen listed them by their query ids, one by its text, until the pause after the first texts was over."""
    async with reading(place(all_servers)) as reader:
        for section in (sections.database, sections.wal, sections.checkpoints, sections.statements) * 2:
            await reader.read(section)
        for _ in range(2):
            worker.execute("SELECT 1, 2, 3")
            last = await look(reader)
            named = await texts(reader)
        assert {row.queryid for row in last.statements} <= named.keys()
        last = await look(reader)
        assert last.own >= 4
        assert not [row for row in last.statements if OWN_MARK in named.get(row.queryid, "")]


async def test_a_long_statement_of_ours_is_known_as_ours(all_servers: Throwaway, worker: Connection) -> None:
    async with reading(place(all_servers)) as reader:
        assert reader._connection is not None
        long = "SELECT " + ", ".join(["pg_backend_pid()"] * 400)
        await look(reader)
        for _ in range(2):
            await reader._connection.fetch(long)
            await look(reader)
        await texts(reader)
        shown = (await look(reader)).statements
        kept = await texts(reader)
        assert not [row for row in shown if kept.get(row.queryid, "").startswith("SELECT pg_backend_pid(), pg_backend")]
        assert not [text for text in kept.values() if "pg_backend_pid(), pg_backend_pid()" in text]


async def test_a_plain_role_is_told_what_is_hidden(server: Throwaway, role: Callable[..., str]) -> None:
    name = role()
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("SELECT 'of somebody', 'else'")
        async with reading(place(server, user=name)) as reader:
            found = await look(reader)
            assert found.hidden > 0
            assert {row.usename for row in found.statements} <= {name}


async def test_query_ids_off_is_said(make_server: Callable[..., Throwaway]) -> None:
    async with reading(place(make_server(compute_query_id="off"))) as reader:
        for section in (sections.statement_counters, sections.statement_texts, sections.statements):
            missing = await reader.read(section)
            assert isinstance(missing, Unavailable)
            assert missing.reason is Reason.SWITCHED_OFF
            assert "compute_query_id" in missing.detail


async def test_after_a_restart_nothing_is_a_rate_of_what_was_before(fresh_server: Throwaway) -> None:
    async with reading(place(fresh_server)) as reader:
        with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
            for _ in range(100):
                connection.execute("SELECT 1, 2, 3, 4")
        await look(reader)
        assert (await look(reader)).before_s is not None
        await asyncio.to_thread(fresh_server.restart)
        await reader.connect()
        assert (await look(reader)).before_s is None


def test_every_version_has_its_variant() -> None:
    assert [variant(each) for each in ("1.9", "1.10", "1.11", "1.12", "1.13", "2.0")] == [
        14, 15, 17, 18, 19, 19,
    ]  # fmt: skip


def test_columns_of_counters_exist() -> None:
    names = StatementCounters.__struct_fields__
    assert {field for fields in statements_module.CRITERIA for field in fields} <= set(names)
