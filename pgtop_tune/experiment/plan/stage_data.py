"""The data set of a stage: made where it is not there, or wanted anew, and never over tables of the operator's."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Final

from msgspec import to_builtins

from pgtop_tune.base.errors import LoadProblem, PgtopError
from pgtop_tune.bench.datasets.recognise import PgbenchFacts, recognise_pgbench
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
        self._tables, self._oids = outcome.tables, outcome.table_oids
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
            self._note_tables(())
        self._told(f"making the data set, scale {stage.scale}")
        self._scale_there = None
        try:
            done = await self._parts.make_data(stage.scale)
        finally:
            if self._plan.database == CURRENT_DATABASE:
                await self._note_what_is_there()
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
        found = await self._found()
        return found is not None and found.scale == scale and not found.incomplete and found.primary_keys

    async def _found(self) -> PgbenchFacts | None:
        sql_session = await self._parts.open_sql_session()
        try:
            return await recognise_pgbench(sql_session)
        finally:
            await sql_session.aclose()

    async def _note_what_is_there(self) -> None:
        """Whole or in part, it is ours; what comes later in its place is not."""
        with suppress(PgtopError):
            if (found := await self._found()) is not None:
                self._note_tables(tuple(found.tables))
            else:
                self._log.write("tables", there=False)
                self._tables = False

    def _note_tables(self, oids: tuple[int, ...]) -> None:
        """Before they are made without numbers, and with them afterwards."""
        self._log.write("tables", there=True, oids=oids)
        self._tables, self._oids = True, oids

    async def _check_ours(self) -> None:
        found = await self._found()
        if found is not None and not found.empty and not (self._tables and made_here(found, self._oids)):
            raise LoadProblem(
                f"the database holds pgbench's tables that this experiment did not make: {found.describe()}",
                'name another database, or set database = "own" in the plan',
            )


def made_here(found: PgbenchFacts, oids: Collection[int]) -> bool:
    """Whether these tables are those that an experiment made, or was making when it was killed.

    Args:
        oids: Of the tables that it made; empty where it was killed on the way: then only what is not whole is its own.
    """
    if oids:
        return set(found.tables) <= set(oids)
    return bool(found.incomplete)
