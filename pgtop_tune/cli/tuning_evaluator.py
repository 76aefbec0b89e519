"""What measures the evaluations of a search: blocks, the load, and the doors to the server and its machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Final

from pgtop_tune.base.errors import HostProblem, ServerProblem, UsageProblem
from pgtop_tune.changes.ports import MachineControl, ParameterControl
from pgtop_tune.cli.machine_half import machine_of
from pgtop_tune.cli.output import tell
from pgtop_tune.cli.tuning_own_blocks import OwnBlocks, separate_lengths
from pgtop_tune.cli.tuning_session import TuningSession
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS
from pgtop_tune.experiment.switchback.arms import BY_CHECKPOINTS, SETTLE_S, Lengths, by_name
from pgtop_tune.experiment.switchback.block_frames import OwnCycles, own_pair_s
from pgtop_tune.experiment.switchback.separate_blocks import check_nothing_pending
from pgtop_tune.tuning.on_server.evaluating import EvaluatingParts, Evaluator, Seen
from pgtop_tune.tuning.plan import TuningPlan

_LONGEST_S: Final = 1800.0
"""Of one evaluation."""
_WATCHDOG_S: Final = 180.0
_SWITCHES_S: Final = 15.0
"""Of an evaluation, beside its blocks: checks of both arms, changes."""


def lengths(block_s: float) -> Lengths:
    """Of a block that measures so long; half of that is left out before it, five seconds at most."""
    return Lengths(settle_s=min(SETTLE_S, block_s / 2.0), measured_s=block_s)


def cost_s(block_s: float, knobs: Collection[str], *, loaded: bool) -> float:
    """What an evaluation without a restart takes, as assumed before the first: the longest of those that can come."""
    by_checkpoints = loaded and not BY_CHECKPOINTS.isdisjoint(knobs)
    pair_s = own_pair_s(cycle_of(block_s)) if by_checkpoints else lengths(block_s).pair_s
    return _SWITCHES_S + FEWEST_PAIRS * pair_s


def cycle_of(block_s: float) -> float:
    """Of a block that lies between two CHECKPOINTs, as long as one with a load of its own."""
    return separate_lengths(block_s, restart=False).measured_s


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
        own_blocks, own_cycles = None, await _own_cycles(session, plan, block_s)
        if any(each.separate for each in plan.space.dimensions):
            settings = frozenset(each.name for each in plan.space.dimensions if each.machine)
            own_blocks = OwnBlocks(
                session.live,
                machine,
                settings,
                session.run,
                session.keeper,
                session.cell,
                before_set,
                block_s,
                own_cycles,
            )
        if own_blocks is not None and any(each.restart for each in plan.space.dimensions):
            await own_blocks.agree(plan.space.values(plan.space.start), yes=yes)
        parts = EvaluatingParts(
            control=session.live.parameters,
            load=session.load,
            blocks=session.blocks,
            own_blocks=own_blocks,
            machine=machine,
            seen=seen,
            before_set=before_set,
            own_cycles=own_cycles,
        )
        yield Evaluator(parts, plan.space, session.objective, session.load_words, lengths(block_s), _LONGEST_S)


async def _own_cycles(session: TuningSession, plan: TuningPlan, block_s: float) -> OwnCycles | None:
    """None where no knob works through checkpoints, another program drives the load, or the role may not CHECKPOINT."""
    if session.cell is None or BY_CHECKPOINTS.isdisjoint(each.name for each in plan.space.dimensions):
        return None
    try:
        await session.checkpoint()
    except ServerProblem as refused:
        tell(f"blocks wait for checkpoints of the server: {refused.message}")
        return None
    return OwnCycles(cycle_of(block_s), session.checkpoint)


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
