"""A unit of work on one of several servers: `python -m pgtop_tune.cli.unit REQUEST ANSWER`.

The request and the answer are files of JSON. The environment names the server, as for libpq.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import convert, to_builtins
from msgspec.structs import replace

from pgtop_tune import __version__
from pgtop_tune.base.errors import JournalProblem, PgtopError, ServerProblem, UsageProblem
from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.base.paths import experiments_dir, replacing
from pgtop_tune.bench.profiles import profile_directories
from pgtop_tune.changes.confirm.orphans import pending_looked_after
from pgtop_tune.changes.model.pending_set import now_ms
from pgtop_tune.cli.commands.experiment import PlanRequest, SessionOptions
from pgtop_tune.cli.commands.experiment.plan_runs import ExperimentSession
from pgtop_tune.cli.commands.experiment.plans import bound_to_server, check_fits
from pgtop_tune.cli.commands.experiment.results import outcome_in
from pgtop_tune.cli.commands.tune.session import (
    SearchRequest,
    TuningSession,
    beginning,
    evaluator_of,
    opened_session,
    until_nothing_pends,
)
from pgtop_tune.cli.connections import ConnectionOptions, resolve_words
from pgtop_tune.cli.exit_codes import ExitCode, Terminated, terminating
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.output import tell
from pgtop_tune.cli.wiring import first_answer
from pgtop_tune.experiment.plan.bind import plan_hash
from pgtop_tune.experiment.plan.model import BoundPlan, ExperimentPlan
from pgtop_tune.experiment.plan.results import RUNS, ExperimentLog, ExperimentOutcome, read_entries
from pgtop_tune.experiment.plan.run import check_room
from pgtop_tune.experiment.server_state import parameters_of, server_state
from pgtop_tune.host.kernel_text import file_text
from pgtop_tune.model.run_result import plain
from pgtop_tune.postgres.server.sql_session import open_sql_session
from pgtop_tune.process.dispositions import reset_inherited
from pgtop_tune.process.handed_on import take_over
from pgtop_tune.runtime.experiment_control import ExperimentState
from pgtop_tune.runtime.running_experiments import Announcement, ServerKey, check_alone, server_of, until_alone
from pgtop_tune.tuning.on_server.evaluation import Attempts, ConditionsChanged, KnobsChanged
from pgtop_tune.tuning.on_server.journal import TuningRequest
from pgtop_tune.tuning.on_server.report import arm_values
from pgtop_tune.tuning.plan import TuningPlan
from pgtop_tune.tuning.search import Evaluation

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def begin(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the beginning of a search on this server, and the key of the server."""
    search = convert(request["search"], SearchRequest)

    async def act(session: TuningSession) -> dict[str, Any]:
        return {
            "version": __version__,
            "beginning": to_builtins(await beginning(session, search)),
            "server": to_builtins(server_of(session.keeper.frames[-1])),
            "machine": file_text(_BOOT),
        }

    return asyncio.run(_in_session(request, search.request, act))


