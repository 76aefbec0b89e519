"""Conditions of the catalogue, each made on a real server, found, mended and put back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psycopg
import pytest

from pgtop_tune.base.safe_text import is_plain
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import CheckFinding, Language, Severity
from tests.support.made_objects import IN_A_DATABASE, OF_ROLES
from tests.support.real_check import checked
from tests.support.servers import MAJORS, conninfo

FOUND = {check for check, _, _ in (*IN_A_DATABASE, *OF_ROLES)}
WITHOUT_WAY_BACK = "--"
NOT_TWICE = {"COL-01", "EXT-01", "KEY-02", "TAB-07", "TAB-08"}
"""Mended for good, or partly."""
FOR_PEOPLE = {"TAB-05", "TAB-09", "TAB-11", "IDX-01", "IDX-06", "SEC-16"}
"""Words in place of statements."""
MORE_THAN_ONE = {"TAB-08": 4, "TAB-10": 2, "KEY-01": 5, "SEC-08": 4, "SEC-09": 2, "SEC-12": 2, "SEC-16": 2, "SEC-17": 5}
"""Findings by check."""


WELL_MADE = (
    "CREATE TABLE guarded (id int PRIMARY KEY, who name)",
    "ALTER TABLE guarded ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY own_rows ON guarded USING (who = current_user)",
    "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE TRIGGER of_replicas AFTER INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION noted()",
    "ALTER TABLE guarded ENABLE REPLICA TRIGGER of_replicas",
    "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY LIST (id)",
    "CREATE TABLE rest PARTITION OF parts DEFAULT",
    "ANALYZE parts",
    "CREATE TABLE often_updated (id int PRIMARY KEY, document bytea) WITH (fillfactor = 70, toast.autovacuum_enabled)",
    "ALTER TABLE often_updated ALTER COLUMN document SET STATISTICS 0",
    f"CREATE TABLE broad (id int PRIMARY KEY, {', '.join(f'c{number} int' for number in range(14))})",
    *(f"CREATE INDEX ON broad (c{number})" for number in range(14)),
    "SELECT lo_create(0)",
    "CREATE SEQUENCE ring MAXVALUE 1000 CYCLE",
    "SELECT setval('ring', 950)",
    "CREATE FOREIGN DATA WRAPPER far",
    "CREATE SERVER other FOREIGN DATA WRAPPER far",
    "CREATE USER MAPPING FOR PUBLIC SERVER other OPTIONS (user 'x')",
    "CREATE USER MAPPING FOR postgres SERVER other OPTIONS (password 'x')",
    "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO pg_monitor",
    "ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO pg_monitor",
    "GRANT SELECT ON guarded TO pg_monitor",
)
"""Like conditions that are found, and with a purpose."""


@contextmanager
def ordinary_role(server: Throwaway) -> Iterator[None]:
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        admin.execute("CREATE ROLE ordinary")
        try:
            yield
        finally:
            admin.execute("DROP OWNED BY ordinary CASCADE")
            admin.execute("DROP ROLE ordinary")


def run(connection: psycopg.Connection[tuple[object, ...]], statements: Sequence[str]) -> None:
    for statement in statements:
        connection.execute(statement.encode())


def findings(server: Throwaway, database: str, wanted: Sequence[str]) -> dict[tuple[str, str], CheckFinding]:
    report = checked(server, database, select=wanted)
    assert not [each for each in report.unknowns if each[0].id not in ("KEY-01", "COL-01")], report.unknowns
    return {
        (check.id, finding.subject): finding
        for check, finding in report.findings
        if finding.subject.startswith(database) or check.id in {id_ for id_, _, _ in OF_ROLES}
    }


@pytest.mark.long
@pytest.mark.parametrize("major", MAJORS)
def test_each_condition_of_a_database_is_found_mended_and_put_back(
    major: int, make_server: Callable[..., Throwaway]
) -> None:
    server = make_server(major, wal_level="logical")
    name = "spoilt"
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        admin.execute("CREATE ROLE ordinary")
        admin.execute("CREATE DATABASE spoilt")
    with psycopg.connect(conninfo(server, name), autocommit=True) as connection:
        connection.execute("DROP EXTENSION IF EXISTS pg_stat_statements")
        has_icu = connection.execute("SELECT FROM pg_collation WHERE collname = 'en-x-icu'").fetchone() is not None
        made = [row for row in IN_A_DATABASE if row[0] != "COL-01" or has_icu]
        for _, _, statements in made:
            run(connection, statements)
        wanted = {check for check, _, _ in made}
        seen = findings(server, name, sorted(wanted))
        assert {id_ for id_, _ in seen} == wanted, made
        numbers = Counter(id_ for id_, _ in seen)
        assert {id_: number for id_, number in numbers.items() if number > 1} == MORE_THAN_ONE
        assert "hunter2" not in str(seen)
        assert {each.severity for (id_, _), each in seen.items() if id_ == "SEC-08"} == {
            Severity.HIGH, Severity.WARNING, Severity.INFO,
        }  # fmt: skip
        mendable = {key for key, finding in seen.items() if finding.fix and finding.fix.language is Language.SQL}
        assert {id_ for id_, _ in seen} - {id_ for id_, _ in mendable} == FOR_PEOPLE
        assert [key for key in seen if key[0] == "SEC-17" and key not in mendable] == [("SEC-17", 'spoilt: oth"er')]
        for key in sorted(mendable):
            fix = seen[key].fix
            assert fix is not None
            run(connection, fix.do.splitlines())
        left = findings(server, name, sorted(wanted))
        assert set(left) <= set(seen) - mendable
        for key in sorted(mendable):
            fix = seen[key].fix
            assert fix is not None
            run(connection, fix.undo.splitlines())
        again = findings(server, name, sorted(wanted))
        assert {key for key in mendable if key[0] not in NOT_TWICE} - set(again) == set()
        assert ("TAB-08", 'spoilt: public.audited aud"it') in again


@pytest.mark.long
@pytest.mark.parametrize("major", MAJORS)
def test_rights_of_roles_are_found_taken_away_and_given_back(major: int, make_server: Callable[..., Throwaway]) -> None:
    server = make_server(major)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        for _, _, statements in OF_ROLES:
            run(connection, statements)
        wanted = sorted({check for check, _, _ in OF_ROLES})
        seen = findings(server, "postgres", wanted)
        assert {key for key in seen if key[0] != "SEC-07"} == {
            ("SEC-12", "row security"), ("SEC-12", "server account"), ("SEC-12", "files read"), ("SEC-13", "roles"),
            ("CFG-09", "settings"), ("SEC-12", "any role" if major < 16 else "roles"), ("SEC-12", "replication"),
            ("CON-07", "databases"), ("CON-07", "roles"),
        }  # fmt: skip
        assert ("SEC-07", "late") in seen
        before = powers(connection)
        mendable = [finding.fix for finding in seen.values() if finding.fix and finding.fix.language is Language.SQL]
        for fix in mendable:
            run(connection, fix.do.splitlines())
        assert {id_ for id_, _ in findings(server, "postgres", wanted)} == {"SEC-07"}
        for fix in mendable:
            run(connection, fix.undo.splitlines())
        assert powers(connection) == before


def test_a_role_at_its_limit_and_one_that_streams(server: Throwaway) -> None:
    """Our own sessions do not count, and a standby's role needs its right."""
    admin = conninfo(server)
    with psycopg.connect(admin, autocommit=True) as connection:
        run(connection, ["CREATE ROLE busy LOGIN REPLICATION CONNECTION LIMIT 2"])
        try:

            def said() -> set[tuple[str, str]]:
                found = findings(server, "postgres", ("CON-07", "SEC-12"))
                return {key for key in found if key[1] != "any role"}

            assert said() == {("SEC-12", "replication")}
            (hidden,) = checked(server, "postgres", select=("CON-07",), user="busy").unknowns
            assert "GRANT pg_monitor" in hidden[1].reason
            with psycopg.connect(admin, user="busy"), psycopg.connect(admin, user="busy"):
                assert said() == {("SEC-12", "replication"), ("CON-07", "role busy")}
            with psycopg.connect(admin, user="busy", replication="true", autocommit=True):
                assert said() == set()
            run(connection, ["ALTER ROLE busy CONNECTION LIMIT -1"])
            assert checked(server, "postgres", select=("CON-07",), user="busy").unknowns == ()
        finally:
            run(connection, ["DROP ROLE busy"])


