"""PgBouncer and HAProxy in front of a test server: unprivileged, on loopback, with files of their own."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway, server_account
from pgtop_tune.model.pooler import ConsoleSample, PoolerAddress
from pgtop_tune.pooler.console import PoolerConsole
from tests.support.accounts import own
from tests.support.processes import eventually

DEADLINE_S: Final = 60.0
_SYSTEM: Final = "/usr/sbin:/usr/local/sbin:/usr/bin"
LOOPBACK: Final = "127.0.0.1"


def program(name: str) -> str:
    """Where a program is; the test is skipped, and counted, where it is not installed."""
    found = shutil.which(name) or shutil.which(name, path=_SYSTEM)
    if found is None:
        pytest.skip(f"no {name}: apt-get install {name}")
    return found


def reserved_port() -> socket.socket:
    """A port of loopback given to nobody else before this is closed; a program told its number may listen there."""
    reserved = socket.socket()
    # Both sides have to say so; the kernel still gives the number to nobody who asks for any port.
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((LOOPBACK, 0))
    return reserved


def number_of(port: socket.socket) -> int:
    """Its number."""
    number: int = port.getsockname()[1]
    return number


class _Running:
    """A program that listens on a port; a context manager that ends it.

    Attributes:
        port: Of loopback.
        directory: Its files.
    """

    def __init__(self, files: Mapping[str, str], command: Callable[[Path], Sequence[str]], port: socket.socket) -> None:
        account = server_account()
        self._reserved = port
        self.port = number_of(port)
        self.directory = Path(tempfile.mkdtemp(prefix="pooler-"))
        for name, text in files.items():
            (self.directory / name).write_text(text)
        for path in (self.directory, *self.directory.iterdir()):
            own(account, path)
        self._output = (self.directory / "output").open("wb")
        self._process = subprocess.Popen(
            command(self.directory),
            user=account.uid,
            group=account.gid,
            extra_groups=[] if account.uid is not None else None,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            cwd="/",
        )

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def freeze(self) -> None:
        """It answers nobody until `thaw`."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        if not eventually(self._listens_or_has_ended, DEADLINE_S) or self._process.poll() is not None:
            words = (self.directory / "output").read_text(errors="replace")
            self.__exit__(None, None, None)
            raise AssertionError(f"nothing listens on port {self.port}: {words}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._output.close()
        self._reserved.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _listens_or_has_ended(self) -> bool:
        if self._process.poll() is not None:
            return True
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self.port)) == 0


class PgBouncer(_Running):
    """A PgBouncer that leads every database name to the test server, as its superuser.

    Args:
        server: Where to.
        user: Who may log in, and look at the console.
        password: Of that user; "" lets everybody in.
        databases: Lines of the [databases] section in place of one for every name.
        nofile: Files it may have open; None for what it inherits.
        port: One that several share; None for one of its own.
        settings: Of the [pgbouncer] section.
    """

    def __init__(
        self,
        server: Throwaway,
        *,
        user: str = "stats",
        password: str = "",
        databases: Sequence[str] = (),
        nofile: int | None = None,
        port: socket.socket | None = None,
        **settings: object,
    ) -> None:
        found, own_port = program("pgbouncer"), port or reserved_port()
        place = f"host={server.socket_dir} port={server.port} user={server.user}"
        self.user = user

        def command(directory: Path) -> list[str]:
            ini = directory / "ini"
            ini.write_text(ini.read_text().replace("DIRECTORY", str(directory)))
            limited = [program("prlimit"), f"--nofile={nofile}:{nofile}"] if nofile else []
            return [*limited, found, str(ini)]

        values: dict[str, object] = {
            "listen_addr": LOOPBACK, "listen_port": number_of(own_port), "unix_socket_dir": "", "pidfile": "",
            "auth_type": "md5" if password else "any", "auth_file": "DIRECTORY/users" if password else "",
            "pool_mode": "transaction", "default_pool_size": 5, "max_client_conn": 200, "stats_users": user,
            "ignore_startup_parameters": "extra_float_digits", **settings,
        }  # fmt: skip
        lines = [f"{line} {place}" for line in databases or ("* =",)]
        ini = "\n".join(
            ["[databases]", *lines, "[pgbouncer]", *(f"{key} = {value}" for key, value in values.items()), ""]
        )
        super().__init__({"ini": ini, "users": f'"{user}" "{password}"\n'}, command, own_port)

    def console(self, password: str = "") -> str:
        """URI of the console."""
        secret = f":{password}" if password else ""
        return f"postgresql://{self.user}{secret}@{LOOPBACK}:{self.port}/pgbouncer"

    def conninfo(self, database: str = "postgres") -> str:
        """What a client needs to connect through it."""
        return f"host={LOOPBACK} port={self.port} user={self.user} dbname={database}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """A client of the pooler, in autocommit."""
        return psycopg.connect(self.conninfo(database), autocommit=True)


class HaProxy(_Running):
    """A HAProxy in TCP mode in front of another port of loopback, or of an address in its own words.

    It listens at a port of loopback and at the Unix socket of that port in `directory`.
    """

    def __init__(self, behind: int | str, *, threads: int = 1) -> None:
        found, port = program("haproxy"), reserved_port()
        address = behind if isinstance(behind, str) else f"{LOOPBACK}:{behind}"
        configuration = (
            f"global\n  maxconn 500\n  nbthread {threads}\n"
            "defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 10m\n  timeout server 10m\n"
            f"listen pooled\n  bind {LOOPBACK}:{number_of(port)}\n  bind unix@DIRECTORY/.s.PGSQL.{number_of(port)}\n"
            f"  server one {address}\n"
        )

        def command(directory: Path) -> list[str]:
            written = directory / "cfg"
            written.write_text(written.read_text().replace("DIRECTORY", str(directory)))
            return [found, "-db", "-f", str(written)]

        super().__init__({"cfg": configuration}, command, port)


async def look_once(address: PoolerAddress) -> ConsoleSample:
    """One look at a console, over a connection of its own."""
    console = PoolerConsole(address, asyncio.get_running_loop().time, "pgtop-tune")
    try:
        return await console.look()
    finally:
        console.close()
