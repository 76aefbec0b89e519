"""Outages of a server that is not ours: it runs again afterwards, whatever becomes of us, and no other one is hit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psycopg
import pytest

from pgtop_tune.base.errors import ClusterProblem, UsageProblem
from pgtop_tune.changes.model.change import Terms, WantedParameter
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.restart.outages import ServerOutages, checked_place
from pgtop_tune.changes.restart.start_again import start_again
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.crash import crash, postmaster_at, until_gone
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.instance import ServerPlace
from tests.changes.server.test_control import ROOT
from tests.postgres.conftest import place as connection_of
from tests.support.by_pg_ctl import by_pg_ctl
from tests.support.processes import alive, eventually, revert_watchdogs
from tests.support.servers import conninfo

SCRIPT = """
import sys
import msgspec
from pgtop_tune.changes.restart import outages, start_again
from pgtop_tune.model.instance import ServerPlace
place = msgspec.json.decode(sys.argv[1], type=ServerPlace)
def stand_still(*arguments):
    print("now", flush=True)
    sys.stdin.read()
if sys.argv[2] == "before the kill":
    outages.crash = stand_still
if sys.argv[2] == "before the start":
    outages.start_until_ready = stand_still
if sys.argv[2] == "while it starts":
    start_again.until_ready = stand_still
servers = outages.ServerOutages(place)
with servers.guarded():
    servers.kill()
"""


@pytest.fixture
def server(make_server: Callable[..., Throwaway]) -> Iterator[Throwaway]:
    """A server that pg_ctl has started, as an operator's is."""
    with by_pg_ctl(make_server(18)) as started:
        yield started


async def place_of(server: Throwaway, tmp_path: Path) -> ServerPlace:
    control = PostgresControl(connection_of(server), directory=tmp_path)
    try:
        return await checked_place(control, RestartService(control), [endpoint_of(server)])
    finally:
        await control.aclose()


def endpoint_of(server: Throwaway) -> str:
    return f"{server.socket_dir}:{server.port}"


def pid_of_postmaster(server: Throwaway) -> int:
    pid = postmaster_at(Path(str(server.data_dir)))
    assert pid is not None
    return pid


def answers(server: Throwaway) -> bool:
    try:
        psycopg.connect(conninfo(server)).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize("action", ["restart", "kill"])
async def test_it_takes_sessions_again_when_the_action_is_complete(
    server: Throwaway, tmp_path: Path, action: str
) -> None:
    pid, place = pid_of_postmaster(server), await place_of(server, tmp_path)
    ServerOutages(place).actions[action]()
    assert answers(server)
    assert not alive(pid)
    assert pid_of_postmaster(server) != pid
    log = (Path(str(server.socket_dir)) / "own.log").read_text()
    assert ("was not properly shut down" in log) == (action == "kill")


@pytest.mark.parametrize("moment", ["before the kill", "before the start", "while it starts"])
async def test_it_runs_though_we_are_killed_in_the_outage(server: Throwaway, tmp_path: Path, moment: str) -> None:
    place = await place_of(server, tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, msgspec.json.encode(place).decode(), moment],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        assert program.stdout is not None
        assert program.stdout.readline() == "now\n"
        [watchdog] = revert_watchdogs(program.pid)
        program.send_signal(signal.SIGKILL)
    assert eventually(lambda: answers(server))
    # One that has not seen it up would start it again when the test stops it.
    assert eventually(lambda: not alive(watchdog))


