"""A fresh server of every major that is set well gives two findings above info: no archive, and trust on loopback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import Severity
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import HostSample
from pgtop_tune.postgres.server.conninfo import resolve
from tests.support.health_facts import details, spoilt
from tests.support.servers import MAJORS, conninfo

SETTINGS = {
    "fsync": "on",
    "shared_buffers": "512MB",
    "effective_cache_size": "1536MB",
    "work_mem": "4MB",
    "maintenance_work_mem": "64MB",
    "max_connections": "40",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "random_page_cost": "1.1",
    "wal_compression": "on",
    "idle_in_transaction_session_timeout": "10min",
    "shared_preload_libraries": "pg_stat_statements",
    "track_io_timing": "on",
    "log_checkpoints": "on",
    "log_lock_waits": "on",
    "log_temp_files": "10MB",
    "log_autovacuum_min_duration": "1min",
    "jit": "off",
}

PGBENCH = (
    "CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int)",
    "CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int REFERENCES pgbench_branches)",
    "CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int REFERENCES pgbench_branches)",
    "CREATE TABLE pgbench_history (tid int REFERENCES pgbench_tellers, bid int REFERENCES pgbench_branches, "
    "aid int REFERENCES pgbench_accounts)",
    "INSERT INTO pgbench_branches VALUES (1)",
    "INSERT INTO pgbench_accounts SELECT n, 1 FROM generate_series(1, 20000) n",
    "INSERT INTO pgbench_history SELECT NULL, 1, n FROM generate_series(1, 20000) n",
)
"""The tables of pgbench with --foreign-keys."""

MOST_INFO = 6

OF_THE_CALENDAR = {"CFG-04", "CFG-05"}
"""End of life and minor version: a matter of the day the test is run, not of the settings."""


OF_A_NEW_CLUSTER = {"ARC-01", "SEC-15"}
"""An archive is for people to choose; initdb was told to trust this machine."""


@pytest.mark.long
@pytest.mark.parametrize("major", MAJORS)
async def test_a_well_set_server_gives_two_findings_above_info(
    major: int, make_server: Callable[..., Throwaway]
) -> None:
    settings: dict[str, Any] = dict(SETTINGS)
    server = make_server(major, **settings)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE DATABASE shop")
    with psycopg.connect(conninfo(server, "shop"), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        connection.execute("CREATE TABLE customer (id bigint PRIMARY KEY, name text)")
        connection.execute("CREATE TABLE sale (id bigint PRIMARY KEY, customer bigint REFERENCES customer)")
        connection.execute("CREATE INDEX ON sale (customer)")
        connection.execute("INSERT INTO customer SELECT n, 'somebody' FROM generate_series(1, 1000) n")
        for statement in PGBENCH:
            connection.execute(statement.encode())
    with psycopg.connect(conninfo(server, "shop"), autocommit=True) as connection:
        # Of another session: counts of one that is there still arrive after its own ANALYZE.
        connection.execute("ANALYZE")
    facts = await gather(resolve(conninfo(server, "shop")), CHECKS)
    made = spoilt(memory_bytes=2 * 1024**3).frames[-1].host
    assert isinstance(made, HostSample)
    frames = tuple(replace(each, host=_machine(each.host, made)) for each in facts.frames)
    report = judge(CHECKS, replace(facts, frames=frames, machine=details()))
    above = [
        (check.id, finding.says)
        for check, finding in report.findings
        if finding.severity.rank > Severity.INFO.rank and check.id not in OF_THE_CALENDAR
    ]
    assert len(above) == len(OF_A_NEW_CLUSTER)
    assert {id_ for id_, _ in above} == OF_A_NEW_CLUSTER, above
    # As info: what is off by default, each with its own fix, and the age of the counters.
    info = [
        (check.id, finding.says)
        for check, finding in report.findings
        if finding.severity is Severity.INFO and check.id not in OF_THE_CALENDAR
    ]
    assert len(info) <= MOST_INFO, info


def _machine(seen: HostSample | Unavailable, made: HostSample) -> HostSample:
    """A well-set machine in place of that of the test, which is not ours to set."""
    assert isinstance(seen, HostSample)
    return replace(made, disks=seen.disks)
