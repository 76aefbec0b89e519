"""`tune` put together: the watched server, the load, the search, and where its result goes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.changes.confirm.orphans import pending_looked_after
from pgtop_tune.changes.ports import MachineControl, ParameterControl
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.live_options import LiveOptions
from pgtop_tune.cli.machine_half import machine_of
from pgtop_tune.cli.measuring import first_answer
from pgtop_tune.cli.output import say, tell
from pgtop_tune.cli.tuning_own_blocks import OwnBlocks, separate_cost_s
from pgtop_tune.cli.tuning_session import TuningSession, opened_session
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS
from pgtop_tune.errors import HostProblem, PgtopError, UsageProblem
from pgtop_tune.experiment.plan.log import ExperimentLog, new_directory
from pgtop_tune.experiment.prediction import Prediction, predict
from pgtop_tune.experiment.switchback.blocks import BY_CHECKPOINTS, CYCLES_PER_PAIR, SETTLE_S, Lengths
from pgtop_tune.experiment.switchback.cycles import cycle_s
from pgtop_tune.experiment.switchback.machine_arms import by_name
from pgtop_tune.experiment.switchback.undisturbed import check_nothing_pending
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.runtime.experiment_control import ExperimentState
from pgtop_tune.runtime.running_experiments import Announcement, check_alone, server_of
from pgtop_tune.tuning.on_server.evaluating import EvaluatingParts, Evaluator
from pgtop_tune.tuning.on_server.guards import GUARDED
from pgtop_tune.tuning.on_server.journal import (
    COMPLETE,
    KeptTuning,
    TuningRequest,
    kept_tuning,
    replayed,
    write_first,
    write_result,
)
from pgtop_tune.tuning.on_server.knob_space import knob_space, wanted_knobs
from pgtop_tune.tuning.on_server.machine_space import PARAMETERS, is_machine_group, is_machine_knob, machine_space
from pgtop_tune.tuning.on_server.objective import Objective, constraint, objective
from pgtop_tune.tuning.on_server.run import RunParts, TuningRun, why_unfinished
from pgtop_tune.tuning.on_server.shown import shown_tuning
from pgtop_tune.tuning.on_server.words import SAME_MIX_WORDS, result_lines
from pgtop_tune.tuning.plan import TuningPlan
from pgtop_tune.tuning.result import Ending, Result
from pgtop_tune.tuning.space import Dimension, KnobSpace, Space

_SWITCHES_S: Final = 15.0
"""Of an evaluation, beside its blocks: checks of both arms, changes."""
_LONGEST_CYCLE_S: Final = 60.0
"""Above, knobs that work through checkpoints are searched only where they are named."""
_LONGEST_S: Final = 1800.0
"""Of one evaluation."""
_WATCHDOG_S: Final = 180.0


class TuneRequest(Struct, frozen=True, kw_only=True):
    """The command line of `tune`.

    Attributes:
        knobs, groups: As typed.
        budget_s: Of all evaluations.
        request: What resuming needs of the rest.
        engine: Name of the search engine.
        worth: The smallest effect worth having, as a share.
        seed: None draws one.
        stop_file: Ends the search before the next evaluation.
        yes: Nobody is asked before restarts.
        watch: After a search the next one begins when the load has changed.
    """

    connection: ConnectionWords
    knobs: tuple[str, ...]
    groups: tuple[str, ...]
    budget_s: float
    request: TuningRequest
    engine: str
    worth: float
    seed: int | None
    profiles_directory: Path | None
    stop_file: Path | None
    yes: bool
    watch: bool
    live: LiveOptions


class ResumeRequest(Struct, frozen=True, kw_only=True):
    """The command line of `tune --resume`."""

    connection: ConnectionWords
    directory: Path
    profiles_directory: Path | None
    stop_file: Path | None
    yes: bool
    live: LiveOptions


async def tune(wanted: TuneRequest) -> tuple[int, Path | None]:
    """Makes a search; the exit status, and the directory of its journal.

    Raises:
        PgtopError: It could not begin, or cannot go on; nothing stays changed.
    """
    knobs = wanted_knobs(wanted.knobs, wanted.groups)
    limits = tuple(constraint(words) for words in wanted.request.constraints)
    of_machine = any(map(is_machine_knob, wanted.knobs)) or any(map(is_machine_group, wanted.groups))
    decides = _objective(wanted.request)
    session = await opened_session(wanted.connection, wanted.request, wanted.live, wanted.profiles_directory, decides)

    async def made() -> tuple[Path, KeptTuning]:
        found = await session.parameters((*GUARDED, *PARAMETERS, *(knob.name for knob in knobs)))
        space = knob_space(knobs, found, allow_restart=wanted.request.allow_restart, asked=bool(wanted.knobs))
        space = await session.without_refused(space)
        if of_machine or space.dimensions:
            interval = await session.loaded_interval()
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
                    allow_restart=wanted.request.allow_restart,
                )
            )
        if not space.dimensions:
            raise UsageProblem(
                "there is no knob to search", "; ".join(f"{name}: {why}" for name, why in space.left_out[:5])
            )
        plan = TuningPlan(
            space=Space(space.dimensions),
            budget=wanted.budget_s,
            cost=_SWITCHES_S + FEWEST_PAIRS * _lengths(wanted.request.block_s).pair_s,
            restart_cost=separate_cost_s(wanted.request.block_s, restart=True),
            machine_cost=separate_cost_s(wanted.request.block_s, restart=False),
            seed=random.SystemRandom().getrandbits(31) if wanted.seed is None else wanted.seed,
            engine=wanted.engine,
            worth=wanted.worth,
            constraints=limits,
            predictions=_predictions(space.dimensions, interval),
        )
        directory = new_directory("tune")
        with ExperimentLog(directory) as log:
            guards = session.guards(found, [each.name for each in space.dimensions], wanted.request.recovery_s)
            write_first(log, session.system_identifier(), session.asked(wanted.request), plan, guards, space.left_out)
        return directory, kept_tuning(directory)

    return await _run(session, made, stop_file=wanted.stop_file, yes=wanted.yes, watch=wanted.watch)


async def resume(wanted: ResumeRequest) -> tuple[int, Path | None]:
    """Goes on with a search. Raises as `tune`."""
    kept = kept_tuning(wanted.directory)
    if kept.ended == COMPLETE:
        raise UsageProblem(f"{kept.id} is complete", f"`pgtop-tune tune --show {kept.id}` shows it")
    session = await opened_session(
        wanted.connection, kept.request, wanted.live, wanted.profiles_directory, _objective(kept.request)
    )

    async def made() -> tuple[Path, KeptTuning]:
        now = session.system_identifier()
        if now and kept.server and now != kept.server:
            raise UsageProblem(f"{kept.id} belongs to another server, system {kept.server}", "connect to that server")
        return wanted.directory, kept

    return await _run(session, made, stop_file=wanted.stop_file, yes=wanted.yes)


def _lengths(block_s: float) -> Lengths:
    """Of a block that measures so long; half of that is left out before it, five seconds at most."""
    return Lengths(settle_s=min(SETTLE_S, block_s / 2.0), measured_s=block_s)


def _objective(request: TuningRequest) -> Objective | None:
    """None where the load is somebody else's: its mix of statements decides."""
    return objective(request.objective, request.rate_per_s) if request.profile else None


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


