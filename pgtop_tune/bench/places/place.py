"""What a place has in which pgbench can be run. Protocols only; a run does not ask which place it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from pgtop_tune.bench.endpoint import Endpoint
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.profiles import Script


class ClockOffset(Struct, frozen=True):
    """A clock against ours.

    Attributes:
        ahead_ms: How far it is before ours.
        uncertain_ms: Half of the quickest round trip; the true figure is not further off.
    """

    ahead_ms: float
    uncertain_ms: float


class Order(Struct, frozen=True):
    """A run of pgbench.

    Attributes:
        argv: Its command line, with paths as they are in that place.
        directory: A directory on this machine that does not exist yet; the files of its log appear in it.
        scripts: The files it reads, as they are here.
    """

    argv: tuple[str, ...]
    pgbench: Pgbench
    endpoint: Endpoint
    directory: Path
    scripts: tuple[Script, ...] = ()


class Running(Protocol):
    """pgbench, started.

    Attributes:
        pid: Its process id on this machine; None where it runs on another.
        directory: Where the files of its log grow, on this machine.
        clock: Of the machine it runs on; None for this one.
    """

    @property
    def pid(self) -> int | None: ...
    @property
    def directory(self) -> Path: ...
    @property
    def clock(self) -> ClockOffset | None: ...

    async def follow(self, out: Callable[[str], None], err: Callable[[str], None]) -> int | None:
        """Passes lines of stdout and stderr until it has ended; its status, 128 + n where signal n ended it."""
        ...

    def signal(self, name: str) -> None:
        """Passes a signal such as "ALRM" on; nothing happens when it has ended."""
        ...

    async def stop(self) -> None:
        """Ends it, by force in the end; returns when it is gone."""
        ...

    def kill(self) -> None:
        """Ends it at once, for an event loop that is being torn down."""
        ...

    def remove(self) -> None:
        """Lets go of its files."""
        ...


class Place(Protocol):
    """A machine with a pgbench.

    Attributes:
        name: As it was named; "" for this machine.
    """

    @property
    def name(self) -> str: ...

    async def find(self, asked_for: Path | None) -> Pgbench:
        """The pgbench asked for (a binary or its directory), else the newest there is.

        Raises:
            LoadProblem: There is none; the place cannot be reached.
        """
        ...

    def directory(self, local: Path) -> Path:
        """What a run's directory is called in that place."""
        ...

    def scripts(self, scripts: Sequence[Script], local: Path) -> tuple[Script, ...]:
        """What script files of this machine are called in that place, once a run is started."""
        ...

    async def start(self, order: Order) -> Running:
        """Starts pgbench; it ends when we do, however that is.

        Raises:
            LoadProblem: It cannot be started.
        """
        ...
