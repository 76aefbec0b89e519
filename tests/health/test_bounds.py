"""Values that suit no server: each is made on a real one, found, fixed, undone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.safe_text import is_plain
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import CheckFinding
from pgtop_tune.health.fixes import by_hand
from pgtop_tune.health.questions import ScopedSettings
from pgtop_tune.health.registry import CHECKS
from tests.health.test_fixes_end_findings import again
from tests.support.health_facts import found, parameter
from tests.support.made_conditions import PARAMETERS
from tests.support.real_check import DEADLINE_S, checked
from tests.support.server_facts import row_of, spoiled
from tests.support.servers import conninfo
from tests.support.standby import standby_of

FOUND = {check for check, _, _ in PARAMETERS}
SELECT = tuple(sorted(FOUND | {"CFG-09"}))
Row = tuple[str, str, str]


def batches() -> Iterator[Sequence[Row]]:
    """Rows in as few batches as there are values of one parameter."""
    rest = list(PARAMETERS)
    while rest:
        batch = {name: (check, name, value) for check, name, value in reversed(rest)}
        yield tuple(batch.values())
        rest = [row for row in rest if row not in batch.values()]


def findings(server: Throwaway) -> dict[tuple[str, str], CheckFinding]:
    report = checked(server, "postgres", select=SELECT)
    return {(check.id, finding.subject): finding for check, finding in report.findings}


def run(server: Throwaway, statements: Sequence[str]) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def stored(server: Throwaway) -> list[str]:
    """postgresql.auto.conf without the order of its lines."""
    return sorted((Path(str(server.data_dir)) / "postgresql.auto.conf").read_text().splitlines())


def settled(server: Throwaway, wanted: Callable[[set[tuple[str, str]]], bool]) -> dict[tuple[str, str], CheckFinding]:
    """Looks until a reload has reached the server."""
    until = time.monotonic() + DEADLINE_S
    now = findings(server)
    while not wanted(set(now)) and time.monotonic() < until:
        now = findings(server)
    return now


@pytest.mark.long
@pytest.mark.parametrize("batch", tuple(batches()))
def test_a_value_that_suits_no_server_is_found_mended_and_put_back(
    batch: Sequence[Row], make_server: Callable[..., Throwaway]
) -> None:
    server = make_server()
    run(server, [f"ALTER SYSTEM SET {name} = '{value}'" for _, name, value in batch])
    server.restart()
    wanted = {(check, name) for check, name, _ in batch}
    made = findings(server)
    assert wanted - set(made) == set()
    before = stored(server)
    for key in wanted:
        fix = made[key].fix
        assert fix is not None
        assert fix.parameter is not None, fix.do
        run(server, fix.do.splitlines())
    server.restart()
    assert wanted & set(findings(server)) == set()
    for key in wanted:
        fix = made[key].fix
        assert fix is not None
        run(server, fix.undo.splitlines())
    assert stored(server) == before


def test_a_role_with_such_a_value_is_found_and_its_fix_runs(server: Throwaway) -> None:
    run(server, ["CREATE ROLE hasty LOGIN", "ALTER ROLE hasty SET session_replication_role = replica"])
    try:
        (said,) = [each for key, each in findings(server).items() if key[1].startswith("role hasty")]
        assert "triggers and foreign keys" in said.says
        assert said.fix is not None
        run(server, said.fix.do.splitlines())
        assert not [key for key in findings(server) if key[1].startswith("role hasty")]
        run(server, said.fix.undo.splitlines())
    finally:
        run(server, ["DROP ROLE hasty"])


def test_a_search_path_that_puts_a_schema_before_the_catalogue(fresh_server: Throwaway) -> None:
    late, of_role = ("CFG-08", "search_path"), ("CFG-08", "role late search_path")
    run(
        fresh_server,
        [
            "CREATE ROLE fine LOGIN", "ALTER ROLE fine SET search_path = pg_catalog, public",
            "CREATE ROLE late LOGIN", "ALTER ROLE late SET search_path = public, pg_catalog",
            "ALTER SYSTEM SET search_path = '$user', public, pg_catalog", "SELECT pg_reload_conf()",
        ],
    )  # fmt: skip
    made = settled(fresh_server, lambda seen: late in seen)
    assert {key for key in made if "search_path" in key[1]} == {late, of_role}
    assert "auto.conf" in (made[late].fix or by_hand("")).do
    fix = made[of_role].fix
    assert fix is not None
    run(fresh_server, fix.do.splitlines())
    run(fresh_server, ["ALTER SYSTEM RESET search_path", "SELECT pg_reload_conf()"])
    assert {late, of_role}.isdisjoint(settled(fresh_server, lambda seen: late not in seen))
    run(fresh_server, fix.undo.splitlines())
    assert of_role in findings(fresh_server)


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"io_method": "worker", "io_workers": "1"}, "io_workers"),
        ({"io_method": "io_uring", "io_workers": "1"}, None),
        ({"autovacuum_max_workers": "9", "autovacuum_worker_slots": "3"}, "autovacuum_max_workers"),
        ({"autovacuum_vacuum_threshold": "0", "autovacuum_vacuum_scale_factor": "0"}, "autovacuum_vacuum_threshold"),
        ({"autovacuum_vacuum_threshold": "1000", "autovacuum_vacuum_scale_factor": "0"}, None),
    ],
)
def test_values_that_only_together_suit_no_server(parameters: dict[str, str], name: str | None) -> None:
    checks = [check for check in CHECKS if check.id in ("PLAN-04", "VAC-07")]
    rows = [row_of(each, value, "", "real", "sighup") for each, value in parameters.items()]
    said = [finding.subject for check in checks for finding in found(check, spoiled(more=rows))]
    assert said == ([] if name is None else [name])


def test_a_server_without_limits_for_sessions(fresh_server: Throwaway) -> None:
    def unlimited() -> list[str]:
        report = checked(fresh_server, "postgres", select=("CON-06",))
        return [finding.says for _, finding in report.findings]

    assert unlimited() == ["no session is limited by statement_timeout, lock_timeout, temp_file_limit"]
    run(fresh_server, ["CREATE ROLE app LOGIN", "ALTER ROLE app SET statement_timeout = '1min'"])
    assert unlimited() == ["no session is limited by lock_timeout, temp_file_limit"]


@pytest.mark.long
def test_limits_of_a_standby_are_no_matter_of_its_primary(make_server: Callable[..., Throwaway]) -> None:
    primary = make_server()
    bad = [f"ALTER SYSTEM SET {name} = -1" for name in ("max_standby_streaming_delay", "max_standby_archive_delay")]
    run(primary, [*bad, "SELECT pg_reload_conf()"])
    standby = standby_of(primary, make_server, "limits", primary.binaries)
    assert {name for check, name in findings(primary) if check == "REP-05"} == set()
    names = {name for check, name in settled(standby, lambda seen: len(seen) > 1) if check == "REP-05"}
    assert names == {"max_standby_streaming_delay", "max_standby_archive_delay"}


def test_a_thousand_settings_of_roles_are_one_finding_of_a_readable_length() -> None:
    check = next(each for each in CHECKS if each.id == "CFG-09")
    rows = tuple(ScopedSettings(None, f"tenant_{number}", ("work_mem=8MB",)) for number in range(1000))
    (finding,) = found(check, spoiled(answers={"check_scoped_settings": rows}))
    assert finding.says.startswith("1000 settings of roles and databases override the server's: work_mem for role ten")
    assert finding.fix is not None
    assert len(finding.fix.do.splitlines()) == 20
    assert "980 more are not listed" in finding.fix.remark


def test_a_log_that_is_never_rotated(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(logging_collector="on", log_rotation_size="0", log_rotation_age="0")
    said = findings(server)[("LOG-06", "log_rotation_age")]
    assert said.fix is not None
    run(server, said.fix.do.splitlines())
    assert ("LOG-06", "log_rotation_age") not in settled(
        server, lambda seen: ("LOG-06", "log_rotation_age") not in seen
    )


@pytest.mark.parametrize(
    ("empties", "name", "found_there"),
    [("on", "postgresql.log", True), ("on", "postgresql-%a.log", False), ("off", "postgresql.log", False)],
)
def test_a_log_that_is_never_emptied(
    empties: str, name: str, found_there: bool, make_server: Callable[..., Throwaway]
) -> None:
    server = make_server(logging_collector="on", log_truncate_on_rotation=empties, log_filename=name)
    key = ("LOG-06", "log_filename")
    made = findings(server)
    assert (key in made) == found_there
    if not found_there:
        return
    fix, before = made[key].fix, stored(server)
    assert fix is not None
    run(server, fix.do.splitlines())
    assert key not in settled(server, lambda seen: key not in seen)
    run(server, fix.undo.splitlines())
    assert stored(server) == before
    assert key in settled(server, lambda seen: key in seen)


def test_the_tablespaces_of_a_role_that_were_dropped(server: Throwaway) -> None:
    """Those that are there stay in the list."""

    def said() -> list[CheckFinding]:
        report = checked(server, "postgres", select=("CFG-10",))
        return [finding for _, finding in report.findings]

    name = 'ga"p \x1b\u202e'
    assert said() == []
    run(server, [f"ALTER SYSTEM SET temp_tablespaces = '{name}', pg_default", "SELECT pg_reload_conf()"])
    try:
        until = time.monotonic() + DEADLINE_S
        while not (made := said()) and time.monotonic() < until:
            pass
        (finding,) = made
        assert finding.fix is not None
        assert is_plain(finding.fix.do.replace("\n", " "))
        assert is_plain(finding.fix.undo.replace("\n", " "))
        run(server, finding.fix.do.splitlines())
        while (left := said()) and time.monotonic() < until:
            pass
        assert left == []
        assert "temp_tablespaces = 'pg_default'" in stored(server)
        run(server, finding.fix.undo.splitlines())
        run(server, ["CREATE ROLE sorter LOGIN", "ALTER ROLE sorter SET temp_tablespaces = gone"])
        subjects = {each.subject for each in said()}
        assert subjects == {"temp_tablespaces", "role sorter temp_tablespaces"}
    finally:
        run(server, ["DROP ROLE IF EXISTS sorter", "ALTER SYSTEM RESET temp_tablespaces", "SELECT pg_reload_conf()"])


def test_the_mask_of_a_secret_is_never_put_back_as_a_value() -> None:
    check = next(each for each in CHECKS if each.id == "CFG-09")
    rows = (ScopedSettings(None, "app", ("work_mem=8MB", "application_name=password=********")),)
    (finding,) = found(check, spoiled(answers={"check_scoped_settings": rows}))
    assert finding.fix is not None
    plain, masked = finding.fix.undo.splitlines()
    assert plain == """ALTER ROLE "app" SET "work_mem" = '8MB';"""
    assert masked.startswith("-- Save the present value first")


@pytest.mark.parametrize(
    ("id_", "name", "good", "bad"),
    [
        ("WAL-07", "max_wal_size", "1024", "1023"),
        ("WAL-07", "checkpoint_timeout", "300", "299"),
        # To PostgreSQL it is another word for read committed: nobody has to retry anything.
        ("CFG-08", "default_transaction_isolation", "read uncommitted", "repeatable read"),
    ],
)
def test_the_limit_itself_is_no_finding(id_: str, name: str, good: str, bad: str) -> None:
    check = next(each for each in CHECKS if each.id == id_)
    assert [each.subject for each in found(check, spoiled({name: good}))] == []
    assert [each.subject for each in found(check, spoiled({name: bad}))] == [name]


def test_another_limit_can_be_given() -> None:
    check = next(each for each in CHECKS if each.id == "WAL-07")
    assert found(check, spoiled({"max_wal_size": "512"}), max_wal_size=256 * 2**20) == ()


def test_a_number_that_is_advised_is_kept_and_its_limit_raised() -> None:
    """The control group of these facts has two processors."""
    check = next(each for each in CHECKS if each.id == "PLAN-05")
    workers, most = (
        parameter(name, value, vartype="integer")
        for name, value in (("max_parallel_workers", "2"), ("max_worker_processes", "1"))
    )
    (finding,) = (
        each for each in found(check, spoiled(more=(workers, most))) if each.subject == "max_parallel_workers"
    )
    assert finding.fix is not None
    assert finding.fix.parameter == ("max_worker_processes", "8")


def test_a_number_is_lowered_together_with_a_limit_that_is_too_low_for_it() -> None:
    check = next(each for each in CHECKS if each.id == "PLAN-05")
    per_query, most = (
        parameter(name, value, vartype="integer")
        for name, value in (("max_parallel_workers_per_gather", "2"), ("max_parallel_workers", "0"))
    )
    facts = spoiled(more=(per_query, most))
    (finding,) = (each for each in found(check, facts) if each.subject == "max_parallel_workers_per_gather")
    assert finding.fix is not None
    assert '"max_parallel_workers" = ' in finding.fix.do
    assert [left.subject for left, _ in again(check, facts)] == []


def test_a_value_that_is_advised_for_this_server_is_no_finding() -> None:
    check = next(each for each in CHECKS if each.id == "PLAN-04")
    for target, findings_there in (("100", 0), ("120", 1)):
        facts = spoiled(more=(parameter("default_statistics_target", target, vartype="integer"),))
        assert len(found(check, facts, default_statistics_target=150.0)) == findings_there


def test_lists_of_a_role_are_put_back_element_by_element(fresh_server: Throwaway) -> None:
    """One literal would be one schema of that name, and the application finds no table."""
    run(
        fresh_server,
        [
            'CREATE ROLE "wo\'rker" LOGIN',
            'ALTER ROLE "wo\'rker" SET search_path = "$user", "Sh""op, x", public',
            'ALTER ROLE "wo\'rker" SET temp_tablespaces = pg_default, pg_global',
            "ALTER ROLE \"wo'rker\" SET application_name = 'a, b'",
        ],
    )

    def settings() -> list[str]:
        with psycopg.connect(conninfo(fresh_server)) as connection:
            return [row[0] for row in connection.execute("SELECT unnest(setconfig) FROM pg_db_role_setting ORDER BY 1")]

    before = settings()
    (said,) = (each for (check, _), each in findings(fresh_server).items() if check == "CFG-09")
    assert said.fix is not None
    run(fresh_server, said.fix.do.splitlines())
    assert settings() == []
    run(fresh_server, said.fix.undo.splitlines())
    assert settings() == before
