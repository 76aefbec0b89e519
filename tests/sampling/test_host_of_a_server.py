"""Whose machine is shown: the server's here, through SQL when it is elsewhere, or the GRANT that would show it."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cli.wiring import LiveOptions, LiveSession
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.host import local
from pgtop_tune.metrics import host as metrics
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import FileSystemSample, HostFacts, HostSample, ProcessSample
from pgtop_tune.model.machine import ServerPlaces
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.readers.server import names_of
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.sampling import host_sampler
from tests.support.servers import conninfo

ELSEWHERE = Unavailable(Reason.NOT_LOCAL, "the server runs on another machine")
DEADLINE_S = 60.0


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real server that counts as one of another machine."""
    monkeypatch.setattr(local, "local_postmaster", lambda pid, start_ms: ELSEWHERE)


@asynccontextmanager
async def frames_of(target: str) -> AsyncIterator[Callable[[Callable[[Frame], bool]], object]]:
    session = LiveSession(resolve(target), LiveOptions(interval_s=0.25))
    seen: list[Frame] = []
    steps = session.source.steps()

    async def until(condition: Callable[[Frame], bool]) -> list[Frame]:
        async with asyncio.timeout(DEADLINE_S):
            async for step in steps:
                seen.extend(step.frames)
                if condition(seen[-1]):
                    return seen
        raise AssertionError("the source ended")

    try:
        yield until
    finally:
        await session.source.aclose()


def from_sql(frame: Frame) -> bool:
    host = frame.host
    return isinstance(host, HostSample) and isinstance(host.facts, HostFacts) and "SQL" in host.facts.source


async def test_a_server_elsewhere_shows_its_own_proc(make_server: Callable[..., Throwaway], elsewhere: None) -> None:
    server = make_server(fsync="on")  # on a disk
    async with frames_of(conninfo(server)) as until:
        frames = await until(from_sql)  # type: ignore[misc]
        await until(lambda frame: from_sql(frame) and metrics.CPU_IDLE(Interval(frames)) is not None)  # type: ignore[misc]
    newest = frames[-1]
    assert isinstance(newest.postgres, PostgresSample)
    assert not newest.postgres.server.local  # type: ignore[union-attr]
    processes = newest.host.processes
    assert isinstance(processes, ProcessSample)
    backends = {backend.pid for backend in newest.postgres.activity.backends}  # type: ignore[union-attr]
    assert {row.pid for row in processes.processes} <= backends | {server.postmaster_pid}
    assert server.postmaster_pid in {row.pid for row in processes.processes}
    assert any("data" in disk.roles for disk in newest.host.disks.disks)


async def test_a_role_without_the_right_reads_which_grants_would_help(server: Throwaway, elsewhere: None) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as superuser:
        superuser.execute("CREATE ROLE farsighted LOGIN IN ROLE pg_monitor")
        try:
            target = conninfo(server).replace(f"user={server.user}", "user=farsighted")
            async with frames_of(target) as until:
                frames = await until(lambda frame: isinstance(frame.postgres, PostgresSample))  # type: ignore[misc]
            host = frames[-1].host
            assert isinstance(host, Unavailable)
            assert host.reason is Reason.NOT_LOCAL
            assert "GRANT pg_read_server_files TO farsighted" in host.detail
            assert "GRANT EXECUTE ON FUNCTION pg_read_binary_file" in host.detail
        finally:
            superuser.execute("DROP ROLE farsighted")


async def test_a_new_tablespace_gets_its_role(
    make_server: Callable[..., Throwaway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_sampler, "_PLACES_EVERY_S", 0.5)
    server = make_server()
    with tempfile.TemporaryDirectory(dir=Path(str(server.socket_dir)).parent) as directory:
        owner = os.stat(f"/proc/{server.postmaster_pid}")
        if os.geteuid() == 0:
            os.chown(directory, owner.st_uid, owner.st_gid)

        def placed(frame: Frame) -> bool:
            systems = frame.host.file_systems if isinstance(frame.host, HostSample) else None
            return isinstance(systems, FileSystemSample) and any(
                {"tablespace fast", "temp"} <= set(row.roles) for row in systems.file_systems
            )

        with psycopg.connect(conninfo(server), autocommit=True) as superuser:
            async with frames_of(conninfo(server)) as until:
                await until(lambda frame: isinstance(frame.postgres, PostgresSample))  # type: ignore[misc]
                superuser.execute(f"CREATE TABLESPACE fast LOCATION '{directory}'".encode())
                superuser.execute("ALTER SYSTEM SET temp_tablespaces = 'fast'")
                superuser.execute("SELECT pg_reload_conf()")
                await until(placed)  # type: ignore[misc]
            superuser.execute("ALTER SYSTEM RESET temp_tablespaces")
            superuser.execute("DROP TABLESPACE fast")


async def test_places_on_every_major(all_servers: Throwaway) -> None:
    reader = PostgresReader(resolve(conninfo(all_servers)), time.monotonic)
    try:
        await reader.connect()
        assert await reader.places() == ServerPlaces()
    finally:
        await reader.aclose()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("fast", ("fast",)),
        ('fast, "Two words", "with ""quotes"""', ("fast", "Two words", 'with "quotes"')),
        ('""', ()),
    ],
)
def test_lists_of_names(text: str, names: tuple[str, ...]) -> None:
    assert names_of(text) == names
