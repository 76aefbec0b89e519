"""The server's log: parsed from all three formats, followed over SQL, never quoting a statement."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import time
from collections.abc import Callable

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.events import LogTail
from pgtop_tune.postgres.log_entries import MESSAGE_CHARACTERS, log_entries
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.readers.server_log import LINES_KEPT, PIECE_BYTES
from tests.postgres.conftest import place
from tests.support.servers import conninfo

DEADLINE_S = 60.0
STDERR = b"""\
2026-11-20 22:57:22.992 UTC [24605] FATAL:  database system identifier differs between the primary and standby
2026-11-20 22:57:22.992 UTC [24605] DETAIL:  The primary's identifier is 1, the standby's identifier is 2.
2026-11-20 22:57:22.992 UTC [23740] LOG:  waiting for something else
2026-11-20 22:57:23.101 UTC [17] bench@bench LOG:  duration: 12.3 ms  statement: SELECT 'secret'
2026-11-20 22:57:23.102 UTC [17] bench@bench ERROR:  syntax error at or near "SELEC" at character 1
2026-11-20 22:57:23.102 UTC [17] bench@bench HINT:  Look again.
2026-11-20 22:57:23.102 UTC [17] bench@bench STATEMENT:  SELEC 'secret'
\t, 'more of the secret'
2026-11-20 22:57:23.103 UTC [18] LOG:  automatic vacuum of table "bench.public.t": index scans: 0
\tpages: 0 removed, 4 remain
\ttuples: 1 removed
2026-11-20 22:57:23.103 UTC [19] LOG:  checkpoint sta"""


def found(file: str, content: bytes) -> list[tuple[str, str]]:
    return [(entry.severity, entry.message) for entry in log_entries(file, content).entries]


def test_entries_of_stderr_with_what_belongs_to_them() -> None:
    assert found("log/postgresql.log", STDERR) == [
        (
            "FATAL",
            "database system identifier differs between the primary and standby "
            "DETAIL: The primary's identifier is 1, the standby's identifier is 2.",
        ),
        ("ERROR", 'syntax error at or near "SELEC" at character 1 HINT: Look again.'),
        (
            "LOG",
            'automatic vacuum of table "bench.public.t": index scans: 0 pages: 0 removed, 4 remain tuples: 1 removed',
        ),
    ]
    read = log_entries("log/postgresql.log", STDERR)
    assert read.left_out == 2
    assert read.consumed == STDERR.rfind(b"\n") + 1
    assert read.entries[1].prefix == "2026-11-20 22:57:23.102 UTC [17] bench@bench"
    assert STDERR[read.entries[1].offset :].startswith(b"2026-11-20 22:57:23.102 UTC [17] bench@bench ERROR")


def test_no_statement_gets_through() -> None:
    assert "secret" not in repr(log_entries("x.log", STDERR))


def test_values_bound_to_a_statement_do_not_get_through() -> None:
    log = b"UTC [1] ERROR:  division by zero\nUTC [1] DETAIL:  parameters: $1 = 'secret'\n"
    assert found("x.log", log) == [("ERROR", "division by zero")]


def csv_line(severity: str, message: str, detail: str = "", statement: str = "") -> str:
    row = [""] * 26
    row[0], row[1], row[2], row[3], row[11], row[13], row[14] = (
        "2026-11-20 22:57:22.992 UTC", "bench", "shop", "4711", severity, message, detail,
    )  # fmt: skip
    row[19] = statement
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(row)
    return text.getvalue()


def test_entries_of_csvlog_over_several_lines() -> None:
    log = csv_line("ERROR", 'bad "thing"\nsecond line', "why,\nwhere", "SELECT\n'secret'") + csv_line("LOG", "x")
    assert found("a.csv", b"torn,rest\n" + log.encode()) == [("ERROR", 'bad "thing" second line DETAIL: why, where')]


def test_entries_of_jsonlog() -> None:
    entry = {
        "timestamp": "2026-11-20 22:57:22.992 UTC", "user": "bench", "dbname": "shop", "pid": 4711,
        "error_severity": "WARNING", "message": "careful", "hint": "slowly", "statement": "SELECT 'secret'",
    }  # fmt: skip
    log = f"torn}}\n[1]\n{json.dumps(entry)}\n".encode()
    (only,) = log_entries("a.json", log).entries
    assert (only.severity, only.message) == ("WARNING", "careful HINT: slowly")
    assert only.prefix == "2026-11-20 22:57:22.992 UTC [4711] bench@shop"


@given(st.binary(max_size=2_000), st.sampled_from(["x.log", "x.csv", "x.json", ""]))
def test_any_bytes_are_read_without_a_fuss(content: bytes, file: str) -> None:
    read = log_entries(file, content)
    assert read.consumed == content.rfind(b"\n") + 1
    assert all(0 <= entry.offset < read.consumed for entry in read.entries)


MESSAGES = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=700)


@given(st.lists(st.tuples(st.sampled_from(["WARNING", "ERROR", "PANIC"]), MESSAGES), max_size=8))
def test_what_was_written_is_what_is_read(written: list[tuple[str, str]]) -> None:
    log = "".join(f"UTC [1] {severity}:  {message}\n" for severity, message in written).encode()
    assert found("x.log", log) == [(severity, message[:MESSAGE_CHARACTERS]) for severity, message in written]


@given(st.integers(0, len(STDERR)))
def test_a_log_read_in_two_pieces_is_read_whole(cut: int) -> None:
    first = log_entries("x.log", STDERR[:cut])
    second = log_entries("x.log", STDERR[first.consumed :])
    heads = [entry.message[:20] for entry in (*first.entries, *second.entries)]
    assert heads == [entry.message[:20] for entry in log_entries("x.log", STDERR).entries]


async def until(reader: PostgresReader, fits: Callable[[LogTail], bool]) -> LogTail:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        tail = await reader.read(sections.server_log)
        assert not isinstance(tail, Unavailable), tail
        if fits(tail):
            return tail
        assert time.monotonic() < deadline, tail
        await asyncio.sleep(0.05)


def holds(words: str) -> Callable[[LogTail], bool]:
    return lambda tail: any(words in line.message for line in tail.lines)


@pytest.mark.parametrize(
    ("major", "destination"),
    [
        (14, "stderr"),
        pytest.param(14, "csvlog", marks=pytest.mark.long),
        (18, "stderr"),
        (18, "csvlog"),
        (18, "jsonlog"),
    ],
)
async def test_a_real_log_is_followed(make_server: Callable[..., Throwaway], major: int, destination: str) -> None:
    server = make_server(major, logging_collector="on", log_destination=destination, log_statement="all")
    reader = PostgresReader(place(server), time.monotonic)
    await reader.connect()
    try:
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            first = await until(reader, holds("database system is ready"))
            connection.execute("CHECKPOINT")
            with pytest.raises(psycopg.Error):
                connection.execute("SELECT 'top secret' FROM nowhere_at_all")
            later = await until(reader, holds("nowhere_at_all"))
        assert {line.id for line in first.lines} <= {line.id for line in later.lines}
        assert len({line.id for line in later.lines}) == len(later.lines)
        error = next(line for line in later.lines if "nowhere_at_all" in line.message)
        assert error.severity == "ERROR"
        assert "top secret" not in repr(later)
        assert later.left_out > first.left_out
        assert later.skipped_bytes == 0
        again = await until(reader, holds("nowhere_at_all"))
        assert [line.id for line in again.lines][: len(later.lines)] == [line.id for line in later.lines]
    finally:
        await reader.aclose()


async def test_what_comes_too_fast_is_skipped_and_counted(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(logging_collector="on", log_rotation_size="0")
    reader = PostgresReader(place(server), time.monotonic)
    await reader.connect()
    try:
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            await until(reader, holds("ready"))
            connection.execute("SET client_min_messages = error; SET log_min_messages = warning")
            connection.execute(
                "DO $$ BEGIN FOR i IN 1..2000 LOOP RAISE WARNING '% %', i, repeat('x', 200); END LOOP; END $$"
            )
            connection.execute("DO $$ BEGIN RAISE WARNING 'the last word'; END $$")
            tail = await until(reader, holds("the last word"))
        assert tail.skipped_bytes > 4 * PIECE_BYTES
        assert len(tail.lines) == LINES_KEPT
        assert tail.lines[-1].message == "the last word"
    finally:
        await reader.aclose()


async def test_a_new_file_is_read_after_a_rotation(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(logging_collector="on", log_filename="pg-%H%M%S.log")
    reader = PostgresReader(place(server), time.monotonic)
    await reader.connect()
    try:
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            before = await until(reader, holds("ready"))
            deadline = time.monotonic() + DEADLINE_S
            while (
                (tail := await reader.read(sections.server_log))
                and not isinstance(tail, Unavailable)
                and tail.file == before.file
            ):
                assert time.monotonic() < deadline
                connection.execute("SELECT pg_rotate_logfile()")
                await asyncio.sleep(0.3)
            connection.execute("DO $$ BEGIN RAISE WARNING 'in the new file'; END $$")
            after = await until(reader, holds("in the new file"))
        assert holds("ready")(after)
    finally:
        await reader.aclose()


async def test_a_server_without_a_collector_says_so(server: Throwaway) -> None:
    reader = PostgresReader(place(server), time.monotonic)
    await reader.connect()
    try:
        why = await reader.read(sections.server_log)
        assert isinstance(why, Unavailable)
        assert why.reason is Reason.SWITCHED_OFF
        assert "logging_collector" in why.detail
    finally:
        await reader.aclose()


async def test_the_grants_that_are_named_open_the_log(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(logging_collector="on")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE ROLE looker LOGIN")
        reader = PostgresReader(place(server, user="looker"), time.monotonic)
        await reader.connect()
        why = await reader.read(sections.server_log)
        await reader.aclose()
        assert isinstance(why, Unavailable)
        assert why.reason is Reason.NO_PERMISSION
        monitor, functions = why.detail.split(": ", 1)[1].rsplit(" show it", 1)[0].split("; ")
        connection.execute(monitor.encode())
        connection.execute(functions.encode())
    await reader.connect()
    try:
        await until(reader, holds("ready"))
    finally:
        await reader.aclose()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (
            "a.log",
            '2026-11-20 UTC [17] ERROR:  syntax error at or near "hunter2" at character 25\n'
            "2026-11-20 UTC [17] STATEMENT:  ALTER ROLE bob PASSWORD hunter2\n",
        ),
        (
            "a.json",
            '{"error_severity":"ERROR","message":"syntax error at or near \\"hunter2\\"",'
            '"statement":"ALTER ROLE bob PASSWORD hunter2"}\n',
        ),
    ],
)
def test_a_password_that_is_a_syntax_error_is_not_quoted(file: str, content: str) -> None:
    (entry,) = log_entries(file, content.encode()).entries
    assert "hunter2" not in entry.message
    (entry,) = log_entries(file, content.replace("PASSWORD hunter2", "x hunter2").encode()).entries
    assert 'at or near "hunter2"' in entry.message
