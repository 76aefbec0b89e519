"""What a journal says of starting a server is run, perhaps by root: only what we would have found ourselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.changes.restart.recovery import check_recorded
from pgtop_tune.cluster.service import run_program
from pgtop_tune.model.instance import ServerPlace

pytestmark = pytest.mark.root
OWNER = 65534


@pytest.fixture
def place(tmp_path: Path) -> ServerPlace:
    """A server of nobody's, as `find_place` writes it down."""
    data, program = tmp_path / "data", tmp_path / "bin/pg_ctl"
    data.mkdir()
    os.chown(data, OWNER, OWNER)
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    start = (str(program), "start", "-D", str(data), "-w", "-t", "300", "-l", "/var/log/pg")
    return ServerPlace("/run:5432", str(data), "pg_ctl", start=start, uid=OWNER, gid=OWNER, as_owner=True)


@pytest.mark.parametrize(
    "start",
    [
        (),
        ("systemctl", "start", "postgresql@17-main.service"),
        ("systemctl", "--user", "restart", "pg.service"),
        ("pg_ctlcluster", "17", "main", "start"),
        ("pg_ctlcluster", "17", "main", "restart", "-m", "fast"),
    ],
)
def test_what_manages_servers_may_be_run(place: ServerPlace, start: tuple[str, ...]) -> None:
    check_recorded(place)
    check_recorded(replace(place, start=start, as_owner=False))


@pytest.mark.parametrize(
    "start",
    [
        ("/bin/sh", "-c", "id"),
        ("systemctl", "start", "--force"),
        ("systemctl", "link", "/tmp/evil.service"),
        ("/tmp/systemctl", "start", "pg.service"),
        ("pg_ctlcluster", "17", "main", "start", "-o", "-c x"),
        ("pg_ctlcluster", "--skip", "main", "start"),
    ],
)
def test_any_other_command_is_not_run(place: ServerPlace, start: tuple[str, ...]) -> None:
    with pytest.raises(ClusterProblem, match="differs from its record in the journal"):
        check_recorded(replace(place, start=start))


def test_pg_ctl_is_root_s_or_the_server_s_user_s_and_runs_as_that_user(place: ServerPlace) -> None:
    program = Path(place.start[0])
    for wrong in (
        replace(place, as_owner=False),
        replace(place, uid=0),
        replace(place, start=(place.start[0], "start", "-D", "/elsewhere")),
        replace(place, environment=(("LD_PRELOAD", "/tmp/evil.so"),)),
    ):
        with pytest.raises(ClusterProblem):
            check_recorded(wrong)
    program.chmod(0o777)
    with pytest.raises(ClusterProblem):
        check_recorded(place)
    program.chmod(0o755)
    os.chown(program, 12345, 12345)
    with pytest.raises(ClusterProblem):
        check_recorded(place)


def test_the_directory_of_another_user_is_not_touched(place: ServerPlace) -> None:
    os.chown(place.data_directory, 12345, 12345)
    with pytest.raises(ClusterProblem):
        check_recorded(place)


def test_a_program_of_the_system_gets_nothing_that_loads_libraries_of_the_server_s_user(place: ServerPlace) -> None:
    with_path = replace(place, environment=(("LD_LIBRARY_PATH", "/srv/pg/lib"), ("PATH", "/srv"), ("TZ", "UTC")))
    said = run_program(("/usr/bin/env",), with_path, as_owner=False).output_lines
    assert "TZ=UTC" in said
    assert not [line for line in said if "/srv" in line]
