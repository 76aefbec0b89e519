"""kill -9 at every step of a change set: reverting gives the server the settings and the file it had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from pgtop_tune.changes.journal import journals, read
from pgtop_tune.cluster.throwaway import Throwaway
from tests.changes.server.test_control import ROOT, auto_conf, settings
from tests.postgres.conftest import place
from tests.support.servers import conninfo
from tests.support.undoing import revert_parameters

POINTS: Final = 14
"""Before and after each of: the set in the journal, three statements, the reload, the outcome, the file's identity."""
QUICK: Final = (3, 8, 11)

DYING = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from pgtop_tune.changes.journal import Journal
    from pgtop_tune.changes.model.change import Terms, WantedParameter
    from pgtop_tune.postgres.server.conninfo import resolve
    from pgtop_tune.changes.server.control import PostgresControl
    from pgtop_tune.changes.server.operator_session import OperatorSession

    host, port, directory, point = sys.argv[1:]
    left = int(point)

    def here():
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def mined(method):
        def call(*arguments):
            here()
            result = method(*arguments)
            here()
            return result
        return call

    Journal.write = mined(Journal.write)
    OperatorSession.alter = mined(OperatorSession.alter)
    OperatorSession.reload = mined(OperatorSession.reload)

    async def main():
        control = PostgresControl(resolve("postgres", host=host, port=port, user="postgres"), directory=Path(directory))
        await control.apply_set(
            [WantedParameter("work_mem", "8MB"), WantedParameter("max_wal_size", "4GB"), WantedParameter("jit", None)],
            Terms(),
        )

    asyncio.run(main())
"""


@pytest.fixture(scope="module")
def standing(server: Throwaway) -> Iterator[None]:
    """The shared server with lines in its file, so that there is an order to lose."""
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        for line in ("work_mem = '5MB'", "jit = off", "random_page_cost = 2.5"):
            connection.execute(f"ALTER SYSTEM SET {line}".encode())
        connection.execute("SELECT pg_reload_conf()")
        yield
        for name in ("work_mem", "jit", "random_page_cost"):
            connection.execute(f"ALTER SYSTEM RESET {name}".encode())
        connection.execute("SELECT pg_reload_conf()")


@pytest.mark.usefixtures("standing")
@pytest.mark.parametrize(
    "point", [pytest.param(at, marks=() if at in QUICK else pytest.mark.long) for at in range(POINTS)]
)
def test_after_a_kill_at_any_point_reverting_gives_everything_back(
    server: Throwaway, tmp_path: Path, point: int
) -> None:
    before, file_before = settings(server), auto_conf(server)
    where = (str(server.socket_dir), str(server.port), str(tmp_path), str(point))
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DYING), *where],
        check=False,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert killed.returncode == -signal.SIGKILL
    revert_parameters(place(server), directory=tmp_path)
    assert auto_conf(server) == file_before
    assert settings(server) == before
    assert read(journals(tmp_path)[0]).in_force == ()
    assert revert_parameters(place(server), directory=tmp_path) == ()
