"""Connections of tests to the servers: by our own resolver, as different roles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import sql

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve
from tests.support.servers import conninfo

_DEADLINE_S = 60.0
_numbers = count(1)

Superuser = psycopg.Connection[tuple[object, ...]]


def place(server: Throwaway, database: str = "postgres", user: str | None = None) -> ConnInfo:
    """A test server as the user would name it."""
    return resolve(database, host=str(server.socket_dir), port=str(server.port), user=user or server.user)


def by_libpq(where: ConnInfo) -> ConnInfo:
    """The same place, with a keyword that takes libpq and forbids nothing of what these servers do."""
    return replace(where, keywords={**where.keywords, "require_auth": "none"})


@pytest.fixture
def superuser(server: Throwaway) -> Iterator[Superuser]:
    """A superuser's autocommit connection to the shared PostgreSQL 18; a lock it waits for fails the test."""
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("SET statement_timeout = '20s'")
        yield connection


@pytest.fixture
def role(superuser: Superuser) -> Iterator[Callable[..., str]]:
    """Makes roles that may log in, members of the roles named; dropped after the test."""
    made: list[str] = []

    def make(*member_of: str) -> str:
        name = f"role_{next(_numbers)}"
        superuser.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        made.append(name)
        for group in member_of:
            superuser.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(group), sql.Identifier(name)))
        return name

    yield make
    for name in made:
        superuser.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
        superuser.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.fixture
def busy() -> object:
    """Starts statements that take long, or come again and again, in threads; cancelled after the test."""
    running: list[tuple[psycopg.Connection[tuple[object, ...]], threading.Thread]] = []
    over = threading.Event()

    def start(where: str, text: str, *, before: str = "", again: bool = False) -> int:
        connection = psycopg.connect(where, autocommit=True)
        if before:
            connection.execute(before.encode())

        def run() -> None:
            with suppress(psycopg.Error):
                connection.execute(text.encode())
                while again and not over.is_set():
                    connection.execute(text.encode())

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        running.append((connection, thread))
        return connection.info.backend_pid

    yield start
    over.set()
    for connection, _ in reversed(running):
        connection.cancel_safe()
    for connection, thread in running:
        thread.join(_DEADLINE_S)
        connection.close()
