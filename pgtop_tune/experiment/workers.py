"""Several servers: workers of Dask distributed, one beside each server, and the run of a plan that spreads its cells.

One worker is started with `dask worker tcp://… --nthreads 1 --name db1`. A unit of work is pinned to its worker and
never repeated by the engine: a cell that runs twice is no longer the cell of the plan. Only this module imports
distributed, and only when it connects.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec import Struct, to_builtins

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import counted
from pgtop_tune.experiment.plan.model import BoundPlan, Cell
from pgtop_tune.experiment.plan.results import CellResult, ExperimentLog, ExperimentOutcome, failed
from pgtop_tune.experiment.plan.run import Stopped, check_time
from pgtop_tune.process import handed_on
from pgtop_tune.process.guarded_program import Guarded, start_guarded
from pgtop_tune.process.own_program import own_argv

if TYPE_CHECKING:
    from distributed import Client

# A unit is one function, (server, request) → answer, both JSON: `dask_workers.run_unit`, on the worker of the server.


class WorkerGone(PgtopError):
    """The worker ended during a unit, whose result is unknown."""


class UnitFailed(PgtopError):
    """The unit says that it cannot be done there."""


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
        """Return the number of blocks with cells that no server has taken: so many servers have work."""
        return sum(bool(cells) for cells in self._blocks.values())

    def has_work(self, server: str) -> bool:
        """Return whether `next` gives the server a cell."""
        return self._key_for(server) is not None

    def _key_for(self, server: str) -> _Key | None:
        own_keys = [key for key, owner in self._owners.items() if owner == server and self._blocks[key]]
        free = [key for key, cells in self._blocks.items() if cells and key not in self._owners]
        return next(iter((*own_keys, *free)), None)

    def next(self, server: str) -> Cell | None:
        """Return the next cell of the server's block, or of a free one; None where there is none now."""
        key = self._key_for(server)
        if key is None:
            return None
        self._owners[key] = server
        return self._blocks[key].pop(0)

    def give_up(self, server: str) -> None:
        """Let other servers have the block of a server that is gone."""
        for key in [key for key, owner in self._owners.items() if owner == server]:
            del self._owners[key]


_BACK_S: Final = 60.0
"""A worker that has ended is waited for so long: its supervisor may start it again."""
LOOK_S: Final = 1.0


async def comes_back(server: str, servers: Callable[[], Awaitable[Sequence[str]]]) -> bool:
    """Wait for the worker of a server, and return whether it came back in time."""
    deadline_s = time.monotonic() + _BACK_S
    while time.monotonic() < deadline_s:
        if server in await servers():
            return True
        await asyncio.sleep(LOOK_S)
    return False


class CellOnServer(Struct, frozen=True, kw_only=True):
    """The functions that make one cell on a server, and list the servers.

    Attributes:
        run: (server, cell) → result. Raises as `DaskWorkers.run`.
        servers: Returns the names of the servers that answer now.
        tell: Takes a line of progress.
    """

    run: Callable[[str, Cell], Awaitable[CellResult]]
    servers: Callable[[], Awaitable[Sequence[str]]]
    tell: Callable[[str], None]