def _predictions(dimensions: Sequence[Dimension], interval: Interval) -> dict[str, Prediction]:
    """What each knob alone can bring at most, as far as the waits of this load tell."""
    told = {each.name: predict(interval, [each.name], [("", "")], (), "") for each in dimensions}
    return {name: found for name, found in told.items() if found is not None}


async def _run(
    session: TuningSession,
    begin: Callable[[], Awaitable[tuple[Path, KeptTuning]]],
    *,
    stop_file: Path | None,
    yes: bool,
    watch: bool = False,
) -> tuple[int, Path | None]:
    live = session.live
    done: list[tuple[Path, Result]] = []
    begun: list[Path] = []

    async def work() -> None:
        await first_answer(live, session.keeper)
        key = server_of(session.keeper.frames[-1])
        if key is not None:
            check_alone(key)
        await _until_nothing_pends(live.parameters)
        try:
            while True:
                directory, kept = await begin()
                begun.append(directory)
                for name, why in kept.left_out:
                    tell(f"{name}: not searched: {why}")
                result = await _search(session, directory, kept, stop_file=stop_file, yes=yes)
                done.append((directory, result))
                _say(session, directory, result)
                if not watch:
                    return
                tell("watching: the next search begins when the load has changed; Ctrl-C ends it")
                tell(f"the load has changed: {await session.until_load_changes()}")
        finally:
            await session.load.end()

    async with pending_looked_after(live.parameters, live.machine, session.journal_directory, tell):
        try:
            signalled = await run_beside(live.engine, work)
        finally:
            await live.restart.aclose()
            if len(begun) > len(done):
                tell(f"stopped; `pgtop-tune tune --resume {begun[-1].name}` continues")
    if len(begun) > len(done) or not done:
        code = ExitCode.SIGNALLED + signalled if signalled else ExitCode.CANNOT_TELL
        return code, begun[-1] if begun else None
    directory, result = done[-1]
    return ExitCode.CANNOT_TELL if result.ending is Ending.REFUSED else ExitCode.OK, directory


