"""PgBouncer in front of a test server: on a socket of its own, as an unprivileged account, ended after the test."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import psycopg

from pgtop_tune.cluster.throwaway import Throwaway, server_account
from tests.support.accounts import own
from tests.support.processes import eventually

PORT: Final = 6432
_CONFIGURATION: Final = """\
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr =
listen_port = {own_port}
unix_socket_dir = {directory}
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
logfile = {directory}/log
pidfile =
"""
"""auth_type any needs no list of users: everybody is the user of the [databases] line."""


def program() -> str | None:
    """Where PgBouncer is; None when it is not installed."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


class Bouncer:
    """A running PgBouncer; a context manager that ends it.

    Attributes:
        directory: Of its socket.
    """

    def __init__(self, server: Throwaway, mode: str = "transaction", size: int = 3) -> None:
        found = program()
        assert found is not None
        self.directory = Path(tempfile.mkdtemp(prefix="bouncer-"))
        self._server = server
        account = server_account()
        configuration = self.directory / "ini"
        configuration.write_text(
            _CONFIGURATION.format(
                host=str(server.socket_dir),
                port=server.port,
                user=server.user,
                own_port=PORT,
                directory=self.directory,
                mode=mode,
                size=size,
            )
        )
        own(account, self.directory)
        own(account, configuration)
        self._process = subprocess.Popen(
            [found, str(configuration)],
            user=account.uid,
            group=account.gid,
            extra_groups=None if account.uid is None else [],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )

    def conninfo(self, database: str = "postgres") -> str:
        """What libpq and its drivers need to connect through it."""
        return f"host={self.directory} port={PORT} user={self._server.user} dbname={database}"

    def __enter__(self) -> Bouncer:
        if not eventually(self._answers, 60.0):
            self.__exit__()
            raise AssertionError("PgBouncer does not answer")
        return self

    def __exit__(self, *problem: object) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _answers(self) -> bool:
        assert self._process.poll() is None, "PgBouncer has ended"
        try:
            psycopg.connect(self.conninfo(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True
