"""`ab` put together: the watched server, the load, the arms, and where the result goes."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import Struct

from pgtop_tune import __version__
from pgtop_tune.advice.knobs.catalogue import BY_NAME
from pgtop_tune.base.errors import RecordingProblem, ServerProblem, UnsafeChange, UsageProblem
from pgtop_tune.base.foreign_answers import decoding
from pgtop_tune.base.units import counted
from pgtop_tune.bench.profiles import load_profiles, profile_directories
from pgtop_tune.changes.change_sets import ChangeSets, WithRestart, check_up
from pgtop_tune.changes.confirm.orphans import pending_looked_after
from pgtop_tune.changes.model.change import Terms, WantedParameter, WantedSetting
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.cli.assignments import PARAMETER_NAMES, assigned, check_known, checked_name, is_machine_name
from pgtop_tune.cli.changing import confirm, machine_of
from pgtop_tune.cli.commands.ab.request import Keep, SwitchRequest
from pgtop_tune.cli.connecting import can_ask, opened
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.load_targets import first_answer, targets
from pgtop_tune.cli.options import for_seconds
from pgtop_tune.cli.output import say, say_as_it_is, tell
from pgtop_tune.cli.signals import answer_to
from pgtop_tune.cli.wiring import LiveSession
from pgtop_tune.compare.sides.figures import LATENCY, TPS
from pgtop_tune.compare.statement_rows import SAME_MIX
from pgtop_tune.experiment.load_run import LoadRun, RunCell, until_frames_show_it
from pgtop_tune.experiment.prediction import score, score_words
from pgtop_tune.experiment.series import cells
from pgtop_tune.experiment.switchback.arms import (
    BY_CHECKPOINTS,
    CURRENT,
    Arm,
    Arms,
    Lengths,
    Rival,
    RivalSettings,
    as_shown,
    resolved,
    resolved_settings,
)
from pgtop_tune.experiment.switchback.block_frames import BlockFrames
from pgtop_tune.experiment.switchback.plans import StatementPlans
from pgtop_tune.experiment.switchback.separate_blocks import (
    ArmLoads,
    CheckedArms,
    ForeignLoad,
    OwnLoad,
    SeparateBlocks,
    SeparatePlan,
    check_nothing_pending,
)
from pgtop_tune.experiment.switchback.state import (
    ANSWERS,
    Ending,
    RecordFile,
    SwitchbackPlan,
    SwitchbackState,
    switchback_json,
    trials_of,
)
from pgtop_tune.experiment.switchback.switchback import Switchback
from pgtop_tune.experiment.switchback.words import Narrator, ShownStates, result_markdown, result_text
from pgtop_tune.metrics.setting_risks import risk_of
from pgtop_tune.model.backend_action import PlannedBy
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.parameter_values import check_value
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.runtime.run_frames import FrameKeeper
from pgtop_tune.runtime.running_experiments import Announcement, check_alone, server_of

# An experiment on the command line: its lines while it runs, and its record after each pair.


class Progress:
    """Takes states: says what is new, and keeps the record after each pair.

    Args:
        lines: Makes lines of what is new in a state.
        record: Makes the record, as JSON has it.
        file: Where it is kept.
        shown: Takes each state as screens show it.
        announcement: Tells the screens that watch the server.
        quiet: No lines.
    """

    def __init__(
        self,
        lines: Callable[[SwitchbackState], Iterable[str]],
        record: Callable[[SwitchbackState], dict[str, Any]],
        file: RecordFile,
        shown: Callable[[SwitchbackState], object],
        announcement: Announcement,
        *,
        quiet: bool,
    ) -> None:
        self._lines: Final = lines
        self._record: Final = record
        self._file: Final = file
        self._shown: Final = shown
        self._announcement: Final = announcement
        self._quiet: Final = quiet
        self._pairs = 0

    def __call__(self, state: SwitchbackState) -> None:
        self._shown(state)
        self._announcement.tick()
        if not self._quiet:
            for line in self._lines(state):
                tell(line)
        if len(state.pairs) > self._pairs:
            self._pairs = len(state.pairs)
            self._write(state)

    def keep(self, state: SwitchbackState) -> None:
        """The whole record, and where it is."""
        if self._write(state):
            tell(f"record: {self._file.path}")

    def _write(self, state: SwitchbackState) -> bool:
        try:
            self._file.write(self._record(state))
        except RecordingProblem as problem:
            tell(f"not saved: {problem.message}")
            return False
        return True


# `ab` in blocks that are runs of their own: what asks for them, what they refuse, consent to restarts, the parts.

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


def check_compared(request: SwitchRequest, rivals: Sequence[Rival]) -> str:
    """What the arms are: "endpoint", "profile", or "" for values.

    Raises:
        UsageProblem: Nothing, or more than one thing.
    """
    endpoints, profiles = both_endpoints(request.endpoint or ()), both(request.profile or ())
    counts = {"endpoint": len(endpoints), "profile": len(profiles)}
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
    if compared and len(set(endpoints if compared == ["endpoint"] else profiles)) == 1:
        raise UsageProblem(f"A and B are the same {compared[0]}", "pass two different ones")
    if compared and request.keep is Keep.BETTER:
        raise UsageProblem(f"--keep has nothing to keep of an {compared[0]}".replace("an p", "a p"), "leave it out")
    return compared[0] if compared else ""


def is_separate(rivals: Iterable[Rival], found: Iterable[Parameter]) -> bool:
    """Whether blocks in one run do not reach these values; those that take a restart are refused there."""
    return any(is_machine_name(each.name) for each in rivals) or any(each.context in _NEW_SESSIONS for each in found)


def reached(*, restart: bool) -> frozenset[str]:
    """Values of pg_settings.context that separate blocks reach."""
    return _NEW_SESSIONS | _RESTART if restart else _NEW_SESSIONS


def check_separate(request: SwitchRequest) -> None:
    """Raises a UsageProblem where another program drives the load."""
    if request.against_load:
        raise UsageProblem(
            "each block needs a load of its own, and --against-load has none", "leave --against-load out"
        )


@asynccontextmanager
async def separate_blocks(
    request: SwitchRequest,
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
        parts.conninfo, names, beside_server=bool(plan.rivals), with_restart=request.restart and bool(plan.rivals)
    )
    try:
        settings = await resolved_settings(machine, [each for each in rivals if each.name in names])
        for arm in Arm if settings else ():
            await machine.check([WantedSetting(each.name, each.value(arm)) for each in settings])
        meant = _separate_plan(request, plan, compared, settings, loads)
        for name in sorted(BY_CHECKPOINTS.intersection(each.name for each in plan.rivals)):
            tell(f"{name} works through checkpoints, and blocks this short have hardly one")
        of_machine = RivalSettings(machine, settings) if settings else None
        door = WithRestart(session.parameters, service, tell, anyway=False) if request.restart else session.parameters
        sets = ChangeSets(door, machine)
        if request.restart and meant.for_s >= meant.least_s:
            # Nobody is asked about what the experiment refuses for lack of time.
            await _agreed(service, plan.rivals, yes=request.yes, checked=not settings)
        kind = CheckedArms if request.restart else Arms
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
                meant, parts.frames, arms, load, answers, restart if request.restart else None, seen
            ),
        )
    finally:
        await machine.aclose()


def _separate_plan(
    request: SwitchRequest,
    plan: SwitchbackPlan,
    compared: str,
    settings: Sequence[Rival],
    loads: Mapping[Arm, RunCell],
) -> SeparatePlan:
    a, b = loads[Arm.A], loads[Arm.B]
    arms = {"endpoint": (a.target.name, b.target.name), "profile": (a.profile.name, b.profile.name)}
    of_load = (Rival(compared, *arms[compared]),) if compared else ()
    warm_up_s = for_seconds(request.warm_up, "--warmup") or (_COLD_S if request.restart else _WARM_UP_S)
    measured_s = for_seconds(request.block, "--block") or _MEASURED_S
    return SeparatePlan(
        rivals=(*plan.rivals, *settings, *of_load),
        load=plan.load,
        loaded=True,
        for_s=plan.for_s,
        seed=plan.seed,
        lengths=Lengths(warm_up_s, measured_s),
        objective=plan.objective,
        keep_better=plan.keep_better,
        a_in_force=plan.a_in_force,
        around_s=_PREPARED_S + (_RESTARTED_S if request.restart else 0.0),
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


Seen = Callable[[SwitchbackState], None]
_TOLD_BY: Final = frozenset({"throughput", "latency"})
"""Panes of the knobs that can reach TPS."""


def rivals_of(words: Sequence[str]) -> tuple[Rival, ...]:
    """NAME=A,B words, of parameters and of settings of the machine.

    Raises:
        UsageProblem: Something else, or a parameter twice.
    """
    found: dict[str, Rival] = {}
    for word in words:
        name, equals, values = word.partition("=")
        a, comma, b = values.partition(",")
        a, b = assigned(name, a), b.lstrip()
        if not equals or not comma or not a.strip() or not b or "," in b:
            raise UsageProblem(f"{word!r} is not NAME=A,B", "as in max_wal_size=1GB,16GB; A may be current")
        if b.strip().lower() == CURRENT:
            raise UsageProblem(f"{word!r}: only A may be {CURRENT}", f"as in {name}={CURRENT},VALUE")
        a = CURRENT if a.strip().lower() == CURRENT else a
        if is_machine_name(name.strip()):
            checked, a, b = name.strip(), a.strip(), b.strip()
        else:
            checked = checked_name(name.strip())
        if checked.lower() in found:
            raise UsageProblem(f"{checked} is named twice", "pass each parameter once")
        found[checked.lower()] = Rival(checked, a, b)
    return tuple(found.values())


async def switch(request: SwitchRequest) -> int:
    """Makes the experiment, prints its result, and gives the exit status.

    Raises:
        PgtopError: It could not begin; nothing is changed.
    """
    for_s = for_seconds(request.how_long)
    if for_s is None:
        raise UsageProblem("--for needs a time", "pass 5m, 10m or 1h")
    # A time that cannot be read is refused before anything else.
    for_seconds(request.block, "--block")
    for_seconds(request.warm_up, "--warmup")
    live = request.session.live(allow_unsafe=request.allow_unsafe)
    rivals = rivals_of(request.assignments or ())
    parameters = [each for each in rivals if not is_machine_name(each.name)]
    directories = profile_directories(request.profiles)
    compared = check_compared(request, rivals)
    endpoints = both_endpoints(request.endpoint or ())
    async with opened(request.connection) as (sql_session, conninfo):
        places = await targets(endpoints, sql_session, conninfo, from_here=live.load_from is None)
        arrived = sql_session.reached
        with decoding():
            all_names = [str(row[0]) for row in await sql_session.rows(PARAMETER_NAMES)]
    loaded = load_profiles(directories)
    profiles = [loaded.get(name) for name in both(request.profile or ()) or ("tpcb-like",)]
    spec = LoadSpec(threads=request.load.threads, rate_per_s=request.load.rate)
    found_cells = cells(places, profiles, spec, None, clients=request.load.clients, protocol=request.load.protocol)
    loads = {Arm.A: found_cells[0], Arm.B: found_cells[-1]}
    session = LiveSession(conninfo, live, arrived)
    session.load.directories = directories
    session.load.prepare = None
    session.watch_others()
    keeper, frames = FrameKeeper(), BlockFrames(loaded=not request.against_load)
    session.engine.attach(keeper)
    session.engine.attach(frames)
    run = LoadRun(session.load, keeper, session.open_sql_session, tell)
    facts = {"version": __version__, "server": conninfo.describe()}
    results: list[tuple[SwitchbackPlan, SwitchbackState]] = []

    async def work() -> None:
        names = tuple(each.name for each in parameters)
        found = {each.name.lower(): each for each in await session.parameters.list(names)}
        check_known(names, found.values(), all_names)
        separate = compared or request.restart or is_separate(rivals, found.values())
        if separate:
            check_separate(request)
        meant = resolved(parameters, found, reached(restart=request.restart) if separate else frozenset())
        confirmed = _checked(request, parameters, meant, found)
        plan = SwitchbackPlan(
            rivals=meant,
            load="of the server as it is" if request.against_load else _load_words(loads),
            loaded=not request.against_load,
            for_s=for_s,
            seed=random.SystemRandom().getrandbits(32) if request.coin is None else request.coin,
            objective=SAME_MIX if request.against_load else LATENCY if request.load.rate else TPS,
            keep_better=request.keep is Keep.BETTER,
            a_in_force=all(_in_force(rival, found[rival.name.lower()]) for rival in meant),
        )
        await first_answer(session, keeper)
        if (server := server_of(keeper.frames[-1])) is not None:
            # What it switches is pending, too: its hint is the one that helps.
            check_alone(server)
            facts["system_identifier"] = server.system_identifier
        await check_nothing_pending(session.parameters)
        await session.parameters.claim_experiment(names)
        if separate:
            parts = SeparateParts(session=session, run=run, keeper=keeper, frames=frames, conninfo=conninfo)
            async with separate_blocks(request, plan, compared, rivals, loads, confirmed, parts) as made:
                await experiment_of(*made)
            return
        arms = Arms(ChangeSets(session.parameters, None), session.parameters, meant, confirmed)
        load = ForeignLoad() if request.against_load else OwnLoad(run, session.load, loads[Arm.A])
        trials = trials_of(facts["server"], facts.get("system_identifier", ""))
        if words := score_words(score(trials)):
            tell(words)
        plans = (
            None if request.plans is PlannedBy.NOBODY else StatementPlans(session.backends.plan_shape, request.plans)
        )
        await experiment_of(plan, lambda seen: Switchback(plan, frames, arms, load, seen, trials, plans))

    async def experiment_of(plan: SwitchbackPlan, make: Callable[[Seen], Switchback]) -> None:
        """Runs it, with its lines and its record."""
        began_s = time.process_time()

        def record(state: SwitchbackState) -> dict[str, Any]:
            return switchback_json(plan, state, facts | {"own_cpu_s": round(time.process_time() - began_s, 2)})

        names = [rival.name for rival in plan.rivals]
        file = RecordFile(names, time.strftime("%Y%m%d-%H%M%S"))
        shown = ShownStates(plan)
        announcement = Announcement("ab", names, lambda: shown.newest, server_of(keeper.frames[-1]))
        session.engine.attach(announcement)
        seen = Progress(Narrator().lines, record, file, shown.take, announcement, quiet=request.quiet)
        experiment = make(seen)
        announcement.begin()
        try:
            await experiment.run()
        finally:
            announcement.end()
            if experiment.state.ending is not Ending.UNDER_WAY:
                results.append((plan, experiment.state))
                seen.keep(experiment.state)

    async with pending_looked_after(session.parameters, session.machine, live.journal_directory, tell):
        try:
            signalled = await run_beside(session.engine, work)
        finally:
            await session.restart.aclose()
    if not results:
        return ExitCode.SIGNALLED + signalled if signalled else ExitCode.CANNOT_TELL
    plan, state = results[0]
    if request.format == "json":
        say_as_it_is(json.dumps(switchback_json(plan, state, facts), ensure_ascii=True))
    else:
        say(result_markdown(plan, state) if request.format == "markdown" else result_text(plan, state))
    return _status(state.ending, signalled)


def _in_force(rival: Rival, parameter: Parameter) -> bool:
    return as_shown(parameter, rival.a) == as_shown(parameter, parameter.shown)


def _status(ending: Ending, signalled: int | None) -> int:
    if signalled:
        return ExitCode.SIGNALLED + signalled
    if ending in ANSWERS:
        return ExitCode.OK
    return {Ending.FAILED: ExitCode.CHANGE, Ending.ENDED: ExitCode.LOAD}.get(ending, ExitCode.CANNOT_TELL)


def _load_words(loads: Mapping[Arm, RunCell]) -> str:
    """The load of both arms, or of either."""
    return " against ".join(dict.fromkeys(_words_of(cell) for cell in loads.values()))


def _words_of(cell: RunCell) -> str:
    spec = cell.spec
    rate = f" -R {spec.rate_per_s:g}" if spec.rate_per_s else ""
    threads = f" -j {spec.threads}" if spec.threads else ""
    return f"{cell.profile_name or 'scripts'} -c {spec.clients}{threads} -M {spec.protocol}{rate}"


def _checked(
    request: SwitchRequest, typed: Sequence[Rival], meant: Sequence[Rival], found: dict[str, Parameter]
) -> frozenset[str]:
    """Checks values; names that somebody has typed to unlock those that can lose data.

    Raises:
        UsageProblem: A value that the server would not take.
        UnsafeChange: A value that can lose data is to stay.
    """
    confirmed = set(request.confirm or ())
    for as_typed, rival in zip(typed, meant, strict=True):
        parameter = found[rival.name.lower()]
        knob = BY_NAME.get(rival.name.lower())
        if knob is not None and _TOLD_BY.isdisjoint(knob.panes):
            tell(f"{rival.name}: its effect shows in {' and '.join(knob.panes)}, and may not reach TPS")
        for arm in Arm:
            if as_typed.value(arm).lower() == CURRENT:
                continue
            value = rival.value(arm)
            check_value(parameter, value)
            risk = risk_of(rival.name, value, parameter)
            if risk is None:
                continue
            words = f"{rival.name} = {value} {risk.words}"
            if risk.loses_data and arm is Arm.B and request.keep is Keep.BETTER:
                # It ends with the program that has tried it, also where it was confirmed.
                raise UnsafeChange(
                    f"{words}, and --keep better does not keep such a value",
                    "leave --keep out; `pgtop-tune set --allow-unsafe` keeps it; nothing was changed",
                )
            if request.allow_unsafe or not risk.loses_data:
                tell(words)
                if rival.name not in confirmed and can_ask():
                    confirmed.add(answer_to(f"type {rival.name} to unlock it: "))
    return frozenset(confirmed)