def evaluate(request: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate; return the outcome, the knobs that another session has changed, or a change of the conditions."""
    tuning, plan = convert(request["request"], TuningRequest), convert(request["plan"], TuningPlan)
    evaluation = convert(request["evaluation"], Evaluation)

    async def act(session: TuningSession) -> dict[str, Any]:
        names = [knob.name for knob in plan.space.dimensions]
        state = ExperimentState(
            number=1, kind="tuning", under_way=True, values=arm_values(evaluation), phase=str(evaluation.phase),
            pair=evaluation.number,
        )  # fmt: skip
        announcement = Announcement("tune", names, lambda: state, server_of(session.keeper.frames[-1]))
        check_room(await session.free_bytes(), "pgtop-tune tune --resume")
        async with evaluator_of(
            session,
            plan,
            tuning.block_s,
            yes=True,
            before_set=lambda set_id: tell(f"set {set_id}"),
            take=lambda state: announcement.tick(),
        ) as evaluator:
            session.live.engine.attach(announcement)
            announcement.begin()
            try:
                await session.live.parameters.claim_experiment(names)
                outcome = await Attempts(evaluator, session.answers, tell).outcome(evaluation, plan.seed)
                return {"outcome": to_builtins(outcome)}
            except KnobsChanged as changed:
                return {"changed": list(changed.names)}
            except ConditionsChanged as changed:
                return {"conditions": to_builtins(changed.change)}
            finally:
                announcement.end()
                await asyncio.shield(evaluator.put_back("the evaluation has ended"))

    return asyncio.run(_in_session(request, tuning, act))


async def _in_session(
    request: Mapping[str, Any], tuning: TuningRequest, act: Callable[[TuningSession], Awaitable[dict[str, Any]]]
) -> dict[str, Any]:
    """Act in a session on the server of this worker, with the load of the request.

    Raises:
        ServerProblem: The unit was stopped; everything is put back.
    """
    options = _session_options(request)
    session = await opened_session(_WORDS, tuning, LiveOptions(pgbench=options.pgbench), options.profiles)
    live = session.live
    answers: list[dict[str, Any]] = []

    async def work() -> None:
        await first_answer(live, session.keeper)
        key = server_of(session.keeper.frames[-1])
        if key is not None:
            await until_alone(key, _FREE_S)
        await until_nothing_pends(live.parameters)
        try:
            answers.append(await act(session))
        finally:
            await session.load.end()

    async with pending_looked_after(live.parameters, live.machine, session.journal_directory, tell):
        try:
            await run_beside(live.engine, work)
        finally:
            await live.restart.aclose()
    if not answers:
        raise ServerProblem(_STOPPED)
    return answers[0]


_WORDS: Final = ConnectionOptions(no_password=True)
_STOPPED: Final = "the unit was stopped; original values restored"
_FREE_S: Final = 180.0
"""Patience with the unit of a killed worker, which may be putting things back."""
_LOOK_S: Final = 1.0
_STARTED: Final = "SELECT trunc(extract(epoch FROM pg_postmaster_start_time()) * 1000)"


def _bind(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan as it runs on this server, and the key of the server."""
    plan_request = PlanRequest(
        session=_session_options(request), allow_unsafe=bool(request["allow_unsafe"]), connection=_WORDS
    )
    plan, room = bound_to_server(convert(request["plan"], ExperimentPlan), plan_request)
    check_fits(plan, room)
    if room.server is not None:
        check_alone(room.server)
    return {
        "version": __version__,
        "plan": to_builtins(plan),
        "sessions": room.sessions,
        "max_wal_bytes": room.max_wal_bytes,
        "server": to_builtins(room.server),
        "parameters": asyncio.run(_parameters()),
    }


@decodes
async def _until_alone() -> None:
    """Wait for the unit of a killed worker, which may be putting things back."""
    async with aclosing(await open_sql_session(resolve_words(_WORDS))) as sql_session:
        [(started_ms,)] = await sql_session.rows(_STARTED)
    await until_alone(ServerKey("", int(str(started_ms))), _FREE_S)


async def _parameters() -> dict[str, str]:
    async with aclosing(await open_sql_session(resolve_words(_WORDS))) as sql_session:
        return parameters_of(await server_state(sql_session))


def _cell(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of one cell, run as an experiment of one cell; a repeated request returns the same result."""
    asyncio.run(_until_alone())
    plan, number = convert(request["plan"], BoundPlan), int(request["number"])
    stages = [
        replace(stage, cells=tuple(cell for cell in stage.cells if cell.number == number)) for stage in plan.stages
    ]
    alone = replace(plan, stages=tuple(stage for stage in stages if stage.cells))
    directory = experiments_dir() / f"{_identity(request)}-{number:04d}"
    outcome = _run(request, alone, directory, abandon=False)
    result = outcome.results.get(number)
    if result is None:
        raise ServerProblem("the cell has no result", f"read its journal in {directory} on the worker")
    record = ""
    if result.record:
        with suppress(OSError):
            record = (directory / RUNS / Path(result.record).name).read_text()
    return {"result": to_builtins(result), "record": record}


def _tidy(request: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the database of an experiment on this server."""
    plan = convert(request["plan"], BoundPlan)
    directory = experiments_dir() / f"{_identity(request)}-end"
    _run(request, plan, directory, abandon=True)
    return {}


def _identity(request: Mapping[str, Any]) -> str:
    identity = str(request["id"])
    if not identity or Path(identity).name != identity:
        raise UsageProblem(f"{identity!r} is not an experiment")
    return identity


def _run(request: Mapping[str, Any], plan: BoundPlan, directory: Path, *, abandon: bool) -> ExperimentOutcome:
    """Run the remaining cells of an experiment on this server; raises as `ExperimentSession.run`."""
    options = _session_options(request)
    with _opened(directory) as log:
        if not read_entries(directory):
            log.write("plan", name=plan.name, hash=plan_hash(plan), began_ms=now_ms(), plan=plain(plan))
        outcome = outcome_in(directory)
        if outcome.complete and not abandon:
            return outcome
        live = LiveOptions(
            pgbench=options.pgbench,
            allow_unsafe=bool(request["allow_unsafe"]),
            confirmed=frozenset(options.confirm or ()),
        )
        directories = profile_directories(options.profiles)
        experiment = ExperimentSession(outcome, log, live, directories, keeps_data=not abandon)
        if asyncio.run(experiment.run(resolve_words(_WORDS), abandon=abandon)) != ExitCode.OK:
            raise ServerProblem(_STOPPED)
        return outcome_in(directory)


def _opened(directory: Path) -> ExperimentLog:
    """Open the journal of a unit; wait for the unit of a worker that has just ended."""
    deadline_s = time.monotonic() + _FREE_S
    while True:
        try:
            return ExperimentLog(directory)
        except JournalProblem:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(_LOOK_S)


def _session_options(request: Mapping[str, Any]) -> SessionOptions:
    profiles, pgbench = request.get("profiles"), request.get("pgbench")
    return SessionOptions(
        profiles=Path(profiles) if profiles else None,
        pgbench=Path(pgbench) if pgbench else None,
        confirm=[str(name) for name in request.get("confirm", ())],
    )


KINDS: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = MappingProxyType(
    {"bind": _bind, "cell": _cell, "tidy": _tidy, "search": begin, "evaluation": evaluate}
)


def answered(data: bytes) -> dict[str, Any]:
    """Return the answer to a request, or its problem."""
    try:
        request = json.loads(data)
        return {"answer": KINDS[request["kind"]](request)}
    except PgtopError as problem:
        return {"problem": problem.message, "hint": problem.hint}
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as problem:
        return {
            "problem": f"the request cannot be read: {problem}",
            "hint": "install the same pgtop-tune version on all machines",
        }
    except (KeyboardInterrupt, Terminated):
        return {"problem": _STOPPED, "hint": ""}


def main() -> None:
    """Read the request, and write the answer."""
    take_over()
    request_file, answer_file = map(Path, sys.argv[1:3])
    reset_inherited()
    with terminating():
        answer = answered(request_file.read_bytes())
    with replacing(answer_file) as file:
        file.write(json.dumps(answer).encode())


if __name__ == "__main__":
    main()
