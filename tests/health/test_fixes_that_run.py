"""Fixes and their undoing, run where they are meant to run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import Fix, Language
from pgtop_tune.health.fixes import kept, kept_line
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.relations import DatabaseFacts, DatabaseLimits
from tests.health.test_real_databases import SMALL
from tests.support.frames import host_sample
from tests.support.health_facts import GIB, details, found, spoilt
from tests.support.real_check import checked
from tests.support.server_facts import NEXT_XID, SECOND, spoiled
from tests.support.servers import conninfo
from tests.support.standby import standby_of

OLD = "# somebody's own\nvm.swappiness = 20\n"
IN_A_DATABASE = (
    "CREATE TABLE twice (id int)",
    "INSERT INTO twice VALUES (1), (1)",
    "CREATE TABLE whole (id int)",
    "CREATE INDEX whole_id ON whole (id)",
    "CREATE INDEX whole_id_again ON whole (id)",
    "CREATE TABLE parent (id int PRIMARY KEY)",
    "CREATE TABLE child (id serial PRIMARY KEY, parent_id int REFERENCES parent) WITH (autovacuum_enabled = off)",
    "INSERT INTO child (parent_id) SELECT NULL FROM generate_series(1, 2000)",
    "CREATE TABLE parted (id int REFERENCES parent) PARTITION BY LIST (id)",
    "CREATE TABLE part PARTITION OF parted FOR VALUES IN (1)",
    "SELECT setval('child_id_seq', 2000000000)",
)
CONCURRENTLY = ("CREATE INDEX CONCURRENTLY", "CREATE UNIQUE INDEX CONCURRENTLY", "DROP INDEX CONCURRENTLY",
                "REINDEX INDEX CONCURRENTLY")  # fmt: skip
"""Statements that block nobody."""
LIGHT = (*CONCURRENTLY, "VACUUM (ANALYZE", "ANALYZE", "--", "REVOKE", "GRANT")


def fixes(database: str, server: Throwaway) -> dict[str, Fix]:
    report = checked(server, database, *SMALL, "IDX-04=0", select=("IDX", "KEY", "TAB", "VAC-04"))
    return {f"{check.id} {finding.subject}": finding.fix for check, finding in report.findings if finding.fix}


def test_ddl_runs_both_ways_and_does_not_wait_for_ever(server: Throwaway, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in IN_A_DATABASE:
            connection.execute(statement.encode())
        for index in ("UNIQUE INDEX CONCURRENTLY broken", "UNIQUE INDEX CONCURRENTLY broken_ccnew"):
            with pytest.raises(psycopg.errors.UniqueViolation):
                connection.execute(f"CREATE {index} ON twice (id)".encode())
        name = connection.info.dbname
        offered = fixes(name, server)
        broken = offered[f"IDX-01 {name}: public.broken"]
        assert broken.language is Language.WORDS
        assert "remove the duplicates" in broken.do
        ran = set()
        for what, fix in offered.items():
            # The check looks at every database of the server, which other tests have used.
            if fix.language is not Language.SQL or not what.split(" ", 1)[1].startswith(f"{name}: "):
                continue
            for text in (fix.do, fix.undo):
                assert text.startswith("SET lock_timeout") or text.startswith(LIGHT), text
                for statement in text.splitlines():
                    connection.execute(statement.encode())
            ran.add(what.split()[0])
        assert {"IDX-01", "IDX-02", "IDX-04", "KEY-01"} <= ran


def test_a_database_that_lets_nobody_in_is_not_vacuumed_there() -> None:
    closed = DatabaseFacts(4, "template0", NEXT_XID - 600_000_000, NEXT_XID - 10, -1, False)
    limits = DatabaseLimits(float(SECOND), NEXT_XID, NEXT_XID, (closed,))
    check = next(each for each in CHECKS if each.id == "VAC-02")
    (finding,) = found(check, spoiled(postgres={"database_limits": limits}))
    assert finding.fix is not None
    assert finding.fix.language is Language.WORDS
    assert 'ALTER DATABASE "template0" ALLOW_CONNECTIONS false' in finding.fix.undo


@pytest.mark.long
def test_what_changes_data_is_for_the_primary_of_a_standby(make_server: Callable[..., Throwaway]) -> None:
    primary = make_server()
    with psycopg.connect(conninfo(primary), autocommit=True) as connection:
        for statement in (*IN_A_DATABASE, "ALTER DATABASE postgres SET work_mem = '1GB'"):
            connection.execute(statement.encode())
    standby = standby_of(primary, make_server, "fixes", primary.binaries)
    report = checked(
        standby, "postgres", *SMALL, "IDX-04=0", select=("IDX", "KEY", "VAC-04", "MEM-04", "DUR", "TXN-01")
    )
    offered = [finding.fix for _, finding in report.findings if finding.fix is not None]
    elsewhere = [fix for fix in offered if fix.remark.startswith("run it on the primary")]
    assert len(elsewhere) >= 4
    for server, some in ((primary, elsewhere), (standby, [each for each in offered if each not in elsewhere])):
        for fix in some:
            if fix.language is Language.SQL:
                with psycopg.connect(conninfo(server), autocommit=True) as connection:
                    for statement in (*fix.do.splitlines(), *fix.undo.splitlines()):
                        connection.execute(statement.encode())


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("before", [None, OLD])
def test_a_file_that_was_there_before_is_put_back(before: str | None, times: int, tmp_path: Path) -> None:
    file = tmp_path / "oom.conf"
    if before is not None:
        file.write_text(before)
    do, undo = kept(str(file), "vm.swappiness = 5", "vm.x = 1")
    for _ in range(times):
        subprocess.run(["sh", "-euc", do], check=True)
        assert file.read_text() == "vm.swappiness = 5\nvm.x = 1\n"
    subprocess.run(["sh", "-euc", undo], check=True)
    assert (file.read_text() if file.exists() else None) == before
    assert [each.name for each in tmp_path.iterdir()] == ([file.name] if before is not None else [])


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("before", [None, OLD, OLD + "vm.dirty_bytes=7\n", "vm.dirty_bytes = 7\n"])
def test_a_line_in_the_one_file_of_sysctl_d_is_put_back_and_others_stay(
    before: str | None, times: int, tmp_path: Path
) -> None:
    file = tmp_path / "99-pgtop-tune.conf"
    if before is not None:
        file.write_text(before)
    fixes = [kept_line(str(file), name, "5") for name in ("vm.swappiness", "vm.nr_hugepages")]
    for do, _ in fixes * times:
        subprocess.run(["sh", "-euc", do], check=True)
    lines = file.read_text().splitlines()
    assert [line for line in lines if line.startswith("vm.swapp")] == ["vm.swappiness = 5"]
    assert "vm.nr_hugepages = 5" in lines
    subprocess.run(["sh", "-euc", fixes[0][1]], check=True)
    assert "vm.nr_hugepages = 5" in file.read_text().splitlines()
    subprocess.run(["sh", "-euc", fixes[1][1]], check=True)
    assert (file.read_text() if file.exists() else None) == before
    assert [each.name for each in tmp_path.iterdir()] == ([file.name] if before is not None else [])


@pytest.mark.parametrize(
    ("id_", "settings"),
    [("OS-01", {"vm.overcommit_memory": "0"}), ("OS-07", {"kernel.sched_autogroup_enabled": "1"}),
     ("OS-04", {"vm.dirty_background_bytes": str(8 * 2**30)})],
)  # fmt: skip
def test_no_undo_removes_a_file_that_it_may_not_have_made(id_: str, settings: dict[str, str]) -> None:
    check = next(each for each in CHECKS if each.id == id_)
    sample = host_sample(100).memory
    assert not isinstance(sample, Unavailable)
    host = {"memory": replace(sample, committed_bytes=GIB)}
    fix = found(check, spoilt(machine=details(settings), host=host))[0].fix
    assert fix is not None
    assert "\nrm " not in fix.undo
    assert "if [ -s " in fix.undo
