"""Pending sets whose program and revert watchdog were killed: adopted by the next program, reverted at their time."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.changes.confirm.orphans import PendingWatch, leave_watchdogs
from pgtop_tune.changes.journal import JournalText, journals, read
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.model.change import ChangeState, ParameterChange
from pgtop_tune.changes.model.pending_set import SetOwner
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import resolve
from tests.cli.test_set import shown
from tests.cli.test_set_moving import started
from tests.host.made_machine import SWAPPINESS
from tests.postgres.conftest import place
from tests.support.machine_tree import USUAL, write
from tests.support.makers import begin, kill_with_watchdogs, leave_pending, maker, next_line, watchers
from tests.support.processes import eventually
from tests.support.servers import conninfo
from tests.support.undoing import undo_all


class Program:
    """The part of a program that looks after sets, with what it told."""

    def __init__(self, server: Throwaway, directory: Path, root: Path, *, hold: bool) -> None:
        self.told: list[str] = []
        self.parameters = PostgresControl(place(server), directory=directory)
        self.machine = HostControl(root=root, directory=directory)
        self.watch = PendingWatch(self.parameters, self.machine, directory, self.told.append, hold=hold)


@asynccontextmanager
async def program(
    server: Throwaway, directory: Path, root: Path = Path("/"), *, hold: bool = True
) -> AsyncIterator[Program]:
    leaving = asyncio.Event()
    made = Program(server, directory, root, hold=hold)
    running = asyncio.create_task(made.watch.run(leaving))
    try:
        yield made
    finally:
        leaving.set()
        await running
        await made.parameters.aclose()
        await made.machine.aclose()


async def until(condition: Callable[[], object]) -> None:
    assert await asyncio.to_thread(eventually, lambda: bool(condition()))


def of_server(directory: Path) -> JournalText:
    (path,) = (path for path in journals(directory) if not path.name.startswith("host-"))
    return read(path)


def of_machine(directory: Path) -> JournalText:
    (path,) = (path for path in journals(directory) if path.name.startswith("host-"))
    return read(path)


def deadline_s(directory: Path) -> float:
    until_ms = of_server(directory).in_force[0].until_ms
    assert until_ms is not None
    return until_ms / 1000


def times_reverted(directory: Path, name: str) -> int:
    (path,) = (path for path in journals(directory) if not path.name.startswith("host-"))
    return sum(
        b'"state":"reverted"' in line and f'"name":"{name}"'.encode() in line for line in path.read_bytes().split(b"\n")
    )


def owners(directory: Path) -> tuple[SetOwner, ...]:
    return tuple(of_server(directory).owners.values())


def adoptions(directory: Path) -> int:
    """How often a set was given to an owner, after the first one."""
    (path,) = (path for path in journals(directory) if not path.name.startswith("host-"))
    return path.read_bytes().count(b'"set_owner"') - 1


@pytest.mark.long
async def test_the_next_program_adopts_a_set_and_reverts_it_at_its_time(server: Throwaway, tmp_path: Path) -> None:
    await asyncio.to_thread(
        leave_pending, server, tmp_path, "Terms(keep_within_s=8.0, trip_wires=('p99>50ms', 'errors>0'))"
    )
    ends_s = deadline_s(tmp_path)
    (maker_,) = {change.by for change in of_server(tmp_path).in_force}
    async with program(server, tmp_path) as next_one:
        await until(next_one.watch.adopted)
        (adopted,) = next_one.watch.adopted()
        assert [change.name for change in adopted.changes] == ["work_mem", "max_wal_size"]
        assert (adopted.by, adopted.trip_wires) == (maker_, ("p99>50ms", "errors>0"))
        owner = of_server(tmp_path).owners[adopted.set_id]
        assert owner.program is not None
        assert owner.watchdog is not None
        assert (owner.program.pid, owner.watchdog.lives) == (os.getpid(), True)
        assert await asyncio.to_thread(shown, server, "work_mem") == "8MB"
        await until(lambda: not of_server(tmp_path).in_force)
        assert time.time() >= ends_s
        assert await asyncio.to_thread(shown, server, "work_mem") == "4MB"
        assert {change.message for change in of_server(tmp_path).changes} == {"not confirmed in time"}
        await until(lambda: not owner.watchdog.lives)  # type: ignore[union-attr]
    assert len([words for words in next_one.told if maker_ in words]) == 1


async def test_an_adopted_set_that_is_kept_stays(server: Throwaway, tmp_path: Path) -> None:
    await asyncio.to_thread(leave_pending, server, tmp_path, "Terms(keep_within_s=600.0)")
    async with program(server, tmp_path) as next_one:
        await until(next_one.watch.adopted)
        await next_one.parameters.keep(next_one.watch.adopted()[0].set_id)
    assert shown(server, "work_mem") == "8MB"
    assert [change.kept for change in of_server(tmp_path).in_force] == [True, True]
    control = PostgresControl(place(server), directory=tmp_path)
    await undo_all(control)
    await control.aclose()


async def test_the_set_of_a_program_that_runs_is_shown_and_left_to_it(server: Throwaway, tmp_path: Path) -> None:
    with maker(server, tmp_path, "Terms(keep_within_s=600.0)") as other:
        async with program(server, tmp_path) as next_one:
            await until(lambda: next_one.told)
            assert "work_mem 4MB→8MB; max_wal_size 1GB→4GB is pending confirmation by " in next_one.told[0]
            assert next_one.watch.adopted() == ()
            await asyncio.to_thread(kill_with_watchdogs, other.pid)
            await until(next_one.watch.adopted)
    assert shown(server, "work_mem") == "4MB"


async def test_a_program_that_hangs_does_not_keep_its_set_beyond_the_deadline(
    server: Throwaway, tmp_path: Path
) -> None:
    with maker(server, tmp_path, "Terms(keep_within_s=4.0)") as other:
        os.kill(other.pid, signal.SIGSTOP)
        async with program(server, tmp_path):
            await until(lambda: not of_server(tmp_path).in_force)
    assert times_reverted(tmp_path, "work_mem") == 1


async def test_of_two_programs_that_start_at_once_one_adopts(server: Throwaway, tmp_path: Path) -> None:
    with watchers(server, tmp_path, 2) as programs:
        await asyncio.to_thread(leave_pending, server, tmp_path, "Terms(keep_within_s=600.0)")
        begin(programs)
        lines = [await asyncio.to_thread(next_line, each) for each in programs]
        (adopter,) = (each for each, line in zip(programs, lines, strict=True) if "confirm it, or it reverts" in line)
        assert len([line for line in lines if "is pending confirmation by" in line]) == 1
        assert adoptions(tmp_path) == 1
        adopter.kill()
        await until(lambda: not of_server(tmp_path).in_force)
    assert times_reverted(tmp_path, "work_mem") == 1


@pytest.mark.long
@pytest.mark.parametrize("with_watchdog", [False, True])
async def test_a_killed_adopter_leaves_the_set_to_its_watchdog_or_to_the_next(
    server: Throwaway, tmp_path: Path, with_watchdog: bool
) -> None:
    await asyncio.to_thread(leave_pending, server, tmp_path, "Terms(keep_within_s=40.0)")
    ends_s = deadline_s(tmp_path)
    with watchers(server, tmp_path) as (adopter,):
        begin((adopter,))
        await until(lambda: any(owner.program and owner.program.pid == adopter.pid for owner in owners(tmp_path)))
        if with_watchdog:
            await asyncio.to_thread(kill_with_watchdogs, adopter.pid)
            async with program(server, tmp_path) as third:
                await until(third.watch.adopted)
                await until(lambda: not of_server(tmp_path).in_force)
            assert time.time() >= ends_s
        else:
            os.kill(adopter.pid, signal.SIGKILL)
            await until(lambda: not of_server(tmp_path).in_force)
    assert times_reverted(tmp_path, "work_mem") == 1
    assert shown(server, "work_mem") == "4MB"


@pytest.mark.long
async def test_a_command_that_does_not_stay_leaves_a_watchdog_from_which_a_screen_adopts(
    server: Throwaway, tmp_path: Path
) -> None:
    await asyncio.to_thread(leave_pending, server, tmp_path, "Terms(keep_within_s=15.0)")
    ends_s, told = deadline_s(tmp_path), list[str]()
    control = PostgresControl(place(server), directory=tmp_path)
    for _ in range(2):
        await leave_watchdogs(control, HostControl(directory=tmp_path), tmp_path, told.append)
    await control.aclose()
    assert len([words for words in told if "which has ended: it reverts at" in words]) == 1
    (owner,) = owners(tmp_path)
    assert owner.left_alone
    assert owner.watchdog is not None
    async with program(server, tmp_path) as screen:
        await until(screen.watch.adopted)
        set_id = screen.watch.adopted()[0].set_id
        await screen.parameters.keep(set_id)
    await until(lambda: not owner.watchdog.lives)  # type: ignore[union-attr]
    assert time.time() >= ends_s
    assert shown(server, "work_mem") == "8MB"
    control = PostgresControl(place(server), directory=tmp_path)
    await undo_all(control)
    await control.aclose()


async def test_a_watchdog_that_was_left_alone_reverts_at_the_deadline(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtop_tune.changes.watchdogs.LATER_S", 0.5)
    await asyncio.to_thread(leave_pending, server, tmp_path, "Terms(keep_within_s=5.0)")
    ends_s = deadline_s(tmp_path)
    control = PostgresControl(place(server), directory=tmp_path)
    await leave_watchdogs(control, HostControl(directory=tmp_path), tmp_path, lambda words: None)
    await control.aclose()
    await until(lambda: not of_server(tmp_path).in_force)
    assert time.time() >= ends_s
    assert shown(server, "work_mem") == "4MB"


@pytest.mark.long
async def test_both_halves_of_a_set_are_adopted_together(server: Throwaway, tmp_path: Path) -> None:
    root, journal = tmp_path / "root", tmp_path / "journal"
    write(root, USUAL)
    await asyncio.to_thread(
        leave_pending, server, journal, "Terms(keep_within_s=8.0, set_id='both')",
        settings=(("vm.swappiness", "5"),), root=root,
    )  # fmt: skip
    # The server's half is somebody's: the machine's is left to the program that adopts it.
    machine_only = HostControl(root=root, directory=journal)
    assert await machine_only.adopt() == ()
    async with program(server, journal, root) as next_one:
        await until(lambda: len(next_one.watch.adopted()) == 2)
        assert {half.set_id for half in next_one.watch.adopted()} == {"both"}
        await until(lambda: not of_server(journal).in_force and not of_machine(journal).host_in_force)
    assert (root / SWAPPINESS).read_text() == "60\n"
    assert shown(server, "work_mem") == "4MB"


async def test_a_confirmed_value_that_can_lose_data_does_not_outlive_its_program(
    server: Throwaway, tmp_path: Path
) -> None:
    before, value = "on", "off"
    terms = "Terms(keep_within_s=600.0, confirmed=frozenset({'full_page_writes'}))"
    unsafe = (("full_page_writes", value),)
    await asyncio.to_thread(leave_pending, server, tmp_path, terms, parameters=unsafe, kept=True)
    assert shown(server, "full_page_writes") == value
    async with program(server, tmp_path) as next_one:
        await until(lambda: not of_server(tmp_path).in_force)
        await until(lambda: next_one.told)
    assert next_one.told == [f"full_page_writes is {before} again: the value can lose data, and its program has ended"]
    await asyncio.to_thread(leave_pending, server, tmp_path, terms, parameters=unsafe)
    async with program(server, tmp_path) as next_one:
        await until(next_one.watch.adopted)
        kept = await next_one.parameters.keep(next_one.watch.adopted()[0].set_id)
        assert [change.kept for change in kept] == [True]
        assert shown(server, "full_page_writes") == value
    assert shown(server, "full_page_writes") == before


async def test_a_server_that_is_away_is_waited_for(server: Throwaway, tmp_path: Path) -> None:
    await asyncio.to_thread(leave_pending, server, tmp_path, "Terms(keep_within_s=1.0)")
    async with program(server, tmp_path) as next_one:
        here = next_one.parameters.conninfo
        next_one.parameters.conninfo = resolve("postgres", host="127.0.0.1", port="1", user="postgres")
        with pytest.raises(ConnectionProblem):
            await next_one.watch.look()
        assert of_server(tmp_path).in_force
        next_one.parameters.conninfo = here
        await until(lambda: not of_server(tmp_path).in_force)
    assert shown(server, "work_mem") == "4MB"


async def test_what_was_begun_when_its_program_was_killed_is_settled_and_adopted(
    server: Throwaway, tmp_path: Path
) -> None:
    await asyncio.to_thread(leave_pending, server, tmp_path, "Terms(keep_within_s=600.0)")
    # As killed between the change and reading it back: the journal's last lines are gone.
    (path,) = journals(tmp_path)
    lines = [line for line in path.read_bytes().split(b"\n") if b'"state":"applied"' not in line]
    path.write_bytes(b"\n".join(lines))
    assert {change.state for change in of_server(tmp_path).in_force} == {ChangeState.INTENDED}
    async with program(server, tmp_path) as next_one:
        await until(next_one.watch.adopted)
        changes = next_one.watch.adopted()[0].changes
        assert [isinstance(each, ParameterChange) and each.shown_after for each in changes] == ["8MB", "4GB"]
    assert shown(server, "work_mem") == "4MB"


@pytest.mark.parametrize("kept", [pytest.param(False, marks=pytest.mark.long), True])
async def test_a_set_of_a_role_that_knows_little_is_adopted_after_a_restart(
    fresh_server: Throwaway, tmp_path: Path, kept: bool
) -> None:
    """Nothing but its value says then that the journal is of this server."""
    directory = tmp_path / ".local/state/pgtop-tune/journal"

    def left() -> None:
        with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
            connection.execute("CREATE ROLE plain LOGIN")
        words = ("set", "work_mem=8MB", "--scope", "role=plain", "--for", "600s" if kept else "15s")
        with started(*words, "-d", conninfo(fresh_server).replace("=postgres ", "=plain "), home=tmp_path) as maker_:
            assert eventually(
                lambda: [each.state for path in journals(directory) for each in read(path).in_force] == ["applied"]
            )
            kill_with_watchdogs(maker_.pid)
            maker_.communicate()
        fresh_server.restart()

    await asyncio.to_thread(left)
    ends_s = deadline_s(directory)
    async with program(fresh_server, directory) as next_one:
        await until(next_one.watch.adopted)
        (adopted,) = next_one.watch.adopted()
        if kept:
            (staying,) = await next_one.parameters.keep(adopted.set_id)
            assert (staying.name, staying.kept) == ("work_mem", True)
        else:
            await until(lambda: not of_server(directory).in_force)
            assert time.time() >= ends_s
    assert [(each.name, each.kept) for each in of_server(directory).in_force] == [("work_mem", True)] * kept
