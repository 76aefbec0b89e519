"""What holds of changing a server and its machine, on the screen and with a command: one set of sentences for both."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtop_tune.base.errors import ConnectionProblem, PgtopError, UsageProblem
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.journal import journals, read
from pgtop_tune.changes.model.change import WantedParameter, WantedSetting
from pgtop_tune.changes.selection import last
from pgtop_tune.changes.server import change_set
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cli.commands.parameters import RevertRequest, reverts
from pgtop_tune.cli.connections import ConnectionWords
from pgtop_tune.cluster.throwaway import Throwaway
from tests.postgres.conftest import place
from tests.support.makers import ROOT
from tests.support.quick_server import quick_server
from tests.support.servers import Servers, conninfo
from tests.support.undoing import undo_all
from tests.support.ways import Command, Machine, Screen, kill, let_an_hour_pass, way_of

WAYS = ("screen", "command")
PAGES = "vm.nr_hugepages"
STRICT = (
    WantedSetting("vm.overcommit_memory", "2"),
    WantedSetting(PAGES, "20"),
    WantedSetting("vm.overcommit_ratio", "90"),
)
WayOf = Callable[[Throwaway], AbstractAsyncContextManager[Screen | Command]]
BOTH = ((WantedParameter("max_wal_size", "3GB"),), (WantedSetting(PAGES, "20"),))


@pytest.fixture(scope="module")
def shared(servers: Servers) -> Iterator[Throwaway]:
    server = quick_server(servers.binaries(18))
    yield server
    server.stop("immediate")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Machine(tmp_path / "root")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> WayOf:
    return lambda server: way_of(request.param, server, machine, monkeypatch)


def shown(server: Throwaway, name: str) -> str:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
        assert row is not None
        return str(row[0])


def in_force() -> list[str]:
    texts = [read(path) for path in journals(None)]
    return sorted(each.name for text in texts for each in (*text.in_force, *text.host_in_force))


def reverted_in_turn() -> list[str]:
    """Settings of the machine as its journal has them reverted: file times stand still for ms."""
    lines = [json.loads(line)["body"] for path in journals(None) for line in path.read_text().splitlines()]
    changes = [line["host_change"] for line in lines if "host_change" in line]
    return [change["name"] for change in changes if change["state"] == "reverted"]


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def made_at(machine: Machine, server: Throwaway) -> dict[str, int]:
    """When each half was made last, microseconds: its file was written, or the server has read its files."""
    with psycopg.connect(conninfo(server)) as connection:
        row = connection.execute("SELECT (extract(epoch FROM pg_conf_load_time()) * 1000000)::bigint").fetchone()
    assert row is not None
    return {"machine": machine.path(PAGES).stat().st_mtime_ns // 1000, "server": row[0]}


async def test_strict_accounting_is_entered_after_its_limit_was_raised(
    way: WayOf, shared: Throwaway, machine: Machine
) -> None:
    async with way(shared) as operator:
        await operator.apply((), STRICT)
    made = [each.name for path in journals(None) for each in read(path).host_changes]
    assert made == ["vm.overcommit_ratio", PAGES, "vm.overcommit_memory"]


@pytest.mark.parametrize(("before", "wanted", "first"), [("0", "20", "machine"), ("40", "20", "server")])
async def test_pages_are_there_before_the_server_wants_them_and_given_up_after_it_left_them(
    way: WayOf,
    shared: Throwaway,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    wanted: str,
    first: str,
) -> None:
    machine.path(PAGES).write_text(f"{before}\n")
    second = "server" if first == "machine" else "machine"
    async with way(shared) as operator:
        await operator.apply((WantedParameter("max_wal_size", "3GB"),), (WantedSetting(PAGES, wanted),), 600.0)
        made = made_at(machine, shared)
        assert made[first] < made[second]
        let_an_hour_pass(monkeypatch)
        await operator.over()
        reverted = made_at(machine, shared)
        # Going back is the mirror: the half that was made last goes first.
        assert reverted[second] < reverted[first]
    assert (machine.value(PAGES), shown(shared, "max_wal_size"), in_force()) == (before, "1GB", [])


async def test_a_server_that_refuses_leaves_the_machine_as_it_was(
    way: WayOf, shared: Throwaway, machine: Machine
) -> None:
    async with way(shared) as operator:
        with pytest.raises(PgtopError):
            await operator.apply((WantedParameter("max_wal_size", "1kB"),), (WantedSetting(PAGES, "20"),))
    assert (machine.value(PAGES), in_force()) == ("0", [])


async def test_asynchronous_commits_are_tried_within_a_deadline_and_refused_without_one(
    way: WayOf, shared: Throwaway, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = (WantedParameter("synchronous_commit", "off"),)
    async with way(shared) as operator:
        with pytest.raises(PgtopError, match="can lose acknowledged commits"):
            await operator.apply(off, ())
        with pytest.raises(PgtopError, match="can lose the whole cluster"):
            await operator.apply((WantedParameter("fsync", "0"),), (), 600.0)
        await operator.apply(off, (), 600.0)
        assert shown(shared, "synchronous_commit") == "off"
        let_an_hour_pass(monkeypatch)
        await operator.over()
    assert (shown(shared, "synchronous_commit"), in_force()) == ("on", [])


async def test_both_halves_go_back_at_the_deadline(
    way: WayOf, shared: Throwaway, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with way(shared) as operator:
        await operator.apply(*BOTH, 600.0)
        assert (machine.value(PAGES), shown(shared, "max_wal_size")) == ("20", "3GB")
        let_an_hour_pass(monkeypatch)
        await operator.over()
    assert (machine.value(PAGES), shown(shared, "max_wal_size"), in_force()) == ("0", "1GB", [])


async def test_a_set_without_a_deadline_stays_under_one_id(way: WayOf, shared: Throwaway, machine: Machine) -> None:
    async with way(shared) as operator:
        await operator.apply(*BOTH)
    texts = [read(path) for path in journals(None)]
    assert len({each.set_id for text in texts for each in (*text.in_force, *text.host_in_force)}) == 1
    assert (machine.value(PAGES), shown(shared, "max_wal_size")) == ("20", "3GB")
    with psycopg.connect(conninfo(shared), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM RESET max_wal_size")
        connection.execute("SELECT pg_reload_conf()")


async def test_after_a_connection_lost_between_the_halves_the_machine_keeps_its_half(
    way: WayOf, fresh_server: Throwaway, machine: Machine
) -> None:
    machine.afterwards = lambda: kill(fresh_server)
    async with way(fresh_server) as operator:
        with pytest.raises(ConnectionProblem) as lost:
            await operator.apply(*BOTH)
        assert "pgtop-tune revert --set" in str(lost.value)
    # Whether the server has its half cannot be known: `revert` takes both back when it answers again.
    assert (machine.value(PAGES), in_force()) == ("20", [PAGES])


@pytest.mark.parametrize(("before", "wanted", "step"), [("0", "20", "afterwards"), ("40", "20", "beforehand")])
async def test_the_half_that_was_made_first_does_not_go_back_before_the_other_one(
    way: WayOf, shared: Throwaway, machine: Machine, before: str, wanted: str, step: str
) -> None:
    machine.path(PAGES).write_text(f"{before}\n")
    taken_s = 1.5
    # A half may take its time: a restart, a server that does not answer for a while, pages to be found.
    setattr(machine, step, lambda: time.sleep(taken_s))
    async with way(shared) as operator:
        await operator.apply((WantedParameter("max_wal_size", "3GB"),), (WantedSetting(PAGES, wanted),), 600.0)
        texts = [read(path) for path in journals(None)]
        until = {each.name: each.until_ms or 0 for text in texts for each in (*text.in_force, *text.host_in_force)}
        assert abs(until[PAGES] - until["max_wal_size"]) < taken_s * 1000
        watchdogs = [own.watchdog for text in texts for own in text.owners.values()]
        assert all(own is not None and own.lives for own in watchdogs)
        await operator.revert_now()
        await operator.over()
    assert (machine.value(PAGES), shown(shared, "max_wal_size"), in_force()) == (before, "1GB", [])


async def test_a_failure_that_nobody_foresaw_leaves_no_half_of_a_set(
    way: WayOf, shared: Throwaway, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*words: object) -> object:
        raise RuntimeError("a bug")

    async with way(shared) as operator:
        monkeypatch.setattr(PostgresControl, "apply_set", broken)
        with pytest.raises(RuntimeError):
            await operator.apply(*BOTH)
    assert (machine.value(PAGES), in_force()) == ("0", [])


@pytest.mark.parametrize("step", ["between the halves", "within the second half"])
async def test_an_operator_who_leaves_while_a_set_is_made_leaves_both_halves_or_none(
    way: WayOf, shared: Throwaway, machine: Machine, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    loop, left, make = asyncio.get_running_loop(), threading.Event(), change_set.make

    def leave() -> None:
        operator.leave()
        left.set()

    def making(*words: Any, **more: Any) -> Any:
        loop.call_soon_threadsafe(leave)
        left.wait(30)
        return make(*words, **more)

    if step == "between the halves":
        machine.afterwards = leave
    else:
        monkeypatch.setattr(change_set, "make", making)
    async with way(shared) as operator:
        with suppress(asyncio.CancelledError):
            await operator.apply(*BOTH)
        assert left.is_set()
    values = (machine.value(PAGES), shown(shared, "max_wal_size"), in_force())
    assert values in (("0", "1GB", []), ("20", "3GB", ["max_wal_size", PAGES]))
    with psycopg.connect(conninfo(shared), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM RESET max_wal_size")
        connection.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize("broken", [PostgresControl, Machine])
async def test_a_failure_that_nobody_foresaw_while_reverting_is_tried_again_and_does_not_keep_the_other_half(
    way: WayOf, shared: Throwaway, machine: Machine, monkeypatch: pytest.MonkeyPatch, broken: Any
) -> None:
    revert_set, fails = broken.revert_set, [True]

    async def breaking(*words: Any) -> Any:
        if fails[0]:
            raise RuntimeError("a bug")
        return await revert_set(*words)

    monkeypatch.setattr(broken, "revert_set", breaking)
    async with way(shared) as operator:
        await operator.apply(*BOTH, 600.0)
        let_an_hour_pass(monkeypatch)
        await until(lambda: in_force() == (["max_wal_size"] if broken is PostgresControl else [PAGES]))
        fails.clear()
        fails.append(False)
        await operator.over()
    assert (machine.value(PAGES), shown(shared, "max_wal_size"), in_force()) == ("0", "1GB", [])


async def test_a_pending_set_goes_back_on_the_machine_at_once_while_the_server_is_away(
    way: WayOf, fresh_server: Throwaway, machine: Machine
) -> None:
    async with way(fresh_server) as operator:
        await operator.apply(*BOTH, 600.0)
        kill(fresh_server)
        await operator.revert_now()
        await until(lambda: machine.value(PAGES) == "0", 15.0)
        fresh_server.restart()
        await operator.server_is_back()
        await until(lambda: not in_force())
    assert shown(fresh_server, "max_wal_size") == "1GB"


_DYING = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from pgtop_tune.changes.change_sets import ChangeSets
    from pgtop_tune.changes.model.change import Terms, WantedParameter
    from pgtop_tune.changes.model.change_set import ChangeSet
    from pgtop_tune.changes.model.change import WantedSetting
    from pgtop_tune.changes.server.control import PostgresControl
    from pgtop_tune.postgres.server.conninfo import resolve
    from tests.support.ways import Machine

    host, port, root, step = sys.argv[1:]
    die = lambda: os.kill(os.getpid(), signal.SIGKILL)
    machine = Machine(Path(root))
    if step == "between the halves":
        machine.afterwards = die
    control = PostgresControl(resolve("postgres", host=host, port=port, user="postgres"))
    pages = WantedSetting("vm.nr_hugepages", "20")
    wanted = ChangeSet(parameters=(WantedParameter("max_wal_size", "3GB"),), settings=(pages,))
    asyncio.run(ChangeSets(control, machine).apply(wanted, Terms(set_id="dying")))
    die()
"""


