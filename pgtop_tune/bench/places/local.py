"""pgbench beside us, under the guard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pgtop_tune.bench.locate import Pgbench, find_pgbench
from pgtop_tune.bench.messages import lines_of
from pgtop_tune.bench.places.place import ClockOffset, RunOrder
from pgtop_tune.bench.ports import environment
from pgtop_tune.bench.profiles import Script
from pgtop_tune.bench.run_directory import RunDirectory
from pgtop_tune.errors import LoadProblem
from pgtop_tune.process.guarded_program import GuardedAsync, start_guarded_async

GUARD_GRACE_S: Final = 5.0


class LocalRunning:
    """pgbench under the guard; fields and methods as in `Running`."""

    clock: ClockOffset | None = None

    def __init__(self, guarded: GuardedAsync, directory: RunDirectory) -> None:
        self.pid: int | None = guarded.pid
        self.directory = directory.path
        self._guarded = guarded
        self._kept = directory

    async def follow(self, out: Callable[[str], None], err: Callable[[str], None]) -> int | None:
        """As in `Running`."""
        await asyncio.gather(lines_of(self._guarded.stdout, out), lines_of(self._guarded.stderr, err))
        return await self._guarded.wait()

    def signal(self, name: str) -> None:
        """As in `Running`."""
        self._guarded.send_signal(name)

    async def stop(self) -> None:
        """As in `Running`."""
        await self._guarded.stop()

    def kill(self) -> None:
        """As in `Running`."""
        self._guarded.process.kill()

    def remove(self) -> None:
        """As in `Running`."""
        self._kept.remove()


class LocalPlace:
    """This machine; methods as in `Place`."""

    name = ""

    async def find(self, asked_for: Path | None) -> Pgbench:
        """As in `Place`."""
        return await asyncio.to_thread(find_pgbench, asked_for)

    def directory(self, local: Path) -> Path:
        """The same."""
        return local

    def scripts(self, scripts: Sequence[Script], local: Path) -> tuple[Script, ...]:
        """The same."""
        return tuple(scripts)

    async def start(self, order: RunOrder) -> LocalRunning:
        """As in `Place`."""
        directory = RunDirectory(order.directory)
        password = order.endpoint.password
        try:
            passfile = directory.write_passfile(password) if password is not None else None
            guarded = await start_guarded_async(
                order.argv,
                signal="INT",
                grace_s=GUARD_GRACE_S,
                remove=(directory.path,),
                env=environment(order.endpoint, order.pgbench, passfile),
            )
        except OSError as problem:
            directory.remove()
            raise LoadProblem(f"pgbench cannot be started: {problem}") from problem
        except BaseException:
            directory.remove()
            raise
        return LocalRunning(guarded, directory)
