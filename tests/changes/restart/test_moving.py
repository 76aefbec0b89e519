"""A server that listens elsewhere after its restart, on real servers that pg_ctl manages."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.changes.journal import journals, read
from pgtop_tune.changes.model.change import ChangeState, Terms, WantedParameter
from pgtop_tune.changes.model.change_set import RestartState, RestartVerdict
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.restart.restarted_server import leads_to
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.postmaster import Listening
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve
from tests.changes.restart.test_control import reverted_in_time
from tests.postgres.conftest import place
from tests.support.by_pg_ctl import auto_conf_of, by_pg_ctl
from tests.support.undoing import undo_all

MAJORS = [14, 16, 18]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        return int(reserved.getsockname()[1])


@pytest.fixture(
    params=[pytest.param(major, marks=pytest.mark.long) for major in MAJORS], ids=lambda major: f"pg{major}"
)
def by_hand(request: pytest.FixtureRequest, make_server: Callable[..., Throwaway]) -> Iterator[Throwaway]:
    with by_pg_ctl(make_server(request.param)) as server:
        yield server


def control_to(conninfo: ConnInfo, directory: Path) -> PostgresControl:
    return PostgresControl(conninfo, directory=directory)


def answers(host: Path | str, port: int) -> bool:
    try:
        with psycopg.connect(host=str(host), port=port, user="postgres", dbname="postgres"):
            return True
    except psycopg.OperationalError:
        return False


def test_the_way_it_had_comes_before_the_other_one(tmp_path: Path) -> None:
    (tmp_path / ".s.PGSQL.5433").touch()
    by_tcp, by_socket = resolve("x", host="127.0.0.1", port="5432"), resolve("x", host="/nowhere", port="5432")
    found = Listening(5433, str(tmp_path), "*", True)
    for conninfo, ways in (
        (by_tcp, ["127.0.0.1:5433", "localhost:5433", f"{tmp_path}:5433"]),
        (by_socket, [f"{tmp_path}:5433", "localhost:5433"]),
    ):
        assert [str(each) for each in leads_to(conninfo, found).endpoints] == ways
    only_socket = leads_to(by_tcp, Listening(5433, str(tmp_path), "", True))
    assert [str(each) for each in only_socket.endpoints] == [f"{tmp_path}:5433"]


async def test_a_new_port_is_followed_there_and_back(by_hand: Throwaway, tmp_path: Path) -> None:
    before, moved = auto_conf_of(by_hand), list[str]()
    control = control_to(place(by_hand), tmp_path)
    service = RestartService(control, moved=lambda conninfo: moved.append(str(conninfo.endpoints[0])))
    outcome = await service.apply([WantedParameter("port", "6543"), WantedParameter("max_connections", "55")], Terms())
    assert outcome.state is RestartState.CAME_UP, outcome
    assert f"{by_hand.socket_dir}:6543" in outcome.words
    assert answers(str(by_hand.socket_dir), 6543)
    (journal,) = journals(tmp_path)
    noted = read(journal).server_place
    assert noted is not None
    assert noted.was_at([f"{by_hand.socket_dir}:6543"])
    assert noted.was_at([f"{by_hand.socket_dir}:5432"])
    outcome = await service.revert_set(outcome.changes[0].set_id)
    assert outcome.state is RestartState.CAME_UP, outcome
    assert {each.shown_after for each in outcome.changes} == {"5432", "100"}
    assert (answers(str(by_hand.socket_dir), 5432), answers(str(by_hand.socket_dir), 6543)) == (True, False)
    assert auto_conf_of(by_hand) == before
    assert moved == [f"{by_hand.socket_dir}:6543", f"{by_hand.socket_dir}:5432"]
    await control.aclose()


async def test_a_port_on_trial_is_taken_back_at_its_new_place(by_hand: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(by_hand)
    control = control_to(place(by_hand), tmp_path)
    service = RestartService(control)
    await reverted_in_time(control, service, WantedParameter("port", "6543"))
    assert await asyncio.to_thread(answers, str(by_hand.socket_dir), 5432)
    assert auto_conf_of(by_hand) == before
    await service.aclose()
    await control.aclose()


async def test_another_directory_of_sockets_is_followed(by_hand: Throwaway, tmp_path: Path) -> None:
    before, other = auto_conf_of(by_hand), Path(str(by_hand.socket_dir)) / "b c"
    other.mkdir()
    owner = Path(str(by_hand.data_dir)).stat()
    os.chown(other, owner.st_uid, owner.st_gid)
    control = control_to(place(by_hand), tmp_path)
    service = RestartService(control)
    outcome = await service.apply([WantedParameter("unix_socket_directories", f'"{other}"')], Terms())
    assert outcome.state is RestartState.CAME_UP, outcome
    assert not answers(str(by_hand.socket_dir), 5432)
    outcome = await service.revert_set(outcome.changes[0].id)
    assert outcome.state is RestartState.CAME_UP, outcome
    assert answers(str(by_hand.socket_dir), 5432)
    assert auto_conf_of(by_hand) == before
    await control.aclose()


@pytest.mark.long
@pytest.mark.parametrize("major", MAJORS)
async def test_without_addresses_this_goes_on_through_the_socket(
    make_server: Callable[..., Throwaway], tmp_path: Path, major: int
) -> None:
    port = free_port()
    with by_pg_ctl(make_server(major), listen_addresses="127.0.0.1", port=str(port)) as server:
        before = auto_conf_of(server)
        control = control_to(resolve("postgres", host="127.0.0.1", port=str(port), user="postgres"), tmp_path)
        service = RestartService(control)
        plan = await service.plan([WantedParameter("listen_addresses", "")])
        (reach,) = (check for check in plan.checks if check.subject == "reach")
        assert (reach.verdict, str(server.socket_dir) in reach.words) == (RestartVerdict.DOUBTFUL, True)
        outcome = await service.apply([WantedParameter("listen_addresses", "")], Terms())
        assert outcome.state is RestartState.CAME_UP, outcome
        assert not answers("127.0.0.1", port)
        outcome = await service.revert_set(outcome.changes[0].id)
        assert outcome.state is RestartState.CAME_UP, outcome
        assert answers("127.0.0.1", port)
        assert auto_conf_of(server) == before
        await control.aclose()


@pytest.mark.long
@pytest.mark.parametrize("major", MAJORS)
async def test_a_port_that_is_taken_is_refused_before_the_restart(
    make_server: Callable[..., Throwaway], tmp_path: Path, major: int
) -> None:
    port = free_port()
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        by_pg_ctl(make_server(major), listen_addresses="127.0.0.1", port=str(port)) as server,
    ):
        before = auto_conf_of(server)
        control = control_to(resolve("postgres", host="127.0.0.1", port=str(port), user="postgres"), tmp_path)
        with pytest.raises(ServerProblem, match="could not create any TCP/IP sockets"):
            await RestartService(control).apply([WantedParameter("port", str(taken.getsockname()[1]))], Terms())
        assert answers("127.0.0.1", port)
        assert auto_conf_of(server) == before
        await control.aclose()


@pytest.mark.long
async def test_a_server_that_lets_us_in_nowhere_has_its_old_values_back(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    """libpq takes the comma for the end of the directory."""
    with by_pg_ctl(make_server()) as server:
        before, other = auto_conf_of(server), Path(str(server.socket_dir)) / "b,c"
        other.mkdir()
        owner = Path(str(server.data_dir)).stat()
        os.chown(other, owner.st_uid, owner.st_gid)
        control = control_to(place(server), tmp_path)
        outcome = await RestartService(control).apply(
            [WantedParameter("unix_socket_directories", f'"{other}"')], Terms()
        )
        assert outcome.state is RestartState.OLD_VALUES, outcome
        assert answers(str(server.socket_dir), 5432)
        assert auto_conf_of(server) == before
        await control.aclose()


async def test_no_way_left_is_refused_before(by_hand: Throwaway, tmp_path: Path) -> None:
    """by_pg_ctl leaves a socket only."""
    before = auto_conf_of(by_hand)
    control = control_to(place(by_hand), tmp_path)
    service = RestartService(control)
    with pytest.raises(ServerProblem, match="empty unix_socket_directories"):
        await service.apply([WantedParameter("unix_socket_directories", "")], Terms())
    assert auto_conf_of(by_hand) == before
    await control.aclose()


async def test_libraries_are_emptied_where_no_other_file_has_any(by_hand: Throwaway, tmp_path: Path) -> None:
    control = control_to(place(by_hand), tmp_path)
    service = RestartService(control)
    with pytest.raises(ServerProblem, match="cannot write an empty shared_preload_libraries"):
        await service.apply([WantedParameter("shared_preload_libraries", "")], Terms())
    conf = Path(str(by_hand.data_dir)) / "pgtop-tune.conf"
    lines = [line for line in conf.read_text().splitlines() if not line.startswith("shared_preload_libraries")]
    conf.write_text("\n".join((*lines, "")))
    outcome = await service.apply([WantedParameter("shared_preload_libraries", "auto_explain")], Terms())
    assert outcome.state is RestartState.CAME_UP, outcome
    before = auto_conf_of(by_hand)
    outcome = await service.apply([WantedParameter("shared_preload_libraries", "")], Terms())
    assert outcome.state is RestartState.CAME_UP, outcome
    assert [each.shown_after for each in outcome.changes if each.state is ChangeState.APPLIED][-1] == ""
    outcome = await service.revert_set(outcome.changes[-1].id)
    assert outcome.state is RestartState.CAME_UP, outcome
    assert auto_conf_of(by_hand) == before
    await undo_all(control)
    await control.aclose()


async def test_a_mistyped_library_is_found_before_and_survived(by_hand: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(by_hand)
    control = control_to(place(by_hand), tmp_path)
    service = RestartService(control)
    mistyped = [WantedParameter("shared_preload_libraries", "pg_stat_statements, pg_stat_statemnts")]
    with pytest.raises(ServerProblem, match="pg_stat_statemnts"):
        await service.apply(mistyped, Terms())
    assert auto_conf_of(by_hand) == before
    outcome = await service.apply(mistyped, Terms(), anyway=True)
    assert outcome.state is RestartState.OLD_VALUES, outcome
    assert any("pg_stat_statemnts" in line for line in outcome.log)
    assert auto_conf_of(by_hand) == before
    await control.aclose()


async def test_where_the_old_values_do_not_help_the_copy_does(by_hand: Throwaway, tmp_path: Path) -> None:
    """What stands in the file is not what the journal says it should be."""
    before = auto_conf_of(by_hand)
    control = control_to(place(by_hand), tmp_path)
    service = RestartService(control)
    await control.apply("shared_preload_libraries", "auto_explain")
    with psycopg.connect(
        host=str(by_hand.socket_dir), user="postgres", dbname="postgres", autocommit=True
    ) as connection:
        connection.execute("ALTER SYSTEM SET shared_preload_libraries = ''")
        connection.execute("SELECT pg_reload_conf()")
    said: list[str] = []
    deadline = time.monotonic() + 30
    while not await service.pending():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    outcome = await service.apply((), Terms(), said.append, anyway=True)
    assert outcome.state is RestartState.OLD_VALUES, outcome
    assert "starting the server with the copy of postgresql.auto.conf" in said
    assert auto_conf_of(by_hand) == before
    assert answers(str(by_hand.socket_dir), 5432)
    shutil.rmtree(tmp_path, ignore_errors=True)
    await control.aclose()


@pytest.mark.long
async def test_where_its_new_way_does_not_let_us_in_the_old_values_come_back(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    port = free_port()
    with by_pg_ctl(make_server(), listen_addresses="127.0.0.1", port=str(port)) as server:
        before = auto_conf_of(server)
        hba = Path(str(server.data_dir)) / "pg_hba.conf"
        hba.write_text("host all all 127.0.0.1/32 trust\n")
        control = control_to(resolve("postgres", host="127.0.0.1", port=str(port), user="postgres"), tmp_path)
        outcome = await RestartService(control).apply([WantedParameter("listen_addresses", "")], Terms())
        assert outcome.state is RestartState.OLD_VALUES, outcome
        assert answers("127.0.0.1", port)
        assert auto_conf_of(server) == before
        await control.aclose()
