"""The two copies: made of a backup or of a stopped directory, with a guard process that removes them after us."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pgtop_tune.cluster.copied_server import CopiedServer
from pgtop_tune.cluster.stopped_directory import StoppedDirectory
from pgtop_tune.experiment.switchback.blocks import Arm
from pgtop_tune.experiment.twin.state import TwinMaterial
from pgtop_tune.process.guarded_program import Guarded, start_guarded

_LAST: Final = 'for i in 1 2 3 4 5 6 7; do sleep 1; rmdir -- "$@"; done 2>/dev/null; exit'
_KEEPER: Final = ("/bin/sh", "-c", f"trap '{_LAST}' INT; while :; do sleep 1; done", "keeper")
"""Lives a moment longer than the servers of a program that was killed, and removes the control groups that it is given,
which nothing runs in then; its guard removes the directories that the servers left."""
_KEEPER_GRACE_S: Final = 12.0
_POLL_S: Final = 0.1


class Copies:
    """Both of them.

    Attributes:
        servers: The first and the second; empty before `create`.
    """

    def __init__(self, material: TwinMaterial) -> None:
        self.servers: list[CopiedServer] = []
        self._material: Final = material
        self._keeper: Guarded | None = None

    def create(self, groups: Sequence[Path] = ()) -> None:
        """Makes their directories; from now on they are removed whatever becomes of us.

        Args:
            groups: Control groups that are removed with them where we are killed.

        Raises:
            ClusterProblem: They cannot be made.
        """
        material = self._material
        for _ in Arm:
            self.servers.append(CopiedServer.create(material.programs, material.account, material.directory))
        remove = [path for copy in self.servers for path in (copy.home, copy.socket_dir)]
        # Also what no server runs in is removed when we are killed.
        self._keeper = start_guarded((*_KEEPER, *map(str, groups)), grace_s=_KEEPER_GRACE_S, remove=remove)

    async def fill(self, cloning: Callable[[], None]) -> None:
        """Both hold the same bytes then, and neither runs.

        Args:
            cloning: Called when the second one is made of the first.

        Raises:
            ClusterProblem: The server or the directory cannot be copied.
        """
        material = self._material
        first, second = self.servers
        source = material.source
        if isinstance(source, StoppedDirectory):
            await self.in_thread(lambda: first.copy_stopped(source))
        else:
            await self.in_thread(lambda: first.take_backup(source, material.backup_programs))
        cloning()
        # It recovers with the original's own settings, and both copies begin with the same bytes.
        await self.in_thread(lambda: first.configure(material.settings[Arm.A]))
        await self.in_thread(first.start)
        await self.in_thread(first.halt)
        await self.in_thread(lambda: second.clone(first))

    async def in_thread(self, work: Callable[[], None]) -> None:
        """Waits for blocking work; when we are cancelled, ends what it waits for first."""
        working = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            while not working.done():
                await asyncio.to_thread(self._stop)
                await asyncio.wait((working,), timeout=_POLL_S)
            working.exception()
            raise

    def _stop(self) -> None:
        for copy in self.servers:
            copy.stop("immediate")

    async def remove(self) -> None:
        """Ends the servers; nothing is left of them."""
        await asyncio.to_thread(self._stop)
        if self._keeper is not None:
            self._keeper.send_signal("KILL")
            await asyncio.to_thread(self._keeper.wait)
            self._keeper.stop()
