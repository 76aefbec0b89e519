"""A search before its first evaluation: what was asked for, as a plan for the server and its load."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.tuning_evaluator import cost_s
from pgtop_tune.cli.tuning_own_blocks import separate_cost_s
from pgtop_tune.cli.tuning_session import TuningSession
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS
from pgtop_tune.experiment.prediction import Prediction, predict
from pgtop_tune.experiment.switchback.arms import BY_CHECKPOINTS, CYCLES_PER_PAIR
from pgtop_tune.experiment.switchback.block_frames import cycle_s
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.tuning.engines import engine
from pgtop_tune.tuning.on_server.guards import GUARDED, Guards
from pgtop_tune.tuning.on_server.journal import TuningRequest
from pgtop_tune.tuning.on_server.knob_space import (
    PARAMETERS,
    is_machine_group,
    is_machine_knob,
    knob_space,
    machine_space,
    wanted_knobs,
)
from pgtop_tune.tuning.on_server.objective import Objective, constraint, objective
from pgtop_tune.tuning.plan import Dimension, KnobSpace, Space, TuningPlan

_LONGEST_CYCLE_S: Final = 60.0
"""Above, knobs that work through checkpoints are searched only where they are named."""


class SearchRequest(Struct, frozen=True, kw_only=True):
    """What is to be searched.

    Attributes:
        knobs, groups: As typed.
        budget_s: Of all evaluations.
        request: What resuming needs of the rest.
        engine: Name of the search engine.
        worth: The smallest effect worth having, as a share.
        seed: None draws one.
    """

    knobs: tuple[str, ...]
    groups: tuple[str, ...]
    budget_s: float
    request: TuningRequest
    engine: str
    worth: float
    seed: int | None

    def check(self) -> None:
        """Raises UsageProblem for a knob, a group, a constraint or an engine that is none; asks no server."""
        wanted_knobs(self.knobs, self.groups)
        for words in self.request.constraints:
            constraint(words)
        engine(self.engine)


class Beginning(Struct, frozen=True, kw_only=True):
    """The first line of a journal.

    Attributes:
        server: System identifier; "" where it was not to be seen.
        request: With what the profile has filled in.
        left_out: Knobs that cannot be searched on this server, with reasons.
    """

    server: str
    request: TuningRequest
    plan: TuningPlan
    guards: Guards
    left_out: tuple[tuple[str, str], ...]


def objective_of(request: TuningRequest) -> Objective | None:
    """None where another program drives the load: the mix of statements decides."""
    return objective(request.objective, request.rate_per_s) if request.profile else None


async def beginning(session: TuningSession, wanted: SearchRequest) -> Beginning:
    """The plan, after a look at the server under the load, which goes on.

    Raises:
        UsageProblem: No knob can be searched.
        PgtopError: The load does not run, or the server is gone.
    """
    request, knobs = wanted.request, wanted_knobs(wanted.knobs, wanted.groups)
    of_machine = any(map(is_machine_knob, wanted.knobs)) or any(map(is_machine_group, wanted.groups))
    found = await session.parameters((*GUARDED, *PARAMETERS, *(knob.name for knob in knobs)))
    space = knob_space(knobs, found, allow_restart=request.allow_restart, asked=bool(wanted.knobs))
    space = await session.without_refused(space)
    if of_machine or space.dimensions:
        interval = await session.loaded_interval()
        if session.cell is None:
            space = _without_long_cycles(space, interval, wanted.knobs)
    if of_machine:
        space = space.beside(
            machine_space(
                wanted.knobs,
                wanted.groups,
                await session.live.machine.settings(),
                found,
                None if session.facts is None else session.facts.ram_bytes,
                own_load=session.cell is not None,
                allow_restart=request.allow_restart,
            )
        )
    if not space.dimensions:
        raise UsageProblem(
            "there is no knob to search", "; ".join(f"{name}: {why}" for name, why in space.left_out[:5])
        )
    plan = TuningPlan(
        space=Space(space.dimensions),
        budget=wanted.budget_s,
        cost=cost_s(request.block_s, [each.name for each in space.dimensions], loaded=session.cell is not None),
        restart_cost=separate_cost_s(request.block_s, restart=True),
        machine_cost=separate_cost_s(request.block_s, restart=False),
        seed=random.SystemRandom().getrandbits(31) if wanted.seed is None else wanted.seed,
        engine=wanted.engine,
        worth=wanted.worth,
        constraints=tuple(constraint(words) for words in request.constraints),
        predictions=_predictions(space.dimensions, interval, session.objective),
    )
    return Beginning(
        server=session.system_identifier(),
        request=session.asked(request),
        plan=plan,
        guards=session.guards(found, [each.name for each in space.dimensions], request.recovery_s),
        left_out=space.left_out,
    )


def _without_long_cycles(space: KnobSpace, interval: Interval, named: Sequence[str]) -> KnobSpace:
    """Without the knobs of which one evaluation would take hours: those that work through checkpoints far apart."""
    cycle = cycle_s(interval, {})
    if cycle is None or cycle <= _LONGEST_CYCLE_S:
        return space
    minutes = FEWEST_PAIRS * CYCLES_PER_PAIR * cycle / 60.0
    why = f"checkpoints are {cycle:.0f} s apart, so an evaluation takes {minutes:.0f} minutes; --knobs searches it"
    long = [each for each in space.dimensions if each.name in BY_CHECKPOINTS and each.name not in named]
    kept = tuple(each for each in space.dimensions if each not in long)
    return KnobSpace(kept, (*space.left_out, *((each.name, why) for each in long)))


def _predictions(
    dimensions: Sequence[Dimension], interval: Interval, decides: Objective | None
) -> dict[str, Prediction]:
    """What each knob alone can bring at most, as far as the waits of this load tell; WAL or CPU time have no bound."""
    if decides is not None and not decides.bounded:
        return {}
    told = {each.name: predict(interval, [each.name], [("", "")], (), "") for each in dimensions}
    return {name: found for name, found in told.items() if found is not None}
