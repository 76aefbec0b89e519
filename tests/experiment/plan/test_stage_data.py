"""Data sets of an experiment in a database of the operator's: only its own tables are replaced or dropped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.datasets.pgbench_tables import Initialised, PgbenchShape, initialise
from pgtop_tune.bench.datasets.recognise import recognise_pgbench
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.profiles import load_profiles
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.experiment.attribution import SurroundingsMeter
from pgtop_tune.experiment.load_run import LoadRun
from pgtop_tune.experiment.plan.results import ExperimentLog, ExperimentOutcome, outcome_of, read_entries
from pgtop_tune.experiment.plan.run import ExperimentParts, StageData, made_here
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.postgres.server.sql_session import PsycopgSession, open_sql_session
from pgtop_tune.runtime.run_frames import FrameKeeper
from tests.support.plans import bound_text

PLAN = 'database = "current"\nscales = [1]\nprofiles = ["tpcb-like"]\n[[configuration]]\nname = "a"\n'
Make = Callable[[str], Awaitable[Initialised]]


@pytest.fixture
async def sql_session(database: str) -> AsyncIterator[PsycopgSession]:
    opened = await open_sql_session(resolve(database))
    yield opened
    await opened.aclose()


@pytest.fixture
def make(database: str, server: Throwaway) -> Make:
    dbname = str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
    endpoint = LoadEndpoint(str(server.socket_dir), server.port, server.user, dbname)
    return lambda steps: initialise(endpoint, 1, find_pgbench(), shape=PgbenchShape(steps=steps))


async def made_by_experiment(
    directory: Path, database: str, make: Callable[[], Awaitable[Initialised]]
) -> ExperimentOutcome:
    """The first stage's data set; what its journal says then."""

    async def made(scale: int) -> Initialised:
        return await make()

    plan = bound_text(PLAN)
    with ExperimentLog(directory) as log:
        if not read_entries(directory):
            log.write("plan", name=plan.name, hash="h", began_ms=1, plan=to_builtins(plan))
        begun = outcome_of(read_entries(directory), "e")
        assert begun is not None
        parts = ExperimentParts(
            load=cast(LoadRun, None), keeper=FrameKeeper(), cpu=SurroundingsMeter(), doors=cast(Any, None), targets={},
            profiles=load_profiles().by_name, open_sql_session=lambda: open_sql_session(resolve(database)),
            make_data=made, free_bytes=cast(Any, None), unsafe=False, confirmed=frozenset(), tell=lambda line: None,
        )  # fmt: skip
        try:
            await StageData(begun, log, parts).make(plan.stages[0])
        finally:
            found = outcome_of(read_entries(directory), "e")
    assert found is not None
    return found


async def test_tables_that_take_the_place_of_its_own_are_not_its_own(
    sql_session: PsycopgSession, database: str, make: Make, tmp_path: Path
) -> None:
    outcome = await made_by_experiment(tmp_path, database, lambda: make("dtGvp"))
    found = await recognise_pgbench(sql_session)
    assert found is not None
    assert outcome.tables
    assert set(outcome.table_oids) == set(found.tables)
    assert made_here(found, outcome.table_oids)
    await make("dtGvp")
    others = await recognise_pgbench(sql_session)
    assert others is not None
    assert not made_here(others, outcome.table_oids)
    with pytest.raises(LoadProblem, match="pgbench's tables that this experiment did not create: scale 1"):
        await made_by_experiment(tmp_path, database, lambda: make("dtGvp"))


async def test_after_a_data_set_that_failed_nothing_is_its_own(
    sql_session: PsycopgSession, database: str, make: Make, tmp_path: Path
) -> None:
    async def full() -> Initialised:
        raise LoadProblem("no space left on device")

    with pytest.raises(LoadProblem, match="no space"):
        await made_by_experiment(tmp_path, database, full)
    outcome = outcome_of(read_entries(tmp_path), "e")
    assert outcome is not None
    assert not outcome.tables
    await make("dtGv")
    with pytest.raises(LoadProblem, match="pgbench's tables that this experiment did not create"):
        await made_by_experiment(tmp_path, database, lambda: make("dtGvp"))


async def test_what_was_half_made_when_it_was_killed_is_its_own(sql_session: PsycopgSession, make: Make) -> None:
    await make("dt")
    half = await recognise_pgbench(sql_session)
    assert half is not None
    assert made_here(half, ())
    assert not made_here(replace(half, incomplete=""), ()), "whole ones may be the operator's"