@pytest.mark.parametrize("step", ["between the halves", "after both"])
async def test_a_program_that_is_killed_leaves_a_set_that_is_reverted_by_its_id(
    fresh_server: Throwaway, machine: Machine, step: str
) -> None:
    words = [sys.executable, "-c", textwrap.dedent(_DYING), str(fresh_server.socket_dir), str(fresh_server.port)]
    died = await asyncio.create_subprocess_exec(*words, str(machine.root), step, cwd=ROOT)
    assert await died.wait() == -signal.SIGKILL
    assert machine.value(PAGES) == "20"
    control = PostgresControl(place(fresh_server))
    reverted = (await ChangeSets(control, machine).revert("dying")).checked()
    await control.aclose()
    assert len(reverted.changes) == (1 if step == "between the halves" else 2)
    assert (machine.value(PAGES), shown(fresh_server, "max_wal_size"), in_force()) == ("0", "1GB", [])


async def test_a_set_of_the_machine_alone_needs_no_server(
    way: WayOf, fresh_server: Throwaway, machine: Machine
) -> None:
    async with way(fresh_server) as operator:
        await operator.apply((), (WantedSetting(PAGES, "20"),), 600.0)
        kill(fresh_server)
        await operator.revert_now()
        await operator.over()
    assert (machine.value(PAGES), in_force()) == ("0", [])


