"""The data set service of a screen: existing data sets, preview of a new one, and its creation."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from pgtop_tune.base.errors import LoadProblem, ServerProblem
from pgtop_tune.base.units import count, size
from pgtop_tune.bench.datasets.bus import BusPlan, parse_size
from pgtop_tune.bench.datasets.bus_make import make_bus
from pgtop_tune.bench.datasets.pgbench_tables import (
    Initialised,
    InitialiseProgress,
    PaceMeter,
    PgbenchShape,
    Tell,
    check_scale,
    estimated_bytes,
    initialise,
    look_for_room,
)
from pgtop_tune.bench.datasets.recognise import recognise_bus, recognise_pgbench
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.ports import LoadEndpoint, SqlSession
from pgtop_tune.runtime.load_control import DatasetFound, DataSetMade, MakingPlan, MakingPreview, MakingProgress

FreeBytes = Callable[[SqlSession], Awaitable[Callable[[str], int | str]]]
"""What says the bytes available at a directory of the server's machine, or why they cannot be known."""

_MOST_JOBS: Final = 4
_UNLIKELY: Final = "make it smaller, or free some space"


class SeenDataSet(Struct, frozen=True):
    """What a look at one data set found.

    Attributes:
        title: What would be made.
        estimated_bytes: Of it; 0 where nothing is to be made.
        freed_bytes: Of what is there.
        dropped, note: As `MakingPreview`.
    """

    title: str
    estimated_bytes: int
    freed_bytes: int = 0
    dropped: str = ""
    note: str = ""
    nothing_to_do: bool = False


class _Dataset(Protocol):
    async def found(self, sql_session: SqlSession) -> DatasetFound: ...

    async def look(self, sql_session: SqlSession, size: str) -> SeenDataSet: ...

    async def make(self, size: str, seen: SeenDataSet, tell: Tell) -> Initialised: ...


class _Pgbench:
    """pgbench's own tables, made by pgbench -i as it is without options."""

    _SHAPE: Final = PgbenchShape()

    def __init__(self, service: DataSetService) -> None:
        self._service = service

    async def found(self, sql_session: SqlSession) -> DatasetFound:
        facts = await recognise_pgbench(sql_session)
        return (
            DatasetFound("pgbench")
            if facts is None
            else DatasetFound("pgbench", f"scale {facts.scale}", facts.incomplete)
        )

    async def look(self, sql_session: SqlSession, size: str) -> SeenDataSet:
        scale, facts = _scale(size), await recognise_pgbench(sql_session)
        freed = 0 if facts is None else facts.size_bytes
        dropped = "" if facts is None or facts.empty else facts.describe()
        return SeenDataSet(
            title=f"scale {scale}",
            estimated_bytes=estimated_bytes(scale, self._SHAPE),
            freed_bytes=freed,
            dropped=dropped,
        )

    async def make(self, size: str, seen: SeenDataSet, tell: Tell) -> Initialised:
        service = self._service
        endpoint = service.endpoint()
        pgbench = await asyncio.to_thread(find_pgbench, service.pgbench, over_tls=endpoint.over_tls)
        sql_session = await service.open_sql_session()
        try:
            return await initialise(endpoint, _scale(size), pgbench, tell, self._SHAPE, sql_session)
        finally:
            await asyncio.shield(sql_session.aclose())


class _Bus:
    """The bus company's tables; what an earlier making left is gone on with."""

    def __init__(self, service: DataSetService) -> None:
        self._service = service

    async def found(self, sql_session: SqlSession) -> DatasetFound:
        facts = await recognise_bus(sql_session)
        return (
            DatasetFound("bus")
            if facts is None
            else DatasetFound("bus", f"{count(facts.tickets)} tickets", facts.incomplete)
        )

    async def look(self, sql_session: SqlSession, size: str) -> SeenDataSet:
        plan, facts = BusPlan(tickets=parse_size(size)), await recognise_bus(sql_session)
        title = f"{count(plan.tickets)} tickets"
        if facts is None:
            return SeenDataSet(title, plan.estimated_bytes)
        if facts.fulfils(plan):
            return SeenDataSet(title, 0, note="it exists already: nothing to do", nothing_to_do=True)
        if facts.is_of(plan):
            note = f"resumes the existing data set: {facts.describe()}"
            return SeenDataSet(title, plan.estimated_bytes, facts.size_bytes, note=note)
        return SeenDataSet(
            title=title,
            estimated_bytes=plan.estimated_bytes,
            freed_bytes=facts.size_bytes,
            dropped="" if facts.empty else facts.describe(),
        )

    async def make(self, size: str, seen: SeenDataSet, tell: Tell) -> Initialised:
        jobs = min(_MOST_JOBS, os.cpu_count() or 1)
        plan = BusPlan(tickets=parse_size(size))
        return await make_bus(self._service.open_sql_session, plan, anew=bool(seen.dropped), jobs=jobs, tell=tell)


