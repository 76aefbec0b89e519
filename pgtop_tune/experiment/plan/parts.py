"""What a run of an experiment is made of, and how it stops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

from pgtop_tune.base.errors import ConnectionProblem, LoadProblem, NotLetIn
from pgtop_tune.bench.datasets.pgbench_tables import Initialised
from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.bench.profiles import Profile
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.model.change import HostChange, ParameterChange
from pgtop_tune.changes.model.restart import PendingParameter
from pgtop_tune.experiment.endpoints import LoadTarget
from pgtop_tune.experiment.load_run import LoadRun
from pgtop_tune.experiment.plan.model import Arm
from pgtop_tune.experiment.surroundings_meter import SurroundingsMeter
from pgtop_tune.runtime.run_frames import FrameKeeper

_LOOK_S: Final = 0.5


class Stopped(LoadProblem):
    """The experiment cannot go on; what was done is kept."""


class ExperimentDoors(Protocol):
    """What changes the server and its machine, and what says how they are."""

    def sets(self, arm: Arm) -> ChangeSets:
        """What makes and reverts the set of an arm, with a restart where it takes one."""
        ...

    async def listed(self, names: tuple[str, ...]) -> object:
        """Looks at the parameters that are about to be changed: the control refuses what has changed since."""
        ...

    async def in_force(self) -> Sequence[ParameterChange | HostChange]:
        """Changes that the journals of server and machine hold as made and not reverted."""
        ...

    async def pending(self) -> tuple[PendingParameter, ...]:
        """What waits for a restart."""
        ...


class ExperimentParts(Struct, frozen=True, kw_only=True):
    """What a run of an experiment is made of.

    Attributes:
        load: Makes runs.
        keeper: Its frames.
        cpu: CPU time while loads run.
        doors: To server and machine.
        targets: By name of the endpoint.
        profiles: By name.
        open_sql_session: On the database of the experiment.
        make_data: Makes pgbench's tables at a scale, with the steps of the plan.
        free_bytes: On the disk of the data; None where it is not known.
        unsafe: Whether values that are not safe may be set, but for those that run code.
        confirmed: Names of parameters whose values may run code.
        told: Takes what is going on, one line.
    """

    load: LoadRun
    keeper: FrameKeeper
    cpu: SurroundingsMeter
    doors: ExperimentDoors
    targets: Mapping[str, LoadTarget]
    profiles: Mapping[str, Profile]
    open_sql_session: Callable[[], Awaitable[SqlSession]]
    make_data: Callable[[int], Awaitable[Initialised]]
    free_bytes: Callable[[], Awaitable[int | None]]
    unsafe: bool
    confirmed: frozenset[str]
    told: Callable[[str], None]


async def until(condition: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Whether a condition comes about in time; a server that is being restarted is waited for."""
    deadline_s = time.monotonic() + seconds
    while True:
        try:
            if await condition():
                return True
        except NotLetIn:
            raise
        except ConnectionProblem:
            # It is being restarted.
            pass
        if time.monotonic() > deadline_s:
            return False
        await asyncio.sleep(_LOOK_S)
