"""`parameters`, `advise` and `diff`: what is set, where one would start, what differs."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.advice.facts import AdviceFacts
from pgtop_tune.advice.gather import Beside, facts_of
from pgtop_tune.advice.proposal import propose
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import GB
from pgtop_tune.cli.commands.parameters.advice import advice_text, configuration, script
from pgtop_tune.cli.commands.parameters.differences import differing
from pgtop_tune.cli.connections import ConnectionWords
from pgtop_tune.cli.parameter_rows import parameter_rows, parameter_table
from pgtop_tune.cli.snapshot import look
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.machine import DiskKind, Workload
from pgtop_tune.model.postgres import Activity, Parameter, WalCounters
from tests.cli.runs import run
from tests.support.frames import frame, postgres_sample
from tests.support.processes import eventually
from tests.support.servers import conninfo

FACTS = AdviceFacts(
    major=18, ram_bytes=16 * GB, cores=4, disk=DiskKind.SSD, max_connections=100, shared_buffers_bytes=4 * GB
)
ADVISED = propose(FACTS).parameters


def parameter(name: str, setting: str, **more: object) -> Parameter:
    plain = Parameter(
        name, setting, setting, "", "", "", "sighup", "integer", "default", "", "", (), setting, "", "", False
    )
    return replace(plain, **more)  # type: ignore[arg-type]


BUFFERS = parameter("shared_buffers", "524288", unit="8kB", shown="4GB", context="postmaster", boot_val="16384")
COST = parameter("random_page_cost", "4", vartype="real", context="user")


def test_a_value_written_otherwise_is_not_advised_again() -> None:
    buffers, cost = parameter_rows((COST, BUFFERS), ADVISED)
    assert (buffers.differs, buffers.changed) == (False, True)
    assert (cost.differs, cost.changed) == (True, False)


def test_a_value_that_waits_for_a_restart_counts_as_set() -> None:
    waits = replace(BUFFERS, setting="16384", shown="128MB", pending_restart=True, pending="4GB")
    (row,) = parameter_rows((waits,), ADVISED)
    assert not row.differs
    assert parameter_table((row,)).rows[0][4] == "4GB"
    (other,) = parameter_rows((replace(waits, pending="5GB"),), ADVISED)
    assert other.differs


def test_what_the_server_works_out_from_minus_one_is_not_advised_again() -> None:
    derived = parameter("wal_buffers", "2048", unit="8kB", source="override", boot_val="-1")
    (row,) = parameter_rows((derived,), ADVISED)
    assert row.advice is not None
    assert (row.advice.value, row.differs) == ("-1", False)


def test_a_value_the_server_was_not_built_for_is_not_advised() -> None:
    built = parameter("wal_compression", "off", vartype="enum", enumvals=("pglz", "on", "off"))
    (row,) = parameter_rows((built,), ADVISED)
    assert row.advice is not None
    assert row.advice.value is None
    assert row.advice.because.endswith("This server was built without lz4.")


@pytest.mark.parametrize("source", ["command line", "user", "database", "database user", "client"])
def test_what_alter_system_would_not_change_is_not_advised(source: str) -> None:
    small = replace(BUFFERS, setting="16384", shown="128MB", source=source)
    (row,) = parameter_rows((small,), ADVISED)
    assert row.advice is not None
    assert (row.advice.value, row.differs, row.out_of_reach) == (None, False, True)
    (has_it,) = parameter_rows((replace(BUFFERS, source=source),), ADVISED)
    assert not has_it.out_of_reach


def test_values_of_a_role_and_of_the_command_line_are_not_asked_for_again_and_again(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    """ALTER SYSTEM changes neither what the role has, nor what a restart gives a server again."""
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("ALTER ROLE CURRENT_USER SET work_mem = '1MB'")
        connection.execute("ALTER SYSTEM SET port = 6000")
        connection.execute("SELECT pg_reload_conf()")
        asked = "SELECT pending_restart AND source = 'command line' FROM pg_settings WHERE name = 'port'"
        assert eventually(lambda: connection.execute(asked).fetchone() == (True,))
        flag = "SELECT pending_restart FROM pg_settings WHERE name = 'wal_buffers'"
        for command in ("SET wal_buffers = '64MB'", "RESET wal_buffers"):
            connection.execute(f"ALTER SYSTEM {command}")
            connection.execute("SELECT pg_reload_conf()")
            # The server does not take the flag back.
            assert eventually(lambda: connection.execute(flag).fetchone() == (True,))
        gone = "SELECT NOT EXISTS (SELECT FROM pg_file_settings WHERE name = 'wal_buffers')"
        assert eventually(lambda: connection.execute(gone).fetchone() == (True,))
    sample = look(ConnectionWords(target=conninfo(fresh_server))).now(sections.parameters)
    assert sample is not None
    found = {each.name: each for each in sample.parameters}
    assert [each.name for each in found.values() if each.pending_restart] == []
    assert (found["port"].pending, found["work_mem"].source) == (None, "user")
    ran = run("advise", "--seconds", "0", "--format", "sql", conninfo(fresh_server), home=tmp_path)
    assert ran.status == 0, ran.err
    assert '"work_mem"' not in ran.out
    ran = run("advise", "--seconds", "0", "--group", "memory", conninfo(fresh_server), home=tmp_path)
    assert "has a value of its own, which hides the server's" in ran.out


def test_an_unknown_group_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageProblem) as refused:
        parameter_rows((), ADVISED, "memori")
    assert "did you mean memory?" in refused.value.hint


def test_what_needs_a_restart_comes_last_and_says_so() -> None:
    rows = parameter_rows((replace(BUFFERS, setting="16384", shown="128MB"), COST), ADVISED)
    lines = script(rows)
    assert lines[-4] == "ALTER SYSTEM SET \"random_page_cost\" = '1.1';"
    assert lines[-3].endswith(" Takes effect with a restart.")
    assert lines[-2:] == ["ALTER SYSTEM SET \"shared_buffers\" = '4GB';", "SELECT pg_reload_conf();"]
    assert "shared_buffers = '4GB'" in configuration(rows)
    assert any("others: pgtune 4GB" in line for line in advice_text(rows))


def test_facts_are_read_off_frames() -> None:
    made = frame(30)
    facts = facts_of(Interval((frame(29), made)), Beside(Workload.OLAP, DiskKind.NETWORK))
    assert facts is not None
    assert facts.ram_bytes == made.host.facts.memory_bytes  # type: ignore[union-attr]
    assert facts.cores == made.host.facts.cpu_count  # type: ignore[union-attr]
    assert (facts.workload, facts.disk) == (Workload.OLAP, DiskKind.NETWORK)
    assert facts.wal_bytes_per_s is not None
    assert facts.wal_bytes_per_s > 0


def test_a_load_counts_whose_sessions_are_all_idle_in_a_transaction_at_the_newest_sample() -> None:
    frames = [frame(second) for second in range(20, 31)]
    activity, wal = (sections.activity(frames[-1]), sections.wal(frames[-1]))
    assert isinstance(activity, Activity)
    assert isinstance(wal, WalCounters)
    between = replace(
        activity, backends=tuple(replace(backend, state="idle in transaction") for backend in activity.backends)
    )
    frames[-1] = frame(30, postgres=postgres_sample(30, activity=between))
    facts = facts_of(Interval(frames), Beside(Workload.OLTP))
    first = sections.wal(frames[1])
    assert facts is not None
    assert isinstance(first, WalCounters)
    assert facts.wal_bytes_per_s == pytest.approx((wal.lsn_bytes - first.lsn_bytes) / 9)
    assert facts.wal_rate_source.endswith("mean of 9.0 s")


def test_parameters_that_differ_are_named_and_places_told_apart() -> None:
    here = {each.name: each for each in (BUFFERS, COST, parameter("port", "5432"), parameter("only_here", "1"))}
    there = {each.name: each for each in (replace(BUFFERS, shown="8GB"), COST, parameter("port", "5433"))}
    found = {each.name: (each.a, each.b, each.of_the_place, each.one_sided) for each in differing(here, there)}
    assert found == {
        "shared_buffers": ("4GB", "8GB", False, False),
        "port": ("5432", "5433", True, False),
        "only_here": ("1", None, False, True),
    }


def test_a_server_is_listed_advised_and_compared_with_its_recording(fresh_server: Throwaway, tmp_path: Path) -> None:
    target = conninfo(fresh_server)
    recording = tmp_path / "before.jsonl"
    assert run("record", "-q", "-o", str(recording), "--seconds", "3", target, home=tmp_path).status == 0
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_wal_size = '3GB'")
        connection.execute("SELECT pg_reload_conf()")
    ran = run("parameters", "--changed", "--format", "json", target, home=tmp_path)
    assert ran.status == 0, ran.err
    changed = {each["name"]: each for each in json.loads(ran.out)}
    assert changed["max_wal_size"]["value"] == "3GB"
    assert "postgresql.auto.conf" in changed["max_wal_size"]["source_file"]
    assert "min_wal_size" not in changed
    ran = run("diff", str(recording), target, home=tmp_path)
    assert ran.status == 0, ran.err
    rows = [line.split() for line in ran.out.splitlines()]
    # Another test may be changing a setting of this machine, and gives it back.
    assert [row for row in rows if "." not in row[0] and "/" not in row[0]] == [
        ["parameter", "A", "B"],
        ["max_wal_size", "1GB", "3GB"],
    ]
    ran = run("advise", "--disk", "ssd", "--format", "sql", "--seconds", "1", target, home=tmp_path)
    assert ran.status == 0, ran.err
    with psycopg.connect(target, autocommit=True) as connection:
        for line in ran.out.splitlines():
            if line.startswith("ALTER"):
                connection.execute(line.encode())
        cost = connection.execute("SELECT setting FROM pg_file_settings WHERE name = 'random_page_cost'").fetchall()
    assert cost == [("1.1",)]
    ran = run("advise", "--format", "sysctl", "--seconds", "0", target, home=tmp_path)
    assert ran.status == 0, ran.err
    names = [line.partition(" = ")[0] for line in ran.out.splitlines() if not line.startswith("#")]
    assert all(name.startswith(("vm.", "kernel.")) for name in names)
    assert "vm.overcommit_memory" not in names[:-1]


def test_what_is_no_recording_and_no_server_is_said(tmp_path: Path) -> None:
    ran = run("diff", "pyproject.toml", "shop", home=tmp_path)
    assert (ran.status, "not a recording" in ran.err) == (5, True)
