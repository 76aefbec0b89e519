"""Runs the cells of a plan on several servers at a time: each server takes one cell after the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, Protocol

from msgspec import Struct, to_builtins

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.units import counted
from pgtop_tune.experiment.plan.model import BoundPlan, Cell
from pgtop_tune.experiment.plan.results import CellResult, ExperimentLog, Outcome, failed
from pgtop_tune.experiment.plan.run import Stopped, check_time

# The interface to an engine that runs units of work beside servers. Another engine is one more file here.
#
# A unit is one function, (server, request) → answer, both JSON: `dask_workers.run_unit`, on the worker of the server.


class WorkerGone(PgtopError):
    """The worker ended under a unit; what the unit came to is not known."""


class UnitFailed(PgtopError):
    """The unit says that it cannot be done there."""


class Workers(Protocol):
    """Workers, one beside each server, by name. Coroutines run in one event loop."""

    async def servers(self) -> tuple[str, ...]:
        """Names of those that are there now."""
        ...

    async def run(self, server: str, request: bytes) -> bytes:
        """The answer of one unit; cancelled, the unit is stopped and puts everything back.

        Raises:
            WorkerGone: The worker is not there, or ended meanwhile.
            UnitFailed: With the worker's reason.
        """
        ...

    async def aclose(self) -> None:
        """Lets go of the workers; they stay."""
        ...


# Which server runs which cell. Pure.
#
# All arms of one load and repeat are a block and run on one server, so the comparison of two arms never has the
# difference of two servers in it. A server that is gone leaves its block to the others.

_Key = tuple[int, int, str, str, int]


class Distribution:
    """Cells that are left, given out one at a time.

    Args:
        plan: The plan.
        done: Numbers of the cells that have a result.
    """

    def __init__(self, plan: BoundPlan, done: Collection[int]) -> None:
        self._blocks: Final[dict[_Key, list[Cell]]] = {}
        self._owners: Final[dict[_Key, str]] = {}
        for cell in plan.cells:
            if cell.number not in done and not cell.impossible:
                key = (cell.scale, cell.repeat, cell.endpoint, cell.profile, cell.clients)
                self._blocks.setdefault(key, []).append(cell)

    @property
    def blocks(self) -> int:
        """With cells that nobody has taken: so many servers have work."""
        return sum(bool(cells) for cells in self._blocks.values())

    def has_work(self, server: str) -> bool:
        """Whether `next` gives the server a cell."""
        return self._key_for(server) is not None

    def _key_for(self, server: str) -> _Key | None:
        own = [key for key, owner in self._owners.items() if owner == server and self._blocks[key]]
        free = [key for key, cells in self._blocks.items() if cells and key not in self._owners]
        return next(iter((*own, *free)), None)

    def next(self, server: str) -> Cell | None:
        """The next cell of the server's block, or of one that nobody has; None where there is none now."""
        key = self._key_for(server)
        if key is None:
            return None
        self._owners[key] = server
        return self._blocks[key].pop(0)

    def give_up(self, server: str) -> None:
        """The server is gone: others may have its block."""
        for key in [key for key, owner in self._owners.items() if owner == server]:
            del self._owners[key]


_BACK_S: Final = 60.0
"""A worker that has ended is waited for so long: its supervisor may start it again."""
LOOK_S: Final = 1.0


async def comes_back(server: str, servers: Callable[[], Awaitable[Sequence[str]]]) -> bool:
    """Whether the worker of a server is there again in time."""
    deadline_s = time.monotonic() + _BACK_S
    while time.monotonic() < deadline_s:
        if server in await servers():
            return True
        await asyncio.sleep(LOOK_S)
    return False


class CellOnServer(Struct, frozen=True, kw_only=True):
    """How one cell is made on a server, and what is known of the servers.

    Attributes:
        run: (server, cell) → result. Raises as `Workers.run`.
        servers: Names of those that are there now.
        told: Takes what is going on, one line.
    """

    run: Callable[[str, Cell], Awaitable[CellResult]]
    servers: Callable[[], Awaitable[Sequence[str]]]
    told: Callable[[str], None]


class RunOnServers:
    """Runs what is left of an experiment.

    Args:
        outcome: Of its journal so far.
        log: Its journal, open.
        servers: That take part.
        cells: Makes cells.
    """

    def __init__(self, outcome: Outcome, log: ExperimentLog, servers: Sequence[str], cells: CellOnServer) -> None:
        self._plan: Final = outcome.plan
        self._log: Final = log
        self._servers: Final = tuple(servers)
        self._cells: Final = cells
        self._outcome: Final = outcome
        self._done = set(outcome.results)
        self._left: Final = Distribution(outcome.plan, self._done)
        self._news: Final = asyncio.Condition()
        self._began_s: Final = time.monotonic()

    async def measure(self) -> None:
        """Runs all that is left.

        Raises:
            Stopped: No server is left, or the time of the plan is over.
            PgtopError: The journal cannot be written.
        """
        for cell in self._plan.cells:
            if cell.impossible and cell.number not in self._done:
                self._keep(failed(cell, cell.impossible))
        if self._left.blocks < len(self._servers):
            self._cells.told(
                f"{counted(self._left.blocks, 'block')} of cells for {counted(len(self._servers), 'server')}: "
                "all configurations of one load and repeat stay on one server"
            )
        try:
            async with asyncio.TaskGroup() as group:
                for server in self._servers:
                    group.create_task(self._of_server(server))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        if missing := len(self._plan.cells) - len(self._done):
            raise Stopped(
                f"no worker is left, and {counted(missing, 'cell')} are to be run", "start workers, then resume"
            )

    async def _of_server(self, server: str) -> None:
        while not self._all_done:
            async with self._news:
                await self._news.wait_for(lambda: self._left.has_work(server) or self._all_done)
            cell = self._left.next(server)
            if cell is None:
                continue
            check_time(self._outcome, self._began_s)
            if not await self._made(server, cell):
                self._left.give_up(server)
                await self._tell_others()
                return
            await self._tell_others()

    @property
    def _all_done(self) -> bool:
        return len(self._done) == len(self._plan.cells)

    async def _tell_others(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def _made(self, server: str, cell: Cell) -> bool:
        """Whether the server can take another one."""
        self._log.write("cell_began", number=cell.number, server=server)
        self._cells.told(f"cell {cell.number} of {len(self._plan.cells)} on {server}: {cell.words}")
        try:
            self._keep(await self._cells.run(server, cell))
            return True
        except UnitFailed as problem:
            self._keep(failed(cell, problem.message), server)
            self._cells.told(f"{server} takes no more cells")
            return False
        except WorkerGone as gone:
            self._keep(failed(cell, gone.message), server)
        if await comes_back(server, self._cells.servers):
            return True
        self._cells.told(f"the worker of {server} has not come back: the others take its cells")
        return False

    def _keep(self, result: CellResult, server: str = "") -> None:
        self._log.write("cell", result=to_builtins(result))
        self._done.add(result.number)
        at = result.server or server
        if result.reason:
            self._cells.told(f"cell {result.number}{f' on {at}' if at else ''} failed: {result.reason}")
        elif result.tps is not None:
            self._cells.told(f"cell {result.number} on {at}: {result.tps:.2f} tps")
