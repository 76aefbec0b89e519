"""Two windows of a real server's statements: a dropped index is found, another mix moves the same mix far less."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.compare.sides.material import ComparedRun, Gathered, LoadKey, StatementsSeen
from pgtop_tune.compare.statement_rows import StatementComparison, compare_statements
from pgtop_tune.metrics import sections
from pgtop_tune.postgres.reader import PostgresReader
from tests.postgres.conftest import place
from tests.postgres.reading import reading
from tests.support.frames import frame, postgres_sample
from tests.support.servers import conninfo

LOOKS = 80
BY_KEY, WHOLE = "SELECT filler FROM kept_items WHERE id = %s", "SELECT count(*) FROM kept_items WHERE filler > %s"


@pytest.fixture
def connection(all_servers: Throwaway) -> psycopg.Connection[tuple[object, ...]]:
    made = psycopg.connect(conninfo(all_servers), autocommit=True)
    made.prepare_threshold = None
    made.execute("DROP TABLE IF EXISTS kept_items")
    made.execute("CREATE TABLE kept_items AS SELECT id, id::text AS filler FROM generate_series(1, 10000) id")
    made.execute("CREATE INDEX kept_items_id ON kept_items (id)")
    made.execute("VACUUM ANALYZE kept_items")
    return made


async def window(
    reader: PostgresReader, connection: psycopg.Connection[tuple[object, ...]], by_key: int, whole: int
) -> StatementsSeen:
    """Looks with so many calls of both statements before each."""
    found = StatementsSeen()
    for number in range(LOOKS + 1):
        for _ in range(by_key):
            connection.execute(BY_KEY, (7,))
        for _ in range(whole):
            connection.execute(WHOLE, ("5",))
        given = {
            "statement_counters": await reader.read(sections.statement_counters),
            "statement_texts": await reader.read(sections.statement_texts),
        }
        found.take(frame(number, postgres=postgres_sample(number, **given)))
    return found


def compared(a: StatementsSeen, b: StatementsSeen) -> StatementComparison:
    sides = ([ComparedRun(0, LoadKey(), Gathered(), statements=seen)] for seen in (a, b))
    found = compare_statements(*sides, comparable=True, decisive=True, repeated=False, windows=True)
    assert found is not None
    assert found.fixed >= 2
    assert found.same_mix is not None
    return found


def naive(seen: StatementsSeen) -> float:
    """Mean time of a call, whatever the mix."""
    calls = sum(counted[0] for look in seen.looks for counted in look.values())
    return sum(counted[1] for look in seen.looks for counted in look.values()) / calls


@pytest.mark.long
def test_a_dropped_index_is_found_and_another_mix_is_not_taken_for_it(
    all_servers: Throwaway, connection: psycopg.Connection[tuple[object, ...]]
) -> None:
    async def watch() -> tuple[StatementsSeen, StatementsSeen, StatementsSeen]:
        async with reading(place(all_servers)) as reader:
            before = await window(reader, connection, 20, 2)
            mixed = await window(reader, connection, 4, 10)
            connection.execute("DROP INDEX kept_items_id")
            after = await window(reader, connection, 20, 2)
        return before, mixed, after

    with connection:
        before, mixed, after = asyncio.run(watch())
    other_mix, slower = compared(before, mixed), compared(before, after)
    assert other_mix.same_mix is not None
    assert naive(mixed) / naive(before) > 2.0
    assert abs(other_mix.same_mix.relative) < (naive(mixed) / naive(before) - 1.0) / 4.0
    assert "WHERE id = " in slower.rows[0].text
    assert slower.rows[0].verdict == slower.verdict == "worse"
