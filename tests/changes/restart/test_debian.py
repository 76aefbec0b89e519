"""A cluster of Debian's layout: its configuration elsewhere, restarted by pg_ctlcluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.changes.model.change import Terms, WantedParameter
from pgtop_tune.changes.model.change_set import RestartState
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve
from tests.support.accounts import require_root
from tests.support.poolers import number_of, reserved_port


def ran(*words: str) -> bool:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    return done.returncode == 0


@pytest.fixture
def cluster() -> Iterator[tuple[ConnInfo, Path]]:
    """A cluster of the newest installed major, where we may make one."""
    majors = sorted(int(path.name) for path in Path("/usr/lib/postgresql").glob("*") if path.name.isdecimal())
    require_root()
    if not majors or shutil.which("pg_createcluster") is None:
        pytest.skip("no pg_createcluster with a server")
    name, home, reserved = f"pgtop{os.getpid()}", Path(tempfile.mkdtemp(prefix="pgtop-deb-")), reserved_port()
    port = str(number_of(reserved))
    home.chmod(0o755)
    shutil.chown(home, "postgres", "postgres")
    where = ("-d", str(home / "data"), "-l", str(home / "log"), "--port", port, "-s", str(home))
    try:
        made = ran("pg_createcluster", str(majors[-1]), name, *where, "--start-conf", "manual", "--", "-A", "trust")
        if not made or not ran("pg_ctlcluster", str(majors[-1]), name, "start"):
            pytest.skip("pg_createcluster makes no cluster here")
        yield resolve("postgres", host=str(home), port=port, user="postgres"), home / "data"
    finally:
        ran("pg_dropcluster", "--stop", str(majors[-1]), name)
        reserved.close()
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.root
@pytest.mark.long
async def test_pg_ctlcluster_restarts_and_the_way_back_is_the_same(
    cluster: tuple[ConnInfo, Path], tmp_path: Path
) -> None:
    conninfo, data = cluster
    before = (data / "postgresql.auto.conf").read_bytes()
    control = PostgresControl(conninfo, directory=tmp_path)
    service = RestartService(control)
    wanted = [WantedParameter("shared_preload_libraries", "no_such_library"), WantedParameter("max_connections", "55")]
    plan = await service.plan(wanted)
    assert plan.command.startswith("pg_ctlcluster ")
    assert (plan.by_us, plan.possible) == (True, False)
    outcome = await service.apply(wanted, Terms(), anyway=True)
    assert outcome.state is RestartState.OLD_VALUES
    assert any("no_such_library" in line for line in outcome.log), outcome.log
    assert (data / "postgresql.auto.conf").read_bytes() == before
    outcome = await service.apply([WantedParameter("max_connections", "55")], Terms())
    assert outcome.state is RestartState.CAME_UP
    with psycopg.connect(host=conninfo.host, port=conninfo.port, user="postgres", dbname="postgres") as connection:
        assert connection.execute("SHOW max_connections").fetchone() == ("55",)
    await service.revert_set(outcome.changes[0].id)
    assert (data / "postgresql.auto.conf").read_bytes() == before
    await control.aclose()
