"""Sessions that get into each other's way: some hold what others wait for, some just stay or work on."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import Final

import psycopg

Connection = psycopg.Connection[tuple[object, ...]]
DEADLINE_S: Final = 60.0


class Crowd:
    """Sessions in one database; all of them end with `close`.

    Args:
        where: Connection string.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._stack = ExitStack()
        self._waiting: list[tuple[Connection, threading.Thread]] = []

    def session(self, *statements: str, autocommit: bool = False) -> Connection:
        """A session that has done these, by default in a transaction that stays open."""
        connection = psycopg.connect(self._where, autocommit=autocommit)
        self._stack.callback(connection.close)
        connection.execute("SET deadlock_timeout = '60s'")
        for statement in statements:
            connection.execute(statement.encode())
        return connection

    def waits(self, connection: Connection, statement: str) -> int:
        """Has a session begin something that takes until somebody ends it; its pid."""

        def run() -> None:
            try:
                connection.execute(statement.encode())
            except psycopg.Error:
                pass

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._waiting.append((connection, thread))
        return connection.info.backend_pid

    def queues(self, connection: Connection, statement: str) -> int:
        """Has a session begin something that it has to wait for a lock for; its pid, once it waits."""
        pid = self.waits(connection, statement)
        deadline = time.monotonic() + DEADLINE_S
        with psycopg.connect(self._where, autocommit=True) as watching:
            while not watching.execute("SELECT FROM pg_locks WHERE pid = %s AND NOT granted", (pid,)).fetchall():
                assert time.monotonic() < deadline, f"{statement} waits for nothing"
        return pid

    def close(self) -> None:
        """Cancels what runs and ends every session."""
        for connection, _ in self._waiting:
            connection.cancel_safe()
        for _, thread in self._waiting:
            thread.join(DEADLINE_S)
        self._waiting.clear()
        self._stack.close()
