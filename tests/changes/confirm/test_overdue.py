"""What nobody kept in time is taken back by whoever starts next: after a power loss nobody waits any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pgtop_tune.changes.confirm.orphans import PendingWatch, leave_watchdogs
from pgtop_tune.changes.journal import Journal, journals, read
from pgtop_tune.changes.machine.control import HostControl, machine
from pgtop_tune.changes.machine.one_change import Intent, make
from pgtop_tune.changes.model.change import Terms, WantedParameter
from pgtop_tune.changes.model.pending_set import GRACE_S, NO_DEADLINE
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.watchdogs import HeldSets
from pgtop_tune.cli.commands.watch.session import ScreenSession
from pgtop_tune.cli.live_options import LiveOptions
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.runtime.run_frames import FrameKeeper
from tests.cli.runs import run
from tests.cli.test_set import shown
from tests.postgres.conftest import place
from tests.support.machine_tree import USUAL, write
from tests.support.servers import conninfo


async def left_behind(server: Throwaway, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pending set whose deadline has passed, and no program that would revert it."""
    with monkeypatch.context() as patch:
        patch.setattr(HeldSets, "own", lambda *arguments: None)
        control = PostgresControl(place(server), directory=directory)
        await control.apply_set([WantedParameter("commit_delay", "123")], Terms(keep_within_s=-GRACE_S - 1.0))
        await control.aclose()


@pytest.mark.long
async def test_the_screen_takes_it_back_and_has_it_on_the_tape(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await left_behind(server, tmp_path, monkeypatch)
    assert await asyncio.to_thread(shown, server, "commit_delay") == "123"
    session = ScreenSession(place(server), LiveOptions(0.5, journal_directory=tmp_path), FrameKeeper(most=10))
    told: list[str] = []
    try:
        async with asyncio.timeout(60):
            async for step in session.steps():
                told += [event.text for frame in step.frames for event in frame.events]
                if any("not confirmed in time" in text for text in told):
                    break
    finally:
        await session.aclose()
    assert "commit_delay is 0 again: 123 was not confirmed in time" in told
    assert await asyncio.to_thread(shown, server, "commit_delay") == "0"
    assert read(journals(tmp_path)[0]).in_force == ()


@pytest.mark.long
@pytest.mark.parametrize(("words", "status"), [(("set", "commit_siblings=6"), 0), (("revert", "--set", "another"), 6)])
async def test_commands_that_change_take_it_back_first_and_say_so(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], status: int
) -> None:
    await left_behind(server, tmp_path / ".local/state/pgtop-tune/journal", monkeypatch)
    ran = await asyncio.to_thread(run, *words, "-d", conninfo(server), home=tmp_path)
    assert ran.status == status, ran.err
    assert "not confirmed in time" in ran.err + ran.out
    assert await asyncio.to_thread(shown, server, "commit_delay") == "0"
    await asyncio.to_thread(run, "revert", "--all", "-d", conninfo(server), home=tmp_path)


async def test_without_anything_pending_no_server_is_asked(tmp_path: Path) -> None:
    nobody = PostgresControl(resolve("host=127.0.0.1 port=1"), directory=tmp_path)
    await PendingWatch(nobody, HostControl(directory=tmp_path), tmp_path, pytest.fail, hold=True).look()


async def test_a_trial_of_the_machine_that_nobody_kept_is_taken_back_and_told(tmp_path: Path) -> None:
    root, journals_of_it = tmp_path / "root", tmp_path / "journal"
    write(root, USUAL)
    with Journal(machine(root), journals_of_it) as journal:
        for name, until_ms in (("vm.swappiness", 60_000), ("vm.zone_reclaim_mode", 2**53)):
            make(journal, root, name, "1", survive=False, intent=Intent(deadline={**NO_DEADLINE, "until_ms": until_ms}))
    told: list[str] = []
    control = HostControl(root=root, directory=journals_of_it)
    await leave_watchdogs(None, control, journals_of_it, told.append)
    (taken_back, other) = told
    assert taken_back == "vm.swappiness is 60 again: 1 was not confirmed in time"
    assert other.startswith("vm.zone_reclaim_mode 0→1 is pending confirmation by ")
    assert (root / "proc/sys/vm/zone_reclaim_mode").read_text() == "1\n"
    await leave_watchdogs(None, control, journals_of_it, told.append)
    assert len([each for each in told if "not confirmed in time" in each]) == 1
