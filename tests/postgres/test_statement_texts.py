"""The texts of statements: fetched once, bounded, hostile ones unharmed."""

from __future__ import annotations

import contextlib

import psycopg
import pytest
from msgspec import defstruct

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.statements import COUNTED
from pgtop_tune.model.statements import StatementTexts
from pgtop_tune.postgres.readers import statements as statements_module
from pgtop_tune.postgres.readers import statements as texts_module
from pgtop_tune.postgres.readers.section_readers import ReadContext
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.rows import kind_of
from tests.postgres.conftest import Superuser, place
from tests.postgres.reading import reading
from tests.postgres.test_statement_reader import look, texts
from tests.support.frames import facts
from tests.support.servers import conninfo


class Unanswering:
    """A server that hangs over its texts."""

    def __init__(self) -> None:
        self.asked = 0
        self.own = OwnSessions()

    async def fetch(self, text: str, *arguments: object) -> list[object]:
        if "(true)" in text:
            self.asked += 1
            raise ConnectionProblem("no answer in time")
        if "min_exec_time" not in text:
            return [("role", 2, "somebody"), ("database", 3, "something")]
        first = {"queryid": 1, "userid": 2, "dbid": 3, "toplevel": True}
        entry = first | dict.fromkeys((*COUNTED, "min_exec_us", "max_exec_us", "dealloc", "stats_reset_ms"), 0)
        entry |= {"stats_since_ms": 0}
        return [kind_of(tuple(entry))(entry.values())]


async def test_a_server_that_hangs_over_its_texts_is_not_asked_again_at_once() -> None:
    now = [0.0]
    reader = statements_module.StatementReader(lambda: now[0])
    connection = Unanswering()
    columns = {"statements_schema": "public", "statements_version": "1.12", "own_statements_counted": False}
    capabilities = defstruct("Found", [(name, object, value) for name, value in columns.items()])()
    context = ReadContext(
        connection=connection,  # type: ignore[arg-type]
        major=18,
        clock=lambda: now[0],
        at_s=0.0,
        capabilities=capabilities,  # type: ignore[arg-type]
        facts=facts(),
    )
    for moment_s, asked in ((0.0, 1), (5.0, 1), (59.0, 1), (61.0, 2)):
        now[0] = moment_s
        reader.forget()
        await reader.counters(context)
        with contextlib.suppress(ConnectionProblem):
            await reader.texts(context)
        assert connection.asked == asked


async def test_a_text_is_fetched_once(server: Throwaway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts_module, "_TEXT_COST", 0.0)
    monkeypatch.setattr(texts_module, "_TEXT_PAUSE_S", 0.0)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        # With what other tests left, more than are shown took long, and those shown change from look to look.
        connection.execute("SELECT pg_stat_statements_reset()")
        async with reading(place(server)) as reader:
            connection.execute("SELECT 'asked', 1.5, true")
            await look(reader)
            connection.execute("SELECT 'asked', 1.5, true")
            for _ in range(4):
                await look(reader)
                await texts(reader)
            kept = await reader.read(sections.statement_texts)
            connection.execute("SELECT 'asked', 1.5, true")
            await look(reader)
            sent = reader.own.statements
            assert await reader.read(sections.statement_texts) is kept
            assert reader.own.statements == sent
            connection.execute("SELECT 'asked', 1.5, true, 'another'")
            await look(reader)
            assert "SELECT $1, $2, $3, $4" in (await texts(reader)).values()
            assert reader.own.statements > sent


async def test_the_file_of_texts_is_read_rarely_and_not_again_at_once_after_a_lost_connection(
    server: Throwaway,
) -> None:
    now = [1_000.0]

    def clock() -> float:
        now[0] += 0.01
        return now[0]

    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        # Tests before this one left statements that took longer, and only the first of all times are shown at first.
        connection.execute("SELECT pg_stat_statements_reset()")
        async with reading(place(server), clock) as reader:
            for _ in range(4):
                await look(reader)
                await texts(reader)
            connection.execute("SELECT 'after', 'the', 'first'")
            await look(reader)
            sent = reader.own.statements
            assert "SELECT $1, $2, $3" not in (await texts(reader)).values()
            assert reader.own.statements == sent
            await reader.connect()
            await look(reader)
            sent = reader.own.statements
            assert "SELECT $1, $2, $3" not in (await texts(reader)).values()
            assert reader.own.statements == sent
            now[0] += 6.0
            assert "SELECT $1, $2, $3" in (await texts(reader)).values()
            assert reader.own.statements > sent


async def test_a_text_that_the_server_has_lost_is_not_asked_for_with_every_new_one(server: Throwaway) -> None:
    now = [0.0]
    reader = statements_module.StatementTextReader(lambda: now[0])
    async with reading(place(server)) as source:
        assert source._connection is not None
        context = source._context()
        asked: list[set[str]] = []
        fetch = context.connection.fetch

        async def noted(text: str, *arguments: object) -> object:
            asked.extend([set(arguments[0])] if "(true)" in text else [])  # type: ignore[call-overload]
            return await fetch(text, *arguments)

        context.connection.fetch = noted  # type: ignore[method-assign, assignment]
        for moment_s, ids in ((0.0, {1}), (10.0, {1}), (20.0, {1, 2}), (100.0, {1, 2})):
            now[0] = moment_s
            await reader.texts(context, set(ids))
    assert asked == [{"1"}, {"2"}, {"1", "2"}]


async def test_hostile_and_endless_texts_arrive_cut_and_whole(server: Throwaway, superuser: Superuser) -> None:
    superuser.execute("SELECT pg_stat_statements_reset()")
    async with reading(place(server)) as reader:
        await look(reader)
        superuser.execute("SELECT 1 /* \x1b]0;owned\x07 [red] \u202e ☃ */")
        superuser.execute("SELECT 1, 2, 3, 4, 5, true /* " + "é" * 1_000_000 + " */, 7")
        await look(reader)
        found = await reader.read(sections.statement_texts)
        assert isinstance(found, StatementTexts)
        assert "SELECT $1 /* \x1b]0;owned\x07 [red] \u202e ☃ */" in {text.query for text in found.texts}
        (long,) = (text for text in found.texts if text.query.startswith("SELECT $1, $2, $3, $4, $5, $6 /* éé"))
        assert len(long.query) == 4_000
        assert long.characters > 1_000_000
