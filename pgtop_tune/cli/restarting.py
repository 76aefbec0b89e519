"""`set --restart`: shows the plan, asks for confirmation, and applies the parameters already pending."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pgtop_tune.base.errors import ClusterProblem, ServerProblem, UsageProblem
from pgtop_tune.base.units import counted, duration
from pgtop_tune.changes.change_sets import check_up
from pgtop_tune.changes.confirm.orphans import leave_watchdogs
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.model.change import ParameterChange, Terms
from pgtop_tune.changes.model.restart import RestartPlan, RestartState, RestartVerdict
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.restart.recovery import Known, Policy
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cli.connecting import can_ask
from pgtop_tune.cli.output import say, tell
from pgtop_tune.cli.signals import answer_to, to_the_end
from pgtop_tune.postgres.server.conninfo import ConnInfo


def show_plan(plan: RestartPlan, for_s: float | None = None) -> None:
    """What a restart would do, one line each: checks, the command, who is cut off."""
    for pending in plan.pending:
        say(f"applies pending: {pending.name}: {pending.running} → {pending.after}")
    for check in plan.checks:
        hint = f" ({check.hint})" if check.hint else ""
        say(f"{check.subject:<13} {check.verdict:<10} {check.words}{hint}")
    say(f"restart ({plan.managed}): {plan.command}" if plan.command else f"restart: {plan.managed}")
    if not plan.by_us:
        say(f"pgtop-tune cannot run it: {plan.why_not}; it waits for the restart")
    within = f", {plan.in_transaction} of them within a transaction" if plan.in_transaction else ""
    say(f"ends {counted(plan.sessions, 'session')}{within}")
    if for_s is not None:
        say(f"reverts after {duration(for_s)}, with a second restart")


def confirm(plan: RestartPlan, *, yes: bool, anyway: bool) -> None:
    """Somebody has to want it.

    Raises:
        ServerProblem: A check says that the server would not start, or nobody says yes; nothing was changed.
        UsageProblem: There is nobody to ask.
    """
    stopping = [check for check in plan.checks if check.verdict is RestartVerdict.IMPOSSIBLE]
    if stopping and not anyway:
        hint = "; ".join(filter(None, (stopping[0].hint, "nothing was changed; --anyway restarts all the same")))
        raise ServerProblem(stopping[0].words, hint)
    if yes:
        return
    if not can_ask():
        raise UsageProblem("a restart ends every session and needs a confirmation", "pass --yes without a terminal")
    if answer_to("restart the server? [y/N] ").lower() not in ("y", "yes"):
        raise ServerProblem("not restarted: nothing was changed")


def policy_for(conninfo: ConnInfo, *, yes: bool, watchdog: bool) -> Policy:
    """Return what may be done to a server that is down: people are asked, revert watchdogs start none.

    Args:
        conninfo: Where it does not answer.
        yes: Start it without a question.
        watchdog: Nobody is there to be asked, ever.
    """

    def is_meant(known: Known) -> bool:
        seen = f"{datetime.fromtimestamp(known.changed_ms / 1000):%Y-%m-%d %H:%M:%S}"
        what = f"PostgreSQL {known.version} in {known.place.data_directory}, changed last at {seen}"
        tell(f"nothing answers at {conninfo.endpoints[0]}; down there: {what}")
        if known.alone:
            return True
        if not can_ask():
            raise ClusterProblem(
                f"several data directories have used {conninfo.endpoints[0]}, and one must be chosen",
                "`pgtop-tune revert --list` lists the sets; --set ID selects one",
            )
        return answer_to("restore its old values? [y/N] ").lower() in ("y", "yes")

    def may_start(known: Known) -> bool:
        return yes or (can_ask() and answer_to("start it with its old values? [y/N] ").lower() in ("y", "yes"))

    return Policy(is_meant=is_meant, may_start=None if watchdog else may_start, may_copy=_may_copy)


def _may_copy(words: str) -> bool:
    tell(words)
    return can_ask() and answer_to("restore the copy? [y/N] ").lower() in ("y", "yes")


async def take_over(conninfo: ConnInfo, *, yes: bool, anyway: bool, dry_run: bool) -> int:
    """A restart for what waits already.

    Returns:
        The exit status.
    """
    control = PostgresControl(conninfo)
    service = RestartService(control)
    try:
        if not dry_run:
            await leave_watchdogs(control, HostControl(), None, tell)
        plan = await service.plan()
        if not plan.pending:
            tell("no change is pending a restart")
            return 0
        show_plan(plan)
        if dry_run:
            return 0
        confirm(plan, yes=yes, anyway=anyway)
        outcome, interrupted = await to_the_end(service.apply((), Terms(), tell, anyway=anyway), service.give_up)
        if interrupted and outcome.state in (RestartState.WAITING, RestartState.LEFT):
            tell(outcome.words)
            raise asyncio.CancelledError
        check_up(outcome)
        say(outcome.words)
    finally:
        await control.aclose()
    return 0


async def restart_after_reverting(
    conninfo: ConnInfo, reverted: Sequence[ParameterChange], directory: Path | None
) -> tuple[ParameterChange, ...]:
    """Restarts where the old values need it; the changes as they are shown then.

    Raises:
        ServerProblem: It did not come up.
    """
    control = PostgresControl(conninfo, directory=directory)
    try:
        service = RestartService(control)
        outcome, interrupted = await to_the_end(service.restart_for(reverted, tell), service.give_up)
        if outcome.state in (RestartState.WAITING, RestartState.LEFT):
            tell(": ".join(filter(None, (outcome.words, outcome.hint))))
            if interrupted:
                raise asyncio.CancelledError
        elif outcome.state is not RestartState.NOT_RESTARTED:
            check_up(outcome)
            tell(outcome.words)
        return outcome.changes
    finally:
        await control.aclose()
