"""A unit of work of an experiment that runs on several servers: `python -m pgtop_tune.cli.unit REQUEST ANSWER`.

The request and the answer are files of JSON. The server is the one that the environment names, as for libpq.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
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
from pgtop_tune.cli import tuning_units
from pgtop_tune.cli.commands.experiment.plans import SessionOptions
from pgtop_tune.cli.connecting import ConnectionWords, resolve_words
from pgtop_tune.cli.exit_codes import ExitCode, Terminated, terminating
from pgtop_tune.cli.experiment_plans import bound_to_server, check_fits
from pgtop_tune.cli.experimenting import ExperimentSession
from pgtop_tune.cli.live_options import LiveOptions
from pgtop_tune.experiment.plan.bind import plan_hash
from pgtop_tune.experiment.plan.model import BoundPlan, ExperimentPlan
from pgtop_tune.experiment.plan.results import RUNS, ExperimentLog, Outcome, outcome_of, read_entries
from pgtop_tune.experiment.plan.run import parameters_of, server_state
from pgtop_tune.model.run_json import plain
from pgtop_tune.postgres.server.sql_session import open_sql_session
from pgtop_tune.process.dispositions import reset_inherited
from pgtop_tune.process.handed_on import take_over
from pgtop_tune.runtime.running_experiments import ServerKey, check_alone, until_alone

_WORDS: Final = ConnectionWords(no_password=True)
_FREE_S: Final = 180.0
_LOOK_S: Final = 1.0
_STARTED: Final = "SELECT trunc(extract(epoch FROM pg_postmaster_start_time()) * 1000)"


def _bind(request: Mapping[str, Any]) -> dict[str, Any]:
    """The plan as it runs on this server, and what this server is."""
    allow_unsafe = bool(request["allow_unsafe"])
    read = convert(request["plan"], ExperimentPlan)
    found, room = bound_to_server(_WORDS, read, _session(request), allow_unsafe=allow_unsafe)
    check_fits(found, room)
    if room.server is not None:
        check_alone(room.server)
    return {
        "version": __version__,
        "plan": to_builtins(found),
        "sessions": room.sessions,
        "max_wal_bytes": room.max_wal_bytes,
        "server": None if room.server is None else to_builtins(room.server),
        "parameters": asyncio.run(_parameters()),
    }


@decodes
async def _until_alone() -> None:
    """Waits for the unit of a worker that was killed, which may just be putting things back."""
    sql_session = await open_sql_session(resolve_words(_WORDS))
    try:
        [(started_ms,)] = await sql_session.rows(_STARTED)
    finally:
        await sql_session.aclose()
    await until_alone(ServerKey("", int(str(started_ms))), _FREE_S)


async def _parameters() -> dict[str, str]:
    sql_session = await open_sql_session(resolve_words(_WORDS))
    try:
        return parameters_of(await server_state(sql_session))
    finally:
        await sql_session.aclose()


def _cell(request: Mapping[str, Any]) -> dict[str, Any]:
    """One cell, made as an experiment of one cell; asked for again, what it has come to."""
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
        raise ServerProblem("the cell has no result", f"{directory} on the worker has its journal")
    record = ""
    if result.record:
        with suppress(OSError):
            record = (directory / RUNS / Path(result.record).name).read_text()
    return {"result": to_builtins(result), "record": record}


def _tidy(request: Mapping[str, Any]) -> dict[str, Any]:
    """Drops what the cells of an experiment have made on this server."""
    plan = convert(request["plan"], BoundPlan)
    directory = experiments_dir() / f"{_identity(request)}-end"
    _run(request, plan, directory, abandon=True)
    return {}


def _identity(request: Mapping[str, Any]) -> str:
    identity = str(request["id"])
    if not identity or Path(identity).name != identity:
        raise UsageProblem(f"{identity!r} is no experiment")
    return identity


def _run(request: Mapping[str, Any], plan: BoundPlan, directory: Path, *, abandon: bool) -> Outcome:
    """Runs what is left of an experiment on this server; raises as `ExperimentSession.run`."""
    identity = _identity(request)
    with _opened(directory) as log:
        if not read_entries(directory):
            log.write("plan", name=plan.name, hash=plan_hash(plan), began_ms=_now_ms(), plan=plain(plan))
        outcome = outcome_of(read_entries(directory), identity)
        assert outcome is not None
        if outcome.complete and not abandon:
            return outcome
        live = LiveOptions(
            pgbench=_session(request).pgbench,
            allow_unsafe=bool(request["allow_unsafe"]),
            confirmed=frozenset(map(str, request.get("confirm", ()))),
        )
        directories = profile_directories(_session(request).profiles)
        making = ExperimentSession(outcome, log, live, directories, keeps_data=not abandon)
        if asyncio.run(making.run(resolve_words(_WORDS), abandon=abandon)) != ExitCode.OK:
            raise ServerProblem("the unit was stopped; everything is put back")
        after = outcome_of(read_entries(directory), identity)
        assert after is not None
        return after


def _opened(directory: Path) -> ExperimentLog:
    """The journal of a unit; a unit of a worker that has just ended is waited for."""
    deadline_s = time.monotonic() + _FREE_S
    while True:
        try:
            return ExperimentLog(directory)
        except JournalProblem:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(_LOOK_S)


def _session(request: Mapping[str, Any]) -> SessionOptions:
    profiles, pgbench = request.get("profiles"), request.get("pgbench")
    return SessionOptions(
        profiles=Path(profiles) if profiles else None,
        pgbench=Path(pgbench) if pgbench else None,
        confirm=[str(name) for name in request.get("confirm", ())],
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


KINDS: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = MappingProxyType(
    {"bind": _bind, "cell": _cell, "tidy": _tidy, "search": tuning_units.begin, "evaluation": tuning_units.evaluate}
)


def answered(data: bytes) -> dict[str, Any]:
    """The answer to a request, or the problem in words."""
    try:
        request = json.loads(data)
        return {"answer": KINDS[request["kind"]](request)}
    except PgtopError as problem:
        return {"problem": problem.message, "hint": problem.hint}
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as problem:
        return {"problem": f"the request cannot be read: {problem}", "hint": "run the same version everywhere"}
    except (KeyboardInterrupt, Terminated):
        return {"problem": "the unit was stopped; everything is put back", "hint": ""}


def main() -> None:
    """Reads the request, writes the answer."""
    take_over()
    asked, answer = map(Path, sys.argv[1:3])
    reset_inherited()
    with terminating():
        found = answered(asked.read_bytes())
    with replacing(answer) as file:
        file.write(json.dumps(found).encode())


if __name__ == "__main__":
    main()
