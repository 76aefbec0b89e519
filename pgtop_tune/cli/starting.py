"""A live session whose controls are imported after the first frame.

Importing what changes something and pgbench's runner takes as long as Textual's start; an operator sees the first data
before that. Whatever is asked in the meantime waits in the engine's loop.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Final

from pgtop_tune.changes.model.change import SYSTEM, ParameterChange, Scope, Terms, Wanted
from pgtop_tune.changes.ports import silent
from pgtop_tune.cli.watching import Watching
from pgtop_tune.runtime.load_control import DatasetFound, LoadControl, LoadState, MakingPlan, MakingPreview

if TYPE_CHECKING:
    from pgtop_tune.changes.confirm.orphans import PendingWatch
    from pgtop_tune.changes.model.change import HostChange, Proof, WantedSetting
    from pgtop_tune.changes.model.restart import PendingParameter, RestartOutcome, RestartPlan
    from pgtop_tune.changes.ports import AdoptedSet
    from pgtop_tune.cli.live_options import LiveOptions
    from pgtop_tune.cli.wiring import LiveParts
    from pgtop_tune.experiment.load_service import LoadService
    from pgtop_tune.health.report import Report
    from pgtop_tune.host.block_queue import Disk
    from pgtop_tune.host.machine_facts import MachineFacts
    from pgtop_tune.model.absence import Unavailable
    from pgtop_tune.model.backend_action import BackendAct, BackendKey, BackendResult, PlanRisk, QueryPlan
    from pgtop_tune.model.bench import LoadSpec, ProfileSummary
    from pgtop_tune.model.events import Event
    from pgtop_tune.model.postgres import Parameter
    from pgtop_tune.model.system_setting import SystemSetting
    from pgtop_tune.postgres.server.conninfo import ConnInfo
    from pgtop_tune.runtime.ports import Step
    from pgtop_tune.runtime.run_frames import FrameKeeper
    from pgtop_tune.secret import Secret

_WATCHING: Final = (5_000, 5, 5)
"""How often garbage is looked for from then on. What is drawn leaves cycles: at the pace that suits the start, three
megabytes of them lie about before they are found."""


class StartingSession:
    """Implements `FrameSource`, `IntervalControl` and `AdoptionControl`; makes its parts as they are needed.

    Args:
        conninfo: The server.
        options: Of the session.
        keeper: A sink of the same engine: what runs are judged by.

    Attributes:
        load: `LoadControl`, waiting until the parts are there.
        parameters: `ParameterControl`, likewise.
        backends: `BackendControl`, likewise.
        machine: `MachineControl`, likewise.
        restart: `RestartControl`, likewise.
        checks: `CheckControl`, likewise.
    """

    def __init__(self, conninfo: ConnInfo, options: LiveOptions, keeper: FrameKeeper) -> None:
        self._conninfo = conninfo
        self._options = options
        self._keeper = keeper
        self._made = asyncio.Event()
        self._leaving = asyncio.Event()
        self._watching = Watching(conninfo, options)
        self._making: asyncio.Task[None] | None = None
        self._parts: LiveParts | None = None
        self._desk: LoadService | None = None
        self._pending: PendingWatch | None = None
        self.load = StartingLoad(self)
        self.parameters = StartingParameters(self)
        self.backends = StartingBackends(self)
        self.machine = StartingMachine(self)
        self.restart = StartingRestart(self)
        self.checks = StartingCheck(self)

    @property
    def made(self) -> LiveParts | None:
        """The parts, once they are there."""
        return self._parts

    async def parts(self) -> LiveParts:
        """Waits for the parts. In the engine's loop."""
        await self._made.wait()
        assert self._parts is not None
        return self._parts

    @property
    def desk(self) -> LoadControl | None:
        """Load, once the parts are there."""
        return self._desk

    async def load_service(self) -> LoadControl:
        """Waits for the parts, and gives load. In the engine's loop."""
        await self._made.wait()
        assert self._desk is not None
        return self._desk

    def _make(self) -> LiveParts:
        from pgtop_tune.cli.allocator import give_back
        from pgtop_tune.cli.wiring import LiveParts

        parts = LiveParts(self._conninfo, self._options, self._watching)
        # All that is heavy has been imported by now; see `cli.screen`.
        gc.freeze()
        gc.set_threshold(*_WATCHING)
        give_back()
        return parts

    async def _take_in_hand(self) -> None:
        parts = await asyncio.to_thread(self._make)
        parts.connect_as(self._conninfo)
        self._parts = parts
        self._desk = parts.load_service(self._keeper)
        self._made.set()
        await self._look_after_pending(parts)

    async def _look_after_pending(self, parts: LiveParts) -> None:
        from pgtop_tune.changes.confirm.orphans import PendingWatch
        from pgtop_tune.model.events import Event, EventKind

        def tell(words: str) -> None:
            self.note(Event(time.time_ns() // 1_000_000, EventKind.WARNING, words))

        directory = self._options.journal_directory
        self._pending = PendingWatch(parts.parameters, parts.machine, directory, tell, hold=True)
        await self._pending.run(self._leaving)

    def adopted(self) -> tuple[AdoptedSet, ...]:
        """See `AdoptionControl.adopted`."""
        return () if self._pending is None else self._pending.adopted()

    async def steps(self) -> AsyncIterator[Step]:
        """See `FrameSource.steps`."""
        first = True
        async for step in self._watching.source.steps():
            yield step
            if first:
                # Its picture is being drawn, and imports would hold that up.
                first = False
            elif self._making is None:
                self._making = asyncio.create_task(self._take_in_hand())
            elif self._making.done():
                self._making.result()

    def note(self, event: Event) -> None:
        """See `FrameSource.note`."""
        self._watching.source.note(event)

    async def aclose(self) -> None:
        """See `FrameSource.aclose`."""
        self._leaving.set()
        if self._making is not None:
            await asyncio.wait((self._making,))
        if self._desk is not None:
            await self._desk.aclose()
        await self._watching.source.aclose()
        if self._parts is not None:
            await self._parts.restart.aclose()
            await self._parts.parameters.aclose()
            await self._parts.machine.aclose()

    @property
    def interval_s(self) -> float:
        """Seconds between two frames."""
        return self._watching.source.interval_s

    def set_interval(self, interval_s: float) -> None:
        """Takes effect with the next tick. Thread-safe."""
        self._watching.source.set_interval(interval_s)

    def password_needed(self) -> bool:
        """Whether the server waits for a password. Thread-safe."""
        return self._watching.password_needed

    def authenticate(self, password: Secret) -> None:
        """Goes on with a password that was typed. In the engine's loop."""
        self._conninfo = self._conninfo.with_password(password)
        self._watching.connect_as(self._conninfo)
        if self._parts is not None:
            self._parts.connect_as(self._conninfo)


class StartingLoad:
    """See `LoadControl`."""

    def __init__(self, session: StartingSession) -> None:
        self._session = session

    def state(self) -> LoadState:
        desk = self._session.desk
        return LoadState() if desk is None else desk.state()

    async def profiles(self) -> tuple[ProfileSummary, ...]:
        return await (await self._session.load_service()).profiles()

    async def datasets(self) -> tuple[DatasetFound, ...]:
        return await (await self._session.load_service()).datasets()

    async def preview(self, spec: LoadSpec) -> str:
        return await (await self._session.load_service()).preview(spec)

    async def start(self, spec: LoadSpec) -> None:
        await (await self._session.load_service()).start(spec)

    async def start_steps(self, spec: LoadSpec, steps: str, *, tidy: bool) -> None:
        await (await self._session.load_service()).start_steps(spec, steps, tidy=tidy)

    async def stop(self) -> None:
        await (await self._session.load_service()).stop()

    async def look(self, plan: MakingPlan) -> MakingPreview:
        return await (await self._session.load_service()).look(plan)

    async def make(self, plan: MakingPlan, *, replace: bool) -> None:
        await (await self._session.load_service()).make(plan, replace=replace)


class StartingParameters:
    """See `ChangeControl`."""

    def __init__(self, session: StartingSession) -> None:
        self._session = session

    def statement(self, name: str, value: str | None, scope: Scope = SYSTEM) -> str:
        parts = self._session.made
        return "" if parts is None else parts.parameters.statement(name, value, scope)

    async def apply(self, name: str, value: str | None) -> ParameterChange:
        return await (await self._session.parts()).parameters.apply(name, value)

    async def undo(self) -> ParameterChange | None:
        return await (await self._session.parts()).parameters.undo()

    async def undo_all(self) -> tuple[ParameterChange, ...]:
        return await (await self._session.parts()).parameters.undo_all()

    async def in_force(self) -> tuple[ParameterChange, ...]:
        return await (await self._session.parts()).parameters.in_force()

    async def apply_set(self, wanted: Sequence[Wanted], terms: Terms) -> tuple[ParameterChange, ...]:
        return await (await self._session.parts()).parameters.apply_set(wanted, terms)

    async def keep(self, set_id: str) -> tuple[ParameterChange, ...]:
        return await (await self._session.parts()).parameters.keep(set_id)

    async def revert_set(self, set_id: str, why: str = "") -> tuple[ParameterChange, ...]:
        return await (await self._session.parts()).parameters.revert_set(set_id, why)

    async def revert_overdue(self) -> tuple[ParameterChange, ...]:
        return await (await self._session.parts()).parameters.revert_overdue()

    async def prove(self, changes: Sequence[ParameterChange]) -> tuple[Proof, ...]:
        return await (await self._session.parts()).parameters.prove(changes)

    async def undo_last(self) -> tuple[ParameterChange, ...]:
        return await (await self._session.parts()).parameters.undo_last()

    async def redo(self) -> tuple[ParameterChange, ...]:
        return await (await self._session.parts()).parameters.redo()

    async def list(self, names: tuple[str, ...]) -> tuple[Parameter, ...]:
        return await (await self._session.parts()).parameters.list(names)


class StartingBackends:
    """See `BackendControl`."""

    def __init__(self, session: StartingSession) -> None:
        self._session = session

    def statement(self, act: BackendAct, backend: BackendKey) -> str:
        parts = self._session.made
        return "" if parts is None else parts.backends.statement(act, backend)

    async def signal(self, act: BackendAct, backends: Sequence[BackendKey]) -> tuple[BackendResult, ...]:
        return await (await self._session.parts()).backends.signal(act, backends)

    async def explain(self, backend: BackendKey, seen: str, agreed: PlanRisk | None = None) -> QueryPlan | PlanRisk:
        return await (await self._session.parts()).backends.explain(backend, seen, agreed)


class StartingRestart:
    """See `RestartControl`."""

    def __init__(self, session: StartingSession) -> None:
        self._session = session

    async def pending(self) -> tuple[PendingParameter, ...]:
        return await (await self._session.parts()).restart.pending()

    async def plan(self, wanted: Sequence[Wanted] = ()) -> RestartPlan:
        return await (await self._session.parts()).restart.plan(wanted)

    async def apply(
        self, wanted: Sequence[Wanted], terms: Terms, progress: Callable[[str], None] = silent, *, anyway: bool = False
    ) -> RestartOutcome:
        return await (await self._session.parts()).restart.apply(wanted, terms, progress, anyway=anyway)

    async def keep(self, set_id: str) -> None:
        await (await self._session.parts()).restart.keep(set_id)

    async def revert_set(self, set_id: str, why: str = "", progress: Callable[[str], None] = silent) -> RestartOutcome:
        return await (await self._session.parts()).restart.revert_set(set_id, why, progress)


class StartingCheck:
    """See `CheckControl`."""

    def __init__(self, session: StartingSession) -> None:
        self._session = session

    async def check(self) -> Report:
        return await (await self._session.parts()).checks.check()

    async def measure(self, *, anyway: bool) -> Report | tuple[str, ...]:
        return await (await self._session.parts()).checks.measure(anyway=anyway)


class StartingMachine:
    """See `MachineControl`."""

    def __init__(self, session: StartingSession) -> None:
        self._session = session

    async def settings(self) -> tuple[SystemSetting, ...] | Unavailable:
        return await (await self._session.parts()).machine.settings()

    async def facts(self) -> MachineFacts:
        return await (await self._session.parts()).machine.facts()

    async def disks(self) -> tuple[Disk, ...]:
        return await (await self._session.parts()).machine.disks()

    def commands(self, name: str, value: str, *, survive: bool = False) -> tuple[str, ...]:
        parts = self._session.made
        return () if parts is None else parts.machine.commands(name, value, survive=survive)

    async def apply(self, name: str, value: str, *, survive: bool = False) -> HostChange:
        return await (await self._session.parts()).machine.apply(name, value, survive=survive)

    async def apply_set(
        self, wanted: Sequence[WantedSetting], terms: Terms, *, survive: bool = False
    ) -> tuple[HostChange, ...]:
        return await (await self._session.parts()).machine.apply_set(wanted, terms, survive=survive)

    async def keep(self, set_id: str) -> tuple[HostChange, ...]:
        return await (await self._session.parts()).machine.keep(set_id)

    async def revert_set(
        self, set_id: str, why: str = "", only: Callable[[HostChange], bool] = lambda change: True
    ) -> tuple[HostChange, ...]:
        return await (await self._session.parts()).machine.revert_set(set_id, why, only)

    async def revert_overdue(self) -> tuple[HostChange, ...]:
        return await (await self._session.parts()).machine.revert_overdue()

    async def undo(self) -> HostChange | None:
        return await (await self._session.parts()).machine.undo()

    async def undo_all(self) -> tuple[HostChange, ...]:
        return await (await self._session.parts()).machine.undo_all()

    async def in_force(self) -> tuple[HostChange, ...]:
        return await (await self._session.parts()).machine.in_force()