async def test_the_process_that_watches_ends_when_the_server_is_removed(server: Throwaway, tmp_path: Path) -> None:
    place = msgspec.structs.replace(await place_of(server, tmp_path), data_directory=str(tmp_path / "removed"))
    watching = subprocess.run(
        [sys.executable, "-m", "pgtop_tune.changes.restart.start_again"],
        input=msgspec.json.encode(place), cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    assert (watching.returncode, watching.stderr) == (0, b"")


async def test_one_that_does_not_start_is_told_and_started_as_soon_as_it_can(server: Throwaway, tmp_path: Path) -> None:
    place = await place_of(server, tmp_path)
    settings = Path(str(server.data_dir)) / "postgresql.auto.conf"
    before = settings.read_text()
    settings.write_text("shared_buffers = 'as much as there is'\n")
    servers = ServerOutages(place)
    with pytest.raises(ClusterProblem, match="shared_buffers") as problem, servers.guarded():
        servers.kill()
    assert "pg_ctl start" in problem.value.hint
    settings.write_text(before)
    # The process that has watched us goes on with it.
    assert eventually(lambda: answers(server))
    pid = pid_of_postmaster(server)
    start_again(place)
    assert pid_of_postmaster(server) == pid


async def test_a_postmaster_that_its_service_has_started_at_once_is_left_alone(
    server: Throwaway, tmp_path: Path
) -> None:
    pid, place = pid_of_postmaster(server), await place_of(server, tmp_path)
    until_gone(place)
    assert pid_of_postmaster(server) == pid
    assert answers(server)


async def test_another_process_of_its_number_is_left_alone(server: Throwaway, tmp_path: Path) -> None:
    place, data = await place_of(server, tmp_path), Path(str(server.data_dir))
    pid_file, pid = data / "postmaster.pid", pid_of_postmaster(server)
    text = pid_file.read_text()
    owner = data.stat()
    become = {"user": owner.st_uid, "group": owner.st_gid} if owner.st_uid != os.geteuid() else {}
    with subprocess.Popen(["sleep", "60"], cwd="/", **become) as other:  # type: ignore[call-overload]
        pid_file.write_text(text.replace(str(pid), str(other.pid), 1))
        try:
            with pytest.raises(ClusterProblem, match="nothing was killed"):
                crash(place)
            assert other.poll() is None
            assert alive(pid)
        finally:
            pid_file.write_text(text)
            other.kill()


@pytest.mark.long
async def test_a_busy_session_and_a_shell_in_the_directory(server: Throwaway, tmp_path: Path) -> None:
    place = await place_of(server, tmp_path)
    busy = psycopg.connect(conninfo(server), autocommit=True)
    pid = busy.info.backend_pid
    busy.pgconn.send_query(b"DO $$ BEGIN LOOP END LOOP; END $$")
    owner = Path(str(server.data_dir)).stat()
    become = {"user": owner.st_uid, "group": owner.st_gid} if owner.st_uid != os.geteuid() else {}
    with subprocess.Popen(["sleep", "60"], cwd=str(server.data_dir), **become) as shell:  # type: ignore[call-overload]
        ServerOutages(place).kill()
        assert answers(server)
        assert not alive(pid)
        assert shell.poll() is None
        shell.kill()
    busy.close()


def test_a_link_to_the_data_directory_leads_to_its_server(server: Throwaway) -> None:
    link = Path(str(server.socket_dir)) / "link"
    link.symlink_to(str(server.data_dir))
    assert postmaster_at(link) == pid_of_postmaster(server)


async def test_a_server_that_was_not_named_is_refused(server: Throwaway, tmp_path: Path) -> None:
    control = PostgresControl(connection_of(server), directory=tmp_path)
    for allowed in ([], ["localhost:5432"], [f"/tmp:{server.port}"]):
        with pytest.raises(UsageProblem, match="is not allowed") as problem:
            await checked_place(control, RestartService(control), allowed)
        assert f"--allow-outage {endpoint_of(server)}" in problem.value.hint
    await control.aclose()


async def test_a_server_that_another_program_starts_is_refused(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    guarded = make_server(18)
    with pytest.raises(UsageProblem, match="throwaway"):
        await place_of(guarded, tmp_path)
    assert alive(guarded.postmaster_pid)


async def test_a_pending_change_is_neither_reverted_nor_put_into_force(server: Throwaway, tmp_path: Path) -> None:
    control = PostgresControl(connection_of(server), directory=tmp_path)
    (change,) = await control.apply_set((WantedParameter("work_mem", "5MB"),), Terms(keep_within_s=600))
    with pytest.raises(UsageProblem, match="is pending"):
        await checked_place(control, RestartService(control), [endpoint_of(server)])
    await control.revert_set(change.set_id)
    await checked_place(control, RestartService(control), [endpoint_of(server)])
    await control.apply_set((WantedParameter("max_connections", "55"),), Terms())
    with pytest.raises(UsageProblem, match="is pending"):
        await checked_place(control, RestartService(control), [endpoint_of(server)])
    await control.aclose()


async def test_clients_that_would_hang_are_told_before(server: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("SET synchronous_commit = local")
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'gone'")
        connection.execute("SELECT pg_reload_conf()")
    assert eventually(lambda: shown(server, "synchronous_standby_names") == "gone")
    with pytest.raises(UsageProblem, match="none streams"):
        await place_of(server, tmp_path)


def shown(server: Throwaway, name: str) -> str:
    with psycopg.connect(conninfo(server)) as connection:
        row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return str(row[0])
