"""The cells of a plan in their order: expensive dimensions outermost, random within blocks by a recorded seed. Pure.

Outermost is the scale, then the repeats, then the arms (restarts and settings of the machine) in random order, so that
a machine that drifts favours none of them; innermost are endpoints, profiles and clients, again in random order.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping, Sequence

from pgtop_tune.experiment.plan.model import Arm, Cell, ExperimentPlan, Stage


def seed_of(plan: ExperimentPlan) -> int:
    """The plan's, or one made of its text: the same file has the same order."""
    return zlib.crc32(plan.text.encode()) & 0x7FFFFFFF if plan.seed is None else plan.seed


def stages_of(
    plan: ExperimentPlan,
    arms: Sequence[Arm],
    scales: Sequence[int],
    clients: Sequence[int],
    impossible: Mapping[tuple[str, str, int], str],
) -> tuple[Stage, ...]:
    """All stages, with their cells numbered as they run.

    Args:
        plan: The plan.
        arms: Resolved, in the plan's order.
        scales, clients: Resolved.
        impossible: (arm, endpoint, clients) to the reason why such cells cannot run.
    """
    chance = random.Random(seed_of(plan))
    stages: list[Stage] = []
    number = 1
    for scale in scales:
        made = False
        for repeat in range(1, plan.repeats + 1):
            order = list(arms)
            chance.shuffle(order)
            for arm in order:
                inner = [
                    (endpoint.name, profile, count)
                    for endpoint in plan.endpoints
                    for profile in plan.profiles
                    for count in clients
                ]
                chance.shuffle(inner)
                cells = tuple(
                    Cell(
                        number=number + place,
                        arm=arm.name,
                        scale=scale,
                        endpoint=endpoint,
                        profile=profile,
                        clients=count,
                        repeat=repeat,
                        impossible=arm.impossible or impossible.get((arm.name, endpoint, count), ""),
                    )
                    for place, (endpoint, profile, count) in enumerate(inner)
                )
                number += len(cells)
                anew = not arm.impossible and (plan.data_per_configuration or not made)
                made = made or anew
                stages.append(Stage(number=len(stages) + 1, arm=arm.name, scale=scale, make_data=anew, cells=cells))
    return tuple(stages)
