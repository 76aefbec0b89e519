"""Names and texts that a stranger chose, made real on a server: shown on every page, obeyed on none."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.recording.recorder import Recorder
from pgtop_tune.runtime.ports import Step
from tests.hostile.watched import NASTY, assert_fits_and_obeys_nothing, session_of
from tests.sampling.test_live_source import Watcher, answered, watching
from tests.support.servers import conninfo

STATEMENTS = {"statements", "statement_counters", "statement_texts"}
MEGABYTE = 1_000_000
OSC = "SELECT /* \x1b]0;owned\x07 \x1b[2J \x9b31m \u202e */ pg_sleep(120)"


def run_aside(stack: ExitStack, target: str, statement: bytes) -> psycopg.Connection[tuple[object, ...]]:
    """Starts a statement in a session of its own, ended with the stack."""
    connection = psycopg.connect(target, autocommit=True)

    def work() -> None:
        try:
            connection.execute(statement)
        except psycopg.Error:
            pass

    thread = threading.Thread(target=work)
    thread.start()
    stack.callback(thread.join)
    stack.callback(connection.close)
    stack.callback(connection.cancel_safe)
    return connection


def kept(frames: list[Frame], path: Path) -> list[Frame]:
    """What comes back of the frames from a recording."""
    recorder = Recorder("somewhere", 0.5)
    recorder.start(str(path))
    for frame in frames:
        recorder.accept(Step((frame,)))
    recorder.close()
    reader = RecordingReader(path)
    try:
        return [frame for _, frame in reader.frames()]
    finally:
        reader.close()


async def seen(watcher: Watcher, *words: str) -> list[Frame]:
    """Frames up to one in whose sessions all these words stand."""

    def found(frame: Frame) -> bool:
        if not answered(frame):
            return False
        texts = [str(backend.query) for backend in frame.postgres.activity.backends]
        return all(any(word in text for text in texts) for word in words)

    await watcher.until(found)
    last = watcher.frames[-1].sequence
    await watcher.until(lambda frame: answered(frame) and frame.sequence >= last + 4)
    return watcher.frames


async def test_hostile_texts_and_names_are_shown_on_every_page(battered: Throwaway, tmp_path: Path) -> None:
    superuser = conninfo(battered)
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN SUPERUSER CONNECTION LIMIT 50").format(sql.Identifier(NASTY)))
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(NASTY)))
    target = make_conninfo(superuser, user=NASTY, dbname=NASTY, application_name=NASTY)
    names = {"n": sql.Identifier(NASTY)}
    with ExitStack() as stack:
        owner = stack.enter_context(psycopg.connect(target, autocommit=True))
        for statement in (
            "CREATE EXTENSION IF NOT EXISTS pg_stat_statements",
            "CREATE SCHEMA {n}",
            "CREATE TABLE {n}.{n} (id int PRIMARY KEY)",
            "CREATE INDEX ON {n}.{n} (id)",
            "INSERT INTO {n}.{n} SELECT generate_series(1, 10)",
        ):
            owner.execute(sql.SQL(statement).format(**names))
        owner.execute("BEGIN")
        owner.execute(sql.SQL("LOCK TABLE {n}.{n}").format(**names))
        statement = sql.SQL("DELETE FROM {n}.{n} /* waits */").format(**names).as_bytes(owner)
        run_aside(stack, target, statement)
        run_aside(stack, target, OSC.encode())
        run_aside(stack, target, b"SELECT pg_sleep(120), '" + b"x" * MEGABYTE + b"'")
        for _ in range(3):
            owner.execute(sql.SQL("SELECT count(*), {} FROM {n}.{n}").format(sql.Literal("y" * MEGABYTE), **names))
        async with watching(make_conninfo(superuser, user=NASTY, dbname=NASTY), 0.5) as watcher:
            frames = await seen(watcher, "waits", "owned", "xxxx")
        session = session_of(frames)
        text = assert_fits_and_obeys_nothing(session)
        assert "␛]0;owned␇" in text
        assert "␛]0;x␇·漢字" in text
        assert "[red]x[/red]" in text
        assert "漢字" in text
        newest = frames[-1].postgres
        assert newest.activity.backends
        assert max(len(backend.query or "") for backend in newest.activity.backends) == 500
        assert max(len(each.query) for each in newest.statement_texts.texts) <= 4000
        assert [wait.relation for wait in newest.locks.waits]
        assert kept(frames, tmp_path / "hostile.jsonl.gz") == frames
        owner.execute("ROLLBACK")


RAW = b"o\xff\xfe'\"x"
"""A name whose bytes are no UTF-8; with the quotes that SQL wants doubled."""
QUOTED = b'"' + RAW.replace(b'"', b'""') + b'"'


async def test_bytes_of_no_encoding_are_shown_from_their_own_database_and_from_another(battered: Throwaway) -> None:
    superuser = conninfo(battered)
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute("CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
        connection.execute("CREATE DATABASE text ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0")
    raw = make_conninfo(superuser, dbname="bytes", client_encoding="SQL_ASCII")
    with ExitStack() as stack:
        owner = stack.enter_context(psycopg.connect(raw, autocommit=True))
        for statement in (
            b"CREATE EXTENSION pg_stat_statements",
            b"CREATE ROLE " + QUOTED + b" LOGIN SUPERUSER CONNECTION LIMIT 9",
            b"CREATE SCHEMA " + QUOTED,
            b"CREATE TABLE " + QUOTED + b"." + QUOTED + b" (id int PRIMARY KEY) WITH (fillfactor = 90)",
            b"BEGIN",
            b"LOCK TABLE " + QUOTED + b"." + QUOTED,
        ):
            owner.execute(statement)
        prepare = stack.enter_context(psycopg.connect(raw, autocommit=True))
        prepare.execute(b"SET SESSION AUTHORIZATION " + QUOTED)
        prepare.execute(b"BEGIN; CREATE TABLE prepared (); PREPARE TRANSACTION 'gid\xff'")
        as_role = b"SET SESSION AUTHORIZATION " + QUOTED + b"; SET application_name = 'app\xff'; "
        run_aside(stack, raw, as_role + b"DELETE FROM " + QUOTED + b"." + QUOTED + b" /* waits \xff\xfe */")
        run_aside(stack, raw, as_role + b"SELECT '\xff\xfe', /* sleeps */ pg_sleep(120)")
        for dbname in ("bytes", "text"):
            async with watching(make_conninfo(superuser, dbname=dbname), 0.5) as watcher:
                frames = await seen(watcher, "waits \ufffd\ufffd", "sleeps")
            text = assert_fits_and_obeys_nothing(session_of(frames))
            assert "o\ufffd\ufffd'" in text, dbname
            sample = frames[-1].postgres
            sections = {name: getattr(sample, name) for name in sample.__struct_fields__}
            absent = {name: str(each) for name, each in sections.items() if isinstance(each, Unavailable)}
            expected = {"server_log", "lock_counters"} | (set() if dbname == "bytes" else set(STATEMENTS))
            assert absent.keys() == expected, absent
        prepare.execute(b"ROLLBACK PREPARED 'gid\xff'")
