"""The data set of a stage: made where it is not there, or wanted anew, and never over tables of the operator's."""

from __future__ import annotations

from typing import Final

from msgspec import to_builtins

from pgtop_tune.bench.datasets.recognise import recognise_pgbench
from pgtop_tune.errors import LoadProblem
from pgtop_tune.experiment.plan.log import ExperimentLog
from pgtop_tune.experiment.plan.model import CURRENT_DATABASE, Stage
from pgtop_tune.experiment.plan.parts import ExperimentParts
from pgtop_tune.experiment.plan.results import MadeData, Outcome


class StageData:
    """Makes data sets.

    Args:
        outcome: Of the experiment so far.
        log: Its journal, open.
        parts: Of the session.
    """

    def __init__(self, outcome: Outcome, log: ExperimentLog, parts: ExperimentParts) -> None:
        self._plan: Final = outcome.plan
        self._log: Final = log
        self._parts: Final = parts
        self._told: Final = parts.told
        self._made = set(outcome.made)
        self._tables = outcome.tables
        self._scale_there: int | None = None

    async def is_wanted(self, stage: Stage) -> bool:
        """Whether the stage wants it anew, or another scale is there."""
        if not self._needs_pgbench():
            return False
        anew = stage.make_data and self._plan.data_per_configuration and stage.number not in self._made
        return anew or not await self._is_there(stage.scale)

    async def make(self, stage: Stage) -> None:
        """Makes it.

        Raises:
            LoadProblem: It cannot be made, or tables of the operator's are in the way.
        """
        if self._plan.database == CURRENT_DATABASE:
            await self._check_ours()
            self._log.write("tables", there=True)
            self._tables = True
        self._told(f"making the data set, scale {stage.scale}")
        self._scale_there = None
        done = await self._parts.make_data(stage.scale)
        self._scale_there = stage.scale
        made = MadeData(
            stage=stage.number, arm=stage.arm, scale=stage.scale, steps_s=done.steps_s, total_s=done.total_s
        )
        self._log.write("made", data=to_builtins(made))
        self._made.add(stage.number)

    def _needs_pgbench(self) -> bool:
        profiles = {cell.profile for cell in self._plan.cells}
        return any(self._parts.profiles[name].summary().dataset == "pgbench" for name in profiles)

    async def _is_there(self, scale: int) -> bool:
        if self._scale_there == scale:
            return True
        sql_session = await self._parts.open_sql_session()
        try:
            found = await recognise_pgbench(sql_session)
        finally:
            await sql_session.aclose()
        return found is not None and found.scale == scale and not found.incomplete and found.primary_keys

    async def _check_ours(self) -> None:
        if self._tables:
            return
        sql_session = await self._parts.open_sql_session()
        try:
            found = await recognise_pgbench(sql_session)
        finally:
            await sql_session.aclose()
        if found is not None and not found.empty:
            raise LoadProblem(
                f"the database holds pgbench's tables of somebody else: {found.describe()}",
                'name another database, or set database = "own" in the plan',
            )
