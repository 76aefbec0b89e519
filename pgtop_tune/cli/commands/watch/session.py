"""A live session whose services are made after the first frame.

Importing what changes something and pgbench's runner takes as long as Textual's start, and three megabytes; an operator
sees the first data before that, and watching alone takes none of it. A key that needs a service waits for it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgtop_tune.base import paths
from pgtop_tune.cli.memory import give_back
from pgtop_tune.cli.server_source import ServerSource
from pgtop_tune.runtime.engine import Lazy
from pgtop_tune.tui.controls import Services

if TYPE_CHECKING:
    from pgtop_tune.base.secret import Secret
    from pgtop_tune.changes.confirm.orphans import PendingWatch
    from pgtop_tune.changes.ports import AdoptedSet
    from pgtop_tune.cli.options import LiveOptions
    from pgtop_tune.cli.wiring import LiveParts
    from pgtop_tune.experiment.load_service import LoadService
    from pgtop_tune.experiment.screen_experiments import SwitchbackService
    from pgtop_tune.model.events import Event
    from pgtop_tune.postgres.server.conninfo import ConnInfo
    from pgtop_tune.runtime.ports import Step
    from pgtop_tune.runtime.run_frames import FrameKeeper

_WATCHING: Final = (5_000, 5, 5)
"""Thresholds of the garbage collector after the start. Drawing leaves cycles: the thresholds of the start let three
megabytes of them gather."""
_LOOK_S: Final = 5.0
"""Time between two searches for changes and experiments of other programs, as in `changes.confirm.orphans`."""


def _settle() -> None:
    """Free memory after the heavy imports."""
    gc.freeze()
    gc.set_threshold(*_WATCHING)
    give_back()


def _may_have_entries(directory: Path) -> bool:
    """Return True for a directory with entries, and for one that cannot be read."""
    try:
        with os.scandir(directory) as entries:
            return any(entries)
    except FileNotFoundError:
        return directory.is_symlink()
    except OSError:
        return True


class ScreenSession:
    """Implements `FrameSource`, `IntervalControl` and `AdoptionControl`.

    Args:
        conninfo: The server.
        options: Options of the session.
        keeper: A sink of the same engine, which keeps the frames that judge runs.

    Attributes:
        services: Made when a key needs one, or when there is a journal or an experiment of another program.
    """

    def __init__(self, conninfo: ConnInfo, options: LiveOptions, keeper: FrameKeeper) -> None:
        self._conninfo = conninfo
        self._options = options
        self._keeper = keeper
        self._leaving = asyncio.Event()
        self._server_source = ServerSource(conninfo, options)
        self._parts: LiveParts | None = None
        self._load: LoadService | None = None
        self._experiments: SwitchbackService | None = None
        self._serving: asyncio.Task[None] | None = None
        self._pending: PendingWatch | None = None
        self.services: Final = Lazy(self._make_services)

    async def _make_services(self) -> Services:
        parts = self._parts = await asyncio.to_thread(self._make_parts)
        parts.connect_as(self._conninfo)
        load = self._load = parts.load_service(self._keeper)
        experiments = self._experiments = parts.experiment_service()
        return Services(
            load=load,
            parameters=parts.parameters,
            backends=parts.backends,
            machine=parts.machine,
            restart=parts.restart,
            checks=parts.checks,
            experiments=experiments,
            other_experiments=parts.other_experiments(),
            adoptions=self,
        )

    def _make_parts(self) -> LiveParts:
        from pgtop_tune.cli.wiring import LiveParts

        parts = LiveParts(self._conninfo, self._options, self._server_source)
        _settle()
        return parts

    def _are_wanted(self) -> bool:
        """Return True where there is, or may be, a journal or an announced experiment to look after. Blocking."""
        journals = self._options.journal_directory or paths.journal_dir()
        return _may_have_entries(journals) or _may_have_entries(paths.running_experiments_dir())

    async def _serve(self) -> None:
        """Make the services once they are needed; revert overdue changes of programs that have ended."""
        await asyncio.to_thread(_settle)
        while self.services.made is None and not await asyncio.to_thread(self._are_wanted):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), _LOOK_S)
            if self._leaving.is_set():
                return
        await self.services.get()
        assert self._parts is not None
        from pgtop_tune.changes.confirm.orphans import PendingWatch
        from pgtop_tune.model.events import Event, EventKind

        def tell(message: str) -> None:
            self.note(Event(time.time_ns() // 1_000_000, EventKind.WARNING, message))

        directory = self._options.journal_directory
        self._pending = PendingWatch(self._parts.parameters, self._parts.machine, directory, tell, hold=True)
        await self._pending.run(self._leaving)

    def adopted(self) -> tuple[AdoptedSet, ...]:
        """See `AdoptionControl.adopted`."""
        return () if self._pending is None else self._pending.adopted()

    async def steps(self) -> AsyncIterator[Step]:
        """See `FrameSource.steps`."""
        first = True
        async for step in self._server_source.source.steps():
            yield step
            if first:
                # Its picture is being drawn, and imports would hold that up.
                first = False
            elif self._serving is None:
                self._serving = asyncio.create_task(self._serve())
            elif self._serving.done():
                self._serving.result()

    def note(self, event: Event) -> None:
        """See `FrameSource.note`."""
        self._server_source.source.note(event)

    async def aclose(self) -> None:
        """See `FrameSource.aclose`."""
        self._leaving.set()
        if self._serving is not None:
            await asyncio.wait((self._serving,))
        await self.services.settled()
        if self._experiments is not None:
            # Before the load: an experiment that loses its load ends otherwise.
            await self._experiments.aclose()
        if self._load is not None:
            await self._load.aclose()
        await self._server_source.source.aclose()
        if self._parts is not None:
            await self._parts.restart.aclose()
            await self._parts.parameters.aclose()
            await self._parts.machine.aclose()

    @property
    def interval_s(self) -> float:
        """Seconds between two frames."""
        return self._server_source.source.interval_s

    def set_interval(self, interval_s: float) -> None:
        """Set the interval from the next tick on. Thread-safe."""
        self._server_source.source.set_interval(interval_s)

    async def burst(self) -> float:
        """Sample waits more often for a while. In the engine's loop."""
        return self._server_source.source.burst()

    def password_needed(self) -> bool:
        """Return True while the server waits for a password. Thread-safe."""
        return self._server_source.password_needed

    def authenticate(self, password: Secret) -> None:
        """Go on with a typed password. In the engine's loop."""
        self._conninfo = self._conninfo.with_password(password)
        self._server_source.connect_as(self._conninfo)
        if self._parts is not None:
            self._parts.connect_as(self._conninfo)
