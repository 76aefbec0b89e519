"""A search for the highest rate, while the server under it is changed."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import sql

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.experiment.load_run import BeforeEachRun, LoadRun, RunCell
from pgtop_tune.experiment.slo.kept_search import kept_search
from pgtop_tune.experiment.slo.search_run import SearchRun
from pgtop_tune.model.run_result import RunResult
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.sql_session import open_sql_session
from pgtop_tune.runtime.load_control import SearchWish
from pgtop_tune.runtime.run_frames import FrameKeeper
from tests.experiment.slo.test_rate_runs import CELL
from tests.support.results import result


class RunDuringWhich:
    """A run of pgbench during which somebody gives the server's sessions another value."""

    machine = ""

    def __init__(self, conninfo: str, value: str) -> None:
        self._conninfo = conninfo
        self._value = value

    async def measure(self, cell: RunCell, *_: object) -> RunResult:
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            name = sql.Identifier(connection.info.dbname)
            connection.execute(sql.SQL("ALTER DATABASE {} SET work_mem = {}").format(name, self._value))
        return result()


async def test_runs_of_a_server_that_was_changed_are_not_compared(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    run = cast(LoadRun, RunDuringWhich(database, "8MB"))
    wish = SearchWish(objective="p99 < 20ms", first_rate=100.0)

    def search(resume: str = "") -> SearchRun:
        return SearchRun(
            run,
            FrameKeeper(),
            lambda: open_sql_session(resolve(database), OwnSessions()),
            CELL,
            replace(wish, resume=resume),
            BeforeEachRun(),
            tell=lambda line: None,
        )

    with pytest.raises(LoadProblem, match="work_mem was changed by someone else: 4096 -> 8192") as refused:
        await search().make()
    assert refused.value.hint == "restore the value and continue the search, or begin a new one"
    assert kept_search("last")[1].outcomes == ()
    with pytest.raises(LoadProblem, match="work_mem was changed"):
        await search("last").make()
