"""Changes that are not kept go away: in time, with us, and when we are killed; on a real server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.changes.journal import journals, read
from pgtop_tune.changes.model.change import ChangeState, Terms, WantedParameter
from pgtop_tune.changes.model.pending_set import now_ms
from pgtop_tune.changes.selection import overdue
from pgtop_tune.changes.watchdogs import HeldSets
from pgtop_tune.cluster.throwaway import Throwaway
from tests.changes.server.test_control import ROOT, auto_conf, control_of, settings
from tests.postgres.conftest import place
from tests.support.servers import conninfo
from tests.support.undoing import revert_parameters, undo_all

TWO = (WantedParameter("work_mem", "8MB"), WantedParameter("max_wal_size", "4GB"))


def shown(server: Throwaway, name: str) -> str:
    """As a session has it that begins now."""
    with psycopg.connect(conninfo(server)) as connection:
        row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return str(row[0])


async def until_shown(server: Throwaway, name: str, value: str) -> None:
    deadline = time.monotonic() + 60
    while (now := await asyncio.to_thread(shown, server, name)) != value:
        assert time.monotonic() < deadline, now
        await asyncio.sleep(0.05)


async def test_what_nobody_keeps_is_taken_back_in_time(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtop_tune.changes.watchdogs.LATER_S", 0.0)
    before, file_before = settings(server), auto_conf(server)
    control = control_of(server, tmp_path)
    made = await control.apply_set(TWO, Terms(keep_within_s=1.0))
    assert [(change.kept, change.until_ms is not None) for change in made] == [(False, True)] * 2
    await until_shown(server, "work_mem", "4MB")
    deadline = time.monotonic() + 60
    while await control.in_force():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    (journal,) = journals(tmp_path)
    assert {change.message for change in read(journal).changes} == {"not confirmed in time"}
    assert (settings(server), auto_conf(server)) == (before, file_before)
    await control.aclose()


async def test_what_is_kept_stays_beyond_its_time_and_our_end(server: Throwaway, tmp_path: Path) -> None:
    file_before = auto_conf(server)
    control = control_of(server, tmp_path)
    (change,) = await control.apply_set([WantedParameter("work_mem", "8MB")], Terms(keep_within_s=600.0))
    (kept,) = await control.keep(change.set_id)
    assert (kept.kept, kept.until_ms) == (True, None)
    await control.aclose()
    assert shown(server, "work_mem") == "8MB"
    assert (
        await asyncio.to_thread(revert_parameters, place(server), overdue(now_ms() + 10**9), directory=tmp_path) == ()
    )
    await undo_all(control)
    assert auto_conf(server) == file_before
    await control.aclose()


async def test_what_is_on_trial_ends_with_us(server: Throwaway, tmp_path: Path) -> None:
    file_before = auto_conf(server)
    control = control_of(server, tmp_path)
    await control.apply_set(TWO, Terms(keep_within_s=600.0))
    await control.aclose()
    assert auto_conf(server) == file_before
    assert shown(server, "work_mem") == "4MB"


DYING = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from pgtop_tune.changes.model.change import Terms, WantedParameter
    from pgtop_tune.postgres.server.conninfo import resolve
    from pgtop_tune.changes.server.control import PostgresControl

    host, port, directory = sys.argv[1:]

    async def main():
        control = PostgresControl(resolve("postgres", host=host, port=port, user="postgres"), directory=Path(directory))
        wanted = [WantedParameter("work_mem", "8MB"), WantedParameter("max_wal_size", "4GB")]
        await control.apply_set(wanted, Terms(keep_within_s=600.0))
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main())
"""


async def test_what_is_on_trial_is_taken_back_when_we_are_killed(server: Throwaway, tmp_path: Path) -> None:
    before, file_before = settings(server), auto_conf(server)
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", textwrap.dedent(DYING), str(server.socket_dir), str(server.port), str(tmp_path)],
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert killed.returncode == -signal.SIGKILL
    await until_shown(server, "work_mem", "4MB")
    (journal,) = journals(tmp_path)
    deadline = time.monotonic() + 60
    while read(journal).in_force:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    assert {change.state for change in read(journal).changes} == {ChangeState.REVERTED}
    assert (settings(server), auto_conf(server)) == (before, file_before)


@pytest.mark.parametrize("ours", [True, False])
async def test_what_is_overdue_is_taken_back_by_whoever_looks(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: bool
) -> None:
    """After a power loss nobody waits any more: the journal does."""
    monkeypatch.setattr(HeldSets, "own", lambda *arguments: None)
    file_before = auto_conf(server)
    control = control_of(server, tmp_path)
    made = await control.apply_set(TWO, Terms(keep_within_s=-1.0))
    if ours:
        undone = await control.revert_overdue([made[0].set_id])
    else:
        undone = await asyncio.to_thread(revert_parameters, place(server), overdue(now_ms()), directory=tmp_path)
    assert [change.name for change in undone] == ["max_wal_size", "work_mem"]
    assert auto_conf(server) == file_before
    await control.aclose()
