"""Fixtures for everybody: real servers (see tests/support/servers.py)."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import settings

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.postgres import NEWEST_MAJOR
from tests.support.newer_major import server_of_newer_major
from tests.support.quick_server import TEMPLATES, new_templates, quick_server
from tests.support.servers import MAJORS, NotAvailable, Servers, conninfo

_SERVERS = pytest.StashKey[Servers]()
_SUMMARIES = pytest.StashKey[set[str]]()
_OF_ROOT = re.compile(rb"mark\.(also_)?root\b")
_numbers = itertools.count(1)


LONG_S = 3600

WAITING = frozenset({"cli", "terminal"})
"""Folders of tests that wait for programs, with and without a server."""

STARTING = frozenset({"cluster", "process", "restart"})
"""Folders of tests whose servers and programs belong to another account where root starts them."""

OF_THE_USER = ("PG", "XDG_", "SSH_", "TEXTUAL", "NO_COLOR", "COLUMNS", "LINES")
"""What the variables begin with that libpq, Textual and we ourselves follow."""

OF_THE_TESTS = "PGTOP_TUNE_"
"""What the tests themselves are told by: goldens written anew, a build that is there."""

# These machines are noisy: how long an example takes says nothing. The same code is tested with the same examples, so
# that what passed here passes elsewhere; `make test-long` looks for new ones.
settings.register_profile("unhurried", deadline=None, derandomize=f"{OF_THE_TESTS}EXPLORE" not in os.environ)
settings.load_profile("unhurried")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SERVERS] = Servers()
    config.stash[_SUMMARIES] = set()
    if not hasattr(config, "workerinput"):
        os.environ[TEMPLATES] = str(new_templates())


def pytest_unconfigure(config: pytest.Config) -> None:
    """The first process of a run, which has waited for its workers, removes what they copied from."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(TEMPLATES), ignore_errors=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of root's tests imports only files that have some: the others take each worker ten seconds."""
    if not config.option.markexpr.startswith("(root ") or collection_path.suffix != ".py":
        return None
    is_of_root = STARTING.intersection(collection_path.parts) or _OF_ROOT.search(collection_path.read_bytes())
    return None if is_of_root else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Another account skips what needs root. A long test has time, too, but not for ever. Files that wait for servers
    and programs come first.

    What is left for the end of a run takes milliseconds, so that no worker waits for another's last file.
    """
    slow: set[Path] = set()
    for item in items:
        if item.get_closest_marker("ends_of_majors") and _major(item) not in (MAJORS[0], MAJORS[-1]):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_S))
        if STARTING.intersection(item.path.parts):
            item.add_marker(pytest.mark.also_root)
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root"))
        if WAITING.intersection(item.path.parts) or "servers" in getattr(item, "fixturenames", ()):
            slow.add(item.path)
    items.sort(key=lambda item: item.path not in slow)


def _major(item: pytest.Item) -> object:
    return item.callspec.params["all_servers"] if isinstance(item, pytest.Function) else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells the controller which servers it had."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["servers"] = session.config.stash[_SERVERS].summary()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[_SUMMARIES].add(getattr(node, "workeroutput", {}).get("servers", ""))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in sorted({config.stash[_SERVERS].summary(), *config.stash[_SUMMARIES]} - {""}):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def nobody_in_particular(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither files nor variables of whoever runs the tests, nor signals ignored under nohup, change what they see."""
    home = tmp_path_factory.mktemp("nobody")
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(OF_THE_USER) and not name.startswith(OF_THE_TESTS):
                patch.delenv(name)
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
            patch.setenv(name, str(home / name))
        # Pictures have times of day.
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> Iterator[Servers]:
    """Binaries and shared servers by major."""
    servers = pytestconfig.stash[_SERVERS]
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def server_for_major(servers: Servers) -> Callable[[int], Throwaway]:
    """The shared server of a major; the test is skipped where it cannot be had."""

    def server(major: int) -> Throwaway:
        try:
            return servers.running(major)
        except NotAvailable as problem:
            pytest.skip(f"no PostgreSQL {major}: {problem}")

    return server


@pytest.fixture(scope="session")
def server(server_for_major: Callable[[int], Throwaway]) -> Throwaway:
    """The shared PostgreSQL 18: tests may create databases in it, and leave its settings as they were."""
    return server_for_major(18)


@pytest.fixture(scope="session", params=MAJORS, ids=lambda major: f"pg{major}")
def all_servers(request: pytest.FixtureRequest, server_for_major: Callable[[int], Throwaway]) -> Throwaway:
    """The shared server of every major in turn."""
    return server_for_major(request.param)


@pytest.fixture
def make_server(servers: Servers) -> Iterator[Callable[..., Throwaway]]:
    """Makes servers of the test's own: `make_server(major=18, max_connections="20")`; ended after it."""
    made: list[Throwaway] = []

    def make(major: int = 18, **settings: str) -> Throwaway:
        try:
            binaries = servers.binaries(major)
        except NotAvailable as problem:
            pytest.skip(f"no PostgreSQL {major}: {problem}")
        made.append(quick_server(binaries, **settings))
        return made[-1]

    yield make
    for server in made:
        server.stop("immediate")


@pytest.fixture
def fresh_server(make_server: Callable[..., Throwaway]) -> Throwaway:
    """A PostgreSQL 18 of the test's own, to be restarted, changed and broken."""
    return make_server()


@pytest.fixture(scope="session")
def newer_server(servers: Servers) -> Iterator[Throwaway]:
    """A server of a major that nobody knows yet; a column of pg_stat_io and one of pg_replication_slots are gone."""
    try:
        binaries = servers.binaries(NEWEST_MAJOR)
    except NotAvailable as problem:
        pytest.skip(f"no PostgreSQL {NEWEST_MAJOR}: {problem}")
    with server_of_newer_major(binaries, NEWEST_MAJOR + 1) as server:
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            connection.execute("SET allow_system_table_mods = on")
            connection.execute("ALTER VIEW pg_stat_io RENAME COLUMN reuses TO ring_reuses")
            connection.execute("ALTER VIEW pg_replication_slots RENAME COLUMN safe_wal_size TO safe_wal_bytes")
        yield server


@pytest.fixture
def database(server: Throwaway) -> Iterator[str]:
    """Connection string of a new, empty database in the shared server."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
        yield conninfo(server, name)
        connection.execute(psycopg.sql.SQL("DROP DATABASE {} WITH (FORCE)").format(psycopg.sql.Identifier(name)))
