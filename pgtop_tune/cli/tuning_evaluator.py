"""What measures the evaluations of a search: blocks, the load, and the doors to the server and its machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from pgtop_tune.changes.ports import MachineControl, ParameterControl
from pgtop_tune.cli.machine_half import machine_of
from pgtop_tune.cli.tuning_own_blocks import OwnBlocks
from pgtop_tune.cli.tuning_session import TuningSession
from pgtop_tune.errors import HostProblem, UsageProblem
from pgtop_tune.experiment.switchback.blocks import SETTLE_S, Lengths
from pgtop_tune.experiment.switchback.machine_arms import by_name
from pgtop_tune.experiment.switchback.undisturbed import check_nothing_pending
from pgtop_tune.tuning.on_server.evaluating import Evaluator
from pgtop_tune.tuning.on_server.evaluating_parts import EvaluatingParts, Seen
from pgtop_tune.tuning.plan import TuningPlan

_LONGEST_S: Final = 1800.0
"""Of one evaluation."""
_WATCHDOG_S: Final = 180.0


def lengths(block_s: float) -> Lengths:
    """Of a block that measures so long; half of that is left out before it, five seconds at most."""
    return Lengths(settle_s=min(SETTLE_S, block_s / 2.0), measured_s=block_s)


async def until_nothing_pends(control: ParameterControl | MachineControl) -> None:
    """Waits for revert watchdogs of a search that was killed. Raises a UsageProblem where a change goes on pending."""
    deadline_s = time.monotonic() + _WATCHDOG_S
    while True:
        try:
            await check_nothing_pending(control)
            return
        except UsageProblem:
            if time.monotonic() > deadline_s:
                raise
        await asyncio.sleep(1.0)


@asynccontextmanager
async def evaluator_of(
    session: TuningSession,
    plan: TuningPlan,
    block_s: float,
    *,
    yes: bool,
    before_set: Callable[[str], None],
    seen: Seen,
) -> AsyncIterator[Evaluator]:
    """What measures; its door to the machine is closed on the way out.

    Args:
        session: With the load.
        plan: Of the search.
        block_s: Of a block in one run.
        yes: Nobody is asked before restarts.
        before_set: Told the id of a change set before it is made.
        seen: Takes each state of an evaluation.

    Raises:
        UsageProblem: A change is pending confirmation, or nobody can be asked.
        ServerProblem: The server cannot be restarted from here, or nobody says yes.
        HostProblem: Settings of the machine cannot be changed from here.
    """
    async with _machine(session, plan) as machine:
        own_blocks = None
        if any(each.separate for each in plan.space.dimensions):
            settings = frozenset(each.name for each in plan.space.dimensions if each.machine)
            own_blocks = OwnBlocks(
                session.live, machine, settings, session.run, session.keeper, session.cell, before_set, block_s
            )
        if own_blocks is not None and any(each.restart for each in plan.space.dimensions):
            await own_blocks.agree(yes=yes)
        parts = EvaluatingParts(
            control=session.live.parameters,
            load=session.load,
            blocks=session.blocks,
            own_blocks=own_blocks,
            machine=machine,
            seen=seen,
            before_set=before_set,
        )
        yield Evaluator(parts, plan.space, session.objective, session.load_words, lengths(block_s), _LONGEST_S)


@asynccontextmanager
async def _machine(session: TuningSession, plan: TuningPlan) -> AsyncIterator[MachineControl | None]:
    """The door to the settings of the machine that the search turns; None where it turns none.

    Raises:
        UsageProblem: A change of one is pending confirmation.
        HostProblem: They cannot be changed from here.
    """
    settings = {each.name for each in plan.space.dimensions if each.machine}
    if not settings:
        yield None
        return
    with_restart = any(each.restart for each in plan.space.dimensions)
    machine = await machine_of(session.conninfo, sorted(settings), beside_server=True, with_restart=with_restart)
    try:
        await until_nothing_pends(machine)
        closed = [name for name, each in by_name(await machine.settings()).items() if not each.writable]
        if closed := sorted(settings.intersection(closed)):
            raise HostProblem(f"{closed[0]} cannot be written by this process", "run this as root")
        yield machine
    finally:
        await machine.aclose()
