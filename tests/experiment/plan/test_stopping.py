"""An experiment that cannot go on stops cleanly: what it has set is reverted, what it has done is kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import to_builtins

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.bench.datasets.pgbench_tables import Initialised
from pgtop_tune.bench.profiles import load_profiles
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.model.change import ParameterChange, Terms
from pgtop_tune.changes.model.change_set import ChangeSet, Settled
from pgtop_tune.experiment.attribution import SurroundingsMeter
from pgtop_tune.experiment.load_run import LoadRun
from pgtop_tune.experiment.plan.model import BoundPlan, PlanArm
from pgtop_tune.experiment.plan.results import ExperimentLog, ExperimentOutcome, outcome_of, read_entries
from pgtop_tune.experiment.plan.run import SPARE_BYTES, ExperimentParts, ExperimentRun, Stopped
from pgtop_tune.runtime.run_frames import FrameKeeper
from tests.support.plans import bound_text

TWO = '[[configuration]]\nname = "a"\n[[configuration]]\nname = "b"\n[configuration.parameters]\nwork_mem = 64\n'


class NoServer:
    """The doors and the session of a server that is not there."""

    def __init__(self, problem: ServerProblem | None = None) -> None:
        self.set: list[str] = []
        self.reverted: list[str] = []
        self._problem = problem

    def sets(self, arm: PlanArm) -> ChangeSets:
        return cast(ChangeSets, self)

    async def apply(self, wanted: ChangeSet, terms: Terms) -> Settled:
        if self._problem is not None:
            raise self._problem
        self.set.append(terms.set_id)
        return Settled(set_id=terms.set_id)

    async def revert(self, set_id: str, why: str = "") -> Settled:
        self.reverted.append(set_id)
        return Settled(set_id=set_id)

    async def listed(self, names: tuple[str, ...]) -> object:
        return names

    async def in_force(self) -> Sequence[ParameterChange]:
        return ()

    async def pending(self) -> tuple[Any, ...]:
        return ()

    async def session(self) -> Any:
        return self

    async def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        return [("", "1.0")] if "pg_settings" in sql else [(1.0,)]

    async def aclose(self) -> None:
        return None


class Frames(FrameKeeper):
    async def until(self, condition: object, timeout_s: float) -> bool:
        return True


async def ran(
    directory: Path, plan: BoundPlan, server: NoServer, free_bytes: int, earlier: Sequence[tuple[str, int]] = ()
) -> ExperimentOutcome:
    """Runs what is left, after lines that earlier processes wrote at a moment."""

    async def free() -> int | None:
        return free_bytes

    async def made(scale: int) -> Initialised:
        return Initialised(0.1, ())

    with ExperimentLog(directory) as log:
        first = {"name": plan.name, "hash": "h", "began_ms": 1, "plan": to_builtins(plan)}
        log.write("plan", **first, **({"at_ms": 1_000} if earlier else {}))
        for kind, at_ms in earlier:
            log.write(kind, at_ms=at_ms, set_id="s")
        begun = outcome_of(read_entries(directory), "e")
        assert begun is not None
        parts = ExperimentParts(
            load=cast(LoadRun, None), keeper=Frames(), cpu=SurroundingsMeter(), doors=server, targets={},
            profiles=load_profiles().by_name, open_sql_session=server.session, make_data=made, free_bytes=free,
            unsafe=False, confirmed=frozenset(), tell=lambda line: None,
        )  # fmt: skip
        try:
            await ExperimentRun(begun, log, parts).measure()
        finally:
            found = outcome_of(read_entries(directory), "e")
    assert found is not None
    return found


async def test_a_disk_that_fills_up_stops_it_and_what_was_set_is_reverted(tmp_path: Path) -> None:
    server = NoServer()
    plan = bound_text(f'profiles = ["ticket-read"]\n{TWO}')
    with pytest.raises(Stopped, match="free on the data disk"):
        await ran(tmp_path / "e", plan, server, SPARE_BYTES - 1)
    assert server.reverted == server.set
    found = outcome_of(read_entries(tmp_path / "e"), "e")
    assert found is not None
    assert (found.results, found.sets) == ({}, ())


async def test_a_configuration_that_the_server_refuses_is_a_result_and_the_others_go_on(tmp_path: Path) -> None:
    server = NoServer(ServerProblem("it did not come up"))
    plan = bound_text(TWO.replace('name = "a"\n', 'name = "a"\n[configuration.parameters]\nmax_wal_size = 1\n'))
    found = await ran(tmp_path / "e", plan, server, 2 * SPARE_BYTES)
    assert {result.reason for result in found.results.values()} == {"it did not come up"}
    assert found.complete


async def test_its_time_counts_over_resume_and_the_time_between_does_not(tmp_path: Path) -> None:
    plan = bound_text(f'profiles = ["ticket-read"]\n[limits]\ntime = "10m"\n{TWO}')
    day_ms = 86_400_000
    # Nine minutes, a night, and two more minutes.
    earlier = [("set_ended", 541_000), ("resumed", day_ms), ("set_ended", day_ms + 120_000)]
    with pytest.raises(Stopped, match=r"the time limit is reached: 11m\d\ds of 10m"):
        await ran(tmp_path / "e", plan, NoServer(), 2 * SPARE_BYTES, earlier)