def _say(session: TuningSession, directory: Path, result: Result) -> None:
    for line in result_lines(result, SAME_MIX_WORDS if session.objective is None else session.objective.words):
        say(line)
    tell(f"`pgtop-tune tune --show {directory.name} -o tune.html` writes the report, `--apply` makes it permanent")


async def _until_nothing_pends(control: ParameterControl | MachineControl) -> None:
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


async def _search(
    session: TuningSession, directory: Path, kept: KeptTuning, *, stop_file: Path | None, yes: bool
) -> Result:
    async with _machine(session, kept) as machine:
        return await _searched(session, machine, directory, kept, stop_file=stop_file, yes=yes)


@asynccontextmanager
async def _machine(session: TuningSession, kept: KeptTuning) -> AsyncIterator[MachineControl | None]:
    """The door to the settings of the machine that the search turns; None where it turns none.

    Raises:
        UsageProblem: A change of one is pending confirmation.
        HostProblem: They cannot be changed from here.
    """
    settings = {each.name for each in kept.plan.space.dimensions if each.machine}
    if not settings:
        yield None
        return
    with_restart = any(each.restart for each in kept.plan.space.dimensions)
    machine = await machine_of(session.conninfo, sorted(settings), beside_server=True, with_restart=with_restart)
    try:
        await _until_nothing_pends(machine)
        closed = [name for name, each in by_name(await machine.settings()).items() if not each.writable]
        if closed := sorted(settings.intersection(closed)):
            raise HostProblem(f"{closed[0]} cannot be written by this process", "run this as root")
        yield machine
    finally:
        await machine.aclose()


async def _searched(
    session: TuningSession,
    machine: MachineControl | None,
    directory: Path,
    kept: KeptTuning,
    *,
    stop_file: Path | None,
    yes: bool,
) -> Result:
    live = session.live
    settings = frozenset(each.name for each in kept.plan.space.dimensions if each.machine)
    with ExperimentLog(directory) as log:
        if kept.events:
            log.write("resumed")
        own_blocks = None
        if any(each.separate for each in kept.plan.space.dimensions):
            own_blocks = OwnBlocks(
                live, machine, settings, session.run, session.keeper, session.cell, tell_set(log), kept.request.block_s
            )
        if own_blocks is not None and any(each.restart for each in kept.plan.space.dimensions):
            await own_blocks.agree(yes=yes)
        tuning = replayed(kept)
        evaluator = Evaluator(
            EvaluatingParts(
                control=live.parameters,
                load=session.load,
                blocks=session.blocks,
                own_blocks=own_blocks,
                machine=machine,
                seen=lambda state: announcement.tick(),
                before_set=tell_set(log),
            ),
            kept.plan.space,
            session.objective,
            session.load_words,
            _lengths(kept.request.block_s),
            _LONGEST_S,
        )
        names = [each.name for each in kept.plan.space.dimensions]
        began_s = time.monotonic()

        def shown() -> ExperimentState:
            return shown_tuning(kept, tuning, time.monotonic() - began_s, under_way=session.load.runs)

        newest = [shown()]

        def changed() -> None:
            newest[0] = shown()
            announcement.tick()

        announcement = Announcement("tune", names, lambda: newest[0], server_of(session.keeper.frames[-1]))
        live.engine.attach(announcement)
        announcement.begin()
        parts = RunParts(
            answers=session.answers,
            free_bytes=session.free_bytes,
            stop_file=stop_file,
            told=tell,
            changed=changed,
        )
        try:
            result = await TuningRun(tuning, log, evaluator, parts, kept.plan.seed).run()
        except (PgtopError, asyncio.CancelledError) as problem:
            log.write("ended", why=why_unfinished(problem))
            raise
        finally:
            announcement.end()
        write_result(log, result)
        return result


def tell_set(log: ExperimentLog) -> Callable[[str], None]:
    """Writes the id of a change set into the journal of the search before it is made."""
    return lambda set_id: log.write("set_began", set_id=set_id)
