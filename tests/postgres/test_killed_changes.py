"""A program that is killed in the middle of a change: a new process puts everything back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.changes.journal import journals, read
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import resolve
from tests.changes.server.test_control import ROOT, auto_conf, settings
from tests.support.undoing import revert_parameters

CRASHING = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from pgtop_tune.changes.model.change import ChangeState
    from pgtop_tune.changes.server import operator_session
    from pgtop_tune.postgres.server.conninfo import resolve
    from pgtop_tune.changes.server.control import PostgresControl
    from tests.support.undoing import undo
    from pgtop_tune.changes.journal import Journal

    host, port, directory, point = sys.argv[1:]
    session = operator_session.OperatorSession

    def dying(method, *, after):
        def call(*arguments):
            if after:
                method(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        return call

    def arm():
        if point.endswith("before ALTER SYSTEM"):
            session.alter = dying(session.alter, after=False)
        elif point.endswith("after ALTER SYSTEM"):
            session.alter = dying(session.alter, after=True)
        elif point.endswith("after the reload"):
            session.reload = dying(session.reload, after=True)
        elif point.endswith("applied"):
            write = Journal.write
            def written(journal, *entries):
                write(journal, *entries)
                if any(getattr(entry, "state", None) is ChangeState.APPLIED for entry in entries):
                    os.kill(os.getpid(), signal.SIGKILL)
            Journal.write = written

    async def main():
        control = PostgresControl(resolve("postgres", host=host, port=port, user="postgres"), directory=Path(directory))
        await control.apply("random_page_cost", "1.5")
        if point.startswith("undo"):
            await control.apply("work_mem", "6MB")
            arm()
            await undo(control)
        arm()
        await control.apply("work_mem", "6MB")

    asyncio.run(main())
"""

REVERTING = """
    import sys
    from pathlib import Path
    from pgtop_tune.postgres.server.conninfo import resolve
    from pgtop_tune.changes.server.reverts import try_to_revert

    host, port, directory = sys.argv[1:]
    where = resolve("postgres", host=host, port=port, user="postgres")
    for change in try_to_revert(where, directory=Path(directory)).settled:
        print(change.name, change.state, change.shown_after)
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


@pytest.mark.parametrize(
    "point",
    [
        "before ALTER SYSTEM",
        "after ALTER SYSTEM",
        "after the reload",
        "applied",
        "undo, before ALTER SYSTEM",
        "undo, after ALTER SYSTEM",
        "undo, after the reload",
    ],
)
def test_killed_at_any_moment_a_new_process_puts_everything_back(server: Throwaway, tmp_path: Path, point: str) -> None:
    before, file_before = settings(server), auto_conf(server)
    where = (str(server.socket_dir), str(server.port), str(tmp_path))
    killed = run(CRASHING, *where, point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (journal,) = journals(tmp_path)
    in_force = read(journal).in_force
    assert [change.name for change in in_force] == ["random_page_cost", "work_mem"]
    assert auto_conf(server) != file_before
    reverted = run(REVERTING, *where)
    assert reverted.stderr == ""
    assert reverted.stdout.splitlines() == ["work_mem reverted 4MB", "random_page_cost reverted 4"]
    assert auto_conf(server) == file_before
    assert settings(server) == before
    assert read(journal).in_force == ()
    assert run(REVERTING, *where).stdout == ""


def test_reverting_without_a_server_says_so_and_keeps_the_journal(tmp_path: Path) -> None:
    with pytest.raises(PgtopError, match="nothing is listening on this socket"):
        revert_parameters(resolve("postgres", host=str(tmp_path), user="u"), directory=tmp_path)
