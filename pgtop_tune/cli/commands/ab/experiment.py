"""`ab`: the watched server, the load, the two arms, and the output of the result."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from msgspec.structs import asdict

from pgtop_tune import __version__
from pgtop_tune.advice.knobs.catalogue import BY_NAME
from pgtop_tune.base.errors import RecordingProblem, ServerProblem, UnsafeChange, UsageProblem
from pgtop_tune.base.units import counted, duration
from pgtop_tune.bench.profiles import load_profiles, profile_directories
from pgtop_tune.changes.change_sets import ChangeSets, WithRestart
from pgtop_tune.changes.confirm.orphans import pending_looked_after
from pgtop_tune.changes.model.change import WantedParameter, WantedSetting
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.cli.assignments import assigned, checked_name, is_machine_name
from pgtop_tune.cli.commands.ab import AbRequest, Keep
from pgtop_tune.cli.connections import live_options, opened
from pgtop_tune.cli.detached import start_detached
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.options import TableFormat, for_seconds
from pgtop_tune.cli.output import can_ask, say, say_as_it_is, tell
from pgtop_tune.cli.parameter_changes import check_known, check_nothing_waits, confirm, machine_of, restart
from pgtop_tune.cli.signals import answer_to
from pgtop_tune.cli.typed_load import TypedLoad, tell_unused, typed_load
from pgtop_tune.cli.wiring import LiveSession, first_answer, targets
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
    NOT_RESTORED,
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
from pgtop_tune.model.parameter_values import check_value
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.runtime.run_frames import FrameKeeper
from pgtop_tune.runtime.running_experiments import Announcement, ServerKey, check_alone, server_of

# The lines of an experiment while it runs, and its record after each pair.


class ExperimentReporter:
    """The receiver of an experiment's states: it prints their news, and saves the record after each pair.

    Args:
        record: Makes the record of a state.
        server: The server on which the experiment is announced to screens; None announces it on none.
        quiet: Print no lines.
    """

    def __init__(
        self,
        plan: SwitchbackPlan,
        record: Callable[[SwitchbackState], dict[str, Any]],
        server: ServerKey | None,
        *,
        quiet: bool,
    ) -> None:
        names = [rival.name for rival in plan.rivals]
        displayed = self._displayed = ShownStates(plan)
        self.announcement: Final = Announcement("ab", names, lambda: displayed.newest, server)
        self._record: Final = record
        self._file: Final = RecordFile(names, time.strftime("%Y%m%d-%H%M%S"))
        self._narrator: Final = Narrator()
        self._quiet: Final = quiet
        self._pairs = 0

    def __call__(self, state: SwitchbackState) -> None:
        self._displayed.take(state)
        self.announcement.tick()
        if not self._quiet:
            for line in self._narrator.lines(state):
                tell(line)
        if len(state.pairs) > self._pairs:
            self._pairs = len(state.pairs)
            self._save(state)

    def save(self, state: SwitchbackState) -> None:
        """Save the whole record, and say where."""
        if self._save(state):
            tell(f"record: {self._file.path}")

    def _save(self, state: SwitchbackState) -> bool:
        try:
            self._file.write(self._record(state))
        except RecordingProblem as problem:
            tell(f"not saved: {problem.message}")
            return False
        return True


# The options: rivals, profiles and endpoints.

_NEW_SESSIONS: Final = frozenset({"backend", "superuser-backend"})
_RESTART: Final = frozenset({"postmaster"})
"""Values of pg_settings.context."""
_MEASURED_S: Final = 30.0
_WARM_UP_S: Final = 10.0
_COLD_S: Final = 20.0
"""Warm-up after a restart."""
_PREPARED_S: Final = 5.0
_RESTARTED_S: Final = 10.0
_NEXT_ENDPOINT: Final = re.compile(r",(?=[A-Za-z][\w.-]*=)")
_TPS_PANES: Final = frozenset({"throughput", "latency"})
"""Panes of the knobs that can affect TPS."""


def rivals_of(assignments: Sequence[str]) -> tuple[Rival, ...]:
    """Return the rivals of NAME=A,B words: parameters and settings of the machine.

    Raises:
        UsageProblem: A word has another form, or names a parameter again.
    """
    rivals: dict[str, Rival] = {}
    for word in assignments:
        name, equals, values = word.partition("=")
        a, comma, b = values.partition(",")
        a, b = assigned(name, a), b.lstrip()
        if not equals or not comma or not a.strip() or not b or "," in b:
            raise UsageProblem(f"{word!r} is not NAME=A,B", "as in max_wal_size=1GB,16GB; A may be `current`")
        if b.strip().lower() == CURRENT:
            raise UsageProblem(f"{word!r}: only A may be {CURRENT}", f"as in {name}={CURRENT},VALUE")
        a = CURRENT if a.strip().lower() == CURRENT else a
        name = name.strip()
        if is_machine_name(name):
            a, b = a.strip(), b.strip()
        else:
            name = checked_name(name)
        if name.lower() in rivals:
            raise UsageProblem(f"{name} is named twice", "pass each parameter once")
        rivals[name.lower()] = Rival(name, a, b)
    return tuple(rivals.values())


def compared_loads(request: AbRequest, profiles: Sequence[str], rivals: Sequence[Rival]) -> tuple[str, tuple[str, ...]]:
    """Return the kind of the arms, "endpoint", "profile" or "" for values, and the typed endpoints.

    Raises:
        UsageProblem: Nothing, or more than one thing is compared.
    """
    endpoints = tuple(address for word in request.endpoint or () for address in _NEXT_ENDPOINT.split(word))
    counts = {"endpoint": len(endpoints), "profile": len(profiles)}
    for kind, count in counts.items():
        if count > 2:
            raise UsageProblem(
                f"{count} {kind}s given, but `ab` compares two", "`pgtop-tune experiment run` compares several"
            )
    compared = [kind for kind, count in counts.items() if count == 2]
    if not compared and not rivals:
        hint = "pass NAME=A,B as in max_wal_size=1GB,16GB, or two of --profile, or two of --endpoint"
        raise UsageProblem("nothing to compare", hint)
    if len(compared) + bool(rivals) > 1:
        several = (*compared, *(rival.name for rival in rivals))
        raise UsageProblem(
            f"{' and '.join(several)} differ at once",
            "compare one of them; `pgtop-tune experiment run` compares several",
        )
    if compared and len(set(endpoints if compared == ["endpoint"] else profiles)) == 1:
        raise UsageProblem(f"A and B are the same {compared[0]}", "pass two different ones")
    if compared and request.keep is Keep.BETTER:
        raise UsageProblem(f"--keep does not apply to an {compared[0]}".replace("an p", "a p"), "leave --keep out")
    return (compared[0] if compared else ""), endpoints


def run_ab(request: AbRequest) -> int:
    """Make an experiment, print its result, and return the exit status.

    Raises:
        PgtopError: The experiment could not begin; nothing is changed.
    """
    if request.detach:
        return start_detached(["ab"])
    if request.plans is not PlannedBy.NOBODY and not request.against_load:
        raise UsageProblem(
            "--plans needs --against-load", "leave --plans out: the statements of a pgtop-tune load are known"
        )
    if request.against_load and request.endpoint:
        raise UsageProblem("--against-load starts no load that an --endpoint could lead", "leave --endpoint out")
    if request.against_load and not request.quiet:
        tell_unused(request.load)
    for_s = for_seconds(request.how_long)
    if for_s is None:
        raise UsageProblem("--for needs a duration", "pass 5m, 10m or 1h")
    # Wrong times are refused before the server is asked.
    for_seconds(request.block, "--block")
    for_seconds(request.warm_up, "--warmup")
    with typed_load(request.load, request.session.pgbench) as load:
        return asyncio.run(AbExperiment(request, load, for_s).run())


class AbExperiment:
    """An experiment on the command line.

    Args:
        load: The load of the options.
        for_s: Its longest time.

    Raises:
        UsageProblem: The options do not say what is compared.
    """

    def __init__(self, request: AbRequest, load: TypedLoad, for_s: float) -> None:
        self._request: Final = request
        self._load: Final = load
        self._for_s: Final = for_s
        self._live: Final = live_options(request.session, allow_unsafe=request.allow_unsafe)
        self._rivals: Final = rivals_of(request.assignments or ())
        self._compared, self._endpoints = compared_loads(request, load.profiles, self._rivals)
        self._keeper: Final = FrameKeeper()
        self._frames: Final = BlockFrames(loaded=not request.against_load)
        self._facts = {"version": __version__}
        self._result: tuple[SwitchbackPlan, SwitchbackState] | None = None

    async def run(self) -> int:
        """Run the experiment, print its result, and return the exit status. Raises as `run_ab`."""
        request, live = self._request, self._live
        directories = profile_directories(request.profiles)
        async with opened(request.connection) as (sql_session, conninfo):
            places = await targets(self._endpoints, sql_session, conninfo, from_here=not live.load_from)
            reached = sql_session.reached
        loaded, load = load_profiles(directories), self._load
        profiles = [loaded.get(name) for name in load.profiles]
        loads = cells(
            places,
            profiles,
            load.spec,
            None,
            clients=load.clients,
            protocol=load.protocol,
            allow_shell=load.allow_shell,
        )
        self._loads = {Arm.A: loads[0], Arm.B: loads[-1]}
        self._facts["server"] = conninfo.describe()
        self._conninfo = conninfo
        session = self._session = LiveSession(conninfo, live, reached)
        session.load.directories = directories
        session.load.prepare = None
        session.watch_others()
        session.engine.attach(self._keeper)
        session.engine.attach(self._frames)
        self._load_run = LoadRun(session.load, self._keeper, session.open_sql_session, tell)
        async with pending_looked_after(session.parameters, session.machine, live.journal_directory, tell):
            try:
                signalled = await run_beside(session.engine, self._work)
            finally:
                await session.restart.aclose()
        if self._result is None and request.dry_run and not signalled:
            return ExitCode.OK
        if self._result is None:
            return ExitCode.SIGNALLED + signalled if signalled else ExitCode.CANNOT_TELL
        plan, state = self._result
        if request.format is TableFormat.JSON:
            say_as_it_is(json.dumps(switchback_json(plan, state, self._facts), ensure_ascii=True))
        else:
            say(result_markdown(plan, state) if request.format is TableFormat.MARKDOWN else result_text(plan, state))
        if signalled:
            return ExitCode.SIGNALLED + signalled
        if state.afterwards.startswith(NOT_RESTORED):
            return ExitCode.CHANGE
        if state.ending in ANSWERS:
            return ExitCode.OK
        failures = {Ending.FAILED: ExitCode.CHANGE, Ending.ENDED: ExitCode.LOAD}
        return failures.get(state.ending, ExitCode.CANNOT_TELL)

    async def _work(self) -> None:
        request, session, control = self._request, self._session, self._session.parameters
        typed = [rival for rival in self._rivals if not is_machine_name(rival.name)]
        names = tuple(rival.name for rival in typed)
        parameters = {parameter.name.lower(): parameter for parameter in await control.list(names)}
        await check_known(names, parameters.values(), session.open_sql_session)
        has_machine = len(typed) < len(self._rivals)
        separate = has_machine or self._compared or request.restart
        separate = separate or any(parameter.context in _NEW_SESSIONS for parameter in parameters.values())
        if separate and request.against_load:
            raise UsageProblem(
                "each block needs its own load, and --against-load starts none", "leave --against-load out"
            )
        # Blocks in one run refuse values that take a restart.
        contexts = _NEW_SESSIONS | _RESTART if request.restart else _NEW_SESSIONS
        rivals = resolved(typed, parameters, contexts if separate else frozenset())
        confirmed = _checked(request, typed, rivals, parameters)
        load = " against ".join(dict.fromkeys(_load_words(cell) for cell in self._loads.values()))
        plan = SwitchbackPlan(
            rivals=rivals,
            load="already on the server" if request.against_load else load,
            loaded=not request.against_load,
            for_s=self._for_s,
            seed=random.SystemRandom().getrandbits(32) if request.coin is None else request.coin,
            objective=SAME_MIX if request.against_load else LATENCY if request.load.rate else TPS,
            keep_better=request.keep is Keep.BETTER,
            a_in_force=all(_in_force(rival, parameters[rival.name.lower()]) for rival in rivals),
        )
        if request.dry_run:
            kind = "a run for each block" if separate else "one continuous load"
            for rival in rivals or self._rivals:
                say(f"{rival.name}: A {rival.a}, B {rival.b}")
            say(f"load: {plan.load}; {kind}, at most {duration(self._for_s)}; nothing was changed")
            return
        await first_answer(session, self._keeper)
        if (server := server_of(self._keeper.frames[-1])) is not None:
            # A parameter that another experiment switches is pending, too: its hint is the one that helps.
            check_alone(server)
            self._facts["system_identifier"] = server.system_identifier
        await check_nothing_pending(control)
        await control.claim_experiment(names)
        if separate:
            await self._run_separate_blocks(plan, confirmed)
            return
        arms = Arms(ChangeSets(control, None), control, rivals, confirmed)
        trials = trials_of(self._facts["server"], self._facts.get("system_identifier", ""))
        if accuracy := score_words(score(trials)):
            tell(accuracy)
        own_load = OwnLoad(self._load_run, session.load, self._loads[Arm.A])
        continuous = ForeignLoad() if request.against_load else own_load
        planner = StatementPlans(session.backends.plan_shape, request.plans)
        plans = None if request.plans is PlannedBy.NOBODY else planner
        await self._run_experiment(
            plan, lambda take: Switchback(plan, self._frames, arms, continuous, take, trials, plans)
        )

    async def _run_experiment(
        self, plan: SwitchbackPlan, make: Callable[[Callable[[SwitchbackState], None]], Switchback]
    ) -> None:
        """Run an experiment with its lines and its record.

        Args:
            make: Makes it from the function that takes its states.
        """
        began_s = time.process_time()

        def record(state: SwitchbackState) -> dict[str, Any]:
            return switchback_json(plan, state, self._facts | {"own_cpu_s": round(time.process_time() - began_s, 2)})

        reporter = ExperimentReporter(plan, record, server_of(self._keeper.frames[-1]), quiet=self._request.quiet)
        self._session.engine.attach(reporter.announcement)
        experiment = make(reporter)
        reporter.announcement.begin()
        try:
            await experiment.run()
        finally:
            reporter.announcement.end()
            if experiment.state.ending is not Ending.UNDER_WAY:
                self._result = plan, experiment.state
                reporter.save(experiment.state)

    async def _run_separate_blocks(self, plan: SwitchbackPlan, confirmed: frozenset[str]) -> None:
        """Run an experiment of which each block is a run of its own.

        Args:
            plan: The plan, as for an experiment in one run, with the parameters.

        Raises:
            PgtopError: The arms cannot be had here, or the operator refuses the restarts; nothing is changed.
        """
        request, session = self._request, self._session
        control, service, restarts = session.parameters, session.restart, request.restart
        typed = [rival for rival in self._rivals if is_machine_name(rival.name)]
        machine = await machine_of(
            self._conninfo,
            [rival.name for rival in typed],
            beside_server=bool(plan.rivals),
            with_restart=restarts and bool(plan.rivals),
        )
        async with aclosing(machine):
            settings = await resolved_settings(machine, typed)
            for arm in Arm if settings else ():
                await machine.check([WantedSetting(rival.name, rival.value(arm)) for rival in settings])
            separate_plan = self._separate_plan(plan, settings)
            for name in sorted(BY_CHECKPOINTS.intersection(rival.name for rival in plan.rivals)):
                tell(f"{name} takes effect through checkpoints, and blocks this short hardly contain one")
            setter = WithRestart(control, service, tell, anyway=False) if restarts else control
            if restarts and separate_plan.for_s >= separate_plan.least_s:
                # The experiment refuses shorter times: no consent is needed for them.
                await _confirm_restarts(service, plan.rivals, yes=request.yes, checks_now=not settings)
            arms = (CheckedArms if restarts else Arms)(
                ChangeSets(setter, machine),
                control,
                plan.rivals,
                confirmed,
                RivalSettings(machine, settings) if settings else None,
                setter,
            )
            loads = ArmLoads(self._load_run, session.load, self._loads)

            async def answers() -> None:
                await until_frames_show_it(session.open_sql_session, self._keeper)

            restart_server = partial(restart, service) if restarts else None
            await self._run_experiment(
                separate_plan,
                lambda take: SeparateBlocks(separate_plan, self._frames, arms, loads, answers, restart_server, take),
            )

    def _separate_plan(self, plan: SwitchbackPlan, settings: Sequence[Rival]) -> SeparatePlan:
        request, a, b = self._request, self._loads[Arm.A], self._loads[Arm.B]
        arms = {"endpoint": (a.target.name, b.target.name), "profile": (a.profile.name, b.profile.name)}
        load_rivals = (Rival(self._compared, *arms[self._compared]),) if self._compared else ()
        warm_up_s = for_seconds(request.warm_up, "--warmup") or (_COLD_S if request.restart else _WARM_UP_S)
        measured_s = for_seconds(request.block, "--block") or _MEASURED_S
        separate = {
            "rivals": (*plan.rivals, *settings, *load_rivals),
            "lengths": Lengths(warm_up_s, measured_s),
            "around_s": _PREPARED_S + (_RESTARTED_S if request.restart else 0.0),
        }
        return SeparatePlan(**(asdict(plan) | separate))


async def _confirm_restarts(service: RestartService, rivals: Sequence[Rival], *, yes: bool, checks_now: bool) -> None:
    """Ask for the restarts of an experiment.

    Args:
        checks_now: Check both arms; with settings of the machine they are checked once these are in force.

    Raises:
        UsageProblem: Other parameters wait for a restart, or there is no terminal to ask on.
        ServerProblem: The server would not start with an arm, cannot be restarted from here, or gets no yes.
    """
    for arm in Arm:
        values = [WantedParameter(rival.name, rival.value(arm)) for rival in rivals]
        plan = await service.plan(values if checks_now else ())
        check_nothing_waits(plan, [rival.name for rival in rivals])
        if not plan.by_us:
            raise ServerProblem(
                f"pgtop-tune cannot restart the server: {plan.why_not}",
                "compare the values on a staging server, or compare parameters that need no restart",
            )
        if arm is Arm.B:
            ends = f"ends {counted(plan.sessions, 'session')} now"
            tell(f"the server is restarted before each block, eight times at least; a restart {ends}")
        # One question is enough; arm A is only checked.
        confirm(plan, yes=yes or arm is Arm.A, anyway=False)


def _in_force(rival: Rival, parameter: Parameter) -> bool:
    return as_shown(parameter, rival.a) == as_shown(parameter, parameter.shown)


def _load_words(cell: RunCell) -> str:
    spec = cell.spec
    rate = f" -R {spec.rate_per_s:g}" if spec.rate_per_s else ""
    threads = f" -j {spec.threads}" if spec.threads else ""
    return f"{cell.load_name} -c {spec.clients}{threads} -M {spec.protocol}{rate}"


def _checked(
    request: AbRequest, typed: Sequence[Rival], rivals: Sequence[Rival], parameters: Mapping[str, Parameter]
) -> frozenset[str]:
    """Check the values, and return the names that the operator typed to unlock those that can lose data.

    Args:
        typed: Rivals as typed.
        rivals: The same with the values of CURRENT.

    Raises:
        UsageProblem: The server would not take a value.
        UnsafeChange: A value that can lose data would stay.
    """
    confirmed = set(request.confirm or ())
    for as_typed, rival in zip(typed, rivals, strict=True):
        parameter = parameters[rival.name.lower()]
        knob = BY_NAME.get(rival.name.lower())
        if knob is not None and _TPS_PANES.isdisjoint(knob.panes):
            tell(f"{rival.name} affects {' and '.join(knob.panes)}, but perhaps not TPS")
        for arm in Arm:
            if as_typed.value(arm).lower() == CURRENT:
                continue
            value = rival.value(arm)
            check_value(parameter, value)
            risk = risk_of(rival.name, value, parameter)
            if risk is None:
                continue
            message = f"{rival.name} = {value} {risk.words}"
            if risk.loses_data and arm is Arm.B and request.keep is Keep.BETTER:
                # A value that can lose data ends with the program that has tried it, also where it was confirmed.
                raise UnsafeChange(
                    f"{message}, and --keep better never keeps such a value",
                    "nothing was changed; leave --keep out, or keep the value with `pgtop-tune set --allow-unsafe`",
                )
            if request.allow_unsafe or not risk.loses_data:
                tell(message)
                if rival.name not in confirmed and can_ask():
                    confirmed.add(answer_to(f"type {rival.name} to unlock it: "))
    return frozenset(confirmed)
