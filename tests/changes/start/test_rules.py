"""A value that a reload accepts and the next start refuses never reaches the file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.changes.model.change import Terms, WantedParameter
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.one_change import Rules
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.errors import ClusterProblem, ServerProblem
from pgtop_tune.postgres.server.conninfo import resolve
from tests.support.servers import conninfo

REFUSED = [
    ({"max_wal_size": "16MB"}, '"max_wal_size" must be at least twice "wal_segment_size"'),
    ({"max_wal_size": "20MB"}, '"max_wal_size" must be at least twice "wal_segment_size"'),
    ({"min_wal_size": "20MB"}, '"min_wal_size" must be at least twice "wal_segment_size"'),
    ({"superuser_reserved_connections": "100", "max_connections": "100"}, "must be less than"),
    ({"wal_level": "minimal"}, "requires"),
    ({"wal_level": "minimal", "archive_mode": "on", "max_wal_senders": "0"}, "WAL archival cannot be enabled"),
    ({"ssl": "on"}, 'server.crt": No such file or directory|SSL is not supported by this build'),
]
PASSING = [{"min_wal_size": "32MB", "max_wal_size": "32MB"}, {"log_directory": "log"}, {"ssl": "off"}]


def unlocked(values: dict[str, str]) -> tuple[list[WantedParameter], Terms]:
    return [WantedParameter(*each) for each in values.items()], Terms(confirmed=frozenset(values))


@pytest.mark.ends_of_majors
async def test_whatever_passes_starts_and_what_is_refused_would_not_have(
    all_servers: Throwaway, make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server(all_servers.binaries.major)
    control = PostgresControl(resolve(conninfo(server)), directory=tmp_path, rules=Rules(allow_unsafe=True))
    before = (Path(str(server.data_dir)) / "postgresql.auto.conf").read_bytes()
    for values, sentence in REFUSED:
        wanted, terms = unlocked(values)
        with pytest.raises(ServerProblem, match="would not start again") as refused:
            await control.apply_set(wanted, terms)
        assert re.search(sentence, refused.value.message)
    assert (Path(str(server.data_dir)) / "postgresql.auto.conf").read_bytes() == before
    for values in PASSING:
        await control.apply_set(*unlocked(values))
    await control.aclose()
    server.restart()


@pytest.mark.long
@pytest.mark.ends_of_majors
def test_the_server_itself_refuses_each_of_these_values(
    all_servers: Throwaway, make_server: Callable[..., Throwaway]
) -> None:
    for values, _ in REFUSED:
        if "ssl" in values:
            continue
        server = make_server(all_servers.binaries.major)
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            for name, value in values.items():
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")  # type: ignore[call-overload]
        with pytest.raises(ClusterProblem):
            server.restart()


async def test_a_fault_that_the_file_had_before_refuses_no_other_change(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server()
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET min_wal_size = '20MB'")
    control = PostgresControl(resolve(conninfo(server)), directory=tmp_path)
    await control.apply_set([WantedParameter("max_wal_size", "2GB")], Terms())
    await control.apply_set([WantedParameter("min_wal_size", "24MB")], Terms())
    await control.aclose()
