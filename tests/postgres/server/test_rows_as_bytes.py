"""Statements that go past asyncpg: the same rows as through it, and nothing of asyncpg's is lost on the way."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.waits import WaitLook
from pgtop_tune.postgres.queries import inventory
from pgtop_tune.postgres.reader import _AHEAD, PostgresReader
from pgtop_tune.postgres.server.connecting import open_connection
from pgtop_tune.postgres.server.connection import ReadConnection
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.rows_as_bytes import RowsAsBytes
from tests.postgres.conftest import by_libpq, place
from tests.postgres.reading import eventually, reading
from tests.support.servers import conninfo

VALUES = """
SELECT * FROM (VALUES
    (1, true, '\\xdead00'::bytea, 'a name'::name, -7::int8, 3::int2, -2147483648, 'Grüße 漢字 🐘', 4294967295::oid,
     '77'::xid, 'NaN'::float8, ARRAY['x', '', 'ü,"{}', NULL], ARRAY[1, 4294967295]::oid[]),
    (2, false, ''::bytea, ''::name, 9223372036854775807, -1::int2, 0, '', 0::oid, '0'::xid,
     -0.1::float8, ARRAY[]::text[], ARRAY[]::oid[]),
    (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
) AS v(place, bool, bytea, name, int8, int2, int4, text, oid, xid, float8, texts, oids) ORDER BY place
"""


async def ahead(connection: ReadConnection, text: str) -> Sequence[Any]:
    """Its rows without asyncpg; fails where they come through it."""
    connection.ask_ahead([[text]])
    assert text in connection._ahead
    rows = await connection._fetch_ahead(text)
    assert rows is not None
    return rows


async def test_every_type_and_null_come_as_through_asyncpg(server: Throwaway) -> None:
    connection = await open_connection(place(server), OwnSessions())
    try:
        through = await connection.fetch(VALUES)
        past = await ahead(connection, VALUES)
        assert [repr(tuple(row)) for row in past] == [repr(tuple(row)) for row in through]
        assert [list(dict(row)) for row in past] == [list(dict(row)) for row in through]
        assert [row["texts"] for row in past] == [row["texts"] for row in through]
        assert dict(**past[1]) == dict(**through[1])
    finally:
        await connection.aclose()


@pytest.mark.parametrize("section", sorted(_AHEAD))
async def test_a_section_has_the_same_columns_and_types_on_every_major(all_servers: Throwaway, section: str) -> None:
    major = all_servers.binaries.major
    if inventory()[section][0] > major:
        pytest.skip(f"{section} came with {inventory()[section][0]}")
    connection = await open_connection(place(all_servers), OwnSessions())
    try:
        for text in _AHEAD[section](major):
            through = await connection.fetch(text)
            past = await ahead(connection, text)
            assert [list(row.keys()) for row in past] == [list(row.keys()) for row in through]
            assert [[type(value) for value in row] for row in past] == [
                [type(value) for value in row] for row in through
            ]
    finally:
        await connection.aclose()


async def test_statements_are_counted_once_and_transactions_as_their_answers_come(server: Throwaway) -> None:
    own = OwnSessions()
    connection = await open_connection(place(server), own)
    try:
        for text in ("SELECT 1 AS one", "SELECT 2 AS two", "SELECT 3 AS three"):
            await connection.fetch(text)
        before = own.statements, own.transactions, own.calls
        connection.ask_ahead([["SELECT 1 AS one"], ["SELECT 2 AS two", "SELECT 3 AS three"]])
        assert (await connection.fetch("SELECT 1 AS one"))[0]["one"] == 1
        assert (own.statements, own.calls) == (before[0] + 1, before[2] + 1)
        assert connection.answered.own_transactions == before[1] + 1, "of the others the server knew nothing then"
        # Through asyncpg, behind all that is still to come.
        assert (await connection.fetch("SELECT 4"))[0][0] == 4
        assert (await connection.fetch("SELECT 2 AS two"))[0]["two"] == 2
        connection.forget_ahead()
        # 1; 4, which was prepared as well; 2 with 3, which was not fetched, in one transaction.
        assert (own.statements, own.transactions) == (before[0] + 4 + 1, before[1] + 3)
        assert (await connection.fetch("SELECT 3 AS three"))[0]["three"] == 3
    finally:
        await connection.aclose()


async def test_a_refusal_is_asyncpgs_and_takes_no_other_answer_with_it(server: Throwaway) -> None:
    connection = await open_connection(place(server), OwnSessions())
    try:
        await connection.fetch("SELECT 3 AS three")
        fails = "SELECT 1 / current_setting('statement_timeout')::interval::text::int"
        with pytest.raises(asyncpg.PostgresError):
            await connection.fetch(fails)
        await connection.fetch("SELECT 2 AS two")
        connection.ask_ahead([["SELECT 3 AS three", fails, "SELECT 2 AS two"]])
        with pytest.raises(asyncpg.InvalidTextRepresentationError):
            await connection.fetch(fails)
        assert (await connection.fetch("SELECT 2 AS two"))[0]["two"] == 2
        rows = await connection._fetch_ahead("SELECT 3 AS three")
        assert rows is not None, "it came before the one that was refused"
        connection.forget_ahead()
    finally:
        await connection.aclose()


async def test_a_session_that_is_ended_meanwhile_is_a_problem_and_no_hang(server: Throwaway) -> None:
    connection = await open_connection(place(server), OwnSessions())
    other = await open_connection(place(server), OwnSessions())
    await connection.fetch("SELECT pg_sleep(0.3) IS NULL AS slept")
    connection.ask_ahead([["SELECT pg_sleep(0.3) IS NULL AS slept"]])
    await asyncio.sleep(0.05)
    await other.fetch(f"SELECT pg_terminate_backend({connection.backend_pid})")
    with pytest.raises(ConnectionProblem):
        await connection.fetch("SELECT pg_sleep(0.3) IS NULL AS slept")
    assert connection.is_closed
    await other.aclose()


async def test_over_libpq_and_for_a_statement_that_is_not_prepared_fetch_is_the_way(server: Throwaway) -> None:
    connection = await open_connection(place(server), OwnSessions())
    assert not connection.ask("SELECT 1", (), lambda rows, form: None)
    await connection.aclose()
    connection = await open_connection(by_libpq(place(server)), OwnSessions())
    await connection.fetch("SELECT 1")
    assert not connection.ask("SELECT 1", (), lambda rows, form: None)
    connection.ask_ahead([["SELECT 1"]])
    assert (await connection.fetch("SELECT 1"))[0][0] == 1
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


async def test_a_tick_reads_the_same_sections_either_way(server: Throwaway) -> None:
    async with reading(place(server)) as reader:
        due = [section for section in sections.READ if section.name in _AHEAD]
        for section in due:
            await reader.read(section)
        asked = reader.ask_ahead(due)
        assert [section.name for section in asked] == [each.name for each in due if each is not sections.lock_counters]
        for section in asked:
            assert not isinstance(await reader.read(section), Unavailable), section.name
        reader.forget_ahead()


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
_TRANSACTION = st.tuples(st.lists(_ROWS, min_size=1, max_size=3), st.integers(0, 4))
"""Rows of its statements, and the number of those that come before the first that is refused."""


@given(
    st.lists(_TRANSACTION, min_size=1, max_size=3), st.lists(st.sampled_from([b"N", b"S", b"A"]), max_size=3), st.data()
)
def test_answers_are_whole_however_they_come(
    transactions: list[tuple[list[list[bytes]], int]], between: list[bytes], data: st.DataObject
) -> None:
    theirs = Theirs()
    wire = Wire(theirs)
    idle: list[bool] = []
    past = RowsAsBytes(wire, lambda: idle.append(True))
    got: list[list[bytes] | None] = []
    sent, wanted = b"", list[list[bytes] | None]()
    for statements, good in transactions:
        past.ask([("pgtop_1", (50, 1), got.append) for _ in statements])
        for rows in statements[:good]:
            sent += b"".join([message(b"2"), *(message(b"D", row) for row in rows), message(b"C", b"SELECT\0")])
        if good < len(statements):
            rows = statements[good]
            sent += b"".join([message(b"2"), *(message(b"D", row) for row in rows)])
            sent += message(b"E", b"SERROR\0VERROR\0\0")
        sent += b"".join(message(kind, b"news") for kind in between) + message(b"Z", b"I")
        wanted += [rows if at < good else None for at, rows in enumerate(statements)]
    sent += message(b"N", b"after")
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        wire.protocol.data_received(sent[:size])  # type: ignore[attr-defined]
        sent = sent[size:]
    assert got == wanted
    news = b"".join(message(kind, b"news") for kind in between)
    assert theirs.got == news * len(transactions) + message(b"N", b"after")
    assert idle == [True]
    assert not past.under_way


def test_a_lost_connection_answers_all_and_is_told_to_asyncpg() -> None:
    theirs = Theirs()
    wire = Wire(theirs)
    past = RowsAsBytes(wire, lambda: None)
    got: list[list[bytes] | None] = []
    past.ask([("a", (), got.append), ("b", (), got.append)])
    wire.protocol.data_received(message(b"2") + message(b"D", b"x")[:-1])  # type: ignore[attr-defined]
    past.connection_lost(None)
    assert got == [None, None]
    assert theirs.lost


async def test_what_was_asked_ahead_has_the_moment_of_its_answer_and_not_of_its_reading(server: Throwaway) -> None:
    connection = await open_connection(place(server), OwnSessions())
    try:
        await connection.fetch("SELECT 1 AS one")
        connection.ask_ahead([["SELECT 1 AS one"]])
        async with asyncio.timeout(60):
            await asyncio.shield(connection._ahead["SELECT 1 AS one"].rows)
        read_s = time.perf_counter()
        await connection.fetch("SELECT 1 AS one")
        assert connection.answered.at_s < read_s
    finally:
        await connection.aclose()
