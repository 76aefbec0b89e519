"""Statements that go past asyncpg: the same rows as through it, and nothing of asyncpg's is lost on the way."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.waits import WaitLook
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.server.connection import ReadConnection
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.read_only_connection import open_connection
from pgtop_tune.postgres.server.rows import RowForm
from pgtop_tune.postgres.server.rows_as_bytes import RowsAsBytes
from tests.postgres.conftest import by_libpq, place
from tests.postgres.reading import eventually, reading
from tests.support.servers import conninfo

VALUES = """
SELECT * FROM (VALUES
    (1, true, 'a name'::name, -7::int8, -2147483648, 'Grüße 漢字 🐘', 4294967295::oid,
     'NaN'::float8, ARRAY['x', '', 'ü,"{}', NULL], ARRAY[1, 4294967295]::oid[]),
    (2, false, ''::name, 9223372036854775807, 0, '', 0::oid, -0.1::float8, ARRAY[]::text[], ARRAY[]::oid[]),
    (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
) AS v(place, bool, name, int8, int4, text, oid, float8, texts, oids) ORDER BY place
"""


async def asked(connection: ReadConnection, text: str) -> list[tuple[Any, ...]] | None:
    """Return its rows without asyncpg; None where the server refused it."""
    answer: asyncio.Future[list[tuple[Any, ...]] | None] = asyncio.get_running_loop().create_future()

    def answered(rows: Sequence[bytes] | None, form: RowForm) -> None:
        answer.set_result(None if rows is None else [form.row(row) for row in rows])

    assert connection.ask(text, (), answered)
    async with asyncio.timeout(60):
        return await answer


async def test_every_type_and_null_come_as_through_asyncpg(server: Throwaway) -> None:
    connection = await open_connection(place(server), OwnSessions())
    try:
        through = await connection.fetch(VALUES)
        past = await asked(connection, VALUES)
        assert past is not None
        assert [repr(row) for row in past] == [repr(tuple(row)) for row in through]
    finally:
        await connection.aclose()


async def test_what_is_asked_meanwhile_waits_and_all_is_counted(server: Throwaway) -> None:
    own = OwnSessions()
    connection = await open_connection(place(server), own)
    try:
        await connection.fetch("SELECT 1 AS one")
        before = own.statements, own.transactions, own.calls
        rows = asyncio.ensure_future(asked(connection, "SELECT 1 AS one"))
        await asyncio.sleep(0)
        assert (await connection.fetch("SELECT 4"))[0][0] == 4
        assert await rows == [(1,)]
        # 4 was prepared as well.
        assert (own.statements, own.transactions, own.calls) == (before[0] + 3, before[1] + 2, before[2] + 2)
    finally:
        await connection.aclose()


async def test_a_refusal_is_told_by_asyncpg(server: Throwaway) -> None:
    connection = await open_connection(place(server), OwnSessions())
    try:
        fails = "SELECT 1 / current_setting('statement_timeout')::interval::text::int AS number"
        with pytest.raises(asyncpg.PostgresError):
            await connection.fetch(fails)
        assert await asked(connection, fails) is None
        with pytest.raises(asyncpg.InvalidTextRepresentationError):
            await connection.fetch(fails)
        await connection.fetch("SELECT 2 AS two")
        assert await asked(connection, "SELECT 2 AS two") == [(2,)]
    finally:
        await connection.aclose()


async def test_a_session_that_is_ended_meanwhile_is_a_problem_and_no_hang(server: Throwaway) -> None:
    connection = await open_connection(place(server), OwnSessions())
    other = await open_connection(place(server), OwnSessions())
    text = "SELECT pg_sleep(0.5) IS NULL AS slept"
    await connection.fetch(text)
    rows = asyncio.ensure_future(asked(connection, text))
    await asyncio.sleep(0)
    await other.fetch(f"SELECT pg_terminate_backend({connection.backend_pid})")
    assert await rows is None
    with pytest.raises(ConnectionProblem):
        await connection.fetch(text)
    assert connection.is_closed
    await other.aclose()


async def test_over_libpq_and_for_a_statement_that_is_not_prepared_fetch_is_the_way(server: Throwaway) -> None:
    connection = await open_connection(place(server), OwnSessions())
    assert not connection.ask("SELECT 1", (), lambda rows, form: None)
    await connection.aclose()
    connection = await open_connection(by_libpq(place(server)), OwnSessions())
    await connection.fetch("SELECT 1")
    assert not connection.ask("SELECT 1", (), lambda rows, form: None)
    await connection.aclose()


async def look_without_task(reader: PostgresReader, floor_ms: int) -> WaitLook | None:
    answer: asyncio.Future[WaitLook | None] = asyncio.get_running_loop().create_future()
    assert reader.look_at_waits(floor_ms, 1, answer.set_result)
    return await answer


@pytest.mark.parametrize("major", [14, 16, 17, 18, 19])
async def test_a_look_at_waits_is_the_same_either_way(server_for_major: Any, busy: Any, major: int) -> None:
    target = conninfo(server_for_major(major))
    asleep = {busy(target, "SELECT pg_sleep(60)", before="BEGIN") for _ in range(3)}
    async with reading(place(server_for_major(major))) as reader:

        async def seen() -> bool:
            look = await reader.waits(0)
            assert isinstance(look, WaitLook)
            return asleep <= {each.pid for each in look.old if each.wait_event == "PgSleep"}

        await eventually(seen)
        past, through = await look_without_task(reader, 0), await reader.waits(0)
        once_more = await look_without_task(reader, 0)
        assert past is not None
        assert once_more is not None
        assert isinstance(through, WaitLook)

        def of_sleepers(look: WaitLook) -> list[Any]:
            kinds = [count for count in look.counts if count.wait_event == "PgSleep"]
            old = [(each.pid, each.xact_start_ms, each.query_id, each.of_load) for each in look.old]
            return [sorted(kinds, key=lambda count: count.kind), sorted(one for one in old if one[0] in asleep)]

        assert of_sleepers(past) == of_sleepers(through) == of_sleepers(once_more)
        assert len(of_sleepers(past)[1]) == 3
        ages = [{each.pid: each.age_ms for each in look.old} for look in (past, once_more)]
        assert all(0 <= ages[0][pid] < ages[1][pid] for pid in asleep)
        assert sum(count.observations for count in past.counts if count.wait_event == "PgSleep") >= 3
        # Once more: the rows are known by their bytes now.
        again = await look_without_task(reader, 10**8)
        known = await look_without_task(reader, 10**8)
        assert again is not None
        assert known is not None
        assert of_sleepers(known)[0] == of_sleepers(again)[0] == of_sleepers(through)[0]


# What comes in pieces, and in between.


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.written = b""

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: Any) -> None:
        self.written += data


class Theirs(asyncio.Protocol):
    """asyncpg."""

    def __init__(self) -> None:
        self.got = b""
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


_ROWS = st.lists(st.binary(max_size=40), max_size=4)


@given(
    st.lists(st.tuples(_ROWS, st.booleans()), min_size=1, max_size=3),
    st.lists(st.sampled_from([b"N", b"S", b"A"]), max_size=3),
    st.data(),
)
def test_answers_are_whole_however_they_come(
    transactions: list[tuple[list[bytes], bool]], between: list[bytes], data: st.DataObject
) -> None:
    theirs = Theirs()
    wire = Wire(theirs)
    idle: list[bool] = []
    past = RowsAsBytes(wire, lambda: idle.append(True))
    got: list[list[bytes] | None] = []
    sent, expected = b"", list[list[bytes] | None]()
    for rows, is_refused in transactions:
        past.ask("pgtop_1", (50, 1), got.append)
        sent += b"".join([message(b"2"), *(message(b"D", row) for row in rows)])
        sent += message(b"E", b"SERROR\0VERROR\0\0") if is_refused else message(b"C", b"SELECT\0")
        sent += b"".join(message(kind, b"news") for kind in between) + message(b"Z", b"I")
        expected.append(None if is_refused else rows)
    sent += message(b"N", b"after")
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        wire.protocol.data_received(sent[:size])  # type: ignore[attr-defined]
        sent = sent[size:]
    assert got == expected
    news = b"".join(message(kind, b"news") for kind in between)
    assert theirs.got == news * len(transactions) + message(b"N", b"after")
    assert idle == [True]
    assert not past.under_way


def test_a_lost_connection_answers_all_and_is_told_to_asyncpg() -> None:
    theirs = Theirs()
    wire = Wire(theirs)
    past = RowsAsBytes(wire, lambda: None)
    got: list[list[bytes] | None] = []
    for name in ("a", "b"):
        past.ask(name, (), got.append)
    wire.protocol.data_received(message(b"2") + message(b"D", b"x")[:-1])  # type: ignore[attr-defined]
    past.connection_lost(None)
    assert got == [None, None]
    assert theirs.lost
