"""Answers in another form than PostgreSQL's: each ends its section, or the connection, with a sentence."""

from __future__ import annotations

import asyncio
import contextlib
import re

import pytest

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.foreign_answers import malformed
from pgtop_tune.changes.server.session_runner import SessionRunner
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import chosen
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.sql_session import open_sql_session
from tests.postgres.reading import Clock
from tests.support.mangling_proxy import HOW, mangling

SLOW = frozenset({"64 MB", "twice", "junk", "endless", "more columns", "fewer columns", "refused in the middle"})
"""Ways in which a connection waits for its time limit, and those that are much like others."""
SOME = [pytest.param(how, marks=pytest.mark.long) if how in SLOW else how for how in HOW]


@pytest.mark.parametrize(
    ("error", "form"),
    [
        (IndexError(), "too few rows or columns"),
        (KeyError("calls"), "too few rows or columns"),
        (TypeError("WalSample.bytes is not what it should be"), "values of another type, or missing values"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "no"), "values in another form"),
        (OverflowError(), "numbers out of range"),
        (MemoryError(), "values that are too large"),
    ],
)
def test_the_sentence_names_the_section_and_what_to_do(error: Exception, form: str) -> None:
    problem = malformed(error, "active_sessions")
    assert problem.message == f"the server's answer about active sessions has {form}, unlike PostgreSQL's"
    assert "connect to the server directly" in problem.hint


def socket_of(server: Throwaway) -> str:
    return f"{server.socket_dir}/.s.PGSQL.{server.port}"


def through(port: int, server: Throwaway) -> ConnInfo:
    return resolve(f"host=127.0.0.1 port={port} user={server.user} dbname=postgres sslmode=disable gssencmode=disable")


@pytest.mark.parametrize("how", SOME)
async def test_a_mangled_answer_costs_its_section_and_no_more(how: str, server: Throwaway) -> None:
    with mangling(socket_of(server), None) as (proxy, port):
        reader = PostgresReader(through(port, server), Clock())
        await reader.connect()
        try:
            # What is asked as bytes is prepared by then.
            for section in sections.READ:
                await reader.read(section)
            await reader.waits(60_000)
            proxy.how = HOW[how]
            for section in sections.READ:
                with contextlib.suppress(PgtopError):
                    answer = await reader.read(section)
                    # Of Python's exceptions the operator knows nothing.
                    assert not (isinstance(answer, Unavailable) and re.search(r"[a-z](Error|Exception)\b", str(answer)))
                if not reader.connected:
                    break
            if reader.connected:
                looked = asyncio.Event()
                if reader.look_at_waits(60_000, 1, lambda look: looked.set()):
                    async with asyncio.timeout(30):
                        await looked.wait()
            proxy.how = None
            if not reader.connected:
                await reader.connect()
            assert not isinstance(await reader.facts(), Unavailable)
        finally:
            await reader.aclose()


@pytest.mark.parametrize("how", SOME)
async def test_whoever_connects_to_mangled_answers_is_told(how: str, server: Throwaway) -> None:
    with mangling(socket_of(server), HOW[how]) as (_, port):
        place = through(port, server)
        reader = PostgresReader(place, Clock())
        with contextlib.suppress(PgtopError):
            await reader.connect()
        await reader.aclose()
        with contextlib.suppress(PgtopError):
            session = await open_sql_session(place)
            await session.aclose()
        runner = SessionRunner(place, OwnSessions(), opened=lambda session: None, closed=lambda: None)
        with contextlib.suppress(PgtopError):
            await runner.run(lambda session: session.parameters(["work_mem"]))
        await runner.close()
        with contextlib.suppress(PgtopError):
            judge(chosen((), ()), await gather(place, chosen((), ())))
