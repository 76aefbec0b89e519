"""A password typed on the screen: a wrong one is asked for again, and the session goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from pgtop_tune.base.errors import WrongPassword
from pgtop_tune.base.secret import Secret
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.server_source import ServerSource
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve
from tests.support.locked_server import ask_for_password
from tests.support.quick_server import quick_server
from tests.support.servers import Servers

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def locked(servers: Servers) -> Iterator[str]:
    """A connection string of a server that wants a password of this role."""
    server = quick_server(servers.binaries(18))
    try:
        ask_for_password(server, "bench", "right")
        yield f"host={server.socket_dir} port={server.port} user=bench dbname=postgres"
    finally:
        server.stop("immediate")


@pytest.fixture(autouse=True)
def no_password_from_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))


@contextlib.asynccontextmanager
async def seen_by(
    conninfo: ConnInfo,
) -> AsyncIterator[tuple[ServerSource, Callable[[Callable[[Frame], bool]], Awaitable[None]]]]:
    """What looks at the server, and a wait for a frame."""
    server_source = ServerSource(conninfo, LiveOptions(0.2, waits_for_password=True))
    steps = server_source.source.steps()

    async def until(condition: Callable[[Frame], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            async for step in steps:
                if condition(step.frames[-1]):
                    return

    try:
        yield server_source, until
    finally:
        await server_source.source.aclose()


async def test_a_mistyped_password_is_asked_for_again(locked: str) -> None:
    where = resolve(locked)
    async with seen_by(where) as (server_source, until):
        await until(lambda frame: server_source.password_needed)
        server_source.connect_as(where.with_password(Secret("wrong")))
        await until(lambda frame: "authentication failed" in str(frame.postgres))
        assert server_source.password_needed
        server_source.connect_as(where.with_password(Secret("right")))
        await until(lambda frame: isinstance(frame.postgres, PostgresSample))
        assert not server_source.password_needed


async def test_a_wrong_password_from_elsewhere_ends_the_session(locked: str) -> None:
    async with seen_by(resolve(locked).with_password(Secret("of a file"))) as (_, until):
        with pytest.raises(WrongPassword):
            await until(lambda frame: not isinstance(frame.postgres, Unavailable))
