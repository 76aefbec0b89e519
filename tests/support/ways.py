"""The two ways in which an operator changes a server and its machine: the screen's staged changes, and `set`."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from pgtop_tune.changes.change_sets import ChangeSets, Undo
from pgtop_tune.changes.confirm import pending_sets
from pgtop_tune.changes.confirm.pending_sets import PendingSets
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.model.change import HostChange, Terms, WantedParameter, WantedSetting
from pgtop_tune.changes.model.change_set import Change
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.one_change import Rules
from pgtop_tune.changes.server.reverts import try_to_revert
from pgtop_tune.cli import parameter_changes
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics.trip_wires import trip_wire
from pgtop_tune.process.process_key import boot_clock_s
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.parameters.changes import Changes
from tests.postgres.conftest import place
from tests.support.frames import frame
from tests.support.machine_tree import USUAL, write
from tests.support.processes import revert_watchdogs

T = TypeVar("T")


class Machine(HostControl):
    """A machine made up in a directory, on which something may happen before and after its half of a set is made."""

    def __init__(self, root: Path) -> None:
        write(root, USUAL)
        super().__init__(root=root)
        self.root = root
        self.beforehand: Callable[[], None] = lambda: None
        self.afterwards: Callable[[], None] = lambda: None

    async def apply_set(
        self, wanted: Sequence[WantedSetting], terms: Terms, *, survive: bool = False
    ) -> tuple[HostChange, ...]:
        self.beforehand()
        made = await super().apply_set(wanted, terms, survive=survive)
        self.afterwards()
        return made

    def path(self, name: str) -> Path:
        return self.root / "proc/sys" / name.replace(".", "/")

    def value(self, name: str) -> str:
        return self.path(name).read_text().strip()


class _Here:
    """The engine's loop is this one."""

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    def note(self, *words: object) -> None: ...


class Screen:
    """Staged changes, applied with a key."""

    def __init__(self, server: Throwaway, machine: Machine) -> None:
        self._control = PostgresControl(place(server), rules=Rules(fenced=True))
        sets = ChangeSets(self._control, machine)
        self._pending = PendingSets(sets, lambda event: None)
        undo = Undo(self._control, machine, sets)
        self.changes = Changes(self._control, cast("Any", _Here()), self._pending, undo, machine)
        self._applying: asyncio.Task[tuple[Change, ...]] | None = None

    async def apply(
        self, wanted: Sequence[WantedParameter], settings: Sequence[WantedSetting], for_s: float | None = None
    ) -> None:
        self._pending.accept(Step((frame(0),)))
        self._applying = asyncio.create_task(
            self.changes.apply(wanted, Terms(for_s), (trip_wire("tps<1000000"),), settings)
        )
        await self._applying

    def leave(self) -> None:
        """The terminal is gone: what the screen waits for is cancelled."""
        assert self._applying is not None
        self._applying.cancel()

    async def revert_now(self) -> None:
        """A trip wire is crossed."""
        for second in range(1, 12):
            self._pending.accept(Step((frame(second),)))

    async def over(self) -> None:
        """Waits until the pending set has gone back."""
        async with asyncio.timeout(60):
            while self.changes.pending is not None:
                await asyncio.sleep(0.02)

    async def server_is_back(self) -> None:
        """The screen stays and tries again."""

    async def close(self) -> None:
        await self._control.aclose()


class Command:
    """`set NAME=VALUE … [--for TIME]`."""

    def __init__(self, server: Throwaway, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._server = server

        async def machine_of(*words: object, **more: object) -> HostControl:
            return machine

        monkeypatch.setattr(parameter_changes, "machine_of", machine_of)
        self._running: asyncio.Task[int] | None = None
        self._said: list[str] = []
        monkeypatch.setattr(parameter_changes, "tell", self._said.append)

    async def apply(
        self, wanted: Sequence[WantedParameter], settings: Sequence[WantedSetting], for_s: float | None = None
    ) -> None:
        asked = parameter_changes.ChangeRequest(parameters=tuple(wanted), settings=tuple(settings), for_s=for_s)
        self._running = asyncio.create_task(parameter_changes.change(place(self._server), asked))
        async with asyncio.timeout(60):
            while not self._running.done() and not any("Ctrl-C" in words for words in self._said):
                await asyncio.sleep(0.02)
        if self._running.done():
            self._running.result()

    def leave(self) -> None:
        """The terminal is gone."""
        assert self._running is not None
        self._running.cancel()

    async def revert_now(self) -> None:
        """Ctrl-C."""
        assert self._running is not None
        self._running.cancel()

    async def over(self) -> None:
        """Waits until the pending set has gone back."""
        assert self._running is not None
        with suppress(asyncio.CancelledError):
            await self._running

    async def server_is_back(self) -> None:
        """The command has ended and told which command reverts the rest."""
        await self.over()
        assert any("pgtop-tune revert --set" in words for words in self._said), self._said
        await asyncio.to_thread(try_to_revert, place(self._server))

    async def close(self) -> None:
        if self._running is not None and not self._running.done():
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running


@asynccontextmanager
async def way_of(
    name: str, server: Throwaway, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Screen | Command]:
    """The screen or the command."""
    way = Screen(server, machine) if name == "screen" else Command(server, machine, monkeypatch)
    try:
        yield way
    finally:
        await way.close()
        await machine.aclose()
        # The program of this operator ends here, and ours lives on: its watchdogs would wait for that.
        for watchdog in revert_watchdogs(os.getpid()):
            os.kill(watchdog, signal.SIGKILL)


def let_an_hour_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brings the deadline of what is pending: until then a test has all the time that a busy machine needs."""
    monkeypatch.setattr(pending_sets, "boot_clock_s", lambda: boot_clock_s() + 3600.0)


def kill(server: Throwaway) -> None:
    """As a crash: nothing is said to anybody."""
    os.kill(int((Path(str(server.data_dir)) / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)
