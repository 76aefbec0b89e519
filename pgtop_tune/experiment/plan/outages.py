"""Outages on purpose, each in the middle of a run of a plan, and the servers as they were afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, aclosing
from typing import Final, Protocol, TypeVar

from msgspec import to_builtins

from pgtop_tune.base.errors import ClusterProblem, LoadProblem, PgtopError
from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.experiment.plan.model import Cell, PlanOutage
from pgtop_tune.experiment.plan.results import CausedOutage, ExperimentLog
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchRun, RunState
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.instance import ServerPair, ServerPlace
from pgtop_tune.runtime.run_frames import FrameKeeper

_T = TypeVar("_T")
_STREAMS: Final = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
_STREAMS_S: Final = 60.0
_LOOK_S: Final = 0.2


class OutageServers(Protocol):
    """Servers that fail on purpose. Calls block, and raise a ClusterProblem where a server does not come back."""

    @property
    def actions(self) -> Mapping[str, Callable[[], None]]:
        """Return what can be done to them, by the names of `OUTAGE_ACTIONS`."""
        ...

    @property
    def place(self) -> ServerPlace | ServerPair | None:
        """Return the place of what is the operator's; None for servers that end with us."""
        ...

    def guarded(self) -> AbstractContextManager[None]:
        """Have the servers of the operator run though we are killed within the block."""
        ...

    def restore(self) -> None:
        """Have all servers run again as before."""
        ...


class PlannedOutages:
    """The cause of the outages of a plan.

    Args:
        servers_of: Returns the servers that fail in the outage of a cell, or the pooler.
        log: The journal of the experiment, open.
        keeper: Frames of the runs.
        open_sql_session: On the primary.
        note: Takes each outage for the tape.
        tell: Takes what is going on, one line.
    """

    def __init__(
        self,
        servers_of: Callable[[Cell, PlanOutage], OutageServers],
        log: ExperimentLog,
        keeper: FrameKeeper,
        open_sql_session: Callable[[], Awaitable[SqlSession]],
        note: Callable[[Event], None],
        tell: Callable[[str], None],
    ) -> None:
        self._servers_of: Final = servers_of
        self._log: Final = log
        self._keeper: Final = keeper
        self._open_sql_session: Final = open_sql_session
        self._note: Final = note
        self._told: Final = tell
        self._acting: asyncio.Future[CausedOutage] | None = None

    async def beside(
        self, cell: Cell, outage: PlanOutage, warm_ups: int, measure: Callable[[], Awaitable[_T]]
    ) -> tuple[_T, CausedOutage | None]:
        """Measure with an outage, and have the servers run again, in whatever way this ends.

        Args:
            cell: The run.
            outage: Its outage.
            warm_ups: Number of runs of the load before the one that is measured.
            measure: Makes the runs.

        Returns:
            The result, and the outage; None where the load ended before it.

        Raises:
            LoadProblem: No standby streams that could be promoted.
            ClusterProblem: A server does not come back.
        """
        if outage.row.with_standby:
            await self._until_standby_streams()
        self._acting = None
        servers = self._servers_of(cell, outage)
        earlier = _run_of(self._keeper.interval)
        number = warm_ups + 1 + (0 if earlier is None else earlier.run)
        with ExitStack() as guard:
            # Before the outage: a process that has to be started first would delay it.
            await asyncio.to_thread(guard.enter_context, servers.guarded())
            causing = asyncio.ensure_future(self._cause(cell, outage, servers, number))
            try:
                result = await measure()
            finally:
                causing.cancel()
                caused = await _to_the_end(self._restored(servers))
        if causing.done() and not causing.cancelled():
            # The journal could not be written: nothing was caused.
            causing.result()
        return result, caused

    async def _until_standby_streams(self) -> None:
        """Wait for the standby: one that lacks WAL of the primary would lose commits in a promotion."""
        deadline = time.monotonic() + _STREAMS_S
        async with aclosing(await self._open_sql_session()) as sql_session:
            while await sql_session.rows(_STREAMS) != [(1,)]:
                if time.monotonic() > deadline:
                    raise LoadProblem("the standby does not stream from the primary")
                await asyncio.sleep(_LOOK_S)

    async def _cause(self, cell: Cell, outage: PlanOutage, servers: OutageServers, number: int) -> None:
        def is_under_way(interval: Interval) -> bool:
            run = _run_of(interval)
            return run is not None and run.run >= number and run.state is RunState.RUNNING

        if not await self._keeper.until(is_under_way, None):
            return
        run = _run_of(self._keeper.interval)
        assert run is not None
        await asyncio.sleep(run.started_ms / 1000.0 + outage.after_s - time.time())
        server_place = to_builtins(servers.place)
        self._log.write("outage_began", number=cell.number, action=outage.action, place=server_place)
        self._told(f"outage {outage.name}: {outage.row.description}")
        self._acting = asyncio.ensure_future(asyncio.to_thread(caused_by, servers.actions[outage.action]))
        self._note(Event(time.time_ns() // 1_000_000, EventKind.NOTE, f"outage {outage.name}", outage.row.description))

    async def _restored(self, servers: OutageServers) -> CausedOutage | None:
        if self._acting is None:
            return None
        caused = await self._acting
        await asyncio.to_thread(_restore, servers)
        self._log.write("outage_ended")
        return caused


def caused_by(action: Callable[[], None]) -> CausedOutage:
    """Cause an outage, and return it; one that went wrong has its problem."""
    at_ms, began_s, problem = time.time_ns() // 1_000_000, time.monotonic(), ""
    try:
        action()
    except PgtopError as error:
        problem = error.message
    except OSError as error:
        problem = f"the server cannot be looked at: {error.strerror}"
    return CausedOutage(at_ms=at_ms, took_s=time.monotonic() - began_s, problem=problem)


def _restore(servers: OutageServers) -> None:
    try:
        servers.restore()
    except OSError as error:
        raise ClusterProblem(f"the server cannot be looked at: {error.strerror}") from None


def _run_of(interval: Interval | None) -> BenchRun | None:
    bench = None if interval is None else interval.newest.bench
    return None if bench is None or isinstance(bench, Unavailable) else bench.run


async def _to_the_end(work: Awaitable[_T]) -> _T:
    """Return the result of work that a cancellation interrupts only when it is done."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise
