"""CFG-11 sees what a start needs of the machine: addresses, and what the server's account may do with its files."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest
from psycopg import sql

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import chosen
from pgtop_tune.postgres.server.conninfo import resolve
from tests.support.by_pg_ctl import by_pg_ctl
from tests.support.quick_server import quick_server
from tests.support.servers import NotAvailable, Servers, conninfo


@pytest.fixture(scope="module")
def own(servers: Servers) -> Iterator[Throwaway]:
    """A server of this module's own that takes addresses and directories from its files."""
    try:
        binaries = servers.binaries(15)
    except NotAvailable as problem:
        pytest.skip(f"no PostgreSQL 15: {problem}")
    server = quick_server(binaries)
    with by_pg_ctl(server) as started:
        yield started
    server.stop("immediate")


async def says(server: Throwaway) -> str:
    """What CFG-11 finds, "" for nothing."""
    checks = chosen(["CFG-11"], [])
    report = judge(checks, await gather(resolve(conninfo(server)), checks))
    return "; ".join(
        [finding.says for _, finding in report.findings] + [f"unknown: {why.reason}" for _, why in report.unknowns]
    )


@contextmanager
def waiting_for_a_start(server: Throwaway, **values: str) -> Iterator[None]:
    """Values in postgresql.auto.conf that nothing has loaded."""
    with psycopg.connect(conninfo(server), autocommit=True) as session:
        for name, value in values.items():
            change = sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
            session.execute(change)
        try:
            yield
        finally:
            for name in values:
                session.execute(sql.SQL("ALTER SYSTEM RESET {}").format(sql.Identifier(name)))


async def test_a_healthy_server_starts(own: Throwaway) -> None:
    assert await says(own) == ""


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"listen_addresses": "198.51.100.9"}, "could not create any TCP/IP sockets at 198.51.100.9"),
        ({"logging_collector": "on", "log_directory": "/etc"}, "could not open log file"),
        ({"logging_collector": "on", "log_directory": "/proc/1/x"}, "could not open log file"),
        ({"unix_socket_directories": "/etc"}, "could not create lock file"),
        ({"unix_socket_directories": f"/{'x' * 120}"}, "is too long"),
    ],
)
async def test_what_the_machine_refuses_is_found(own: Throwaway, values: dict[str, str], words: str) -> None:
    with waiting_for_a_start(own, **values):
        assert words in await says(own)
    assert await says(own) == ""


async def test_one_address_that_is_here_is_enough(own: Throwaway) -> None:
    with waiting_for_a_start(own, listen_addresses="198.51.100.9, localhost"):
        assert await says(own) == ""


async def test_a_port_that_another_program_has_is_found(own: Throwaway) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with waiting_for_a_start(own, listen_addresses="127.0.0.1", port=port):
            assert f"port {port}" in await says(own)


KEYS: Final = (
    (0o600, (), "", ""),
    (0o644, (), "", "it has group or world access"),
    (0o600, ("-passout", "pass:secret"), "", "it is encrypted, and ssl_passphrase_command is empty"),
    (0o600, ("-passout", "pass:secret"), "echo secret", ""),
    (0o600, None, "", "key values mismatch"),
)
"""Mode of the key, options of openssl (None: the key of another certificate), ssl_passphrase_command, what is found."""


@pytest.mark.parametrize(("mode", "options", "passphrase", "words"), KEYS)
async def test_a_key_that_a_start_refuses_is_found(
    own: Throwaway, tmp_path: Path, mode: int, options: tuple[str, ...] | None, passphrase: str, words: str
) -> None:
    data = Path(str(own.data_dir))
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl")

    def make(key: Path, certificate: Path, *encrypted: str) -> None:
        plain = () if encrypted else ("-nodes",)
        argv = [openssl, "req", "-x509", "-newkey", "rsa:2048", *plain, *encrypted, "-subj", "/CN=x", "-days", "2"]
        subprocess.run([*argv, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)

    make(data / "server.key", data / "server.crt", *(options or ()))
    if options is None:
        make(data / "server.key", tmp_path / "other.crt")
    owner = data.stat()
    for name in ("server.key", "server.crt"):
        os.chown(data / name, owner.st_uid, owner.st_gid)
        (data / name).chmod(mode)
    values = {"ssl": "on"} | ({"ssl_passphrase_command": passphrase} if passphrase else {})
    with waiting_for_a_start(own, **values):
        found = await says(own)
    assert words in found
    assert bool(words) == bool(found)


async def test_a_key_that_is_no_file_is_never_waited_for(own: Throwaway) -> None:
    data = Path(str(own.data_dir))
    key, owner = data / "pipe.key", data.stat()
    os.mkfifo(key, 0o600)
    os.chown(key, owner.st_uid, owner.st_gid)
    try:
        with waiting_for_a_start(own, ssl="on", ssl_key_file="pipe.key"):
            await asyncio.wait_for(says(own), 30)
    finally:
        key.unlink()


@pytest.mark.parametrize("name", [".", "postgresql.auto.conf"])
async def test_modes_that_a_start_refuses_are_found(own: Throwaway, name: str) -> None:
    path = Path(str(own.data_dir)) / name
    before = path.stat()
    try:
        path.chmod(0o770 if name == "." else 0)
        found = await says(own)
    finally:
        path.chmod(before.st_mode & 0o7777)
    assert ("has invalid permissions 0770" if name == "." else "could not open configuration file") in found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes what the server's account may not read")
@pytest.mark.parametrize("name", ["hba_file", "log_directory"])
async def test_a_place_that_is_closed_to_the_account_is_no_question_of_rights_in_the_database(
    own: Throwaway, tmp_path: Path, name: str
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "inside").write_text("local all all trust\n")
    path = closed / ("inside" if name == "hba_file" else "log")
    with waiting_for_a_start(own, logging_collector="on", **{name: str(path)}):
        found = await says(own)
    assert "Permission denied" in found
    assert str(path) in found
    assert "the server's account has no access to it" in found
    assert "GRANT" not in found