def powers(connection: psycopg.Connection[tuple[object, ...]]) -> list[object]:
    found = connection.execute(
        "SELECT rolname, rolbypassrls, rolcanlogin, rolcreaterole, rolreplication, rolconnlimit, rolconfig, "
        "ARRAY(SELECT roleid::text || admin_option FROM pg_auth_members m WHERE m.member = r.oid ORDER BY 1) "
        "FROM pg_roles r "
        "UNION ALL SELECT datname, false, false, false, false, datconnlimit, NULL, NULL FROM pg_database ORDER BY 1, 3"
    )
    return list(found)


def test_tables_of_benchmarks_are_meant_to_be_as_they_are(server: Throwaway, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        name = connection.info.dbname
        run(
            connection,
            (
                "CREATE TABLE pgbench_branches (bid int PRIMARY KEY)",
                "CREATE TABLE pgbench_history (bid int REFERENCES pgbench_branches)",
                "INSERT INTO pgbench_history SELECT NULL FROM generate_series(1, 20000)",
                "ANALYZE",
                "CREATE SCHEMA bus",
                "CREATE TABLE bus.dataset (version int)",
                "CREATE UNLOGGED TABLE bus.cities (city_id int)",
            ),
        )
        assert findings(server, name, ("TAB", "IDX-04", "IDX-05")) == {}


def test_objects_that_are_well_made_are_no_finding(server: Throwaway, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        name = connection.info.dbname
        run(connection, WELL_MADE)
        assert set(findings(server, name, ("TAB", "IDX-05", "IDX-06", "SEC-16", "SEC-17", "VAC-08", "KEY"))) == set()


def test_names_of_hostile_objects_are_quoted_and_plain(server: Throwaway, database: str) -> None:
    name = 'x";DROP TABLE "a\x1b[31m\u202e'
    quoted = name.replace('"', '""')
    with psycopg.connect(database, autocommit=True) as connection:
        run(
            connection,
            (
                "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
                f'CREATE SCHEMA "{quoted}"',
                f'SET search_path = "{quoted}"',
                f'CREATE TABLE "{quoted}" (id int PRIMARY KEY, "{quoted}" text) WITH (fillfactor = 10)',
                f'ALTER TABLE "{quoted}" ALTER COLUMN "{quoted}" SET STATISTICS 0, ENABLE ROW LEVEL SECURITY',
                f'CREATE TRIGGER "{quoted}" BEFORE INSERT ON "{quoted}" FOR EACH ROW EXECUTE FUNCTION public.noted()',
                f'ALTER TABLE "{quoted}" DISABLE TRIGGER "{quoted}"',
                f'GRANT ALL ON "{quoted}" TO PUBLIC',
                f'ALTER DEFAULT PRIVILEGES IN SCHEMA "{quoted}" GRANT SELECT ON TABLES TO PUBLIC',
            ),
        )
        report = checked(server, connection.info.dbname, select=("TAB", "SEC-16", "SEC-17"))
        fixes = {
            (check.id, finding.subject): finding.fix
            for check, finding in report.findings
            if finding.fix is not None and finding.fix.language is Language.SQL
        }
        assert Counter(id_ for id_, _ in fixes) == {"TAB-08": 1, "TAB-10": 2, "SEC-17": 2}
        for fix in fixes.values():
            for text in (fix.do, fix.undo):
                assert is_plain(text.replace("\n", ""))
                run(connection, text.splitlines())
        assert connection.execute("SELECT count(*) FROM pg_class WHERE relname = %s", (name,)).fetchone() == (1,)


def test_mappings_that_a_role_may_not_look_into_are_unknown(server: Throwaway, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        name = connection.info.dbname
        run(connection, ["CREATE ROLE looker LOGIN", *WELL_MADE])
        try:
            report = checked(server, name, select=("SEC-17",), user="looker")
        finally:
            run(connection, ["DROP ROLE looker"])
    said = "1 mapped to PUBLIC: only owners of the foreign servers see the options"
    assert f"{name}: {said}" in [why.reason for _, why in report.unknowns]


def test_an_extension_whose_library_is_not_loaded(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(shared_preload_libraries="")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        report = checked(server, "postgres", select=("EXT-02",))
        ((_, finding),) = report.findings
        assert finding.fix is not None
        run(connection, finding.fix.do.splitlines())
        connection.close()
    server.restart()
    assert checked(server, "postgres", select=("EXT-02",)).findings == ()
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        run(connection, finding.fix.undo.splitlines())
    server.restart()
    assert len(checked(server, "postgres", select=("EXT-02",)).findings) == 1


@pytest.mark.parametrize("number", [3, 25])
def test_many_objects_of_a_kind_are_one_finding(server: Throwaway, database: str, number: int) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        run(connection, [f"CREATE UNLOGGED TABLE fleeting_{each} (id int PRIMARY KEY)" for each in range(number)])
        ((_, finding),) = checked(server, connection.info.dbname, select=("TAB-06",)).findings
    assert f"{number} tables are unlogged" in finding.says


def test_nothing_of_a_hostile_schema_is_run(server: Throwaway, database: str) -> None:
    """Functions and operators that hide those of the catalogue, in every schema of a search_path, write nothing."""
    with psycopg.connect(database, autocommit=True) as connection:
        name = connection.info.dbname
        run(
            connection,
            (
                "CREATE TABLE trap (what text)",
                "CREATE FUNCTION public.split_part(text, text, int) RETURNS text LANGUAGE sql AS "
                "'INSERT INTO public.trap VALUES (''split_part''); SELECT ''''::text'",
                "CREATE FUNCTION public.pg_get_indexdef(oid) RETURNS text LANGUAGE sql AS "
                "'INSERT INTO public.trap VALUES (''indexdef''); SELECT ''''::text'",
                "CREATE FUNCTION public.unequal(name, text) RETURNS bool LANGUAGE plpgsql AS "
                "$$BEGIN INSERT INTO public.trap VALUES ('<>'); RETURN true; END$$",
                "CREATE OPERATOR public.!~ (LEFTARG = name, RIGHTARG = text, FUNCTION = public.unequal)",
                'CREATE TABLE "odd""; DROP TABLE trap; --" (id int) WITH (autovacuum_vacuum_scale_factor = 0.9)',
            ),
        )
        connection.execute(f"ALTER DATABASE {name} SET search_path = public, pg_catalog".encode())
        seen = findings(server, name, ("TAB-05", "VAC-08", "IDX-05"))
        assert connection.execute("SELECT count(*) FROM trap").fetchone() == (0,)
        fix = next(finding.fix for key, finding in seen.items() if key[0] == "VAC-08")
        assert fix is not None
        run(connection, fix.do.splitlines())
        assert connection.execute("SELECT count(*) FROM trap").fetchone() == (0,)


@pytest.mark.long
@pytest.mark.parametrize("major", MAJORS[1:])
def test_a_database_of_another_collation_version(major: int, make_server: Callable[..., Throwaway]) -> None:
    server = make_server(major)
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        if admin.execute("SELECT FROM pg_collation WHERE collname = 'en-x-icu'").fetchone() is None:
            pytest.skip("a server without ICU")
        admin.execute("CREATE DATABASE moved LOCALE_PROVIDER icu ICU_LOCALE 'en' TEMPLATE template0")
        assert findings(server, "moved", ("COL-01",)) == {}
        admin.execute("UPDATE pg_database SET datcollversion = '1.0' WHERE datname = 'moved'")
    ((_, finding),) = findings(server, "moved", ("COL-01",)).items()
    assert finding.fix is not None
    with psycopg.connect(conninfo(server, "moved"), autocommit=True) as connection:
        run(connection, finding.fix.do.splitlines())
    assert findings(server, "moved", ("COL-01",)) == {}


def test_tables_that_others_have_locked_are_seen(server: Throwaway, database: str) -> None:
    """Nothing waits for them, and nothing gives up because of them."""
    locked = [row for row in IN_A_DATABASE if row[0] in ("TAB-05", "TAB-07", "TAB-08", "IDX-05", "REP-06", "VAC-08")]
    with psycopg.connect(database, autocommit=True) as connection, psycopg.connect(database) as holder:
        name = connection.info.dbname
        for _, _, statements in locked:
            run(connection, statements)
        run(connection, ["CREATE TABLE leaf PARTITION OF parted FOR VALUES FROM (10000) TO (20000)"])
        tables = "keyless, parted, checked, referred, referring, left_alone, twice_indexed, published"
        holder.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE".encode())
        seen = findings(server, name, sorted({id_ for id_, _, _ in locked}))
        assert {id_ for id_, _ in seen} == {id_ for id_, _, _ in locked}
        holder.rollback()


def test_partitions_and_all_tables_are_published_as_well(server: Throwaway, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        name = connection.info.dbname
        run(
            connection,
            (
                "CREATE TABLE whole (id int, x int) PARTITION BY LIST (id)",
                "CREATE TABLE piece PARTITION OF whole FOR VALUES IN (1)",
                "CREATE TABLE with_key (id int PRIMARY KEY)",
                "CREATE PUBLICATION pieces FOR TABLE whole, with_key",
            ),
        )
        assert set(findings(server, name, ("REP-06",))) == {("REP-06", f"{name}: public.piece")}
        run(
            connection, ("DROP PUBLICATION pieces", "CREATE PUBLICATION inserts FOR ALL TABLES WITH (publish = insert)")
        )
        assert findings(server, name, ("REP-06",)) == {}
        run(connection, ("CREATE TABLE other (id int)", "CREATE PUBLICATION everything FOR ALL TABLES"))
        assert set(findings(server, name, ("REP-06",))) == {("REP-06", f"{name} no replica identity")}
