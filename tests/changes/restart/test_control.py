"""One restart for all that waits for it, and the way back, on real servers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from pgtop_tune.base.errors import ConnectionProblem, ServerProblem
from pgtop_tune.changes.change_sets import ChangeSets, WithRestart
from pgtop_tune.changes.confirm.pending_sets import PendingSets
from pgtop_tune.changes.journal import journals, read
from pgtop_tune.changes.model.change import ChangeState, Terms, WantedParameter, WantedSetting
from pgtop_tune.changes.model.change_set import ChangeSet, RestartState, RestartVerdict
from pgtop_tune.changes.model.pending_set import now_ms
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.restart.recovery import Policy, recover
from pgtop_tune.changes.selection import everything
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.postmaster import pid_of
from pgtop_tune.cluster.throwaway import Throwaway
from tests.changes.server.test_control import ROOT
from tests.postgres.conftest import place
from tests.support.by_pg_ctl import auto_conf_of, by_pg_ctl
from tests.support.quick_server import quick_server
from tests.support.servers import MAJORS, Servers, conninfo
from tests.support.undoing import revert_parameters
from tests.support.ways import Machine

TOO_MUCH: Final = (WantedParameter("shared_buffers", "900GB"), WantedParameter("max_wal_size", "2GB"))


def control_of(server: Throwaway, directory: Path) -> PostgresControl:
    return PostgresControl(place(server), directory=directory)


def shown(server: Throwaway, name: str) -> str:
    with psycopg.connect(conninfo(server)) as connection:
        row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return str(row[0])


@pytest.fixture(scope="module")
def own(servers: Servers) -> Iterator[Throwaway]:
    """A server that these tests restart and give back as it was."""
    server = quick_server(servers.binaries(18))
    yield server
    server.stop("immediate")


async def settled(control: PostgresControl, service: RestartService) -> None:
    """Waits until nothing is in force and no change is pending a restart, also while the server is away."""
    async with asyncio.timeout(60):
        while True:
            try:
                if not await control.in_force() and not await service.pending():
                    return
            except ConnectionProblem:
                pass
            await asyncio.sleep(0.1)


async def test_a_throwaway_of_ours_gets_its_new_values_and_its_old_ones_when_it_cannot_start(
    own: Throwaway, tmp_path: Path
) -> None:
    server, said = own, list[str]()
    with (Path(str(server.data_dir)) / "postgresql.auto.conf").open("a") as file:
        file.write("jit = off\n# the DBA was here\nwork_mem = '5MB'\n")
    before = auto_conf_of(server)
    control = control_of(server, tmp_path)
    service = RestartService(control, server.restart)
    plan = await service.plan(TOO_MUCH)
    assert not plan.possible
    with pytest.raises(ServerProblem, match="more than the machine has"):
        await service.apply(TOO_MUCH, Terms())
    assert auto_conf_of(server) == before

    outcome = await service.apply(TOO_MUCH, Terms(), said.append, anyway=True)
    assert outcome.state is RestartState.OLD_VALUES
    assert any("shared memory" in line for line in outcome.log), outcome.log
    assert "starting the server with the old values" in said
    assert auto_conf_of(server) == before
    assert (shown(server, "shared_buffers"), shown(server, "max_wal_size")) == ("32MB", "1GB")
    (journal,) = journals(tmp_path)
    assert {change.state for change in read(journal).changes} == {ChangeState.REVERTED}

    outcome = await service.apply(
        [WantedParameter("shared_buffers", "48MB"), WantedParameter("max_connections", "77")], Terms()
    )
    assert outcome.state is RestartState.CAME_UP
    assert [(each.shown_after, each.message) for each in outcome.changes] == [("48MB", ""), ("77", "")]
    assert shown(server, "shared_buffers") == "48MB"
    outcome = await service.revert_set(outcome.changes[0].set_id)
    assert outcome.state is RestartState.CAME_UP
    assert {each.shown_after for each in outcome.changes} == {"32MB", "100"}
    assert shown(server, "max_connections") == "100"
    await service.aclose()
    await control.aclose()


async def test_what_waits_already_is_taken_over_and_put_back_when_it_cannot_start(
    own: Throwaway, tmp_path: Path
) -> None:
    server = own
    before = auto_conf_of(server)
    control = control_of(server, tmp_path)
    service = RestartService(control, server.restart)
    assert await service.pending() == ()
    # As a program that does not try what it writes.
    await control.apply_set((WantedParameter("shared_buffers", "900GB"),), Terms(with_restart=True))
    (waiting,) = await service.pending()
    assert (waiting.running, waiting.after) == ("32MB", "900GB")
    assert waiting.change is not None
    assert not (await service.plan()).possible
    outcome = await service.apply((), Terms(), anyway=True)
    assert outcome.state is RestartState.OLD_VALUES
    assert auto_conf_of(server) == before
    assert await control.in_force() == ()
    await control.aclose()


async def test_a_library_that_is_not_there_is_found_before(own: Throwaway, tmp_path: Path) -> None:
    control = control_of(own, tmp_path)
    plan = await RestartService(control).plan([WantedParameter("shared_preload_libraries", "no_such_library")])
    (files,) = (check for check in plan.checks if check.subject == "files")
    assert files.verdict is RestartVerdict.IMPOSSIBLE
    assert "no_such_library" in files.words
    # Of another pgtop-tune's guard, as far as this desk knows.
    assert not plan.by_us
    await control.aclose()


async def test_a_line_that_was_written_and_removed_again_waits_for_no_restart(own: Throwaway, tmp_path: Path) -> None:
    control = control_of(own, tmp_path)
    service = RestartService(control)
    async with await psycopg.AsyncConnection.connect(conninfo(own), autocommit=True) as connection:
        for command, waits in (
            ("SET max_locks_per_transaction = 65", True),
            ("RESET max_locks_per_transaction", False),
            # The default of this one is worked out, and is not its boot_val; an enum takes any case.
            ("SET wal_buffers = '64MB'", True),
            ("RESET wal_buffers", False),
            ("SET huge_pages = 'On'", True),
            ("RESET huge_pages", False),
        ):
            await connection.execute(f"ALTER SYSTEM {command}")
            await connection.execute("SELECT pg_reload_conf()")
            name = command.split()[1]
            async with asyncio.timeout(60):
                while [each.name for each in await service.pending()] != [name] * waits or (
                    await control.list((name,))
                )[0].pending_restart is not waits:
                    await asyncio.sleep(0.02)
    await control.aclose()


async def test_a_restart_that_the_command_line_undoes_is_not_planned(own: Throwaway, tmp_path: Path) -> None:
    control = control_of(own, tmp_path)
    service = RestartService(control)
    for act in (service.plan, lambda wanted: service.apply(wanted, Terms(), anyway=True)):
        with pytest.raises(ServerProblem, match="port comes from the server's command line") as refused:
            await act([WantedParameter("Port", "6000")])
    assert refused.value.hint == "change the value where the server is started; nothing was changed"
    assert await control.in_force() == ()
    await control.aclose()


async def test_somebody_elses_restart_is_waited_for(own: Throwaway, tmp_path: Path) -> None:
    control = control_of(own, tmp_path)
    service = RestartService(control)
    said: list[str] = []
    waiting = asyncio.create_task(service.apply([WantedParameter("max_connections", "66")], Terms(), said.append))
    async with asyncio.timeout(60):
        while not any("waiting for the restart" in words for words in said):
            await asyncio.sleep(0.02)
    await asyncio.to_thread(own.restart)
    async with asyncio.timeout(60):
        outcome = await waiting
    assert outcome.state is RestartState.CAME_UP
    assert outcome.changes[0].shown_after == "66"
    outcome = await service.revert_set(outcome.changes[0].id)
    assert outcome.state is RestartState.WAITING
    assert "only the pgtop-tune that created" in outcome.hint
    await asyncio.to_thread(own.restart)
    await control.aclose()


async def reverted_in_time(
    control: PostgresControl, service: RestartService, wanted: WantedParameter, within_s: float = 0.5
) -> str:
    """Makes a change with a restart and a deadline, and waits until it is reverted; the id of its set."""
    door = WithRestart(control, service, lambda words: None, anyway=False)
    pending = PendingSets(ChangeSets(door, None), lambda event: None)
    made = await pending.apply(ChangeSet(parameters=(wanted,)), Terms(keep_within_s=within_s))
    assert pending.current is not None
    assert door.outcome is not None
    assert door.outcome.state is RestartState.CAME_UP, door.outcome
    async with asyncio.timeout(60):
        assert (await pending.over(made.set_id)).problem is None
    await settled(control, service)
    pending.close()
    return made.set_id


@pytest.mark.parametrize("of_journal", [False, True])
async def test_a_pool_of_huge_pages_is_smaller_again_before_a_restart_that_would_take_it(
    own: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_journal: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    machine = Machine(tmp_path / "root")
    pools: list[str] = []

    def restart() -> None:
        pools.append(machine.value("vm.nr_hugepages"))
        own.restart()

    control = PostgresControl(place(own))
    service = RestartService(control, restart)
    door = WithRestart(control, service, lambda words: None, anyway=False)
    # A set that another program has made is reverted with its restart by the door without one.
    sets = ChangeSets(control, machine, service) if of_journal else ChangeSets(door, machine)
    pages = WantedSetting("vm.nr_hugepages", "20")
    made = await ChangeSets(door, machine).apply(
        ChangeSet(parameters=(WantedParameter("max_connections", "66"),), settings=(pages,)), Terms()
    )
    (await sets.revert(made.set_id, with_restart=of_journal)).checked()
    assert pools == ["20", "0"]
    assert await asyncio.to_thread(shown, own, "max_connections") == "100"
    await service.aclose()


async def test_a_revert_restarts_no_server_that_would_not_come_up(own: Throwaway, tmp_path: Path) -> None:
    control = control_of(own, tmp_path)
    service = RestartService(control, own.restart)
    made = (await service.apply([WantedParameter("max_connections", "66")], Terms())).changes
    async with await psycopg.AsyncConnection.connect(conninfo(own), autocommit=True) as other:
        await other.execute("ALTER SYSTEM SET shared_buffers = '900GB'")
        await other.execute("SELECT pg_reload_conf()")
        with pytest.raises(ServerProblem, match="more than the machine has") as refused:
            await service.revert_set(made[0].set_key)
        assert "the old values are written" in (refused.value.hint or "")
        assert shown(own, "max_connections") == "66"
        await other.execute("ALTER SYSTEM RESET shared_buffers")
        await other.execute("SELECT pg_reload_conf()")
    assert (await service.apply((), Terms())).state is RestartState.CAME_UP
    assert shown(own, "max_connections") == "100"
    await service.aclose()
    await control.aclose()


@pytest.mark.parametrize("starts", [True, False])
async def test_a_pool_of_huge_pages_is_smaller_before_the_restart_of_its_set_and_as_before_for_the_old_values(
    own: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    machine = Machine(tmp_path / "root")
    machine.path("vm.nr_hugepages").write_text("30\n")
    pools: list[str] = []

    def restart() -> None:
        pools.append(machine.value("vm.nr_hugepages"))
        own.restart()

    control = PostgresControl(place(own))
    service = RestartService(control, restart)
    sets = ChangeSets(WithRestart(control, service, lambda words: None, anyway=True), machine)
    parameters = (WantedParameter("max_connections", "66"),) if starts else TOO_MUCH
    change_set = ChangeSet(parameters=parameters, settings=(WantedSetting("vm.nr_hugepages", "20"),))
    if starts:
        (await sets.revert((await sets.apply(change_set, Terms())).set_id)).checked()
        assert pools == ["20", "30"]
    else:
        with pytest.raises(ServerProblem, match="runs with its old values"):
            await sets.apply(change_set, Terms())
        assert pools == ["20", "30"]
        assert machine.value("vm.nr_hugepages") == "30"
    assert await control.in_force() == ()
    assert await machine.in_force() == ()
    await service.aclose()
    await control.aclose()


async def test_on_trial_a_second_restart_brings_the_old_values_back(own: Throwaway, tmp_path: Path) -> None:
    control = control_of(own, tmp_path)
    service = RestartService(control, own.restart)
    began_ms = now_ms()
    set_id = await reverted_in_time(control, service, WantedParameter("max_connections", "66"))
    (journal,) = journals(tmp_path)
    (change,) = read(journal).changes
    assert change.set_id == set_id
    assert change.message.startswith("not confirmed in time")
    # The deadline counts from the restart on: no program waits the quarter of an hour that a restart may take.
    assert change.until_ms is not None
    assert began_ms < change.until_ms < now_ms()
    assert await asyncio.to_thread(shown, own, "max_connections") == "100"
    await service.aclose()
    await control.aclose()


@pytest.fixture(
    params=[pytest.param(major, marks=pytest.mark.long) for major in MAJORS], ids=lambda major: f"pg{major}"
)
def by_hand(request: pytest.FixtureRequest, make_server: Callable[..., Throwaway]) -> Iterator[Throwaway]:
    """A server of every major, started by pg_ctl."""
    with by_pg_ctl(make_server(request.param)) as server:
        yield server


async def test_pg_ctl_restarts_and_the_way_back_is_the_same(by_hand: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(by_hand)
    control = control_of(by_hand, tmp_path)
    service = RestartService(control)
    plan = await service.plan(TOO_MUCH)
    assert (plan.managed, plan.by_us, plan.possible) == ("pg_ctl", True, False)
    outcome = await service.apply(TOO_MUCH, Terms(), anyway=True)
    assert outcome.state is RestartState.OLD_VALUES
    assert any("shared memory" in line for line in outcome.log), outcome.log
    assert auto_conf_of(by_hand) == before
    outcome = await service.apply([WantedParameter("shared_buffers", "48MB")], Terms())
    assert outcome.state is RestartState.CAME_UP
    assert shown(by_hand, "shared_buffers") == "48MB"
    outcome = await service.revert_set(outcome.changes[0].id)
    assert shown(by_hand, "shared_buffers") == "32MB"
    assert auto_conf_of(by_hand) == before
    await control.aclose()


DYING: Final = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from pgtop_tune.changes.model.change import Terms, WantedParameter
    from pgtop_tune.postgres.server.conninfo import resolve
    from pgtop_tune.changes.server.one_change import Rules
    from pgtop_tune.changes.server.control import PostgresControl
    from pgtop_tune.changes.restart import control as module

    host, port, directory, value, step = sys.argv[1:]

    def dying(words):
        if step in words:
            os.kill(os.getpid(), signal.SIGKILL)

    async def main():
        where = resolve("postgres", host=host, port=port, user="postgres")
        control = PostgresControl(where, directory=Path(directory))
        wanted = [WantedParameter("shared_buffers", value), WantedParameter("max_wal_size", "2GB")]
        await module.RestartService(control).apply(wanted, Terms(), dying, anyway=True)

    asyncio.run(main())
"""


