"""Workers of Dask distributed, one for each server: `dask worker tcp://… --nthreads 1 --name db1`.

A unit is pinned to its worker and never repeated by the engine: a cell that is run twice is no longer the cell of the
plan. Only this module imports distributed.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.experiment.workers.run import UnitFailed, WorkerGone
from pgtop_tune.process import handed_on
from pgtop_tune.process.guarded_program import Guarded, start_guarded
from pgtop_tune.process.own_program import own_argv

if TYPE_CHECKING:
    from distributed import Client

# A unit of work beside its server: a program of its own that ends with the worker, however that ends.
#
# `run_unit` is what an engine runs on a worker. The worker's environment says which server is meant, as libpq reads
# it:
# PGHOST, PGPORT, PGUSER, PGPASSFILE; so no password goes over the network.

_MODULE: Final = "pgtop_tune.cli.unit"
_PUTS_BACK_S: Final = 120.0
_LAST_WORDS: Final = 300
_running: dict[str, Guarded] = {}
_stopped: set[str] = set()


def run_unit(identity: str, request: bytes) -> bytes:
    """Runs one unit; its answer, a JSON object: "answer", or "problem" with a "hint".

    Args:
        identity: For `stop_unit`.
        request: A JSON object.
    """
    with tempfile.TemporaryDirectory(prefix="pgtop-tune-unit-") as directory:
        asked, answered, said = (Path(directory) / name for name in ("request", "answer", "lines"))
        asked.write_bytes(request)
        with said.open("wb") as lines, handed_on.descriptor(password=handed_on.inherited_password()) as secrets:
            program = start_guarded(
                [*own_argv(_MODULE), str(asked), str(answered)],
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
            return answered.read_bytes()
        except FileNotFoundError:
            words = one_line(said.read_text("utf-8", "replace").strip()[-_LAST_WORDS:], _LAST_WORDS)
            return json.dumps({"problem": f"the unit ended with status {status}: {words}", "hint": ""}).encode()


def stop_unit(identity: str) -> None:
    """Asks a unit of this worker to put everything back and end; also one that has not begun."""
    if identity in _running:
        _running[identity].send_signal("INT")
    else:
        _stopped.add(identity)


def answer_of(data: bytes) -> Any:
    """What a unit answered, or its problem in words and the hint to it.

    Raises:
        ValueError: It is no answer.
    """
    found = json.loads(data)
    if not isinstance(found, dict) or not ("answer" in found or "problem" in found):
        raise ValueError("neither an answer nor a problem")
    return found


_ADDRESS: Final = re.compile(r"(tcp|tls)://[^/\s]+:[0-9]{1,5}")
_CONNECT_S: Final = 15.0
_LOOK_S: Final = 1.0
_STOPS_S: Final = 150.0
_WORDS: Final = 300


class DaskWorkers:
    """Fits `Workers`; `connected` makes it.

    Args:
        client: Asynchronous.
    """

    def __init__(self, client: Client) -> None:
        self._client: Final = client

    @classmethod
    async def connected(cls, address: str) -> Self:
        """To the scheduler at an address: "tcp://host:8786".

        Raises:
            UsageProblem: It is no address, Dask distributed is not installed, or no scheduler is there.
        """
        if _ADDRESS.fullmatch(address) is None:
            raise UsageProblem(f"{one_line(address, _WORDS)!r} is no address of a scheduler", "as in tcp://host:8786")
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
            words = one_line(str(problem), _WORDS)
            raise UsageProblem(f"no scheduler at {address}: {words}", "`dask scheduler` starts one") from None

    async def servers(self) -> tuple[str, ...]:
        """See `Workers.servers`."""
        return tuple(await self._addresses())

    async def _addresses(self) -> dict[str, str]:
        """By name; raises a UsageProblem where two have one name."""
        try:
            assert self._client.scheduler is not None
            known = (await self._client.scheduler.identity())["workers"]
        except OSError as problem:
            raise UsageProblem(f"the scheduler is gone: {problem}", "start it again, then resume") from None
        found: dict[str, str] = {}
        for address, worker in known.items():
            name = one_line(str(worker["name"]), _WORDS)
            if name in found:
                raise UsageProblem(f"two workers are called {name}", "`dask worker --name` names each by its server")
            found[name] = str(address)
        return found

    async def run(self, server: str, request: bytes) -> bytes:
        """See `Workers.run`."""
        address = (await self._addresses()).get(server)
        if address is None:
            raise WorkerGone(f"the worker of {server} is gone")
        identity = uuid.uuid4().hex
        future: Any = self._client.submit(
            run_unit, identity, request, key=f"pgtop-tune-{identity}", workers=[address], pure=False, retries=0
        )
        result = asyncio.ensure_future(future.result())
        try:
            while not (await asyncio.wait((result,), timeout=_LOOK_S))[0]:
                if address not in (await self._addresses()).values():
                    raise WorkerGone(f"the worker of {server} ended under the unit")
            return _answer(result.result(), server)
        except asyncio.CancelledError:
            await asyncio.shield(self._stopped(address, identity, result))
            raise
        except (WorkerGone, UnitFailed):
            raise
        except Exception as problem:
            if address not in (await self._addresses()).values():
                raise WorkerGone(f"the worker of {server} ended under the unit") from None
            raise UnitFailed(f"{server}: {one_line(str(problem), _WORDS)}") from None
        finally:
            result.cancel()
            with suppress(Exception):
                await future.cancel()

    async def _stopped(self, address: str, identity: str, result: asyncio.Future[bytes]) -> None:
        """Waits until the unit has put everything back."""
        with suppress(Exception):
            await self._client.run(stop_unit, identity, workers=[address])
            await asyncio.wait((result,), timeout=_STOPS_S)

    async def aclose(self) -> None:
        """See `Workers.aclose`."""
        await self._client.close()  # type: ignore[no-untyped-call]


def _answer(data: object, server: str) -> bytes:
    """Raises UnitFailed for a problem, and for anything else than an answer."""
    try:
        if not isinstance(data, bytes):
            raise ValueError("no bytes")
        found = answer_of(data)
    except ValueError as problem:
        raise UnitFailed(f"{server}: the answer cannot be read: {problem}") from None
    if "problem" in found:
        raise UnitFailed(
            f"{server}: {one_line(str(found['problem']), _WORDS)}", one_line(str(found.get("hint")), _WORDS)
        )
    return data
