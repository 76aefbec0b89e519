"""A server that has nothing to say, for tests of its sampler."""

from __future__ import annotations

from typing import Any

from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.postgres import ServerFacts
from tests.support.frames import facts


class SilentServer:
    """Fits `sampling.postgres_sampler.ServerReader`; answers at once, and leaves looks at waits to the task."""

    async def connect(self) -> ServerFacts:
        return facts()

    async def aclose(self) -> None:
        """Nothing to close."""

    def look_at_waits(self, *asked: object) -> bool:
        """Leaves it to the task."""
        return False

    def share_statements(self, shared: bool) -> None:
        """Shares nothing."""

    def __getattr__(self, question: str) -> Any:
        async def nothing(*asked: object) -> Unavailable:
            return NOT_YET

        return nothing


async def here(found: ServerFacts) -> ServerFacts:
    """The facts as they are."""
    return found
