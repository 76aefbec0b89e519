"""Conditions in forms that a simple check misses, and good ones that look like them."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import CheckFinding
from tests.health.test_access_checks import BY_ID
from tests.support.health_facts import found
from tests.support.real_check import checked
from tests.support.server_conditions import hba, rules
from tests.support.server_facts import row_of, spoiled
from tests.support.servers import conninfo


def run(server: Throwaway, *statements: str) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def said(server: Throwaway, *select: str) -> Sequence[CheckFinding]:
    limits = [f"{name}=0" for name in select if name == "IDX-04"]
    return [finding for _, finding in checked(server, "postgres", *limits, select=select).findings]


def test_a_partial_index_serves_a_foreign_key_where_it_leaves_out_only_nulls(fresh_server: Throwaway) -> None:
    """The search for a reference is `column = $1`, which implies the condition: the plans show it."""
    run(
        fresh_server,
        "CREATE TABLE one (a int, b int, PRIMARY KEY (a, b), UNIQUE (a))",
        "CREATE TABLE nulls (a int REFERENCES one (a), x int)",
        "CREATE INDEX ON nulls (a) WHERE a IS NOT NULL",
        "CREATE TABLE pairs (a int, b int, FOREIGN KEY (a, b) REFERENCES one)",
        "CREATE INDEX ON pairs (b, a) WHERE a IS NOT NULL AND b IS NOT NULL",
        "CREATE TABLE others (a int CONSTRAINT of_some REFERENCES one (a), x int)",
        "CREATE INDEX ON others (a) WHERE x > 0",
        "CREATE INDEX ON others (a) WHERE x IS NOT NULL",
        "CREATE INDEX ON others (a) WHERE a IS NULL",
        "CREATE INDEX ON others (a) WHERE a IS NOT NULL AND x > 0",
    )
    assert [finding.subject for finding in said(fresh_server, "IDX-04")] == ["postgres: public.others of_some"]
    used: dict[str, bool] = {}
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("SET enable_seqscan = off")
        for table, condition in (("nulls", "a = $1"), ("pairs", "a = $1 AND b = $1"), ("others", "a = $1")):
            connection.execute(f"PREPARE {table}_(int) AS SELECT 1 FROM ONLY {table} x WHERE {condition} FOR KEY SHARE")
            connection.execute("SET plan_cache_mode = force_generic_plan")
            plan = connection.execute(f"EXPLAIN EXECUTE {table}_(1)").fetchall()
            used[table] = any("Index" in line for (line,) in plan)
    assert used == {"nulls": True, "pairs": True, "others": False}


def test_the_index_of_a_toast_table_that_a_reindex_left_behind(fresh_server: Throwaway) -> None:
    run(fresh_server, "CREATE TABLE bodies (id int PRIMARY KEY, body text)")
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM bodies")
        with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
            connection.execute("SET lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                connection.execute("REINDEX TABLE CONCURRENTLY bodies")
    left = said(fresh_server, "IDX-01")
    assert any("pg_toast" in finding.subject for finding in left)
    for finding in left:
        assert " of bodies is invalid" in finding.says
        assert finding.fix is not None
        run(fresh_server, finding.fix.do)
    assert said(fresh_server, "IDX-01") == []


def test_functions_whose_names_were_resolved_when_they_were_made(fresh_server: Throwaway) -> None:
    run(
        fresh_server,
        "CREATE FUNCTION resolved() RETURNS int SECURITY DEFINER LANGUAGE sql BEGIN ATOMIC SELECT 1; END",
        "CREATE FUNCTION shut() RETURNS int SECURITY DEFINER SET search_path = '' LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION end_() RETURNS int SECURITY DEFINER SET search_path = public, pg_temp LANGUAGE sql "
        "AS 'SELECT 1'",
    )
    assert said(fresh_server, "SEC-08") == []


def test_settings_of_a_role_that_cannot_log_in_are_for_no_session(fresh_server: Throwaway) -> None:
    run(
        fresh_server,
        "CREATE ROLE team",
        "CREATE ROLE member LOGIN PASSWORD 'x' IN ROLE team",
        "ALTER ROLE team SET log_statement = 'all'",
        "ALTER ROLE team SET statement_timeout = '1min'",
    )
    assert said(fresh_server, "LOG-01", "CFG-09") == []
    assert "statement_timeout" in said(fresh_server, "CON-06")[0].says
    run(fresh_server, "ALTER ROLE member SET log_statement = 'all'")
    assert [finding.subject for finding in said(fresh_server, "LOG-01")] == ["role member log_statement"]


def test_logins_that_come_to_a_right_through_other_roles(fresh_server: Throwaway) -> None:
    run(
        fresh_server,
        "CREATE ROLE files",
        "GRANT pg_write_server_files TO files",
        "CREATE ROLE middle NOINHERIT IN ROLE files",
        'CREATE ROLE "far;""away" LOGIN NOINHERIT PASSWORD \'x\' IN ROLE middle',
        "CREATE ROLE blind BYPASSRLS",
        "CREATE ROLE reader LOGIN PASSWORD 'x' IN ROLE blind",
        "CREATE ROLE kept_out LOGIN PASSWORD 'x'",
        "GRANT files TO kept_out WITH INHERIT FALSE, SET FALSE",
    )
    says = [finding.says for finding in said(fresh_server, "SEC-12")]
    assert sum(each.endswith('is available to files, far;"away') for each in says) == 1
    assert sum(each.endswith("does not apply to blind, reader") for each in says) == 1


@pytest.mark.parametrize(
    ("address", "netmask", "shown", "who"),
    [
        ("0.0.0.0", "0.0.0.0", "0.0.0.0/0", "that reaches the port"),
        ("::", "::", "::/0", "that reaches the port"),
        ("all", None, "all", "that reaches the port"),
        ("10.0.0.0", "255.0.0.0", "10.0.0.0/8", "at 10.0.0.0/8"),
        ("0.0.0.0", "128.0.0.0", "0.0.0.0/1", "at 0.0.0.0/1"),
        ("fd00::", "ffff::", "fd00::/16", "at fd00::/16"),
        (".example.com", None, ".example.com", "at .example.com"),
    ],
)
def test_a_rule_that_trusts_a_network_is_said_with_its_mask(
    address: str, netmask: str | None, shown: str, who: str
) -> None:
    (finding,) = found(BY_ID["SEC-01"], spoiled(**rules(hba("trust", address, netmask))))
    assert f" {shown} trust): every client {who} may log in" in finding.says


def test_parameters_that_run_as_the_servers_account(fresh_server: Throwaway) -> None:
    run(
        fresh_server,
        'CREATE ROLE "arch;""ivist"',
        'GRANT ALTER SYSTEM ON PARAMETER archive_command, work_mem TO "arch;""ivist" WITH GRANT OPTION',
        "GRANT ALTER SYSTEM ON PARAMETER session_preload_libraries TO PUBLIC",
        'GRANT SET ON PARAMETER session_replication_role TO "arch;""ivist"',
    )
    (finding,) = said(fresh_server, "SEC-12")
    assert finding.says.endswith('are controlled by all roles, arch;"ivist')
    rights = "SELECT parname, paracl::text FROM pg_parameter_acl ORDER BY 1"
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        before = connection.execute(rights).fetchall()
        assert finding.fix is not None
        run(fresh_server, *finding.fix.do.splitlines())
        assert said(fresh_server, "SEC-12") == []
        run(fresh_server, *finding.fix.undo.splitlines())
        assert connection.execute(rights).fetchall() == before


def test_a_database_that_was_half_dropped_and_one_without_an_encoding(fresh_server: Throwaway) -> None:
    run(
        fresh_server,
        'CREATE DATABASE "bro;ken"',
        "UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'bro;ken'",
        "CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'",
    )
    with psycopg.connect(conninfo(fresh_server, "bytes"), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (id int PRIMARY KEY)")
    assert [finding.subject for finding in said(fresh_server, "COL-01")] == ["bytes: bytes"]
    (finding,) = said(fresh_server, "CON-07")
    assert finding.says.startswith("1 database is half dropped (bro;ken)")
    run(fresh_server, 'DROP DATABASE "bro;ken"')
    assert said(fresh_server, "CON-07") == []


@pytest.mark.parametrize(
    ("name", "value", "unit", "vartype"),
    [("recovery_min_apply_delay", "3600000", "ms", "integer"), ("recovery_target_timeline", "current", "", "string")],
)
def test_a_standby_that_is_late_or_stays_behind(name: str, value: str, unit: str, vartype: str) -> None:
    row = row_of(name, "0", unit, vartype, "sighup", setting=value)
    said = {
        standby: [
            finding.subject for finding in found(BY_ID["REP-05"], spoiled(more=[row], server={"in_recovery": standby}))
        ]
        for standby in (False, True)
    }
    assert said == {False: [], True: [name]}


@pytest.mark.parametrize(("major", "is_found"), [(15, False), (16, True), (18, True)])
def test_two_archivers(major: int, is_found: bool) -> None:
    rows = [
        row_of(name, "", "", "string", "sighup", setting=f"{name} %p")
        for name in ("archive_command", "archive_library")
    ]
    facts = spoiled({"archive_mode": "on"}, more=rows, server={"version_num": major * 10_000})
    assert [finding.subject for finding in found(BY_ID["ARC-01"], facts)] == ["archive_library"] * is_found