@pytest.mark.long
@pytest.mark.parametrize("by_watchdog", [False, True])
@pytest.mark.parametrize("step", ["restarting", "does not come up", "starting the server"])
def test_after_a_kill_in_the_middle_reverting_brings_the_server_back(
    make_server: Callable[..., Throwaway], tmp_path: Path, step: str, by_watchdog: bool
) -> None:
    with by_pg_ctl(make_server()) as server:
        before = auto_conf_of(server)
        words = (str(server.socket_dir), str(server.port), str(tmp_path), "900GB", step)
        killed = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(DYING), *words],
            check=False,
            timeout=120,
            cwd=ROOT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert killed.returncode == -signal.SIGKILL
        deadline = time.monotonic() + 60
        if step == "restarting":
            # Killed before it ended the server: as if the machine were rebooted now.
            subprocess.run(["kill", "-INT", str(pid_of(Path(str(server.data_dir))))], check=True)
        while pid_of(Path(str(server.data_dir))) is not None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        policy = Policy(is_meant=lambda known: known.alone, may_start=None if by_watchdog else lambda known: False)
        recovered = recover(place(server), everything, tmp_path, print, policy)
        # The restart was ours: nobody is asked.
        assert recovered is not None
        assert recovered.is_up
        assert auto_conf_of(server) == before
        revert_parameters(place(server), directory=tmp_path)
        assert auto_conf_of(server) == before
        assert shown(server, "shared_buffers") == "32MB"
        assert read(journals(tmp_path)[0]).in_force == ()
