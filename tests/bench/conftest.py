"""A database with pgbench's tables, and every pgbench of this machine."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.bench.datasets.pgbench_tables import initialise
from pgtop_tune.bench.locate import Pgbench, find_pgbench, installed_binaries, probe
from pgtop_tune.bench.places import RunDirectory
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.bench import BenchProgress, BenchRun, BenchSample, LatencySecond
from tests.support.servers import conninfo

_numbers = itertools.count(1)


def by_major() -> dict[int, Pgbench]:
    """One pgbench per major version found on this machine."""
    found = [probe(path) for path in installed_binaries()]
    return {each.version_num // 10_000: each for each in reversed(found)}


@pytest.fixture(scope="session", params=sorted(by_major()), ids=lambda major: f"pgbench{major}")
def pgbench(request: pytest.FixtureRequest) -> Pgbench:
    """Every pgbench of this machine in turn."""
    return by_major()[request.param]


def endpoint_of(server: Throwaway, dbname: str = "postgres") -> LoadEndpoint:
    return LoadEndpoint(str(server.socket_dir), server.port, server.user, dbname)


@pytest.fixture(scope="module")
def tables(server: Throwaway) -> Iterator[LoadEndpoint]:
    """A database with pgbench's tables at scale 1, and a name that would like to be an option."""
    name = "-c bench=1"
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
    asyncio.run(initialise(endpoint_of(server, name), 1, find_pgbench()))
    yield endpoint_of(server, name)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("DROP DATABASE {} WITH (FORCE)").format(psycopg.sql.Identifier(name)))


class Watch:
    """A runner, and everything that its samples brought."""

    def __init__(self, runner: PgbenchRunner) -> None:
        self.runner = runner
        self.progress: list[BenchProgress] = []
        self.latencies: list[LatencySecond] = []

    def look(self) -> BenchRun:
        sample = self.runner.sample(0.0)
        assert isinstance(sample, BenchSample)
        self.progress += sample.progress
        self.latencies += sample.latencies
        return sample.run

    async def until(self, condition: Callable[[BenchRun], object], timeout_s: float = 60.0) -> BenchRun:
        async with asyncio.timeout(timeout_s):
            while not condition(self.look()):
                await asyncio.sleep(0.05)
        return self.look()


@pytest.fixture
async def watch(tmp_path: Path) -> AsyncIterator[Callable[..., Watch]]:
    """Makes runners whose directories are under tmp_path; nothing of them may be left afterwards."""
    made: list[Watch] = []

    def make(endpoint: LoadEndpoint, pgbench: Pgbench | None = None) -> Watch:
        made.append(Watch(PgbenchRunner(endpoint, pgbench=pgbench.path if pgbench else None, base=tmp_path)))
        return made[-1]

    yield make
    for each in made:
        await each.runner.aclose()
    assert list(tmp_path.iterdir()) == []


class Logs:
    """All log files of a test's loads, read when their directory goes: whoever looks for them may be late."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._files: list[bytes] = []
        # What was read of a log is not given back to the disk, so that it can be read again.
        monkeypatch.setattr("pgtop_tune.bench.transaction_log._find_fallocate", lambda: lambda *words: 0)
        remove = RunDirectory.remove

        def read_and_remove(directory: RunDirectory) -> None:
            self._files += [path.read_bytes() for path in directory.path.glob("transactions.*")]
            remove(directory)

        monkeypatch.setattr(RunDirectory, "remove", read_and_remove)

    def lines(self) -> list[str]:
        return [line for file in self._files for line in file.decode().splitlines()]

    def latencies_us(self) -> list[int]:
        """Of all lines, which must be of transactions that succeeded."""
        return [int(line.split()[2]) for line in self.lines()]


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    return Logs(monkeypatch)