async def test_a_second_set_waits_until_the_first_is_confirmed_or_reverted(shared: Throwaway, machine: Machine) -> None:
    screen = Screen(shared, machine)
    await screen.apply(*BOTH, 600.0)
    with pytest.raises(UsageProblem, match="still pending confirmation"):
        await screen.apply((WantedParameter("work_mem", "8MB"),), ())
    assert {change.name for change in await screen.changes.keep()} == {"max_wal_size", PAGES}
    await screen.apply((WantedParameter("work_mem", "8MB"),), ())
    await screen.changes.undo_all()
    await screen.close()
    assert (machine.value(PAGES), in_force()) == ("0", [])


async def undo_last(server: Throwaway, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """u on the screen."""
    screen = Screen(server, machine)
    await screen.changes.undo(last(await screen.changes.in_force()))
    await screen.close()


async def undo_everything(server: Throwaway, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """U on the screen."""
    screen = Screen(server, machine)
    assert {each.name for each in await screen.changes.in_force()} == set(in_force())
    await screen.changes.undo_all()
    await screen.close()


async def reverted(server: Throwaway, machine: Machine, monkeypatch: pytest.MonkeyPatch, **words: Any) -> None:
    """`pgtop-tune revert`."""
    monkeypatch.setattr(reverts, "HostControl", lambda **more: machine)
    where = ConnectionWords(host=str(server.socket_dir), port=str(server.port), user=server.user, database="postgres")
    assert await asyncio.to_thread(reverts.run_revert, RevertRequest(connection=where, **words)) == 0


async def reverted_last(server: Throwaway, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pgtop-tune revert --last`."""
    await reverted(server, machine, monkeypatch, last=True)


BACK = pytest.mark.parametrize("back", [undo_last, undo_everything, reverted_last, reverted])


@BACK
async def test_both_halves_of_a_set_that_another_program_made_go_back_together_to_the_byte(
    way: WayOf, shared: Throwaway, machine: Machine, monkeypatch: pytest.MonkeyPatch, back: Any
) -> None:
    before = (Path(str(shared.data_dir)) / "postgresql.auto.conf").read_bytes()
    async with way(shared) as operator:
        await operator.apply(*BOTH)
    await back(shared, machine, monkeypatch)
    assert (machine.value(PAGES), shown(shared, "max_wal_size"), in_force()) == ("0", "1GB", [])
    assert (Path(str(shared.data_dir)) / "postgresql.auto.conf").read_bytes() == before


@BACK
async def test_strict_accounting_is_left_before_pages_are_taken_again(
    way: WayOf, shared: Throwaway, machine: Machine, monkeypatch: pytest.MonkeyPatch, back: Any
) -> None:
    machine.path(PAGES).write_text("40\n")
    async with way(shared) as operator:
        await operator.apply((WantedParameter("max_wal_size", "3GB"),), STRICT)
    await back(shared, machine, monkeypatch)
    order = reverted_in_turn()
    assert order.index("vm.overcommit_memory") < order.index(PAGES)
    pages, server = (
        path.stat().st_mtime_ns for path in (machine.path(PAGES), Path(str(shared.data_dir)) / "postgresql.auto.conf")
    )
    assert pages <= server
    assert in_force() == []


async def test_undo_takes_back_what_was_shown_and_nothing_that_came_after(shared: Throwaway, machine: Machine) -> None:
    screen = Screen(shared, machine)
    await screen.apply(*BOTH)
    what_is_asked = last(await screen.changes.in_force())
    another = PostgresControl(place(shared))
    await another.apply("work_mem", "8MB")
    undone = await screen.changes.undo(what_is_asked)
    assert {each.name for each in undone} == {"max_wal_size", PAGES}
    assert in_force() == ["work_mem"]
    await undo_all(another)
    await another.aclose()
    await screen.close()


async def test_what_was_undone_on_the_machine_is_known_also_where_another_setting_is_refused(
    shared: Throwaway, machine: Machine
) -> None:
    screen = Screen(shared, machine)
    await screen.apply((), (WantedSetting("vm.swappiness", "10"), WantedSetting("vm.dirty_ratio", "30")))
    # Nothing is written through a link.
    machine.path("vm.swappiness").rename(machine.root / "elsewhere")
    machine.path("vm.swappiness").symlink_to(machine.root / "elsewhere")
    with pytest.raises(PgtopError):
        await screen.changes.undo_all()
    assert [each.name for each in screen.changes.made] == in_force() == ["vm.swappiness"]
    await screen.close()
