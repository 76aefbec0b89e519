"""A value that a reload accepts and the next start refuses never reaches the file."""

from __future__ import annotations

import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.changes.model.change import Terms, WantedParameter
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.one_change import Rules
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import resolve
from tests.changes.restart.test_moving import free_port
from tests.support.by_pg_ctl import by_pg_ctl
from tests.support.certificates import Authority
from tests.support.servers import conninfo

REFUSED = [
    ({"max_wal_size": "16MB"}, '"max_wal_size" must be at least twice "wal_segment_size"'),
    ({"max_wal_size": "20MB"}, '"max_wal_size" must be at least twice "wal_segment_size"'),
    ({"min_wal_size": "20MB"}, '"min_wal_size" must be at least twice "wal_segment_size"'),
    ({"superuser_reserved_connections": "100", "max_connections": "100"}, "must be less than"),
    ({"wal_level": "minimal"}, "requires"),
    ({"wal_level": "minimal", "archive_mode": "on", "max_wal_senders": "0"}, "WAL archival cannot be enabled"),
    ({"hba_file": "my_hba.conf"}, "could not load|use an absolute path"),
    ({"hba_file": "/etc/shadow"}, "Permission denied"),
    ({"hba_file": "/dev/null"}, "contains no entries"),
    ({"min_dynamic_shared_memory": "2000000MB"}, "of shared memory, of .*more than the machine has"),
    ({"max_locks_per_transaction": "100000000"}, "of shared memory, of .*more than the machine has"),
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
        with pytest.raises(ServerProblem, match=r"would not start again|more than the machine has") as refused:
            await control.apply_set(wanted, terms)
        assert re.search(sentence, refused.value.message)
    assert (Path(str(server.data_dir)) / "postgresql.auto.conf").read_bytes() == before
    for values in PASSING:
        await control.apply_set(*unlocked(values))
    data = Path(str(server.data_dir))
    sound, rules = (data / "pg_hba.conf").read_text(), data / "other_hba.conf"
    for line in ("host all all 127.0.0.1/32 ldap", "local all all nonsense", "include /nonexistent/x"):
        rules.write_text(f"{sound}\n{line}\n")
        rules.chmod(0o644)
        with pytest.raises(ServerProblem, match=rf"would not start again: .*{rules}.*could not load"):
            await control.apply_set(*unlocked({"hba_file": str(rules)}))
    rules.write_text(sound)
    await control.apply_set(*unlocked({"hba_file": str(rules)}))
    await control.aclose()
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


@pytest.mark.parametrize("major", [14, 15])
async def test_certificates_are_looked_for_where_the_server_does(
    make_server: Callable[..., Throwaway], tmp_path: Path, major: int
) -> None:
    server = make_server(major)
    data = Path(str(server.data_dir))
    (tmp_path / "authority").mkdir()
    pairs = [Authority(tmp_path / "authority").signed(name) for name in ("one", "two")]
    for number, pair in enumerate(pairs):
        for file, name in zip(pair, (f"tls/{number}.crt", f"tls/{number}.key"), strict=True):
            (data / "tls").mkdir(exist_ok=True)
            shutil.copy(file, data / name)
            (data / name).chmod(0o600)
    shutil.copy(data / "tls/0.key", data / "tls/open.key")
    (data / "tls/open.key").chmod(0o644)
    (data / "tls/open.crt").write_text("no certificate")
    for path in ((data / "tls"), *(data / "tls").iterdir()):
        shutil.chown(path, data.stat().st_uid, data.stat().st_gid)
    control = PostgresControl(resolve(conninfo(server)), directory=tmp_path, rules=Rules(allow_unsafe=True))
    on = {"ssl": "on", "ssl_cert_file": "tls/0.crt", "ssl_key_file": "tls/0.key"}
    await control.apply_set(*unlocked(on))
    # Starts with relative names, and nothing else is kept from a change.
    await control.apply_set(*unlocked({"ssl_ciphers": "HIGH", "max_wal_size": "2GB"}))
    plan = await RestartService(control).plan([WantedParameter("shared_buffers", "48MB")])
    assert plan.possible, [check.words for check in plan.checks]
    for name, value in (("key", "nope"), ("key", "1"), ("key", "open"), ("cert", "1"), ("cert", "open")):
        with pytest.raises(ServerProblem, match=r"would not start again: could not|would not start again: private key"):
            await control.apply_set(*unlocked({f"ssl_{name}_file": f"tls/{value}.{'key' if name == 'key' else 'crt'}"}))
    await control.aclose()
    server.restart()


@pytest.mark.root
async def test_a_port_of_root_s_is_refused_where_the_server_is_not_root(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    port = str(free_port())
    with by_pg_ctl(make_server(), listen_addresses="127.0.0.1", port=port) as server:
        there = resolve(f"host={server.socket_dir} port={port} user={server.user} dbname=postgres")
        control = PostgresControl(there, directory=tmp_path, rules=Rules(allow_unsafe=True))
        with pytest.raises(ServerProblem, match=r"could not create any TCP/IP sockets at 127.0.0.1, port 81"):
            await control.apply_set(*unlocked({"port": "81"}))
        await control.apply_set(*unlocked({"port": str(free_port())}))
        await control.aclose()


@pytest.mark.parametrize(
    ("limit", "most", "words"),
    [(resource.RLIMIT_MEMLOCK, 65_536, "Cannot allocate memory"), (resource.RLIMIT_NOFILE, 400, "Too many open files")],
    ids=["memlock", "nofile"],
)
async def test_rings_that_the_kernel_does_not_give_are_tried_before_the_start(
    make_server: Callable[..., Throwaway], tmp_path: Path, limit: int, most: int, words: str
) -> None:
    server = make_server(19)
    with psycopg.connect(conninfo(server)) as session:
        row = session.execute("SELECT 'io_uring' = ANY(enumvals) FROM pg_settings WHERE name = 'io_method'").fetchone()
    if row != (True,):
        pytest.skip("this build knows no io_uring")
    control = PostgresControl(resolve(conninfo(server)), directory=tmp_path, rules=Rules(allow_unsafe=True))
    wanted, terms = unlocked({"io_method": "io_uring", "max_connections": "600"})
    ours = resource.getrlimit(limit)
    resource.setrlimit(limit, (most, ours[1]))
    try:
        with pytest.raises(ServerProblem, match=f"would not start again: could not setup io_uring queue: {words}"):
            await control.apply_set(wanted, terms)
    finally:
        resource.setrlimit(limit, ours)
        await control.aclose()
