"""A short look at a server with the ordinary sampler, for commands that show a state and no course of time."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from msgspec import Struct

from pgtop_tune.advice.facts import AdviceFacts, MachineLook, machine_of
from pgtop_tune.advice.gather import Beside, disks_of_data, facts_of, workload_seen
from pgtop_tune.advice.proposal import Proposal, propose
from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.cli.connections import ConnectionWords, let_in
from pgtop_tune.cli.exit_codes import Terminated
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.wiring import LiveSession
from pgtop_tune.health.proposals import replacements_of_unsuitable
from pgtop_tune.host.block_devices import ROOT, disks
from pgtop_tune.host.machine_setup import machine_facts
from pgtop_tune.host.psutil_rows import NO_DETAILS, SOURCE
from pgtop_tune.host.system_settings import settings
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.machine import DiskKind, Workload
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.survey import data_bytes
from pgtop_tune.runtime.ports import Step

_INTERVAL_S: Final = 0.5
_DEADLINE_S: Final = 15.0
_FRAMES: Final = 4


class AdviceBasis(Struct, frozen=True):
    """Facts of a server and its machine, with the advice for them.

    Attributes:
        machine: Settings of the server's machine; Unavailable on another machine, or without /proc.
        workload_because: Reason for the kind of workload.
        data_bytes: Size of all databases.
    """

    interval: Interval
    facts: AdviceFacts
    proposal: Proposal
    machine: MachineLook | Unavailable
    workload_because: str
    data_bytes: int | Unavailable


class _NewestFrames:
    """A sink that keeps the last frames, and counts all."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque(maxlen=_FRAMES)
        self.count = 0

    @property
    def interval(self) -> Interval | None:
        return Interval(tuple(self._frames)) if self._frames else None

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        self._frames.extend(step.frames)
        self.count += len(step.frames)

    def close(self) -> None:
        """See `FrameSink.close`."""


def look(connection: ConnectionWords, *, is_another: bool = False) -> Interval:
    """Return frames of a server and its machine.

    Args:
        is_another: As for `let_in`.

    Raises:
        ConnectionProblem: The server is not there, or refuses the login.
    """
    return let_in(connection, lambda conninfo: asyncio.run(_look(conninfo, 0.0)), is_another=is_another)


def advice_basis(
    connection: ConnectionWords,
    seconds: float = 0.0,
    workload: Workload | None = None,
    disk: DiskKind | None = None,
) -> AdviceBasis:
    """Sample a server, and return the basis of advice.

    Args:
        seconds: Shortest time to sample.
        workload: Purpose of the server; None is derived from its counters.
        disk: Kind of the data's disk; None is the kernel's answer.

    Raises:
        ConnectionProblem: The server is not there, refuses the login, or did not answer in time.
    """

    async def both(conninfo: ConnInfo) -> tuple[Interval, int | Unavailable]:
        return await _look(conninfo, seconds), await data_bytes(conninfo)

    interval, size = let_in(connection, lambda conninfo: asyncio.run(both(conninfo)))
    machine = _machine(interval)
    counters = interval.now(sections.database)
    by_counters = workload_seen(counters) if counters is not None and workload is None else None
    because = (
        "as given"
        if workload
        else by_counters.because
        if by_counters
        else "assumed, because the server has done almost no work yet"
    )
    facts = facts_of(
        interval,
        Beside(
            workload=workload,
            disk=disk,
            data_bytes=None if isinstance(size, Unavailable) else size,
            machine=None if isinstance(machine, Unavailable) else machine_of(machine),
            unsuitable=replacements_of_unsuitable(interval.frames),
        ),
    )
    if facts is None:
        raise ConnectionProblem("the server did not report its parameters")
    return AdviceBasis(
        interval=interval,
        facts=facts,
        proposal=propose(facts),
        machine=machine,
        workload_because=because,
        data_bytes=size,
    )


def _machine(interval: Interval) -> MachineLook | Unavailable:
    """Return settings and disks of this machine; Unavailable for a server elsewhere, and without /proc."""
    server, facts = sections.server(interval.newest), sections.machine(interval.newest)
    if isinstance(server, Unavailable) or not server.local:
        return Unavailable(Reason.NOT_LOCAL, "the server runs on another machine, or /proc here does not show it")
    if not isinstance(facts, Unavailable) and facts.source == SOURCE:
        return NO_DETAILS
    described = disks((disk.name for disk in disks_of_data(interval)), ROOT)
    return MachineLook(tuple(settings(ROOT, [disk.name for disk in described])), machine_facts(ROOT), described)


async def _look(conninfo: ConnInfo, seconds: float) -> Interval:
    session = LiveSession(conninfo, LiveOptions(interval_s=_INTERVAL_S))
    keeper = _NewestFrames()
    session.engine.attach(keeper)
    loop = asyncio.get_running_loop()
    began_s = loop.time()

    async def enough() -> None:
        deadline_s = began_s + max(seconds, _DEADLINE_S)
        while (session.source.server is None or session.source.server.may_answer) and loop.time() < deadline_s:
            interval = keeper.interval
            complete = interval is not None and interval.now(sections.parameters) is not None
            if complete and keeper.count >= _FRAMES and loop.time() >= began_s + seconds:
                return
            await asyncio.sleep(_INTERVAL_S)

    number = await run_beside(session.engine, enough, quietly=True)
    if number is not None:
        raise Terminated(number)
    interval = keeper.interval
    if interval is None or interval.now(sections.parameters) is None:
        server = session.source.server
        if server is not None and server.problem is not None:
            raise server.problem
        answered = interval is not None and not isinstance(interval.newest.postgres, Unavailable)
        parameters = sections.parameters(interval.newest) if interval is not None and answered else None
        if isinstance(parameters, Unavailable) and parameters.reason is not Reason.NOT_YET:
            raise ConnectionProblem(f"{conninfo.describe()} does not show its parameters: {parameters}")
        raise ConnectionProblem(f"{conninfo.describe()} did not answer")
    return interval
