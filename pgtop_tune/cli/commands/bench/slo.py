"""`bench run --slo`: the search for the highest rate that keeps an objective."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.bench.housekeeping import parse_housekeeping
from pgtop_tune.bench.profiles import load_profiles, profile_directories
from pgtop_tune.changes.confirm.orphans import pending_looked_after
from pgtop_tune.cli.commands.bench import RunRequest
from pgtop_tune.cli.commands.bench.runs import session_for_runs
from pgtop_tune.cli.connections import live_options, opened
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.options import TableFormat, for_seconds
from pgtop_tune.cli.output import not_stdout, say, say_as_it_is, tell
from pgtop_tune.cli.typed_load import TypedLoad
from pgtop_tune.cli.wiring import first_answer, targets
from pgtop_tune.experiment.load_run import BeforeEachRun, LoadRun
from pgtop_tune.experiment.slo.objective import parse_objective
from pgtop_tune.experiment.slo.report import chart_lines, rate_curve, result_sentences, search_json
from pgtop_tune.experiment.slo.search_run import SearchRun, search_cell
from pgtop_tune.runtime.load_control import SearchWish
from pgtop_tune.runtime.run_frames import FrameKeeper

_CONTRADICTS: Final = {
    "steps": "--steps", "repeat": "--repeat", "until": "--until", "at_most": "--at-most",
    "configuration": "--configuration",
    "abort_if": "--abort-if", "warm_up": "--warmup", "find_knee": "--find-knee", "no_stop": "--no-stop",
    "dry_run": "--dry-run", "output": "--out",
}  # fmt: skip


def check_request(request: RunRequest, load: TypedLoad) -> None:
    """Refuse options that mean nothing for a search.

    Raises:
        UsageProblem: There is such an option.
    """
    for name, option in _CONTRADICTS.items():
        if getattr(request, name):
            raise UsageProblem(f"--slo contradicts {option}", "a search makes its own runs: leave it out")
    if len(load.profiles) > 1 or len(request.endpoint or ()) > 1:
        raise UsageProblem("--slo searches under one load on one server", "pass one --profile and one --endpoint")
    if request.format is TableFormat.MARKDOWN:
        raise UsageProblem("--slo has no Markdown", "pass --format text or json")


async def search_rate(request: RunRequest, load: TypedLoad) -> int:
    """Search for the highest rate, print the result, and return the exit status.

    Raises:
        PgtopError: The search could not begin, or cannot go on.
    """
    check_request(request, load)
    typed = request.load
    wish = SearchWish(
        objective=request.slo or "",
        first_rate=typed.rate,
        confirm_s=typed.seconds,
        budget_s=None if request.budget is None else for_seconds(request.budget, "--budget"),
        resume=request.resume,
    )
    parse_objective(wish.objective)
    not_stdout(request.record)
    live = live_options(request.session, query_text=not request.no_query_text, interval_s=request.interval)
    directories = profile_directories(request.profiles)
    profile = load_profiles(directories).get(load.profiles[0])
    async with opened(request.connection) as (sql_session, conninfo):
        [target] = await targets(request.endpoint or (), sql_session, conninfo, from_here=not live.load_from)
        reached = sql_session.reached
    cell = search_cell(
        target, profile,
        replace(
            load.spec, transactions=typed.transactions, phases=typed.phases, per_statement=typed.per_statement
        ),
        wish,
        clients=load.clients, protocol=load.protocol, allow_shell=load.allow_shell,
    )  # fmt: skip
    session = session_for_runs(request, conninfo, live, reached, directories)
    keeper = FrameKeeper()
    session.engine.attach(keeper)
    searches: list[SearchRun] = []

    async def work() -> None:
        await first_answer(session, keeper)
        run = LoadRun(session.load, keeper, session.open_sql_session, tell)
        before = BeforeEachRun(parse_housekeeping(request.housekeeping))
        search = SearchRun(run, keeper, session.open_sql_session, cell, wish, before, tell=tell)
        searches.append(search)
        try:
            await search.make()
        except (PgtopError, asyncio.CancelledError):
            if search.identity:
                tell(f"stopped; the same command with --resume {search.identity} continues")
            raise
        if search.is_out_of_time:
            tell(f"the same command with --resume {search.identity} and another --budget continues")
        _print(request.format, search)

    async with pending_looked_after(session.parameters, session.machine, live.journal_directory, tell):
        signalled = await run_beside(session.engine, work)
    if signalled:
        return ExitCode.SIGNALLED + signalled
    return ExitCode.OK if all(search.confirmed for search in searches) else ExitCode.CANNOT_TELL


def _print(format: TableFormat, run: SearchRun) -> None:
    search, end = run.search, run.end
    assert search is not None
    assert end is not None
    if format is TableFormat.JSON:
        say_as_it_is(json.dumps(search_json(search, end, run.subject), ensure_ascii=True))
        return
    block = "█" if (sys.stdout.encoding or "").lower().startswith("utf") else "#"
    curve = rate_curve(search, run.limits, end)
    for line in (*result_sentences(search, end, run.subject, run.limits), "", *chart_lines(curve, block)):
        say(line)
