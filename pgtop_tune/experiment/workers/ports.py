"""The interface to an engine that runs units of work beside servers. Another engine is one more file here.

A unit is one function, (server, request) → answer, both JSON: `unit_process.run_unit`, on the worker of the server.
"""

from __future__ import annotations

from typing import Protocol

from pgtop_tune.base.errors import PgtopError


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
