"""`ab` in blocks that are runs of their own: what asks for them, what they refuse, consent to restarts, the parts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pgtop_tune.changes.change_sets import ChangeSets, WithRestart, check_up
from pgtop_tune.changes.model.change import Terms, WantedParameter, WantedSetting
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.cli.machine_half import is_machine_name, machine_of
from pgtop_tune.cli.output import tell
from pgtop_tune.cli.restarting import confirm
from pgtop_tune.cli.wiring import LiveSession
from pgtop_tune.errors import ServerProblem, UsageProblem
from pgtop_tune.experiment.answering import until_frames_show_it
from pgtop_tune.experiment.load_run import LoadRun
from pgtop_tune.experiment.run_cell import RunCell
from pgtop_tune.experiment.switchback.arms import Arms, Rival
from pgtop_tune.experiment.switchback.block_frames import BlockFrames
from pgtop_tune.experiment.switchback.blocks import BY_CHECKPOINTS, Arm, Lengths
from pgtop_tune.experiment.switchback.loads import ArmLoads
from pgtop_tune.experiment.switchback.machine_arms import RivalSettings, resolved_settings
from pgtop_tune.experiment.switchback.separate_blocks import CheckedArms, SeparateBlocks, SeparatePlan
from pgtop_tune.experiment.switchback.state import SwitchbackPlan, SwitchbackState
from pgtop_tune.experiment.switchback.switchback import Switchback
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.runtime.run_frames import FrameKeeper
from pgtop_tune.units import counted

if TYPE_CHECKING:
    from pgtop_tune.cli.switching import SwitchRequest

_NEW_SESSIONS: Final = frozenset({"backend", "superuser-backend"})
_RESTART: Final = frozenset({"postmaster"})
"""Values of pg_settings.context."""
_MEASURED_S: Final = 30.0
_WARM_UP_S: Final = 10.0
_COLD_S: Final = 20.0
"""Of a warm-up after a restart."""
_PREPARED_S: Final = 5.0
_RESTARTED_S: Final = 10.0
_NEXT_ENDPOINT: Final = re.compile(r",(?=[A-Za-z][\w.-]*=)")


class SeparateParts(Struct, frozen=True, kw_only=True):
    """What the experiment is made of."""

    session: LiveSession
    run: LoadRun
    keeper: FrameKeeper
    frames: BlockFrames
    conninfo: ConnInfo


def both(words: Sequence[str]) -> tuple[str, ...]:
    """Profiles as typed, one by one or "A,B"."""
    return tuple(name.strip() for word in words for name in word.split(",") if name.strip())


def both_endpoints(words: Sequence[str]) -> tuple[str, ...]:
    """Endpoints as typed, one by one or "NAME=ADDRESS,NAME=ADDRESS"."""
    return tuple(each for word in words for each in _NEXT_ENDPOINT.split(word))


def check_compared(wanted: SwitchRequest, rivals: Sequence[Rival]) -> str:
    """What the arms are: "endpoint", "profile", or "" for values.

    Raises:
        UsageProblem: Nothing, or more than one thing.
    """
    counts = {"endpoint": len(wanted.endpoints), "profile": len(wanted.profiles)}
    for what, count in counts.items():
        if count > 2:
            raise UsageProblem(f"{count} {what}s: an experiment compares two", "`pgtop-tune experiment` runs plans")
    compared = [what for what, count in counts.items() if count == 2]
    if not compared and not rivals:
        hint = "as in max_wal_size=1GB,16GB; A may be current. Or two of --profile, or two of --endpoint"
        raise UsageProblem("nothing to compare", hint)
    if len(compared) + bool(rivals) > 1:
        several = (*compared, *(each.name for each in rivals))
        raise UsageProblem(f"{' and '.join(several)} differ at once", "compare one of them; a plan compares several")
    if compared and len(set(wanted.endpoints if compared == ["endpoint"] else wanted.profiles)) == 1:
        raise UsageProblem(f"A and B are the same {compared[0]}", "pass two different ones")
    if compared and wanted.keep_better:
        raise UsageProblem(f"--keep has nothing to keep of an {compared[0]}".replace("an p", "a p"), "leave it out")
    return compared[0] if compared else ""


def is_separate(rivals: Iterable[Rival], found: Iterable[Parameter]) -> bool:
    """Whether blocks in one run do not reach these values; those that take a restart are refused there."""
    return any(is_machine_name(each.name) for each in rivals) or any(each.context in _NEW_SESSIONS for each in found)


def reached(*, restart: bool) -> frozenset[str]:
    """Values of pg_settings.context that separate blocks reach."""
    return _NEW_SESSIONS | _RESTART if restart else _NEW_SESSIONS


def check_separate(wanted: SwitchRequest) -> None:
    """Raises a UsageProblem where another program drives the load."""
    if wanted.against_load:
        raise UsageProblem(
            "each block needs a load of its own, and --against-load has none", "leave --against-load out"
        )


@asynccontextmanager
async def separate_blocks(
    wanted: SwitchRequest,
    plan: SwitchbackPlan,
    compared: str,
    rivals: Sequence[Rival],
    loads: Mapping[Arm, RunCell],
    confirmed: frozenset[str],
    parts: SeparateParts,
) -> AsyncIterator[tuple[SeparatePlan, Callable[[Callable[[SwitchbackState], None]], Switchback]]]:
    """The plan, and what makes the experiment; the door to the machine is closed on the way out.

    Args:
        plan: As for one run, with the parameters.
        compared: "endpoint" or "profile" where loads are compared.
        rivals: As typed.

    Raises:
        PgtopError: The arms cannot be had here, or nobody agrees to restarts; nothing is changed.
    """
    session, service = parts.session, parts.session.restart
    names = [each.name for each in rivals if is_machine_name(each.name)]
    machine = await machine_of(
        parts.conninfo, names, beside_server=bool(plan.rivals), with_restart=wanted.restart and bool(plan.rivals)
    )
    try:
        settings = await resolved_settings(machine, [each for each in rivals if each.name in names])
        for arm in Arm if settings else ():
            await machine.check([WantedSetting(each.name, each.value(arm)) for each in settings])
        meant = _separate_plan(wanted, plan, compared, settings, loads)
        for name in sorted(BY_CHECKPOINTS.intersection(each.name for each in plan.rivals)):
            tell(f"{name} works through checkpoints, and blocks this short have hardly one")
        of_machine = RivalSettings(machine, settings) if settings else None
        door = WithRestart(session.parameters, service, tell, anyway=False) if wanted.restart else session.parameters
        sets = ChangeSets(door, machine)
        if wanted.restart and meant.for_s >= meant.least_s:
            # Nobody is asked about what the experiment refuses for lack of time.
            await _agreed(service, plan.rivals, yes=wanted.yes, checked=not settings)
        kind = CheckedArms if wanted.restart else Arms
        arms = kind(sets, session.parameters, plan.rivals, confirmed, of_machine, door)
        load = ArmLoads(parts.run, session.load, loads)

        async def answers() -> None:
            await until_frames_show_it(session.open_sql_session, parts.keeper)

        async def restart() -> None:
            outcome = await service.apply((), Terms(), tell)
            check_up(outcome)
            tell(outcome.words)

        yield (
            meant,
            lambda seen: SeparateBlocks(
                meant, parts.frames, arms, load, answers, restart if wanted.restart else None, seen
            ),
        )
    finally:
        await machine.aclose()


def _separate_plan(
    wanted: SwitchRequest,
    plan: SwitchbackPlan,
    compared: str,
    settings: Sequence[Rival],
    loads: Mapping[Arm, RunCell],
) -> SeparatePlan:
    a, b = loads[Arm.A], loads[Arm.B]
    arms = {"endpoint": (a.target.name, b.target.name), "profile": (a.profile.name, b.profile.name)}
    of_load = (Rival(compared, *arms[compared]),) if compared else ()
    warm_up_s = wanted.warm_up_s
    if warm_up_s is None:
        warm_up_s = _COLD_S if wanted.restart else _WARM_UP_S
    return SeparatePlan(
        rivals=(*plan.rivals, *settings, *of_load),
        load=plan.load,
        loaded=True,
        for_s=plan.for_s,
        seed=plan.seed,
        lengths=Lengths(warm_up_s, _MEASURED_S if wanted.block_s is None else wanted.block_s),
        objective=plan.objective,
        keep_better=plan.keep_better,
        a_in_force=plan.a_in_force,
        around_s=_PREPARED_S + (_RESTARTED_S if wanted.restart else 0.0),
    )


async def _agreed(service: RestartService, rivals: Sequence[Rival], *, yes: bool, checked: bool) -> None:
    """Somebody has to want that sessions are cut off.

    Args:
        checked: Whether both arms are looked at now; with settings of the machine that is done once they are in force.

    Raises:
        UsageProblem: Something waits for a restart already, or nobody can be asked.
        ServerProblem: The server would not start with an arm, cannot be restarted from here, or nobody says yes.
    """
    for arm in Arm:
        wanted = [WantedParameter(rival.name, rival.value(arm)) for rival in rivals]
        plan = await service.plan(wanted if checked else ())
        if others := [each for each in plan.pending if each.name not in {want.name for want in wanted}]:
            waiting = ", ".join(each.name for each in others)
            raise UsageProblem(
                f"{waiting} waits for a restart already, which would apply it", "`pgtop-tune set --restart` first"
            )
        if not plan.by_us:
            raise ServerProblem(
                f"pgtop-tune cannot restart the server: {plan.why_not}",
                "judge it on a staging server, or judge parameters that a reload applies",
            )
        if arm is Arm.B:
            ends = f"ends {counted(plan.sessions, 'session')} now"
            tell(f"the server is restarted before each block, eight times at least; a restart {ends}")
        # Only the first is asked about; the second is looked at.
        confirm(plan, yes=yes or arm is Arm.A, anyway=False)
