"""What sampling needs of a server: fits `postgres.reader.PostgresReader`, and scripts in tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from pgtop_tune.metrics.catalogue import Reading, Section
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import ServerFacts
from pgtop_tune.model.waits import WaitCount, WaitLook

R = TypeVar("R", bound=Reading)


class ServerReader(Protocol):
    """One read-only connection. Every call raises ConnectionProblem when the server is gone or does not answer."""

    async def connect(self) -> ServerFacts: ...

    async def facts(self) -> ServerFacts | Unavailable: ...

    async def read(self, section: Section[R]) -> R | Unavailable: ...

    async def waits(self) -> Sequence[WaitCount] | Unavailable: ...

    async def exact_waits(self) -> WaitLook | Unavailable: ...

    async def aclose(self) -> None: ...