class RunOnServers:
    """The runner of the remaining cells of an experiment.

    Args:
        outcome: The outcome of its journal so far.
        log: Its journal, open.
        servers: The servers that take part.
        cells: Makes cells.
    """

    def __init__(
        self, outcome: ExperimentOutcome, log: ExperimentLog, servers: Sequence[str], cells: CellOnServer
    ) -> None:
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
        """Run all that is left.

        Raises:
            Stopped: No server is left, or the time of the plan is over.
            PgtopError: The journal cannot be written.
        """
        for cell in self._plan.cells:
            if cell.impossible and cell.number not in self._done:
                self._keep(failed(cell, cell.impossible))
        if self._left.blocks < len(self._servers):
            self._cells.tell(
                f"{counted(self._left.blocks, 'block')} of cells for {counted(len(self._servers), 'server')}: "
                "all configurations of one load and repeat run on one server"
            )
        try:
            async with asyncio.TaskGroup() as group:
                for server in self._servers:
                    group.create_task(self._of_server(server))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        if missing := len(self._plan.cells) - len(self._done):
            raise Stopped(
                f"no worker is left, and {counted(missing, 'cell')} did not run", "start workers, then resume"
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
        """Make a cell, and return whether the server can take another one."""
        self._log.write("cell_began", number=cell.number, server=server)
        self._cells.tell(f"cell {cell.number} of {len(self._plan.cells)} on {server}: {cell.words}")
        try:
            self._keep(await self._cells.run(server, cell))
            return True
        except UnitFailed as problem:
            self._keep(failed(cell, problem.message), server)
            self._cells.tell(f"{server} takes no more cells")
            return False
        except WorkerGone as gone:
            self._keep(failed(cell, gone.message), server)
        if await comes_back(server, self._cells.servers):
            return True
        self._cells.tell(f"the worker of {server} has not returned: other workers take its cells")
        return False

    def _keep(self, result: CellResult, server: str = "") -> None:
        self._log.write("cell", result=to_builtins(result))
        self._done.add(result.number)
        at = result.server or server
        if result.reason:
            self._cells.tell(f"cell {result.number}{f' on {at}' if at else ''} failed: {result.reason}")
        elif result.tps is not None:
            self._cells.tell(f"cell {result.number} on {at}: {result.tps:.2f} tps")


# A unit of work beside its server: a program of its own that ends with the worker, however that ends.
#
# `run_unit` is what an engine runs on a worker. The worker's environment says which server is meant, as libpq reads it:
# PGHOST, PGPORT, PGUSER, PGPASSFILE; so no password goes over the network.

_MODULE: Final = "pgtop_tune.cli.unit"
_PUTS_BACK_S: Final = 120.0
_LAST_WORDS: Final = 300
_running: dict[str, Guarded] = {}
_stopped: set[str] = set()


def run_unit(identity: str, request: bytes) -> bytes:
    """Run one unit, and return its answer, a JSON object: "answer", or "problem" with a "hint".

    Args:
        identity: The name for `stop_unit`.
        request: A JSON object.
    """
    with tempfile.TemporaryDirectory(prefix="pgtop-tune-unit-") as directory:
        request_file, answer_file, log_file = (Path(directory) / name for name in ("request", "answer", "lines"))
        request_file.write_bytes(request)
        with log_file.open("wb") as lines, handed_on.descriptor(password=handed_on.inherited_password()) as secrets:
            program = start_guarded(
                [*own_argv(_MODULE), str(request_file), str(answer_file)],
                grace_s=_PUTS_BACK_S,
                stdout=subprocess.DEVNULL,
                stderr=lines,
                env={**handed_on.environment(), handed_on.VARIABLE: str(secrets)},
                pass_fds=(secrets,),
            )
        _running[identity] = program
        if identity in _stopped:
            program.send_signal("INT")
        try:
            status = program.wait()
        finally:
            _running.pop(identity, None)
            _stopped.discard(identity)
            program.stop()
        try:
            return answer_file.read_bytes()
        except FileNotFoundError:
            last_words = one_line(log_file.read_text("utf-8", "replace").strip()[-_LAST_WORDS:], _LAST_WORDS)
            return json.dumps({"problem": f"the unit ended with status {status}: {last_words}", "hint": ""}).encode()


def stop_unit(identity: str) -> None:
    """Ask a unit of this worker to put everything back and end; also one that has not begun."""
    if identity in _running:
        _running[identity].send_signal("INT")
    else:
        _stopped.add(identity)


def answer_of(data: bytes) -> Any:
    """Return the answer of a unit, or its problem in words and the hint to it.

    Raises:
        ValueError: It is no answer.
    """
    answer = json.loads(data)
    if not isinstance(answer, dict) or not ("answer" in answer or "problem" in answer):
        raise ValueError("neither an answer nor a problem")
    return answer


_ADDRESS: Final = re.compile(r"(tcp|tls)://[^/\s]+:[0-9]{1,5}")
_CONNECT_S: Final = 15.0
_STOPS_S: Final = 150.0
_WORDS: Final = 300


class DaskWorkers:
    """Workers, one beside each server, by name; `connected` makes it. Coroutines run in one event loop.

    Args:
        client: Asynchronous.
    """

    def __init__(self, client: Client) -> None:
        self._client: Final = client

    @classmethod
    async def connected(cls, address: str) -> Self:
        """Connect to the scheduler at an address: "tcp://host:8786".

        Raises:
            UsageProblem: It is no address, Dask distributed is not installed, or no scheduler is there.
        """
        if _ADDRESS.fullmatch(address) is None:
            raise UsageProblem(f"{one_line(address, _WORDS)!r} is not a scheduler address", "write tcp://HOST:8786")
        try:
            from distributed import Client
        except ImportError as missing:
            raise UsageProblem(
                "--workers needs Dask distributed, which is not installed",
                "pip install distributed in this environment",
            ) from missing
        try:
            return cls(await Client(address, asynchronous=True, timeout=_CONNECT_S))  # type: ignore[no-untyped-call]
        except (OSError, TimeoutError, ValueError) as problem:
            reason = one_line(str(problem), _WORDS)
            raise UsageProblem(f"no scheduler at {address}: {reason}", "`dask scheduler` starts one") from None

    async def servers(self) -> tuple[str, ...]:
        """Return the names of the workers that answer now."""
        return tuple(await self._addresses())

    async def _addresses(self) -> dict[str, str]:
        """Return the addresses by name; raises a UsageProblem where two have one name."""
        try:
            assert self._client.scheduler is not None
            worker_facts = (await self._client.scheduler.identity())["workers"]
        except OSError as problem:
            raise UsageProblem(f"the scheduler no longer answers: {problem}", "start it again, then resume") from None
        addresses: dict[str, str] = {}
        for address, worker in worker_facts.items():
            name = one_line(str(worker["name"]), _WORDS)
            if name in addresses:
                raise UsageProblem(f"two workers are called {name}", "`dask worker --name` names each by its server")
            addresses[name] = str(address)
        return addresses

    async def run(self, server: str, request: bytes) -> bytes:
        """Return the answer of one unit; cancelled, the unit is stopped and puts everything back.

        Raises:
            WorkerGone: The worker is not there, or ended meanwhile.
            UnitFailed: The unit failed; with the worker's reason.
        """
        address = (await self._addresses()).get(server)
        if address is None:
            raise WorkerGone(f"the worker of {server} has disappeared")
        identity = uuid.uuid4().hex
        future: Any = self._client.submit(
            run_unit, identity, request, key=f"pgtop-tune-{identity}", workers=[address], pure=False, retries=0
        )
        result = asyncio.ensure_future(future.result())
        try:
            while not (await asyncio.wait((result,), timeout=LOOK_S))[0]:
                if address not in (await self._addresses()).values():
                    raise WorkerGone(f"the worker of {server} ended during the unit")
            return _answer(result.result(), server)
        except asyncio.CancelledError:
            await asyncio.shield(self._stopped(address, identity, result))
            raise
        except (WorkerGone, UnitFailed):
            raise
        except Exception as problem:
            if address not in (await self._addresses()).values():
                raise WorkerGone(f"the worker of {server} ended during the unit") from None
            raise UnitFailed(f"{server}: {one_line(str(problem), _WORDS)}") from None
        finally:
            result.cancel()
            with suppress(Exception):
                await future.cancel()

    async def _stopped(self, address: str, identity: str, result: asyncio.Future[bytes]) -> None:
        """Wait until the unit has put everything back."""
        with suppress(Exception):
            await self._client.run(stop_unit, identity, workers=[address])
            await asyncio.wait((result,), timeout=_STOPS_S)

    async def aclose(self) -> None:
        """Let go of the workers; they stay."""
        await self._client.close()  # type: ignore[no-untyped-call]


def _answer(data: object, server: str) -> bytes:
    """Raise UnitFailed for a problem, and for anything else than an answer."""
    try:
        if not isinstance(data, bytes):
            raise ValueError("no bytes")
        answer = answer_of(data)
    except ValueError as problem:
        raise UnitFailed(f"{server}: the answer cannot be read: {problem}") from None
    if "problem" in answer:
        raise UnitFailed(
            f"{server}: {one_line(str(answer['problem']), _WORDS)}", one_line(str(answer.get("hint")), _WORDS)
        )
    return data
