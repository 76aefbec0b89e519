"""Sixty pairs of values on four majors: whatever passes starts, and whatever is refused would not have started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from pgtop_tune.base.errors import ClusterProblem, PgtopError
from pgtop_tune.changes.model.change import Terms, WantedParameter
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.one_change import Rules
from pgtop_tune.cluster import auto_conf
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import resolve
from tests.support.servers import conninfo

VALUES: Final[dict[str, tuple[str, ...]]] = {
    "min_wal_size": ("16MB", "31MB", "32MB"),
    "max_wal_size": ("2MB", "33MB", "1GB"),
    "wal_keep_size": ("0", "1GB"),
    "max_slot_wal_keep_size": ("-1", "1GB"),
    "superuser_reserved_connections": ("0", "19", "20", "21"),
    "reserved_connections": ("0", "17", "18"),
    "max_connections": ("3", "4", "500"),
    "wal_level": ("minimal", "replica", "logical"),
    "archive_mode": ("on", "always"),
    "max_wal_senders": ("0", "1", "30"),
    "summarize_wal": ("on",),
    "shared_buffers": ("128kB", "900GB"),
    "shared_preload_libraries": ("nope_lib", ""),
    "log_directory": ("log", "/nonexistent/deep/log", "made/below"),
    "logging_collector": ("on",),
    "ssl": ("on",),
    "ssl_cert_file": ("nope.crt", "/etc/hostname"),
    "ssl_min_protocol_version": ("TLSv1.3",),
    "ssl_max_protocol_version": ("TLSv1.1", "TLSv1.2"),
    "hba_file": ("/nonexistent/hba",),
    "ident_file": ("/nonexistent/ident",),
    "listen_addresses": ("", "no.such.name.invalid"),
    "unix_socket_directories": ("/nonexistent",),
    "external_pid_file": ("/nonexistent/pid",),
    "huge_pages": ("on", "try"),
    "recovery_target": ("immediate",),
    "recovery_target_time": ("2026-01-01 00:00:00",),
    "primary_slot_name": ("a_slot", "A b"),
    "temp_tablespaces": ("nope",),
    "lc_messages": ("nope",),
    "log_timezone": ("Nowhere/Nope",),
    "max_stack_depth": ("100kB", "7MB"),
    "wal_buffers": ("-1", "32kB"),
    "max_prepared_transactions": ("5",),
    "unix_socket_group": ("nope_group",),
    "dynamic_shared_memory_type": ("mmap", "sysv"),
    "jit_provider": ("nope",),
    "archive_library": ("nope",),
    "io_method": ("sync", "worker"),
    "track_commit_timestamp": ("on",),
    "max_locks_per_transaction": ("10",),
    "db_user_namespace": ("on",),
    "max_replication_slots": ("1", "2"),
    "dynamic_library_path": ("/nonexistent", "$libdir"),
    "log_statement_stats": ("on",),
    "huge_page_size": ("3kB",),
    "port": ("6543", "1"),
}
TOGETHER: Final = (
    {"superuser_reserved_connections": "10", "max_connections": "10"},
    {"wal_level": "minimal", "max_wal_senders": "0"},
    {"wal_level": "minimal", "max_wal_senders": "0", "archive_mode": "on"},
    {"wal_level": "minimal", "max_wal_senders": "0", "summarize_wal": "on"},
    {"min_wal_size": "32MB", "max_wal_size": "32MB"},
    {"log_directory": "/nonexistent/log", "logging_collector": "on"},
    {"log_directory": "new_log", "logging_collector": "on"},
    {"log_directory": "postgresql.conf", "logging_collector": "on"},
    {"recovery_target": "immediate", "recovery_target_time": "2026-01-01 00:00:00"},
    {"ssl": "on", "ssl_cert_file": "nope.crt"},
    {"archive_command": "true", "archive_mode": "on"},
    {"log_statement_stats": "on", "log_parser_stats": "on"},
    {"huge_pages": "on", "shared_memory_type": "sysv"},
    {"huge_pages": "on", "huge_page_size": "3kB"},
    {"logging_collector": "on", "log_filename": ""},
    {"logging_collector": "on", "log_directory": "/root"},
    {"logging_collector": "on", "log_directory": "/proc"},
    {"logging_collector": "on", "log_directory": "/tmp"},
    {"huge_pages": "on", "huge_page_size": "1GB"},
    {"logging_collector": "on", "log_filename": "deep/log"},
    {"logging_collector": "on", "log_filename": "x" * 256},
    {"logging_collector": "on", "log_directory": "", "log_filename": "postgresql.log"},
    {"shared_preload_libraries": "plpgsql", "dynamic_library_path": "/nonexistent"},
    {"shared_preload_libraries": "plpgsql"},
)
"""Small servers: 20 connections, segments of 16 MB."""


BEFORE: Final = ("ALTER SYSTEM SET wal_level = 'logical'", "ALTER SYSTEM SET max_prepared_transactions = 9")
KEPT: Final = (
    "SELECT pg_create_physical_replication_slot('one', true)",
    "SELECT pg_create_logical_replication_slot('two', 'pgoutput')",
    "CREATE TABLE t ()",
    "BEGIN",
    *(f"INSERT INTO t DEFAULT VALUES; PREPARE TRANSACTION 'p{number}'; BEGIN" for number in range(6)),
)


def pairs() -> Iterator[dict[str, str]]:
    for name, values in VALUES.items():
        yield from ({name: value} for value in values)
    yield from TOGETHER


def starts(server: Throwaway) -> bool:
    try:
        server.restart()
    except ClusterProblem:
        return False
    return True


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("major", [14, 16, 18, 19])
async def test_whatever_passes_starts_and_nothing_is_refused_that_would(
    make_server: Callable[..., Throwaway], tmp_path: Path, major: int
) -> None:
    server = make_server(major, max_connections="20")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        # What is on the disk counts, too: two slots, and a transaction that is prepared.
        for statement in BEFORE:
            connection.execute(statement)
    assert starts(server)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        for statement in KEPT:
            connection.execute(statement)
    data, wrong = str(server.data_dir), list[str]()
    before, tried = auto_conf.read(data), 0
    for number, values in enumerate(pairs()):
        control = PostgresControl(
            resolve(conninfo(server)), directory=tmp_path / str(number), rules=Rules(allow_unsafe=True)
        )
        found = await control.list(tuple(values))
        if len(found) < len(values):
            await control.aclose()
            continue
        tried += 1
        try:
            await control.apply_set([WantedParameter(*each) for each in values.items()], Terms())
            refusal = ""
        except PgtopError as problem:
            refusal = f"{problem.message} ({problem.hint})"
        await control.aclose()
        if refusal and "would not start" not in refusal and "no client could connect" not in refusal:
            # The server's own words, before any start.
            continue
        if refusal:
            text = before
            for name, value in values.items():
                text = auto_conf.with_line(text, name, value)
            auto_conf.write(data, text)
        does_start = starts(server)
        if does_start is bool(refusal):
            wrong.append(f"{values}: {'starts' if does_start else 'does not start'}, and was told: {refusal or 'fine'}")
        auto_conf.write(data, before)
        assert starts(server)
    assert tried > 60
    assert not wrong, "\n".join(wrong)
