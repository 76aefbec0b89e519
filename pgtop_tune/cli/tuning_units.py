"""Units of a search that runs on several servers: its beginning, and one evaluation. On the worker of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import convert, to_builtins

from pgtop_tune import __version__
from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.changes.confirm.orphans import pending_looked_after
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.live_options import LiveOptions
from pgtop_tune.cli.measuring import first_answer
from pgtop_tune.cli.output import tell
from pgtop_tune.cli.tuning_beginning import SearchRequest, beginning, objective_of
from pgtop_tune.cli.tuning_evaluator import evaluator_of, until_nothing_pends
from pgtop_tune.cli.tuning_session import TuningSession, opened_session
from pgtop_tune.experiment.plan.run import check_room
from pgtop_tune.host.kernel_text import text_of
from pgtop_tune.runtime.experiment_control import ExperimentState
from pgtop_tune.runtime.running_experiments import Announcement, server_of, until_alone
from pgtop_tune.tuning.on_server.evaluating import Attempts, ConditionsChanged, KnobsChanged
from pgtop_tune.tuning.on_server.journal import TuningRequest
from pgtop_tune.tuning.on_server.report import arm_values
from pgtop_tune.tuning.plan import TuningPlan
from pgtop_tune.tuning.search import Evaluation

_WORDS: Final = ConnectionWords(no_password=True)
_FREE_S: Final = 180.0
"""The unit before this one may just be putting things back: its worker was killed."""
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def begin(request: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of a search for this server, and what this server is."""
    search = convert(request["search"], SearchRequest)

    async def act(session: TuningSession) -> dict[str, Any]:
        found = await beginning(session, search)
        key = server_of(session.keeper.frames[-1])
        return {
            "version": __version__,
            "beginning": to_builtins(found),
            "server": None if key is None else to_builtins(key),
            "machine": text_of(_BOOT),
        }

    return asyncio.run(_beside(request, search.request, act))


def evaluate(request: Mapping[str, Any]) -> dict[str, Any]:
    """One evaluation: its outcome, the knobs that another session has changed, or how the conditions changed."""
    asked, plan = convert(request["request"], TuningRequest), convert(request["plan"], TuningPlan)
    wanted, seed = convert(request["evaluation"], Evaluation), plan.seed

    async def act(session: TuningSession) -> dict[str, Any]:
        names = [each.name for each in plan.space.dimensions]
        state = ExperimentState(
            number=1, kind="tuning", under_way=True, values=arm_values(wanted), phase=str(wanted.phase),
            pair=wanted.number,
        )  # fmt: skip
        announcement = Announcement("tune", names, lambda: state, server_of(session.keeper.frames[-1]))
        check_room(await session.free_bytes(), "pgtop-tune tune --resume")
        async with evaluator_of(
            session,
            plan,
            asked.block_s,
            yes=True,
            before_set=lambda set_id: tell(f"set {set_id}"),
            seen=lambda state: announcement.tick(),
        ) as evaluator:
            session.live.engine.attach(announcement)
            announcement.begin()
            try:
                await session.live.parameters.claim_experiment(names)
                outcome = await Attempts(evaluator, session.answers, tell).outcome(wanted, seed)
                return {"outcome": to_builtins(outcome)}
            except KnobsChanged as changed:
                return {"changed": list(changed.names)}
            except ConditionsChanged as changed:
                return {"conditions": to_builtins(changed.change)}
            finally:
                announcement.end()
                await asyncio.shield(evaluator.put_back("the evaluation has ended"))

    return asyncio.run(_beside(request, asked, act))


async def _beside(
    request: Mapping[str, Any], asked: TuningRequest, act: Callable[[TuningSession], Awaitable[dict[str, Any]]]
) -> dict[str, Any]:
    """Acts in a session on the server of this worker, with the load of the request.

    Raises:
        ServerProblem: It was stopped; everything is put back.
    """
    profiles, pgbench = request.get("profiles"), request.get("pgbench")
    session = await opened_session(
        _WORDS, asked, LiveOptions(pgbench=Path(pgbench) if pgbench else None), Path(profiles) if profiles else None,
        objective_of(asked),
    )  # fmt: skip
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
        raise ServerProblem("the unit was stopped; everything is put back")
    return answers[0]
