"""`tune` put together: the watched server, the load, the search, and where its result goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.changes.confirm.orphans import pending_looked_after
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.live_options import LiveOptions
from pgtop_tune.cli.measuring import first_answer
from pgtop_tune.cli.output import say, tell
from pgtop_tune.cli.tuning_beginning import SearchRequest, beginning, objective_of
from pgtop_tune.cli.tuning_evaluator import evaluator_of, until_nothing_pends
from pgtop_tune.cli.tuning_session import TuningSession, opened_session
from pgtop_tune.experiment.plan.results import ExperimentLog, new_directory
from pgtop_tune.experiment.plan.run import unfinished
from pgtop_tune.experiment.switchback.state import SwitchbackState
from pgtop_tune.runtime.experiment_control import ExperimentState
from pgtop_tune.runtime.running_experiments import Announcement, ServerKey, server_of
from pgtop_tune.tuning.on_server.journal import (
    COMPLETE,
    KeptTuning,
    kept_tuning,
    replayed,
    write_first,
    write_result,
)
from pgtop_tune.tuning.on_server.report import SAME_MIX_WORDS, ShownTuning, next_line, result_lines
from pgtop_tune.tuning.on_server.run import RunParts, TuningRun
from pgtop_tune.tuning.protocol import Ending, Result


class TuneRequest(Struct, frozen=True, kw_only=True):
    """The command line of `tune`.

    Attributes:
        search: What is to be searched.
        stop_file: Ends the search before the next evaluation.
        yes: Nobody is asked before restarts.
        watch: After a search the next one begins when the load has changed.
    """

    connection: ConnectionWords
    search: SearchRequest
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
    wanted.search.check()
    request = wanted.search.request
    decides = objective_of(request)
    session = await opened_session(wanted.connection, request, wanted.live, wanted.profiles_directory, decides)

    async def made() -> tuple[Path, KeptTuning]:
        begun = await beginning(session, wanted.search)
        directory = new_directory("tune")
        with ExperimentLog(directory) as log:
            write_first(log, begun.server, begun.request, begun.plan, begun.guards, begun.left_out)
        return directory, kept_tuning(directory)

    return await _run(session, made, stop_file=wanted.stop_file, yes=wanted.yes, watch=wanted.watch)


async def resume(wanted: ResumeRequest) -> tuple[int, Path | None]:
    """Goes on with a search. Raises as `tune`."""
    kept = kept_tuning(wanted.directory)
    if kept.ended == COMPLETE:
        raise UsageProblem(f"{kept.id} is complete", f"`pgtop-tune tune --show {kept.id}` shows it")
    if kept.workers:
        raise UsageProblem(f"{kept.id} runs on {', '.join(kept.workers)}", "pass --workers ADDRESS")
    session = await opened_session(
        wanted.connection, kept.request, wanted.live, wanted.profiles_directory, objective_of(kept.request)
    )

    async def made() -> tuple[Path, KeptTuning]:
        now = session.system_identifier()
        if now and kept.server and now != kept.server:
            raise UsageProblem(f"{kept.id} belongs to another server, system {kept.server}", "connect to that server")
        return wanted.directory, kept

    return await _run(session, made, stop_file=wanted.stop_file, yes=wanted.yes)


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
        try:
            while True:
                # From the first look at the load on: two tuners would measure each other.
                async with _announced(session) as announced:
                    await until_nothing_pends(live.parameters)
                    directory, kept = await begin()
                    for name, why in kept.left_out:
                        tell(f"{name}: not searched: {why}")
                    with ExperimentLog(directory) as log:
                        begun.append(directory)
                        result = await _search(session, announced, log, kept, stop_file=stop_file, yes=yes)
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
    tell(next_line(directory.name, result))


class _Announced:
    """The search as others see it.

    Attributes:
        state: The newest.
        file: Of the announcement.
    """

    def __init__(self, server: ServerKey | None) -> None:
        self.state = ExperimentState(number=1, kind="tuning", under_way=True, phase="looking at the load")
        self.file: Final = Announcement("tune", (), lambda: self.state, server)


@asynccontextmanager
async def _announced(session: TuningSession) -> AsyncIterator[_Announced]:
    """Raises a UsageProblem where another experiment runs on the server."""
    announced = _Announced(server_of(session.keeper.frames[-1]))
    session.live.engine.attach(announced.file)
    announced.file.begin()
    try:
        await session.live.parameters.claim_experiment()
        yield announced
    finally:
        announced.file.end()
        with suppress(PgtopError):
            await session.live.parameters.release_experiment()


async def _search(
    session: TuningSession,
    announced: _Announced,
    log: ExperimentLog,
    kept: KeptTuning,
    *,
    stop_file: Path | None,
    yes: bool,
) -> Result:
    if kept.events:
        log.write("resumed")
    tuning = replayed(kept)
    shown = ShownTuning(kept, tuning)

    def changed() -> None:
        shown.changed()
        announced.state = shown.newest
        announced.file.tick()

    def seen(state: SwitchbackState) -> None:
        shown.take(state)
        announced.state = shown.newest
        announced.file.tick()

    announced.state = shown.newest
    announced.file.switches([each.name for each in kept.plan.space.dimensions])
    parts = RunParts(
        answers=session.answers,
        load_runs=session.load_runs,
        free_bytes=session.free_bytes,
        stop_file=stop_file,
        told=tell,
        changed=changed,
    )
    async with evaluator_of(
        session,
        kept.plan,
        kept.request.block_s,
        yes=yes,
        before_set=lambda set_id: log.write("set_began", set_id=set_id),
        seen=seen,
    ) as evaluator:
        try:
            result = await TuningRun(tuning, log, evaluator, parts, kept.plan.seed).run()
        except (PgtopError, asyncio.CancelledError) as problem:
            log.write("ended", why=unfinished(problem))
            raise
    write_result(log, result)
    return result