class DataSetService:
    """Data sets on the server that is watched.

    Args:
        endpoint: The server in pgbench's words, as it is when asked.
        open_sql_session: Opens a session on it.
        free_bytes: Of the disk of its data.
        pgbench: The one to use; None finds the newest.
    """

    def __init__(
        self,
        endpoint: Callable[[], LoadEndpoint],
        open_sql_session: Callable[[], Awaitable[SqlSession]],
        free_bytes: FreeBytes,
        pgbench: Path | None,
    ) -> None:
        self.endpoint = endpoint
        self.open_sql_session = open_sql_session
        self.pgbench = pgbench
        self._free_bytes = free_bytes
        self._known: dict[str, _Dataset] = {"pgbench": _Pgbench(self), "bus": _Bus(self)}

    async def found(self) -> tuple[DatasetFound, ...]:
        """Every data set, there or not.

        Raises:
            ConnectionProblem: The server is not there.
        """
        found = []
        sql_session = await self.open_sql_session()
        try:
            for name, dataset in self._known.items():
                try:
                    found.append(await dataset.found(sql_session))
                except (LoadProblem, ServerProblem) as problem:
                    found.append(DatasetFound(name, problem=problem.message))
        finally:
            await asyncio.shield(sql_session.aclose())
        return tuple(found)

    async def look(self, plan: MakingPlan) -> MakingPreview:
        """See `LoadControl.look`."""
        return (await self._look(plan))[0]

    async def make(self, plan: MakingPlan, *, replace: bool, tell: Callable[[MakingProgress], None]) -> DataSetMade:
        """Makes a data set; when the task is cancelled, nothing of it runs any more when this returns.

        Raises:
            LoadProblem: Something would be lost and `replace` is not set; the disk is too small; the maker's words.
            ConnectionProblem: The server is not there.
        """
        preview, seen = await self._look(plan)
        if seen.dropped and not replace:
            raise LoadProblem(
                f"{preview.database} holds {seen.dropped}", "confirm that it will be dropped, or use another database"
            )
        if seen.nothing_to_do:
            return DataSetMade(seen.title, (), 0.0)
        meter = PaceMeter()

        def told(progress: InitialiseProgress) -> None:
            pace = meter.after(progress, time.monotonic())
            tell(
                MakingProgress(
                    step=progress.step,
                    done=progress.done,
                    total=progress.total,
                    unit=progress.unit,
                    estimated=progress.estimated,
                    per_s=pace.per_s,
                    remaining_s=pace.remaining_s,
                )
            )  # fmt: skip

        done = await self._known[plan.dataset].make(plan.size, seen, told)
        return DataSetMade(seen.title, done.steps_s, done.total_s)

    async def _look(self, plan: MakingPlan) -> tuple[MakingPreview, SeenDataSet]:
        """Raises a LoadProblem when the disk is too small."""
        sql_session = await self.open_sql_session()
        try:
            seen = await self._known[plan.dataset].look(sql_session, plan.size)
            free = await self._free_bytes(sql_session)
            room = await look_for_room(sql_session, seen.estimated_bytes, seen.freed_bytes, free)
        except ServerProblem as refusal:
            raise LoadProblem(refusal.message, refusal.hint) from None
        finally:
            await asyncio.shield(sql_session.aclose())
        needed, there = room.needed_bytes, room.available_bytes
        if there is not None and there < needed:
            raise LoadProblem(f"about {size(needed)} of disk will be needed, and {size(there)} are free", _UNLIKELY)
        database = self.endpoint().dbname
        return MakingPreview(
            title=seen.title,
            needed_bytes=needed,
            available_bytes=there,
            why=room.reason,
            dropped=seen.dropped,
            note=seen.note,
            database=database,
        ), seen


def _scale(text: str) -> int:
    try:
        scale = int(text)
    except ValueError:
        raise LoadProblem(f"{text!r} is not a scale", "write a whole number: 100,000 accounts and 16 MB each") from None
    check_scale(scale)
    return scale
