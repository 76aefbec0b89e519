"""A parameter of the server, of a database, of a role: each is found where it is set, and put back where it was."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import Language
from pgtop_tune.health.configured import as_configured, row_with_value
from pgtop_tune.health.facts import Answers
from pgtop_tune.health.questions import CONFIGURED, ConfiguredLine, StartOptions
from pgtop_tune.model.postgres import ParameterSample
from tests.support.health_facts import parameter
from tests.support.quick_server import quick_server
from tests.support.real_check import checked, sayings
from tests.support.servers import MAJORS, NotAvailable, Servers, conninfo

DATABASE = "shop"
LEVELS = (
    "ALTER SYSTEM SET synchronous_commit = off",
    "ALTER SYSTEM SET effective_cache_size = '900MB'",
    "ALTER SYSTEM SET log_min_duration_statement = '5000'",
    f"CREATE DATABASE {DATABASE}",
    "CREATE ROLE reports LOGIN",
    f"ALTER DATABASE {DATABASE} SET synchronous_commit = on",
    f"ALTER DATABASE {DATABASE} SET work_mem = '64GB'",
    f"ALTER DATABASE {DATABASE} SET log_min_duration_statement = 0",
    f"ALTER DATABASE {DATABASE} SET enable_seqscan = off",
    "ALTER ROLE reports SET work_mem = '65MB'",
    f"ALTER ROLE reports IN DATABASE {DATABASE} SET random_page_cost = 4",
    "ALTER ROLE ALL SET zero_damaged_pages = on",
    "SELECT pg_reload_conf()",
)
STANDING = """
SELECT 'auto', name, setting FROM pg_file_settings WHERE sourcefile LIKE '%auto.conf'
UNION ALL SELECT setdatabase::text, setrole::text, unnest(setconfig) FROM pg_db_role_setting ORDER BY 1, 2, 3
"""
GROUPS = ("DUR", "MEM-01", "MEM-04", "MEM-05", "LOG", "PLAN-03", "TXN-01", "VAC", "SEC-02")


@pytest.fixture(
    scope="module", params=(pytest.param(MAJORS[0], marks=pytest.mark.long), MAJORS[-1]), ids=lambda major: f"pg{major}"
)
def levels(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Throwaway]:
    try:
        binaries = servers.binaries(request.param)
    except NotAvailable as problem:
        pytest.skip(f"no PostgreSQL {request.param}: {problem}")
    server = quick_server(binaries, work_mem="5MB")
    try:
        with psycopg.connect(conninfo(server), autocommit=True) as root:
            for statement in LEVELS:
                root.execute(statement.encode())
        yield server
    finally:
        server.stop("immediate")


def test_the_server_is_judged_and_not_the_session_that_asks(levels: Throwaway) -> None:
    report = checked(levels, DATABASE, select=GROUPS)
    says = sayings(report)
    assert "DUR-03 synchronous_commit is off: a crash" in says
    memory = [finding for check, finding in report.findings if check.id == "MEM-01"]
    assert not any("work_mem 64" in evidence.says for finding in memory for evidence in finding.evidence)
    assert "MEM-04 work_mem is 64GB for database shop: each sort" in says
    assert "MEM-04 work_mem is 65MB for role reports: each sort" in says
    assert "DUR-04 zero_damaged_pages is on for all roles: the server silently skips" in says
    assert "zero_damaged_pages is on: " not in says
    assert "LOG-02 log_min_duration_statement is 0 for database shop: under load" in says
    assert "log_min_duration_statement is 0: " not in says
    assert "PLAN-03 enable_seqscan is off for database shop" in says
    assert "all queries are planned without it" not in says


def test_every_fix_and_its_undo_runs_and_leaves_what_stood_there(levels: Throwaway) -> None:
    """The undo wrote the value of the checker's database into the server's configuration."""
    with psycopg.connect(conninfo(levels), autocommit=True) as root:
        before = root.execute(STANDING).fetchall()
        fixes = [finding.fix for _, finding in checked(levels, DATABASE, select=GROUPS).findings]
        ran = 0
        for fix in fixes:
            if fix is None or fix.language is not Language.SQL or not fix.do.startswith("ALTER"):
                continue
            for statement in fix.do.splitlines():
                root.execute(statement.encode())
            assert root.execute(STANDING).fetchall() != before, fix.do
            for statement in fix.undo.splitlines():
                root.execute(statement.encode())
            assert root.execute(STANDING).fetchall() == before, fix.undo
            ran += 1
        assert ran >= 8


def test_a_role_that_may_not_read_the_files_is_told_what_it_did_not_see(levels: Throwaway) -> None:
    report = checked(levels, DATABASE, select=("DUR-03", "MEM-04", "DUR-04"), user="reports")
    unknown = {check.id: said.reason for check, said in report.unknowns}
    assert "pg_file_settings" in unknown["DUR-03"]
    assert "pg_file_settings" in unknown["MEM-04"]
    assert "work_mem is 64GB for database shop" in sayings(report)


def test_what_the_hint_grants_is_enough(levels: Throwaway) -> None:
    """Without pg_read_all_settings data_directory is hidden, and with it every check of a parameter was unknown."""
    role = "granted"
    with psycopg.connect(conninfo(levels, DATABASE), autocommit=True) as root:
        for statement in (f"CREATE ROLE {role} LOGIN", *_opens(role), f"ALTER ROLE {role} SET synchronous_commit = on"):
            root.execute(statement.encode())
        report = checked(levels, DATABASE, select=("DUR-03", "MEM-04"), user=role)
        assert "DUR-03 synchronous_commit is off: a crash" in sayings(report)
        assert not report.unknowns
        says = "synchronous_commit is off: "
        fix = next(finding.fix for _, finding in report.findings if finding.says.startswith(says))
        assert fix is not None
        assert fix.undo.startswith("ALTER SYSTEM SET \"synchronous_commit\" = 'off'")


def _opens(role: str) -> tuple[str, ...]:
    return tuple(f"{grant} TO {role}" for grant in CONFIGURED.opens.removesuffix(" grant access").split(" and "))


@pytest.mark.parametrize(
    ("options", "written", "shown"),
    [('"-D" "/data" "-c" "work_mem=70MB"', "6MB", "70MB"), ('"-D" "/data" "--work-mem=70MB"', "6MB", "70MB"),
     ('"-D" "/data"', "6144", "6MB"), ('"-D" "/data"', None, "4MB")],
)  # fmt: skip
def test_the_command_line_wins_over_the_files_and_these_over_the_default(
    options: str, written: str | None, shown: str
) -> None:
    row = parameter("work_mem", "64GB", source="database", boot_val="4096")
    lines = () if written is None else (("", ConfiguredLine("work_mem", written, "postgresql.conf:1", None)),)
    seen = as_configured(
        ParameterSample(0.0, (row,)), Answers(lines), Answers((("", StartOptions(f"/bin/postgres {options}")),))
    )
    assert seen.parameters[0].shown == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("ON", "on"), ("true", "on"), ("0", "off"), ("Local", "local"), ("remote_write", "remote_write")],
)
def test_words_are_read_as_the_server_does(text: str, shown: str) -> None:
    row = parameter("synchronous_commit", "on", vartype="enum", enumvals=("local", "remote_write", "on", "off"))
    assert row_with_value(row, text, "database").setting == shown
