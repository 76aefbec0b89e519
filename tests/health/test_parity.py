"""What replay needs of a standby, for real."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import Severity
from pgtop_tune.health.facts import Answers, CheckFacts
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.questions import ControlFile
from pgtop_tune.health.registry import by_id
from pgtop_tune.health.report import CheckResult
from pgtop_tune.health.server_files import AT_LEAST, settings_of_primary
from pgtop_tune.model.absence import Reason, Unavailable
from tests.postgres.conftest import place
from tests.support.health_facts import parameter, spoilt
from tests.support.real_check import DEADLINE_S
from tests.support.servers import MAJORS, conninfo
from tests.support.standby import standby_of

PARITY = by_id("REP-07")
LABELS = {
    "max_connections setting": "max_connections", "max_worker_processes setting": "max_worker_processes",
    "max_wal_senders setting": "max_wal_senders", "max_prepared_xacts setting": "max_prepared_transactions",
    "max_locks_per_xact setting": "max_locks_per_transaction", "wal_level setting": "wal_level",
    "wal_log_hints setting": "wal_log_hints", "track_commit_timestamp setting": "track_commit_timestamp",
}  # fmt: skip
"""Lines of pg_controldata."""


def parity(facts: CheckFacts) -> CheckResult:
    return judge([PARITY], facts).results[0]


def seen(server: Throwaway) -> CheckFacts:
    return asyncio.run(gather(place(server, "postgres", "postgres"), [PARITY]))


@pytest.mark.long
@pytest.mark.parametrize("major", MAJORS)
def test_the_control_file_is_read_as_pg_controldata_reads_it(major: int, make_server: Callable[..., Throwaway]) -> None:
    server = make_server(
        major, max_connections="37", max_worker_processes="11", max_wal_senders="7", max_prepared_transactions="3",
        max_locks_per_transaction="70", wal_level="logical", wal_log_hints="on", track_commit_timestamp="on",
    )  # fmt: skip
    with psycopg.connect(conninfo(server)) as connection:
        row = connection.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone()
    assert row is not None
    content = (Path(str(server.data_dir)) / "global/pg_control").read_bytes()[:512]
    found = settings_of_primary(content, row[0])
    assert found == {
        "max_connections": "37", "max_worker_processes": "11", "max_wal_senders": "7", "max_prepared_transactions": "3",
        "max_locks_per_transaction": "70", "wal_level": "logical", "wal_log_hints": "on",
        "track_commit_timestamp": "on",
    }  # fmt: skip
    program = server.binaries.program("pg_controldata")
    if not program.exists():
        return  # Packages of some majors are without it.
    shown = subprocess.run(
        [str(program), str(server.data_dir)],
        env={"LC_ALL": "C", **server.binaries.environment()}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    lines = dict(line.split(":", 1) for line in shown.splitlines() if ":" in line)
    assert found == {name: lines[label].strip() for label, name in LABELS.items()}


def test_a_control_file_of_another_server_or_form_says_nothing() -> None:
    for content in (b"", b"short", bytes(512), (7).to_bytes(8, "little") + (9900).to_bytes(4, "little") + bytes(500)):
        with pytest.raises(ValueError, match="control file"):
            settings_of_primary(content, "7")
    with pytest.raises(ValueError, match="where expected"):
        settings_of_primary((7).to_bytes(8, "little") + (1800).to_bytes(4, "little") + bytes(500), "7")


@pytest.mark.long
def test_a_standby_with_less_than_its_primary_is_found_before_and_after_it_stops(
    make_server: Callable[..., Throwaway],
) -> None:
    primary = make_server(max_connections="30")
    standby = standby_of(primary, make_server, "parity", primary.binaries)
    alone = parity(seen(standby))
    assert (alone.findings, alone.unknowns) == ((), ())
    with psycopg.connect(conninfo(primary), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_connections = 50")
    primary.restart()
    until = time.monotonic() + DEADLINE_S
    # The WAL brings it: the standby knows of it by itself.
    while not (found := parity(seen(standby)).findings) and time.monotonic() < until:
        time.sleep(0.1)
    assert [(each.severity, each.subject) for each in found] == [(Severity.HIGH, "max_connections")]
    assert found[0].fix is not None
    assert found[0].fix.parameter == ("max_connections", "50")
    with psycopg.connect(conninfo(standby), autocommit=True) as connection:
        connection.execute(found[0].fix.do.encode())
        waits = "SELECT applied FROM pg_file_settings WHERE name = 'max_connections' AND setting = '50'"
        assert connection.execute(waits.encode()).fetchall()
        connection.execute(found[0].fix.undo.encode())
        assert not connection.execute(waits.encode()).fetchall()
    assert parity(seen(primary)) == CheckResult(PARITY)


def standby(**parameters: str) -> CheckFacts:
    rows = {name: parameter(name, value, vartype="integer") for name, value in parameters.items()}
    facts = spoilt(server={"in_recovery": True})
    return with_rows(facts, rows)


def with_rows(facts: CheckFacts, rows: dict[str, object]) -> CheckFacts:
    newest = facts.frames[-1]
    assert not isinstance(newest.postgres, Unavailable)
    sample = newest.postgres.parameters
    assert not isinstance(sample, Unavailable)
    kept = tuple(row for row in sample.parameters if row.name not in rows)
    postgres = replace(newest.postgres, parameters=replace(sample, parameters=(*kept, *rows.values())))
    return replace(facts, frames=(*facts.frames[:-1], replace(newest, postgres=postgres)))


def test_what_cannot_be_known_is_said() -> None:
    refused = Unavailable(Reason.NO_PERMISSION, "permission denied for function pg_read_binary_file")
    facts = replace(standby(), answers={**standby().answers, "check_control": refused})
    [unknown] = parity(facts).unknowns
    assert "permission denied" in unknown.reason
    other = replace(facts, answers={**facts.answers, "check_control": Answers((("", ControlFile(b"\x00" * 512)),))})
    assert "another system identifier" in parity(other).unknowns[0].reason


def test_a_value_that_the_wal_has_brought_is_needed() -> None:
    facts = standby(max_connections="40")
    server = facts.frames[-1].postgres.server  # type: ignore[union-attr]
    head = int(server.system_identifier).to_bytes(8, "little") + (1800).to_bytes(4, "little")  # type: ignore[union-attr]
    settings = (1).to_bytes(4, "little") + bytes(4) + b"".join(n.to_bytes(4, "little") for n in (50, 8, 10, 0, 64))
    content = head.ljust(172, b"\x00") + settings.ljust(340, b"\x00")
    made = replace(facts, answers={**facts.answers, "check_control": Answers((("", ControlFile(content)),))})
    assert [each.subject for each in parity(made).findings if each.severity is Severity.HIGH] == ["max_connections"]
    assert set(AT_LEAST) == {name for name in LABELS.values() if name.startswith("max_")}
