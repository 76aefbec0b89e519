"""A load from a form is completed with the numbers of its data set, or refused with what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.datasets.bus import BusPlan
from pgtop_tune.bench.datasets.bus_make import make_bus
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.profiles import Profile, Script
from pgtop_tune.bench.runner import LoadPreparation
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.bench import LoadSpec, RunState
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.postgres.server.sql_session import open_sql_session
from tests.bench.conftest import Watch


async def test_a_form_starts_a_profile_on_the_bus_data_set(
    database: str, server: Throwaway, watch: Callable[..., Watch]
) -> None:
    dbname = str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
    running = watch(LoadEndpoint(str(server.socket_dir), server.port, server.user, dbname), find_pgbench())
    opened = 0

    async def open_one() -> object:
        nonlocal opened
        opened += 1
        return await open_sql_session(resolve(database))

    running.runner.prepare = LoadPreparation(open_one).complete  # type: ignore[arg-type]
    spec = LoadSpec(profile="ticket-read", clients=1, transactions=50)
    with pytest.raises(LoadProblem, match="this database has no bus data set"):
        await running.runner.start(spec)
    await make_bus(
        lambda: open_sql_session(resolve(database)), BusPlan(3000), anew=False, jobs=1, tell=lambda each: None
    )
    before = opened
    assert " -D tickets=3000 " in await running.runner.preview(spec)
    assert " -D tickets=3000 " in await running.runner.preview(spec)
    assert opened == before + 1
    await running.runner.start(spec)
    run = await running.until(lambda run: run.state in (RunState.FINISHED, RunState.FAILED), 60.0)
    assert run.state is RunState.FINISHED, run.message


async def test_scripts_that_start_programs_are_refused(tmp_path: Path) -> None:
    async def open_none() -> object:
        raise AssertionError("no number is needed")

    script = tmp_path / "a.sql"
    script.write_text("\\shell true\n")
    preparation = LoadPreparation(open_none)  # type: ignore[arg-type]
    profile = Profile("n", "t", "d", scripts=(Script(script),), variables=(("a", "1"),))
    with pytest.raises(LoadProblem, match="run programs on this machine"):
        await preparation.complete(LoadSpec(), profile)
    allowed = Profile("n", "t", "d", scripts=(Script(script),), variables=(("a", "1"),), allow_shell=True)
    assert (await preparation.complete(LoadSpec(), allowed)).variables == (("a", "1"),)
